/* SPDX-License-Identifier: MIT */
/* Path: start -> (CONNECTING) -> HEAD -> BODY -> IDLE (in the pool) or closed.
 * A connection of the pool may have been closed by the app just now: when it breaks before a byte
 * of the response came, a request that is safe to repeat is sent once more, on a fresh one. */
#include "gateway/upstream.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/body.h"
#include "gateway/dial.h"
#include "gateway/out.h"
#include "gateway/pool.h"
#include "gateway/rewrite.h"
#include "gateway/tunnel.h"
#include "gateway/upstream_h2.h"
#include "gateway/worker.h"

#define NOTHING_LISTENS "Nothing listens on this port of the sandbox yet."
#define IDLE_PER_SET    256 /* more than one HTTP/2 client may have under way */
#define IDLE_PER_WORKER 1024

/* CONNECTING: timer t_connect (or t_retry between tries). x is set, sock is closed, dial may run.
 * HEAD:       the request goes out, the response head is awaited. timer t_answer.
 * BODY:       the response body comes in. timer t_body or t_tunnel while reading.
 * IDLE:       in the pool; x is NULL. timer t_pool. */
enum { CONNECTING, HEAD, BODY, IDLE };

struct gw_upstream {
    struct gw_sock sock;
    struct gw_worker *w;
    struct gw_upstream_set *set;
    struct gw_upstream *prev, *next; /* in set->idle or set->busy */
    struct gw_exchange *x;
    struct gw_dial *dial; /* NULL unless it runs */
    struct gw_timer timer;
    struct gw_in in;
    struct gw_out out;
    struct gw_body body;       /* of the response */
    struct gw_http1_scan scan; /* of its head */
    uint16_t port;             /* of the app */
    uint8_t state;
    bool reused;     /* served an exchange before */
    bool got_any;    /* a byte of this exchange's response came */
    bool keep_alive; /* the response leaves the connection usable */
    bool end_due;    /* the request ended while connecting */
    bool last_due;   /* its last chunk is still to be written */
    bool sent;       /* all of the request was written */
    bool slow;       /* the client had to be waited for */
    bool write_dead; /* the app does not take the request any more; it may still answer */
};

static const struct gw_back_ops upstream_ops;
static void on_read(struct gw_sock *sock);
static void on_timeout(struct gw_timer *timer);
static void process(struct gw_upstream *u, char *p, size_t n);
static int connect_now(struct gw_upstream *u);

static struct gw_upstream *upstream_of(struct gw_sock *sock)
{
    return (struct gw_upstream *)((char *)sock - offsetof(struct gw_upstream, sock));
}

static struct gw_upstream *upstream_of_timer(struct gw_timer *timer)
{
    return (struct gw_upstream *)((char *)timer - offsetof(struct gw_upstream, timer));
}

/* The app's clock for more of its body. One without a length is a stream of events, or may be one:
 * it is quiet for as long as a WebSocket may be. */
static void await_body(struct gw_upstream *u)
{
    struct gw_timeout *limit = u->body.framing == GW_BODY_LENGTH ? &u->w->t_body : &u->w->t_tunnel;

    gw_timer_start(limit, &u->timer, on_timeout);
}

static void unlink_from_set(struct gw_upstream *u)
{
    struct gw_upstream **list = u->state == IDLE ? &u->set->idle : &u->set->busy;

    if (u->next != NULL)
        u->next->prev = u->prev;
    if (u->prev != NULL)
        u->prev->next = u->next;
    else
        *list = u->next;
    u->prev = u->next = NULL;
    if (u->state == IDLE) {
        u->set->n_idle--;
        u->w->pool.n_idle--;
    }
}

static void link_to_set(struct gw_upstream *u)
{
    struct gw_upstream **list = u->state == IDLE ? &u->set->idle : &u->set->busy;

    u->prev = NULL;
    u->next = *list;
    if (u->next != NULL)
        u->next->prev = u;
    *list = u;
    if (u->state == IDLE) {
        u->set->n_idle++;
        u->w->pool.n_idle++;
    }
}

/* Close and free; lets go of the exchange. */
static void destroy(struct gw_upstream *u)
{
    struct gw_worker *w = u->w;

    if (u->x != NULL) {
        u->x->back = NULL;
        u->x->back_ops = NULL;
    }
    gw_timer_stop(&u->timer);
    gw_dial_cancel(u->dial);
    gw_sock_close(&u->sock);
    gw_buf_put(&w->bufs, u->in.buf);
    gw_out_reset(&w->bufs, &u->out);
    unlink_from_set(u);
    u->set->n--;
    gw_pool_drop(&w->pool, u->set);
    free(u);
}

