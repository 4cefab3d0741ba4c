/* SPDX-License-Identifier: MIT */
/* Path: look up -> admit -> clean -> choose -> (wake) -> back. Each step answers with a page when
 * it is the last. */
#include "gateway/preview.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gateway/access.h"
#include "gateway/limits.h"
#include "gateway/pages.h"
#include "gateway/path_rules.h"
#include "gateway/redirect.h"
#include "gateway/upstream.h"
#include "gateway/wake.h"
#include "gateway/worker.h"

/* After a start the app needs a moment to listen. */
#define CONNECT_GRACE_MS 5000

/* One request on its way through the steps. */
struct visit {
    struct gw_exchange *x;
    struct gw_request *req;
    const struct gw_host *host;
    const struct tr_route_extra *extra; /* NULL: a plain public route */
    bool secure, navigates;
};

static void deny(struct visit *v)
{
    struct gw_page page = {
        .status = 401,
        .code = "preview_private",
        .message = "This preview is private. Ask its owner for a link, which this command prints:",
        .command = "transom share -s SESSION",
        .authenticate = "Transom-Token realm=\"preview\"",
        .no_referrer = true,
    };

    gw_count(&v->x->worker->stats.denied, 1);
    v->x->wants_html = v->navigates;
    gw_exchange_answer(v->x, &page);
}

/* A link in a browser: the token becomes a cookie and leaves the address bar. */
static void enter(struct visit *v, const struct gw_access *a, struct gw_str token, uint64_t expires)
{
    struct gw_bufs *bufs = &v->x->worker->bufs;
    char cookie[GW_ACCESS_COOKIE_MAX];
    struct gw_page page = {
        .status = 303,
        .code = "welcome",
        .message = "This link has opened the preview.",
        .set_cookie = cookie,
        .no_referrer = true,
    };
    struct gw_buf *location = gw_buf_get(bufs, v->req->target.len + 3);

    (void)gw_access_cookie(a, token, expires, cookie);
    if (location != NULL) {
        location->data[gw_access_location(v->req->target, location->data)] = '\0';
        page.location = location->data;
    } else {
        page.location = "/";
    }
    gw_exchange_answer(v->x, &page);
    gw_buf_put(bufs, location);
}

/* Returns whether the visitor is let in; else there was an answer. */
static bool admit(struct visit *v)
{
    struct gw_access a;
    struct gw_str token;
    uint64_t expires;

    if (v->extra == NULL || !v->extra->is_private)
        return true;
    a = (struct gw_access){
        .mac = v->x->worker->mac,
        .key = v->extra->key,
        .label = v->host->label,
        .port = v->host->port != 0 ? v->host->port : GW_TOKEN_MAIN_PORT,
        .now = (uint64_t)time(NULL),
        .secure = v->secure,
        .embed = v->extra->embed,
    };
    v->navigates = gw_access_navigates(v->req, v->x->wants_html);
    switch (gw_access_check(&a, v->req, v->navigates, &token, &expires)) {
    case GW_ACCESS_GRANTED:
        v->x->admitted_until = expires;
        return true;
    case GW_ACCESS_ENTER:
        enter(v, &a, token, expires);
        return false;
    default:
        deny(v);
        return false;
    }
}

static void answer_not_opened(struct visit *v)
{
    char text[96], command[64];
    struct gw_page page = {
        .status = 404, .code = "port_not_opened", .message = text, .command = command};

    snprintf(text, sizeof(text),
             "Port %u of this sandbox is not opened. Its owner can open it:", v->host->port);
    snprintf(command, sizeof(command), "transom port open -s SESSION %u", v->host->port);
    gw_exchange_answer(v->x, &page);
}

/* Which port is this for? Sets x->route, and the target that the app is to see, whose bytes may lie
 * in *text. Returns whether there is one; else there was an answer. */
