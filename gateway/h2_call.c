/* SPDX-License-Identifier: MIT */
/* Path: init -> open -> on_head (1xx before it) -> on_data ... -> on_end -> done -> on_close.
 * A WebSocket: init -> open -> on_head -> tunnel -> on_data, peer_write ... -> both ends ->
 * on_close. The exchange and the stream end in either order; whichever is last frees the call. */
#include "gateway/h2_call.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/http1.h"
#include "gateway/pages.h"
#include "gateway/rewrite.h"
#include "gateway/worker.h"

#define HIGH_WATER ((size_t)64 * 1024)
#define H2_CANCEL  8

const struct tr_h2_options gw_h2_call_options = {.stream_window = GW_H2_CALL_WINDOW,
                                                 .stream_high_water = HIGH_WATER};

static const struct gw_back_ops call_ops;

/* Fields that wait; their text lies behind them. */
struct gw_h2_kept {
    size_t n;
    struct tr_h2_field f[];
};

static void on_timeout(struct gw_timer *timer);

/* ---- fields ---- */

static char *put_lower(char *p, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        *p++ = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + ('a' - 'A')) : s[i];
    return p;
}

static struct gw_h2_kept *keep_trailers(const struct gw_field *fields, size_t n)
{
    struct gw_h2_kept *k;
    size_t text = 0;
    char *p;

    for (size_t i = 0; i < n; i++)
        text += fields[i].name_len + fields[i].value_len;
    k = malloc(sizeof(*k) + n * sizeof(k->f[0]) + text);
    if (k == NULL)
        return NULL;
    k->n = n;
    p = (char *)&k->f[n];
    for (size_t i = 0; i < n; i++) {
        k->f[i] = (struct tr_h2_field){p, fields[i].name_len, p + fields[i].name_len,
                                       fields[i].value_len};
        p = put_lower(p, fields[i].name, fields[i].name_len);
        if (fields[i].value_len > 0)
            memcpy(p, fields[i].value, fields[i].value_len);
        p += fields[i].value_len;
    }
    return k;
}

/* Received fields as the exchange has them, in the worker's array. trailers: only those that may
 * stand there (RFC 9110 section 6.5.1). Returns how many, or -1 when there are too many. */
static long to_fields(struct gw_worker *w, const struct tr_h2_field *from, size_t n, bool trailers)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        uint8_t id = gw_http1_classify(from[i].name, from[i].name_len);

        if (trailers && id != GW_FIELD_OTHER && id != GW_FIELD_ACCEPT)
            continue;
        if (kept == w->opt->limits.n_fields)
            return -1;
        w->fields[kept++] = (struct gw_field){.name = from[i].name,
                                              .name_len = (uint32_t)from[i].name_len,
                                              .value = from[i].value,
                                              .value_len = (uint32_t)from[i].value_len,
                                              .id = id};
    }
    return (long)kept;
}

/* ---- the end ---- */

static void release(struct gw_h2_call *c)
{
    if (c->x != NULL || c->st != NULL || c->tunnel.t != NULL || c->held)
        return;
    gw_timer_stop(&c->timer);
    gw_buf_put(&c->w->bufs, c->queue);
    free(c->trailers);
    free(c->request_trailers);
    free(c->fields);
    c->ops->on_free(c);
}

/* Let go of the exchange. */
static struct gw_exchange *detach(struct gw_h2_call *c)
{
    struct gw_exchange *x = c->x;

    x->back = NULL;
    x->back_ops = NULL;
    c->x = NULL;
    gw_timer_stop(&c->timer);
    return x;
}

/* The stream's on_close comes later. */
static void reset_stream(struct gw_h2_call *c)
{
    if (c->st != NULL)
        tr_h2_reset(c->st, H2_CANCEL);
}

void gw_h2_call_fail(struct gw_h2_call *c, int status, const char *code, const char *message)
{
    struct gw_exchange *x = detach(c);

    reset_stream(c);
    release(c);
    gw_exchange_back_failed(x, status, code, message);
}