static void fail(struct gw_upstream *u, int status, const char *code, const char *message)
{
    struct gw_exchange *x = u->x;

    gw_count(&u->w->stats.upstream_failures, 1);
    destroy(u);
    gw_exchange_back_failed(x, status, code, message);
}

static void on_idle_timeout(struct gw_timer *timer)
{
    destroy(upstream_of_timer(timer));
}

static void on_timeout(struct gw_timer *timer)
{
    struct gw_upstream *u = upstream_of_timer(timer);

    if (u->state == CONNECTING)
        fail(u, 504, "connect_timeout", "The machine did not accept a connection in time.");
    else
        fail(u, 504, "answer_timeout", "The app did not answer in time.");
}

/* The exchange is complete: into the pool, or closed. */
static void finish(struct gw_upstream *u, bool clean)
{
    struct gw_worker *w = u->w;
    struct gw_exchange *x = u->x;

    x->back = NULL;
    x->back_ops = NULL;
    u->x = NULL;
    gw_timer_stop(&u->timer);
    if (!clean || !u->keep_alive || !u->sent || gw_out_is_pending(&u->out) ||
        u->set->n_idle >= IDLE_PER_SET || w->pool.n_idle >= IDLE_PER_WORKER || w->draining) {
        destroy(u);
    } else {
        unlink_from_set(u);
        u->state = IDLE;
        u->reused = true;
        link_to_set(u);
        if (!gw_sock_is_reading(&u->sock))
            gw_sock_read_start(&u->sock, on_read);
        gw_timer_start(&w->t_pool, &u->timer, on_idle_timeout);
    }
    gw_exchange_back_done(x);
}

/* The connection broke before any of the response: may the request be sent again? */
static bool retry(struct gw_upstream *u)
{
    struct gw_exchange *x = u->x;
    struct gw_worker *w = u->w;
    bool safe = x->method != GW_METHOD_OTHER && x->request_framing == GW_BODY_NONE;

    if (!u->reused || u->got_any || x->retried || !safe || x->head == NULL)
        return false;
    x->retried = true;
    gw_count(&w->stats.upstream_retries, 1);
    gw_timer_stop(&u->timer);
    gw_sock_close(&u->sock);
    gw_out_reset(&w->bufs, &u->out);
    /* The others of the pool are most likely just as stale. */
    while (u->set->idle != NULL)
        destroy(u->set->idle); /* NOLINT(clang-analyzer-unix.Malloc): it left the list */
    u->reused = false;
    u->end_due = true;
    u->sent = false;
    x->head->len += x->head->off;
    x->head->off = 0;
    u->out.pending = x->head;
    u->out.borrowed = true;
    return connect_now(u) == 0;
}

/* The app's side ended: cleanly (0) or not. */
static void on_gone(struct gw_upstream *u, int status)
{
    switch (u->state) {
    case IDLE:
        destroy(u);
        return;
    case BODY:
        if (status == 0 && u->body.framing == GW_BODY_CLOSE) {
            int r = u->x->front_ops->end(u->x, NULL, 0);

            u->keep_alive = false;
            if (r == 0) {
                finish(u, false);
                return;
            }
        }
        fail(u, 502, "app_died", "The app closed the connection in the middle of its response.");
        return;
    default:
        if (!retry(u))
            fail(u, 502, "app_died", "The app closed the connection without an answer.");
    }
}

static void on_read(struct gw_sock *sock)
{
    struct gw_upstream *u = upstream_of(sock);
    struct gw_worker *w = u->w;
    char *p = gw_loop_scratch(w->loop);
    size_t have = gw_buf_len(u->in.buf), room = u->slow ? GW_SLOW_LEN : GW_SCRATCH_LEN;
    ssize_t n;

    if (u->state == IDLE) {
        destroy(u); /* end, or bytes that nobody asked for */
        return;
    }
    if (have > 0) { /* an incomplete head or trailer section */
        p = gw_buf_room(&w->bufs, &u->in.buf, 4096);
        if (p == NULL) {
            fail(u, 502, "no_memory", "The edge is out of memory.");
            return;
        }
        room = u->in.buf->cap - u->in.buf->off - have;
    }
    n = gw_sock_read(sock, p, room);
    if (n == UV_EAGAIN)
        return;
    if (n <= 0) {
        on_gone(u, (int)n);
        return;
    }
    u->got_any = true;
    if (have > 0) {
        u->in.buf->len += (uint32_t)n;
        process(u, gw_buf_begin(u->in.buf), u->in.buf->len);
    } else {
        process(u, p, (size_t)n);
    }
}