static bool choose(struct visit *v, struct gw_buf **text)
{
    struct gw_exchange *x = v->x;
    const struct tr_route_rule *rule;
    struct gw_str rest;
    bool slash;

    if (v->host->port != 0) {
        const struct tr_route_port *port = tr_route_port_find(v->extra, v->host->port);

        if (port == NULL) {
            answer_not_opened(v);
            return false;
        }
        x->host_port = x->route.port = port->port;
        x->route.protocol = port->protocol;
        return true;
    }
    if (v->extra == NULL)
        return true;
    switch (gw_path_match(v->extra->rules, v->extra->n_rules, v->req->target, &rule)) {
    case GW_PATH_NONE:
        return true;
    case GW_PATH_BAD:
        gw_exchange_answer(
            x, &(struct gw_page){.status = 400,
                                 .code = "bad_path",
                                 .message = "This sandbox has path rules: a path must not contain "
                                            "dot segments or backslashes."});
        return false;
    default:
        break;
    }
    x->route.port = rule->port;
    x->route.protocol = rule->protocol;
    if (!rule->strip)
        return true;
    rest = gw_path_strip(rule, v->req->target, &slash);
    if (slash) {
        *text = gw_buf_get(&x->worker->bufs, rest.len + 1);
        if (*text == NULL) {
            gw_exchange_back_failed(x, 502, "no_memory", "The edge is out of memory.");
            return false;
        }
        (*text)->data[0] = '/';
        memcpy((*text)->data + 1, rest.p, rest.len);
        rest = (struct gw_str){(*text)->data, rest.len + 1};
    }
    v->req->target = rest;
    return true;
}

/* A label without a machine that runs. */
static void answer_state(struct visit *v)
{
    struct gw_exchange *x = v->x;
    struct gw_page page = {.status = 503};
    char text[256];

    switch (x->route.state) {
    case TR_SANDBOX_STARTING:
        page.code = "starting";
        page.message = "The sandbox is starting.";
        page.retry_after_s = 2;
        break;
    case TR_SANDBOX_STOPPING:
        page.code = "stopping";
        page.message = "The sandbox is stopping.";
        page.retry_after_s = 5;
        break;
    case TR_SANDBOX_FAILED:
        page.code = "failed";
        snprintf(text, sizeof(text), "The sandbox could not be started: %s",
                 x->route.reason[0] != '\0' ? x->route.reason : "no reason is known");
        page.message = text;
        break;
    case TR_SANDBOX_RUNNING:
        page.status = 502;
        page.code = "no_address";
        page.message = "The sandbox runs without a network.";
        break;
    default:
        if (x->route.wake) {
            page.code = "waking";
            page.message = gw_wake_ask(x->worker, x->route.label);
            page.retry_after_s = 2;
            break;
        }
        page.code = "asleep";
        page.message = "The sandbox is asleep. Its owner can wake it by running something in it:";
        page.command = "transom run -s SESSION true";
        page.retry_after_s = 10;
        break;
    }
    gw_exchange_answer(x, &page);
}

/* Returns whether the sandbox may have one more; else there was an answer. */
static bool has_room(struct visit *v)
{
    struct gw_exchange *x = v->x;
    struct gw_page page = {.status = 503, .retry_after_s = 2};

    switch (gw_use_begin(x->worker, x->route.label, v->req->upgrade, &x->use)) {
    case GW_USE_OK:
        return true;
    case GW_USE_REQUESTS:
        page.code = "too_many_requests";
        page.message = "This sandbox has as many requests under way as it may.";
        break;
    default:
        page.code = "too_many_tunnels";
        page.message = "This sandbox has as many WebSockets open as it may.";
        break;
    }
    gw_count(&x->worker->stats.sandboxes_limited, 1);
    gw_exchange_answer(x, &page);
    return false;
}

static void visit(struct visit *v, const struct sockaddr *peer)
{
    struct gw_exchange *x = v->x;
    struct gw_bufs *bufs = &x->worker->bufs;
    struct gw_buf *cleaned = NULL, *stripped = NULL;

    if (!admit(v))
        return;
    if (gw_access_clean(bufs, v->req, &cleaned) != 0) {
        gw_exchange_back_failed(x, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    if (choose(v, &stripped)) {
        if (x->route.state != TR_SANDBOX_RUNNING || x->route.family == 0) {
            answer_state(v);
        } else if (has_room(v)) {
            x->connect_until = x->route.since_ms + CONNECT_GRACE_MS;
            gw_upstream_start(x, v->req, peer);
        }
    }
    gw_buf_put(bufs, cleaned);
    gw_buf_put(bufs, stripped);
}

void gw_preview_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer,
                      const struct gw_host *host)
{
    struct visit v = {.x = x, .req = req, .host = host};
    struct tr_route_extra *extra;

    if (!gw_table_get(x->worker->gw->table, host->label, &x->route)) {
        gw_exchange_answer(x,
                           &(struct gw_page){.status = 404,
                                             .code = "unknown_host",
                                             .message = "There is no sandbox of this name here."});
        return;
    }
    extra = x->route.extra; /* x may be gone when it is given back */
    x->route.extra = NULL;
    v.extra = extra;
    if (extra != NULL && extra->is_private)
        v.secure = gw_is_secure(x, req, peer);
    visit(&v, peer);
    tr_route_extra_unref(extra);
}