static void client_gone(struct gw_h2_call *c)
{
    gw_h2_call_fail(c, 502, "app_died", "The client is gone.");
}

static void on_timeout(struct gw_timer *timer)
{
    struct gw_h2_call *c =
        (struct gw_h2_call *)((char *)timer - offsetof(struct gw_h2_call, timer));

    c->ops->on_timeout(c);
}

bool gw_h2_call_is_whole(const struct gw_h2_call *c)
{
    return !c->heard && !c->body_taken;
}

/* The peer's clock: for an answer, or for more of its body. One without a length is a stream of
 * events or of messages, or may be one: it is quiet for as long as a WebSocket may be. */
static void run_clock(struct gw_h2_call *c)
{
    struct gw_timeout *limit = &c->w->t_answer;

    if (c->head_done)
        limit = c->streams ? &c->w->t_tunnel : &c->w->t_body;
    gw_timer_start(limit, &c->timer, on_timeout);
}

/* ---- to the peer ---- */

/* Its request has no end, whatever the one in HTTP/1.1 had. */
static bool is_websocket(const struct gw_h2_call *c)
{
    return c->accept[0] != '\0';
}

static void end_request(struct gw_h2_call *c, const struct gw_h2_kept *trailers)
{
    if (c->request_ended)
        return;
    c->request_ended = true;
    tr_h2_end(c->st, trailers != NULL ? trailers->f : NULL, trailers != NULL ? trailers->n : 0);
}

/* How many bytes were taken, or an error. on_drain() tells when there is room again. */
static ssize_t write_some(struct gw_h2_call *c, const char *data, size_t len)
{
    size_t queued, n;
    int r;

    if (c->st == NULL)
        return UV_EPIPE;
    if (c->full)
        return 0;
    queued = tr_h2_stream_queued(c->st);
    n = HIGH_WATER - queued < len ? HIGH_WATER - queued : len;
    if (n > 0) {
        r = tr_h2_write(c->st, data, n);
        if (r < 0)
            return r;
        c->body_taken = true;
        c->full = r == 0;
    }
    return (ssize_t)n;
}

/* ---- response ---- */

/* Returns NULL or what is wrong. */
static const char *to_response(struct gw_h2_call *c, const struct tr_h2_head *head, bool end,
                               struct gw_response *resp)
{
    long n = to_fields(c->w, head->fields, head->n_fields, false);

    memset(resp, 0, sizeof(*resp));
    if (n < 0)
        return "too many header fields";
    resp->status = head->status;
    resp->minor = 1;
    resp->reason.p = gw_status_reason(head->status);
    resp->reason.len = strlen(resp->reason.p);
    resp->fields = c->w->fields;
    resp->n_fields = (size_t)n;
    for (size_t i = 0; i < resp->n_fields; i++) {
        const struct gw_field *f = &resp->fields[i];

        if (f->id == GW_FIELD_CONTENT_LENGTH) { /* nghttp2 has seen to it that it is a number */
            resp->has_length = true;
            resp->length = strtoull(f->value, NULL, 10);
        }
        resp->has_rewritable |= f->id == GW_FIELD_LOCATION || f->id == GW_FIELD_SET_COOKIE;
    }
    if (resp->status < 200 || resp->status == 204) {
        resp->has_length = false; /* RFC 9110 section 8.6 */
        resp->framing = GW_BODY_NONE;
    } else if (c->x->method == GW_METHOD_HEAD || resp->status == 304) {
        resp->framing = GW_BODY_NONE;
    } else if (end) {
        resp->framing = GW_BODY_NONE;
        resp->has_length = true;
        resp->length = 0;
    } else {
        resp->framing = resp->has_length ? GW_BODY_LENGTH : GW_BODY_CHUNKED;
    }
    return resp->status > 599 ? "status out of range" : NULL;
}

static void bad_response(struct gw_h2_call *c, const char *why)
{
    reset_stream(c);
    c->ops->on_bad_response(c, why);
}