/* 101: both connections leave HTTP. rest are bytes behind the head. */
static void upgrade(struct gw_upstream *u, const struct gw_response *resp, const char *rest,
                    size_t n)
{
    struct gw_exchange *x = u->x;
    struct gw_worker *w = u->w;
    struct gw_upstream_set *set = u->set;
    struct gw_tunnel_end client, app;
    int r;

    memset(&app, 0, sizeof(app));
    if (n > 0 && gw_in_keep(&w->bufs, &u->in, rest, n, 0) != 0) {
        fail(u, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    r = x->front_ops->upgrade(x, resp, &client);
    if (r == UV_EPROTO) {
        fail(u, 502, "bad_response", "The app's WebSocket handshake is wrong.");
        return;
    }
    if (r != 0) {
        fail(u, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    if (n > 0) {
        app.received = u->in.buf;
        u->in.buf = NULL;
    }
    app.unsent = u->out.borrowed ? NULL : u->out.pending;
    u->out.pending = NULL;
    gw_sock_read_stop(&u->sock);
    gw_sock_move(&u->sock, &app.sock);
    set->n++; /* the tunnel's place, taken before the connection's is given up */
    u->x = NULL;
    x->back = NULL;
    x->back_ops = NULL;
    destroy(u);
    gw_tunnel_start(w, &client, &app, set, x);
}

/* Deal with a complete response head. Returns false when u is gone. */
static bool pass_head(struct gw_upstream *u, const struct gw_response *resp, const char *rest,
                      size_t n)
{
    struct gw_exchange *x = u->x;
    int r;

    if (resp->status == 101) {
        if (x->upgrade && resp->upgrade_websocket) {
            upgrade(u, resp, rest, n);
            return false;
        }
        fail(u, 502, "bad_response", "The app changed the protocol without being asked to.");
        return false;
    }
    if (resp->status < 200) {
        if (x->front_ops->interim(x, resp) != 0) {
            fail(u, 502, "app_died", "The client is gone.");
            return false;
        }
        return true;
    }
    gw_buf_put(&u->w->bufs, x->head);
    if (u->out.borrowed) { /* an answer before its request went out whole */
        u->out.pending = NULL;
        u->out.borrowed = false;
        u->write_dead = true;
    }
    x->head = NULL;
    u->keep_alive = resp->keep_alive;
    u->state = BODY;
    gw_body_start(&u->body, resp->framing, resp->length);
    r = gw_exchange_head(x, resp);
    if (r != 0) {
        fail(u, 502, "app_died", "The client is gone.");
        return false;
    }
    if (resp->framing != GW_BODY_NONE)
        await_body(u);
    return true;
}

/* Any head, that of a tunnel included: browsers take cookies from a 101, too. */
static bool on_head(struct gw_upstream *u, struct gw_response *resp, const char *rest, size_t n)
{
    struct gw_worker *w = u->w;
    struct gw_buf *rewritten;
    bool alive;

    if (gw_rewrite_response(u->x, resp, &rewritten) != 0) {
        fail(u, 502, "no_memory", "The edge is out of memory.");
        return false;
    }
    alive = pass_head(u, resp, rest, n);
    gw_buf_put(&w->bufs, rewritten);
    return alive;
}

/* Look for response heads in p[0..n). Returns the bytes used, 0 for none yet (kept), -1: u gone. */
static long take_head(struct gw_upstream *u, char *p, size_t n)
{
    struct gw_worker *w = u->w;
    struct gw_response resp;
    const char *why = "malformed line end";
    long end = gw_http1_find_end(&u->scan, p, n);

    if (end > (long)w->opt->limits.head_bytes || (end == 0 && n >= w->opt->limits.head_bytes)) {
        fail(u, 502, "bad_response", "The app's response head is too large.");
        return -1;
    }
    if (end == 0) {
        if (gw_in_keep(&w->bufs, &u->in, p, n, 0) == 0)
            return 0;
        fail(u, 502, "no_memory", "The edge is out of memory.");
        return -1;
    }
    memset(&u->scan, 0, sizeof(u->scan));
    if (end < 0 || gw_http1_parse_response(p, (size_t)end, &w->opt->limits, u->x->method, w->fields,
                                           &resp, &why) != 0) {
        fail(u, 502, "bad_response", why);
        return -1;
    }
    return on_head(u, &resp, p + end, n - (size_t)end) ? end : -1;
}

/* Pass response body on from p[0..n), of which the first plain bytes are decoded already. */
static void take_body(struct gw_upstream *u, char *p, size_t n, size_t plain)
{
    struct gw_worker *w = u->w;
    struct gw_exchange *x = u->x;

    for (;;) {
        struct gw_body_part part = {.plain = plain, .used = plain};
        enum gw_body_result result = u->body.done ? GW_BODY_DONE : GW_BODY_MORE;
        bool last;
        ssize_t taken = 0;

        if (plain == 0)
            result = gw_body_decode(&u->body, p, n, w->opt->limits.head_bytes, &part);
        if (result == GW_BODY_ERROR) {
            (void)x->front_ops->body(x, p, part.plain, false); /* as far as it made sense */
            fail(u, 502, "bad_response", "malformed chunked body");
            return;
        }
        last = result == GW_BODY_DONE && part.trailers_len == 0;
        if (u->body.framing == GW_BODY_NONE)
            taken = x->front_ops->end(x, NULL, 0);
        else if (part.plain > 0 || last)
            taken = x->front_ops->body(x, p, part.plain, last);
        if (taken < 0) {
            fail(u, 502, "app_died", "The client is gone.");
            return;
        }
        if ((size_t)taken < part.plain) {
            if (gw_in_keep_part(&w->bufs, &u->in, p, n, &part, (size_t)taken) != 0) {
                fail(u, 502, "no_memory", "The edge is out of memory.");
                return;
            }
            u->slow = true;
            gw_sock_read_stop(&u->sock);
            gw_timer_stop(&u->timer); /* the front's clock runs */
            return;
        }
        p += part.used;
        n -= part.used;
        plain = 0;
        if (result == GW_BODY_DONE) {
            size_t n_trailers = 0;

            if (part.trailers_len > 0) {
                if (gw_http1_parse_trailers(part.trailers, part.trailers_len, &w->opt->limits,
                                            w->fields, &n_trailers) != 0)
                    n_trailers = 0;
                if (x->front_ops->end(x, w->fields, n_trailers) != 0) {
                    fail(u, 502, "app_died", "The client is gone.");
                    return;
                }
            }
            gw_in_drop(&u->w->bufs, &u->in);
            finish(u, n == 0);
            return;
        }
        if (part.used > 0 && n > 0)
            continue; /* the trailer section, once the body bytes before it have gone */
        if (gw_in_keep(&w->bufs, &u->in, p, n, 0) != 0) {
            fail(u, 502, "no_memory", "The edge is out of memory.");
            return;
        }
        await_body(u);
        return;
    }
}

static void process(struct gw_upstream *u, char *p, size_t n)
{
    while (u->state == HEAD && n > 0) {
        long used = take_head(u, p, n);

        if (used <= 0)
            return;
        p += used;
        n -= (size_t)used;
    }
    if (u->state == HEAD) {
        gw_in_drop(&u->w->bufs, &u->in);
        return;
    }
    if (n == 0 && !u->body.done) { /* only the head, so far: it does not wait for the body */
        gw_in_drop(&u->w->bufs, &u->in);
        if (u->x->front_ops->flush(u->x) != 0)
            fail(u, 502, "app_died", "The client is gone.");
        return;
    }
    take_body(u, p, n, 0);
}

static void back_resume(struct gw_exchange *x)
{
    struct gw_upstream *u = x->back;

    if (u->state != BODY || gw_sock_is_reading(&u->sock))
        return;
    gw_sock_read_start(&u->sock, on_read);
    await_body(u);
    if (u->in.buf != NULL)
        take_body(u, gw_buf_begin(u->in.buf), u->in.buf->len, u->in.plain);
}

/* The request's way */

/* Is there something to write that the front will not show again? */
static bool has_more(const struct gw_upstream *u)
{
    return gw_out_is_pending(&u->out) || (u->last_due && !u->out.ended);
}

static void on_writable(struct gw_sock *sock)
{
    struct gw_upstream *u = upstream_of(sock);

    if (u->x == NULL || u->write_dead)
        return;
    if (gw_out_write(&u->w->bufs, &u->out, sock, NULL, 0, u->last_due) < 0) {
        u->write_dead = true; /* what it sent before may still be read */
        return;
    }
    if (has_more(u)) {
        gw_sock_write_start(sock, on_writable);
        return;
    }
    if (u->state == HEAD)
        gw_timer_start(&u->w->t_answer, &u->timer, on_timeout);
    if (u->out.ended || u->end_due)
        u->sent = true;
    u->x->front_ops->resume(u->x);
}

static ssize_t back_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct gw_upstream *u = x->back;
    ssize_t n;

    if (u->state == CONNECTING) {
        u->last_due |= last && len == 0;
        return 0;
    }
    if (u->write_dead)
        return UV_EPIPE;
    n = gw_out_write(&u->w->bufs, &u->out, &u->sock, data, len, last);
    if (n < 0) {
        u->write_dead = true;
        return n;
    }
    u->last_due |= last && len == 0 && !u->out.ended;
    if ((size_t)n < len || has_more(u))
        gw_sock_write_start(&u->sock, on_writable);
    else if (last)
        u->sent = true;
    if (u->state == HEAD)
        gw_timer_start(&u->w->t_answer, &u->timer, on_timeout);
    return n;
}

static int back_flush(struct gw_exchange *x)
{
    struct gw_upstream *u = x->back;

    if (u->state == CONNECTING || u->write_dead)
        return 0;
    if (gw_out_write(&u->w->bufs, &u->out, &u->sock, NULL, 0, u->last_due) < 0) {
        u->write_dead = true;
        return UV_EPIPE;
    }
    if (has_more(u))
        gw_sock_write_start(&u->sock, on_writable);
    else if (u->end_due || u->out.ended)
        u->sent = true;
    return 0;
}

static int back_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    struct gw_upstream *u = x->back;

    u->end_due = true;
    if (u->out.framing != GW_BODY_CHUNKED)
        n_trailers = 0; /* there is no place for them behind a body of known length */
    if (n_trailers > 0 && !u->write_dead &&
        gw_out_trailers(&u->w->bufs, &u->out, trailers, n_trailers) != 0)
        return UV_ENOMEM;
    /* There may have been trailers of which none goes on: the body ends all the same. */
    u->last_due |= u->out.framing == GW_BODY_CHUNKED && !u->out.ended;
    return back_flush(x);
}

static void back_cancel(struct gw_exchange *x)
{
    destroy(x->back);
}

static const struct gw_back_ops upstream_ops = {
    .body = back_body,
    .end = back_end,
    .flush = back_flush,
    .resume = back_resume,
    .cancel = back_cancel,
};

/* Connecting */

static void on_retry(struct gw_timer *timer)
{
    struct gw_upstream *u = upstream_of_timer(timer);

    if (connect_now(u) != 0)
        fail(u, 502, "unreachable", "The machine cannot be reached.");
}

static void on_connected(struct gw_sock *sock, int status, void *arg)
{
    struct gw_upstream *u = arg;
    struct gw_worker *w = u->w;
    struct gw_exchange *x = u->x;

    u->dial = NULL;
    if (status == UV_ECONNREFUSED) {
        if (gw_loop_now(w->loop) < x->connect_until) { /* it has just started */
            gw_timer_start(&w->t_retry, &u->timer, on_retry);
            return;
        }
        fail(u, 502, "nothing_listens", NOTHING_LISTENS);
        return;
    }
    if (status != 0) {
        fail(u, status == UV_ETIMEDOUT ? 504 : 502, "unreachable",
             "The machine cannot be reached.");
        return;
    }
    gw_sock_move(sock, &u->sock);
    u->state = HEAD;
    gw_timer_start(&w->t_answer, &u->timer, on_timeout);
    gw_sock_read_start(&u->sock, on_read);
    if (back_flush(x) != 0)
        return; /* the read event tells what happened */
    if (!gw_out_is_pending(&u->out))
        x->front_ops->resume(x);
}

static int connect_now(struct gw_upstream *u)
{
    u->state = CONNECTING;
    u->got_any = false;
    gw_timer_start(&u->w->t_connect, &u->timer, on_timeout);
    return gw_dial_start(u->w, u->set, &u->x->route, on_connected, u, &u->dial);
}

/* Is the pooled connection still open? Asked only for requests that cannot be repeated. */
static bool is_alive(struct gw_upstream *u)
{
    char byte;
    ssize_t n = recv(gw_sock_fd(&u->sock), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* The newest idle connection to the port, or NULL. */
static struct gw_upstream *take_idle(struct gw_upstream_set *set, uint16_t port, bool sure)
{
    struct gw_upstream *u, *next;

    for (u = set->idle; u != NULL; u = next) {
        next = u->next;
        if (u->port != port)
            continue;
        if (sure && !is_alive(u)) { /* NOLINT(clang-analyzer-unix.Malloc): as above */
            destroy(u);
            continue;
        }
        unlink_from_set(u);
        gw_timer_stop(&u->timer);
        u->state = HEAD;
        return u;
    }
    return NULL;
}

void gw_upstream_start(struct gw_exchange *x, const struct gw_request *req,
                       const struct sockaddr *peer)
{
    struct gw_worker *w = x->worker;
    struct gw_upstream_set *set;
    struct gw_upstream *u;
    bool safe = x->method != GW_METHOD_OTHER && req->framing == GW_BODY_NONE;

    /* Apps that speak both on one port are many, WebSockets over h2c known to few of them. */
    if (x->route.protocol == TR_PROTOCOL_H2C && !x->upgrade) {
        gw_upstream_h2_start(x, req, peer);
        return;
    }
    set = gw_pool_get(&w->pool, x->route.label, x->route.instance);
    if (set == NULL || gw_upstream_head(x, req, peer) != 0) {
        if (set != NULL)
            gw_pool_drop(&w->pool, set);
        gw_exchange_back_failed(x, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    set->n++; /* holds the set while idle ones are looked at */
    u = take_idle(set, x->route.port, !safe);
    if (u != NULL) {
        gw_count(&w->stats.upstream_reuses, 1);
    } else {
        u = calloc(1, sizeof(*u));
        if (u == NULL) {
            set->n--;
            gw_pool_drop(&w->pool, set);
            gw_exchange_back_failed(x, 502, "no_memory", "The edge is out of memory.");
            return;
        }
        u->w = w;
        u->set = set;
        u->port = x->route.port;
        set->n++;
    }
    set->n--;
    u->x = x;
    u->got_any = u->end_due = u->last_due = u->sent = u->write_dead = u->slow = false;
    x->back = u;
    x->back_ops = &upstream_ops;
    memset(&u->out, 0, sizeof(u->out));
    u->out.pending = x->head;
    u->out.borrowed = true;
    u->out.framing = (uint8_t)req->framing;
    link_to_set(u);
    if (gw_sock_is_open(&u->sock)) {
        gw_timer_start(&w->t_answer, &u->timer, on_timeout);
        return; /* the head goes out with the body's first bytes */
    }
    if (connect_now(u) != 0)
        fail(u, 502, "unreachable", "The machine cannot be reached.");
}

void gw_upstream_set_gone(struct gw_worker *w, struct gw_upstream_set *set,
                          const struct gw_gone *why)
{
    set->n++; /* stays while its members go */
    while (set->idle != NULL)
        destroy(set->idle); /* NOLINT(clang-analyzer-unix.Malloc): it left the list */
    while (set->busy != NULL)
        fail(set->busy, why->status, why->code, why->message); /* NOLINT: as above */
    while (set->tunnels != NULL)
        gw_tunnel_close(set->tunnels, why->tunnel);
    gw_upstream_h2_set_gone(w, set, why);
    set->n--;
    gw_pool_drop(&w->pool, set);
}

void gw_upstream_end_ports(struct gw_worker *w, struct gw_upstream_set *set,
                           const struct tr_route_extra *extra)
{
    set->n++; /* as above */
    gw_tunnel_end_ports(set, extra);
    for (struct gw_upstream *u = set->busy, *next; u != NULL; u = next) {
        next = u->next;
        if (u->x->host_port != 0 && tr_route_port_find(extra, u->x->host_port) == NULL)
            fail(u, 404, "port_not_opened", "This port was closed.");
    }
    set->n--;
    gw_pool_drop(&w->pool, set);
}

void gw_upstream_close_all(struct gw_worker *w)
{
    static const struct gw_gone stopped = {502, "app_died", "The gateway has stopped.",
                                           "gateway stopped"};

    for (size_t i = 0; i < w->pool.n_buckets; i++)
        while (w->pool.buckets[i] != NULL)
            gw_upstream_set_gone(w, w->pool.buckets[i], &stopped);
}
