/* SPDX-License-Identifier: MIT */
#include "gateway/admin.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "gateway/admin_cookie.h"
#include "gateway/asset.h"
#include "gateway/manager.h"
#include "gateway/pages.h"
#include "gateway/redirect.h"
#include "gateway/worker.h"

#define BEARER "Bearer "

static bool is_field(const struct gw_field *f, const char *name, size_t len)
{
    return f->name_len == len && strncasecmp(f->name, name, len) == 0;
}
#define IS_FIELD(f, name) is_field(f, name, sizeof(name) - 1)

static bool is_text(const struct gw_field *f, const char *text)
{
    return f->value_len == strlen(text) && memcmp(f->value, text, f->value_len) == 0;
}

bool gw_admin_same_origin(const struct gw_request *req, bool secure)
{
    const char *scheme = secure ? "https://" : "http://";
    size_t n = strlen(scheme), n_origins = 0;
    bool same = true;

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (!IS_FIELD(f, "origin"))
            continue;
        n_origins++;
        same = same && f->value_len == n + req->host.len && memcmp(f->value, scheme, n) == 0 &&
               memcmp(f->value + n, req->host.p, req->host.len) == 0;
    }
    return n_origins == 1 && same;
}

bool gw_admin_is_foreign(const struct gw_request *req)
{
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (IS_FIELD(f, "sec-fetch-site") && !is_text(f, "same-origin"))
            return true;
        if (IS_FIELD(f, "sec-fetch-dest") && !is_text(f, "empty") && !is_text(f, "websocket"))
            return true;
    }
    return false;
}

static void refuse(struct gw_exchange *x, int status, const char *code, const char *message)
{
    struct gw_page page = {.status = status, .code = code, .message = message};

    x->wants_html = false;
    gw_exchange_answer(x, &page);
}

/* Host names that browsers take for secure without TLS, since they never leave the machine. */
static bool is_localhost(const char *domain)
{
    size_t n = strlen(domain), m = strlen("localhost");

    return n >= m && strcmp(domain + n - m, "localhost") == 0 &&
           (n == m || domain[n - m - 1] == '.');
}

/* Returns whether a cookie may be set and believed here; else there was an answer. */
static bool may_sign_in(struct gw_exchange *x, bool secure)
{
    if (secure || is_localhost(x->worker->opt->domain))
        return true;
    refuse(x, 403, "needs_https",
           "The dashboard needs HTTPS: set gateway.https and a certificate for this host name.");
    return false;
}

/* ---- sign-in ---- */

/* The one key that Authorization gives. */
static bool bearer(const struct gw_request *req, struct gw_str *key)
{
    size_t n = sizeof(BEARER) - 1, found = 0;

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (!IS_FIELD(f, "authorization"))
            continue;
        found++;
        if (f->value_len <= n || strncasecmp(f->value, BEARER, n) != 0)
            return false;
        *key = (struct gw_str){f->value + n, f->value_len - n};
    }
    return found == 1 && gw_admin_key_valid(*key);
}

static void sign(struct gw_exchange *x, const struct gw_request *req, bool secure, bool in)
{
    char cookie[GW_ADMIN_COOKIE_MAX];
    struct gw_str key = {NULL, 0};
    struct gw_page page = {
        .status = 200,
        .code = in ? "signed_in" : "signed_out",
        .message = in ? "The key is sealed in a cookie." : "The cookie is forgotten.",
        .set_cookie = cookie,
        .no_referrer = true,
    };

    if (req->method.len != 4 || memcmp(req->method.p, "POST", 4) != 0) {
        refuse(x, 405, "method_not_allowed", "This takes POST only.");
        return;
    }
    if (!gw_admin_same_origin(req, secure)) {
        refuse(x, 403, "wrong_origin", "Only the dashboard's own page may do this.");
        return;
    }
    if (in && !bearer(req, &key)) {
        refuse(x, 400, "bad_request", "An API key is needed: \"authorization: Bearer KEY\".");
        return;
    }
    if (gw_admin_cookie(key, secure, (uint64_t)time(NULL), cookie) != 0) {
        refuse(x, 503, "no_memory", "The edge is out of memory.");
        return;
    }
    x->wants_html = false;
    gw_exchange_answer(x, &page);
}