/* The final head. */
static void pass_head(struct gw_h2_call *c, const struct gw_response *resp, bool end)
{
    struct gw_exchange *x = c->x;
    int r;

    c->head_done = true;
    c->streams = resp->framing == GW_BODY_CHUNKED;
    gw_buf_put(&c->w->bufs, x->head);
    x->head = NULL;
    r = gw_exchange_head(x, resp);
    if (r == 0 && !end)
        r = x->front_ops->flush(x); /* the head does not wait for the body */
    if (r != 0)
        client_gone(c);
    else
        run_clock(c);
}

/* ---- WebSockets ---- */

static struct gw_h2_call *call_of(struct gw_tunnel_peer *peer)
{
    return (struct gw_h2_call *)((char *)peer - offsetof(struct gw_h2_call, tunnel));
}

/* What is there for the client, then the end. */
static void tunnel_go_on(struct gw_h2_call *c)
{
    c->held = true;
    if (c->queue != NULL && c->tunnel.t != NULL) {
        size_t n = gw_tunnel_peer_data(&c->tunnel, gw_buf_begin(c->queue), c->queue->len);

        if (c->st != NULL)
            tr_h2_stream_consume(c->st, n);
        gw_buf_consume(&c->w->bufs, &c->queue, n);
    }
    if (c->ended && !c->end_passed && c->queue == NULL && c->tunnel.t != NULL) {
        c->end_passed = true;
        gw_tunnel_peer_eof(&c->tunnel);
    }
    c->held = false;
    release(c);
}

static ssize_t peer_write(struct gw_tunnel_peer *peer, const char *data, size_t len)
{
    return write_some(call_of(peer), data, len);
}

static void peer_shutdown(struct gw_tunnel_peer *peer)
{
    struct gw_h2_call *c = call_of(peer);

    if (c->st != NULL)
        end_request(c, NULL);
}

static void peer_resume(struct gw_tunnel_peer *peer)
{
    tunnel_go_on(call_of(peer));
}

static void peer_gone(struct gw_tunnel_peer *peer, bool reset)
{
    struct gw_h2_call *c = call_of(peer);

    if (reset || !c->ended || !c->request_ended)
        reset_stream(c);
    release(c);
}

static const struct gw_tunnel_peer_ops peer_ops = {
    .write = peer_write,
    .shutdown = peer_shutdown,
    .resume = peer_resume,
    .gone = peer_gone,
};

static void tunnel_data(struct gw_h2_call *c, const uint8_t *data, size_t len)
{
    size_t taken = 0;
    char *room;

    if (c->tunnel.t != NULL && c->queue == NULL)
        taken = gw_tunnel_peer_data(&c->tunnel, (const char *)data, len);
    if (c->tunnel.t == NULL)
        taken = len;
    tr_h2_stream_consume(c->st, taken);
    if (taken == len)
        return;
    room = gw_buf_room(&c->w->bufs, &c->queue, len - taken);
    if (room == NULL) {
        gw_tunnel_peer_gone(&c->tunnel);
        reset_stream(c);
        return;
    }
    memcpy(room, data + taken, len - taken);
    c->queue->len += (uint32_t)(len - taken);
}

