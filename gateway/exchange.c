/* SPDX-License-Identifier: MIT */
#include "gateway/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin.h"
#include "gateway/limits.h"
#include "gateway/log.h"
#include "gateway/manager.h"
#include "gateway/pages.h"
#include "gateway/preview.h"
#include "gateway/redirect.h"
#include "gateway/worker.h"

struct gw_exchange *gw_exchange_new(struct gw_worker *w)
{
    struct gw_exchange *x = w->free_exchanges;

    if (x != NULL)
        w->free_exchanges = x->next_free;
    else
        x = malloc(sizeof(*x));
    if (x == NULL)
        return NULL;
    memset(x, 0, sizeof(*x));
    x->worker = w;
    gw_count(&w->stats.requests, 1);
    gw_gauge(&w->stats.exchanges, 1);
    return x;
}

static void note_duration(struct gw_worker *w, uint64_t ms)
{
    size_t i = 0;

    while (i < GW_DURATIONS && ms > gw_duration_ms[i])
        i++;
    gw_count(&w->stats.durations[i], 1);
    gw_count(&w->stats.duration_ms, ms);
}

static void release(struct gw_exchange *x, const char *end)
{
    struct gw_worker *w = x->worker;

    note_duration(w, gw_loop_now(w->loop) - x->start_ms);
    gw_log_end(x, end);
    gw_use_end(w, x->use);
    gw_buf_put(&w->bufs, x->head);
    gw_count(&w->stats.status[x->status / 100 % 6], 1);
    gw_count(&w->stats.bytes_in, x->bytes_in);
    gw_count(&w->stats.bytes_out, x->bytes_out);
    gw_gauge(&w->stats.exchanges, -1);
    x->next_free = w->free_exchanges;
    w->free_exchanges = x;
}

/* The front was given a whole response. */
static void done(struct gw_exchange *x)
{
    const struct gw_front_ops *ops = x->front_ops;

    if (x->back_ops != NULL)
        x->back_ops->cancel(x);
    ops->done(x);
    release(x, "done");
}

static void broken(struct gw_exchange *x)
{
    x->front_ops->broken(x);
    release(x, "broken");
}

void gw_exchange_answer(struct gw_exchange *x, const struct gw_page *page)
{
    if (gw_page_send(x, page) == 0)
        done(x);
    else
        broken(x);
}

/* What the manager takes from the edge alone. */
static bool is_internal(struct gw_str target)
{
    return target.len >= 8 && memcmp(target.p, "/v1/edge", 8) == 0;
}

void gw_exchange_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer)
{
    struct gw_worker *w = x->worker;
    struct gw_page not_found = {
        .status = 404, .code = "unknown_host", .message = "There is no sandbox of this name here."};
    struct gw_page invalid = {
        .status = 400, .code = "bad_request", .message = "The Host is malformed."};
    struct gw_host host;
    struct gw_str id;

    x->method = req->method_id;
    x->request_framing = req->framing;
    x->request_length = req->length;
    x->minor = req->minor;
    x->upgrade = req->upgrade;
    x->wants_html = gw_accepts_html(req->fields, req->n_fields);
    x->start_ms = gw_loop_now(w->loop);
    id = gw_request_id(req, &w->id_state, x->request_id);
    gw_log_begin(x, req, peer, id);
    gw_host_parse(req->host, w->opt->domain, w->opt->preview_domain, &host);
    if (w->opt->https_redirect && host.kind != GW_HOST_INVALID && gw_redirect(x, req, peer))
        return;
    switch (host.kind) {
    case GW_HOST_INVALID:
        gw_exchange_answer(x, &invalid);
        return;
    case GW_HOST_API:
        if (is_internal(req->target))
            break;
        gw_manager_start(x, req, peer);
        return;
    case GW_HOST_ADMIN:
        if (is_internal(req->target))
            break;
        gw_admin_start(x, req, peer);
        return;
    case GW_HOST_PREVIEW:
        gw_preview_start(x, req, peer, &host);
        return;
    default:
        break;
    }
    gw_exchange_answer(x, &not_found);
}

int gw_exchange_head(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_response guarded;

    if (x->guard) {
        guarded = *resp;
        gw_admin_guard(&guarded);
        resp = &guarded;
    }
    x->status = resp->status;
    x->head_sent = true;
    return x->front_ops->head(x, resp);
}

void gw_exchange_back_done(struct gw_exchange *x)
{
    done(x);
}

void gw_exchange_back_failed(struct gw_exchange *x, int status, const char *code,
                             const char *message)
{
    struct gw_page page = {.status = status, .code = code, .message = message};

    if (x->head_sent) {
        broken(x);
        return;
    }
    if (status == 502)
        page.retry_after_s = 3; /* apps are being worked on: the page reloads when they are back */
    gw_exchange_answer(x, &page);
}

void gw_exchange_front_failed(struct gw_exchange *x, int status, const char *code,
                              const char *message)
{
    struct gw_page page = {.status = status, .code = code, .message = message};

    if (x->back_ops != NULL)
        x->back_ops->cancel(x);
    if (x->head_sent)
        broken(x);
    else
        gw_exchange_answer(x, &page);
}

void gw_exchange_front_gone(struct gw_exchange *x)
{
    if (x->back_ops != NULL)
        x->back_ops->cancel(x);
    release(x, "client gone");
}

void gw_exchange_upgraded(struct gw_exchange *x)
{
    x->status = x->http2 ? 200 : 101;
    release(x, "tunnel");
}