/* ---- the API ---- */

void gw_admin_guard(struct gw_response *resp)
{
    static const char *const more[][2] = {
        {"Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
    };

    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        resp->fields[resp->n_fields++] =
            (struct gw_field){.name = more[i][0],
                              .name_len = (uint32_t)strlen(more[i][0]),
                              .value = more[i][1],
                              .value_len = (uint32_t)strlen(more[i][1])};
}

/* The key in place of the cookie. The fields' array has room for GW_FIELDS_EXTRA more. */
static void pass(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer,
                 const char *key)
{
    char value[sizeof(BEARER) + GW_ADMIN_KEY_MAX];
    int n = snprintf(value, sizeof(value), BEARER "%s", key);

    for (size_t i = 0; i < req->n_fields; i++) {
        struct gw_field *f = &req->fields[i];

        if (f->id == GW_FIELD_COOKIE || IS_FIELD(f, "authorization"))
            f->hop_by_hop = true; /* ends here */
    }
    req->fields[req->n_fields++] = (struct gw_field){.name = "authorization",
                                                     .name_len = 13,
                                                     .value = value,
                                                     .value_len = (uint32_t)n,
                                                     .id = GW_FIELD_OTHER};
    x->guard = true;
    gw_manager_start(x, req, peer);
    explicit_bzero(value, sizeof(value));
}

static void relay(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer,
                  bool secure)
{
    bool writes = req->method_id != GW_METHOD_GET && req->method_id != GW_METHOD_HEAD;
    char key[GW_ADMIN_KEY_MAX + 1];

    x->wants_html = false;
    if ((writes || req->upgrade) && !gw_admin_same_origin(req, secure)) {
        refuse(x, 403, "wrong_origin", "Only the dashboard's own page may do this.");
        return;
    }
    if (gw_admin_is_foreign(req)) {
        refuse(x, 403, "wrong_origin", "Only the dashboard's own page may ask for this.");
        return;
    }
    switch (gw_admin_signed_in(req, secure, (uint64_t)time(NULL), key)) {
    case GW_ADMIN_SIGNED_IN:
        pass(x, req, peer, key);
        explicit_bzero(key, sizeof(key));
        return;
    case GW_ADMIN_DOUBLED:
        refuse(x, 400, "doubled_cookie",
               "There are two sign-in cookies, and one is not from here. Delete this site's "
               "cookies and sign in again.");
        return;
    default:
        refuse(x, 401, "signed_out", "Sign in with an API key.");
        return;
    }
}

static bool is_path(struct gw_str target, const char *path)
{
    const char *query = memchr(target.p, '?', target.len);
    size_t len = query != NULL ? (size_t)(query - target.p) : target.len;

    return len == strlen(path) && memcmp(target.p, path, len) == 0;
}

void gw_admin_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer)
{
    bool secure = gw_is_secure(x, req, peer), api, in = is_path(req->target, "/signin");
    const struct gw_asset *asset;

    api = req->target.len > 4 && memcmp(req->target.p, "/v1/", 4) == 0;
    if (api || in || is_path(req->target, "/signout")) {
        if (!may_sign_in(x, secure))
            return;
        if (api)
            relay(x, req, peer, secure);
        else
            sign(x, req, secure, in);
        return;
    }
    asset = gw_asset_find(req->target);
    if (asset == NULL) {
        struct gw_page page = {.status = 404,
                               .code = "not_found",
                               .message = gw_n_assets > 0
                                              ? "The dashboard has no such page."
                                              : "This gateway was built without the dashboard."};

        gw_exchange_answer(x, &page);
    } else if (req->method_id != GW_METHOD_GET && req->method_id != GW_METHOD_HEAD) {
        refuse(x, 405, "method_not_allowed", "This takes GET and HEAD only.");
    } else {
        gw_asset_send(x, req, asset);
    }
}