/* 2xx: the WebSocket is open (RFC 8441 section 5). To the client it is what HTTP/1.1 says. */
static void open_tunnel(struct gw_h2_call *c, struct gw_response *resp)
{
    struct gw_tunnel_end client, app = {.peer = &c->tunnel};
    struct gw_exchange *x = c->x;
    int r;

    resp->status = 101;
    resp->reason = GW_STR("Switching Protocols");
    resp->has_length = false;
    resp->framing = GW_BODY_NONE;
    resp->fields[resp->n_fields++] = (struct gw_field){.name = "Sec-WebSocket-Accept",
                                                       .name_len = 20,
                                                       .value = c->accept,
                                                       .value_len = GW_WS_ACCEPT_LEN,
                                                       .id = GW_FIELD_OTHER};
    r = x->front_ops->upgrade(x, resp, &client);
    if (r != 0) {
        gw_h2_call_fail(c, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    detach(c);
    c->tunnel.ops = &peer_ops;
    gw_tunnel_start(c->w, &client, &app, NULL, x);
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct gw_h2_call *c = arg;
    struct gw_worker *w = c->w;
    struct gw_buf *rewritten = NULL;
    struct gw_response resp;
    const char *why;

    (void)st;
    if (c->x == NULL)
        return;
    c->heard = true;
    why = to_response(c, head, end, &resp);
    if (why == NULL && is_websocket(c) && resp.status / 100 == 2) {
        if (!end)
            open_tunnel(c, &resp);
        else
            bad_response(c, "the WebSocket was ended before it began");
        return;
    }
    if (why == NULL && resp.status == 101)
        why = "the app changed the protocol";
    if (why == NULL && c->ops->from_app && gw_rewrite_response(c->x, &resp, &rewritten) != 0)
        why = "the edge is out of memory";
    if (why != NULL)
        bad_response(c, why);
    else if (resp.status >= 200)
        pass_head(c, &resp, end);
    else if (c->x->front_ops->interim(c->x, &resp) != 0)
        client_gone(c);
    gw_buf_put(&w->bufs, rewritten);
}

/* The response is complete and its body was handed over. */
static void finish(struct gw_h2_call *c, const struct tr_h2_field *trailers, size_t n)
{
    struct gw_exchange *x = c->x;
    long n_fields = to_fields(c->w, trailers, n, true);

    if (x->front_ops->end(x, c->w->fields, n_fields > 0 ? (size_t)n_fields : 0) != 0) {
        client_gone(c);
        return;
    }
    detach(c);
    if (!c->request_ended)
        reset_stream(c); /* answered early: the rest will not come */
    release(c);
    gw_exchange_back_done(x);
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct gw_h2_call *c = arg;
    ssize_t taken = 0;
    char *room;

    if (c->x == NULL) {
        tunnel_data(c, data, len);
        return;
    }
    if (c->queue == NULL) {
        taken = c->x->front_ops->body(c->x, (const char *)data, len, false);
        if (taken < 0) {
            client_gone(c);
            return;
        }
        tr_h2_stream_consume(st, (size_t)taken);
        run_clock(c);
    }
    if ((size_t)taken == len)
        return;
    gw_timer_stop(&c->timer); /* the front's clock runs */
    room = gw_buf_room(&c->w->bufs, &c->queue, len - (size_t)taken);
    if (room == NULL) {
        gw_h2_call_fail(c, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    memcpy(room, data + taken, len - (size_t)taken);
    c->queue->len += (uint32_t)(len - (size_t)taken);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct gw_h2_call *c = arg;
    size_t n = trailers != NULL ? trailers->n_fields : 0;
    long n_fields;

    (void)st;
    if (c->x == NULL) {
        c->ended = true;
        tunnel_go_on(c);
        return;
    }
    c->ended = true;
    if (c->queue == NULL) {
        finish(c, n > 0 ? trailers->fields : NULL, n);
        return;
    }
    n_fields = n > 0 ? to_fields(c->w, trailers->fields, n, true) : 0;
    if (n_fields <= 0)
        return;
    c->trailers = keep_trailers(c->w->fields, (size_t)n_fields);
    if (c->trailers == NULL)
        gw_h2_call_fail(c, 502, "no_memory", "The edge is out of memory.");
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct gw_h2_call *c = arg;

    (void)st;
    c->full = false;
    if (c->tunnel.t != NULL)
        gw_tunnel_peer_writable(&c->tunnel);
    if (c->x == NULL)
        return;
    if (c->queue == NULL)
        run_clock(c);
    c->x->front_ops->resume(c->x);
}

static void on_stream_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct gw_h2_call *c = arg;

    (void)st;
    c->st = NULL;
    if (c->x == NULL) {
        /* Closed in order, the rest of it may still be on its way to the client. */
        if (c->tunnel.t != NULL && (code != 0 || !c->ended || !c->request_ended))
            gw_tunnel_peer_gone(&c->tunnel);
        release(c);
        return;
    }
    if (!c->ended || code != 0)
        c->ops->on_lost(c, code);
    else if (c->ops->on_received != NULL)
        c->ops->on_received(c); /* back_resume() ends it */
}

static void back_resume(struct gw_exchange *x)
{
    struct gw_h2_call *c = x->back;
    struct gw_h2_kept *trailers;

    while (c->queue != NULL) {
        ssize_t n = x->front_ops->body(x, gw_buf_begin(c->queue), c->queue->len, false);

        if (n < 0) {
            client_gone(c);
            return;
        }
        if (n == 0)
            return;
        if (c->st != NULL)
            tr_h2_stream_consume(c->st, (size_t)n);
        gw_buf_consume(&c->w->bufs, &c->queue, (size_t)n);
    }
    if (!c->ended) {
        if (c->head_done)
            run_clock(c);
        return;
    }
    trailers = c->trailers;
    c->trailers = NULL;
    finish(c, trailers != NULL ? trailers->f : NULL, trailers != NULL ? trailers->n : 0);
    free(trailers);
}

/* ---- request ---- */

static ssize_t back_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct gw_h2_call *c = x->back;
    ssize_t n;

    if (c->st == NULL)
        return c->ended ? UV_EPIPE : 0; /* until there is a stream */
    if (c->full && len > 0)
        return 0;
    n = write_some(c, data, len);
    if (n > 0 && c->queue == NULL)
        run_clock(c);
    if (last && n == (ssize_t)len && !is_websocket(c))
        end_request(c, NULL);
    return n;
}

static int back_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    struct gw_h2_call *c = x->back;
    struct gw_h2_kept *kept = NULL;

    if (is_websocket(c))
        return 0;
    if (n_trailers > 0) {
        kept = keep_trailers(trailers, n_trailers);
        if (kept == NULL)
            return UV_ENOMEM;
    }
    if (c->st == NULL) {
        c->end_due = true;
        free(c->request_trailers);
        c->request_trailers = kept;
        return 0;
    }
    end_request(c, kept);
    free(kept);
    return 0;
}

static int back_flush(struct gw_exchange *x)
{
    (void)x; /* everything is sent as soon as it can be */
    return 0;
}

static void back_cancel(struct gw_exchange *x)
{
    struct gw_h2_call *c = x->back;

    detach(c);
    reset_stream(c);
    release(c);
}

static const struct gw_back_ops call_ops = {
    .body = back_body,
    .end = back_end,
    .flush = back_flush,
    .resume = back_resume,
    .cancel = back_cancel,
};

/* ---- life ---- */

void gw_h2_call_init(struct gw_h2_call *c, struct gw_exchange *x, const struct gw_h2_call_ops *ops,
                     struct tr_h2_field *fields, size_t n_fields)
{
    memset(c, 0, sizeof(*c));
    c->w = x->worker;
    c->x = x;
    c->ops = ops;
    c->fields = fields;
    c->n_fields = n_fields;
    c->end_due = x->request_done;
    x->back = c;
    x->back_ops = &call_ops;
    run_clock(c);
}

int gw_h2_call_open(struct gw_h2_call *c, struct tr_h2 *h2)
{
    static const struct tr_h2_stream_cbs cbs = {.on_head = on_head,
                                                .on_data = on_data,
                                                .on_end = on_end,
                                                .on_drain = on_drain,
                                                .on_close = on_stream_close};
    bool due = c->end_due && !is_websocket(c);
    bool end = due && c->request_trailers == NULL;
    int r = tr_h2_request(h2, c->fields, c->n_fields, end, &cbs, c, &c->st);

    if (r != 0)
        return r;
    c->request_ended = end;
    c->full = false;
    if (due)
        end_request(c, c->request_trailers);
    return 0;
}
