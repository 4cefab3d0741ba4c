/* SPDX-License-Identifier: MIT */
/* A stream: the front half of its exchange, or the client's end of a tunnel; here its life and what
 * it receives. Body bytes wait in the stream until nghttp2 is done receiving, so that one call
 * shows the back all that came; the peer's window is given back only for what the back has taken.
 *
 * An object lives until nghttp2, the exchange or tunnel and the due list have let go of it. */
#include "gateway/h2_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/log.h"
#include "gateway/pages.h"
#include "gateway/tunnel.h"

#define FREE_STREAMS_MAX 1024
#define LATE_MAX         (64 * 1024)

/* Lists */

struct gw_h2_stream *gw_h2_stream_new(struct gw_h2_client *c, int32_t id)
{
    struct gw_worker *w = c->w;
    struct gw_h2_stream *s = w->free_h2_streams;

    if (s != NULL) {
        w->free_h2_streams = s->next;
        w->n_free_h2_streams--;
    } else {
        s = malloc(sizeof(*s));
    }
    if (s == NULL)
        return NULL;
    memset(s, 0, sizeof(*s));
    s->c = c;
    s->id = id;
    s->next = c->streams;
    if (s->next != NULL)
        s->next->prev = s;
    c->streams = s;
    c->n_streams++;
    return s;
}

void gw_h2_stream_due(struct gw_h2_stream *s)
{
    struct gw_h2_list *due = &s->c->due;

    if (s->is_due)
        return;
    s->is_due = true;
    s->due_next = NULL;
    if (due->last != NULL)
        due->last->due_next = s;
    else
        due->first = s;
    due->last = s;
    gw_h2_touch(s->c);
}

void gw_h2_stream_go_on(struct gw_h2_stream *s)
{
    struct gw_h2_list *list = &s->c->waiting;

    if (!s->is_waiting)
        return;
    s->is_waiting = false;
    if (s->wait_next != NULL)
        s->wait_next->wait_prev = s->wait_prev;
    else
        list->last = s->wait_prev;
    if (s->wait_prev != NULL)
        s->wait_prev->wait_next = s->wait_next;
    else
        list->first = s->wait_next;
}

void gw_h2_stream_wait(struct gw_h2_stream *s)
{
    struct gw_h2_list *list = &s->c->waiting;

    if (s->is_waiting)
        return;
    s->is_waiting = true;
    s->wait_next = NULL;
    s->wait_prev = list->last;
    if (list->last != NULL)
        list->last->wait_next = s;
    else
        list->first = s;
    list->last = s;
}

/* Free it unless something knows it still. */
void gw_h2_stream_release(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;
    struct gw_worker *w = c->w;

    if (!s->closed || s->x != NULL || s->tunnel.t != NULL || s->is_due || s->held)
        return;
    gw_timer_stop(&s->timer);
    gw_h2_stream_go_on(s);
    gw_buf_put(&w->bufs, s->in);
    gw_buf_put(&w->bufs, s->trailers);
    gw_buf_put(&w->bufs, s->head.buf);
    gw_buf_put(&w->bufs, s->page);
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        c->streams = s->next;
    if (--c->n_streams == 0)
        gw_h2_touch(c);
    if (w->n_free_h2_streams < FREE_STREAMS_MAX) {
        s->next = w->free_h2_streams;
        w->free_h2_streams = s;
        w->n_free_h2_streams++;
    } else {
        free(s);
    }
}

/* Received bytes that nobody wants: the window is everybody's. */
void gw_h2_stream_drop_in(struct gw_h2_stream *s)
{
    if (s->in == NULL)
        return;
    (void)nghttp2_session_consume(s->c->ng, s->id, s->in->len);
    gw_buf_put(&s->c->w->bufs, s->in);
    s->in = NULL;
    gw_h2_touch(s->c);
}

/* End both directions; the exchange is over. */
void gw_h2_stream_reset(struct gw_h2_stream *s, uint32_t code)
{
    assert(s->x == NULL && s->tunnel.t == NULL);
    gw_timer_stop(&s->timer);
    gw_h2_stream_go_on(s);
    gw_h2_stream_drop_in(s);
    if (s->closed) {
        gw_h2_stream_release(s);
        return;
    }
    (void)nghttp2_submit_rst_stream(s->c->ng, NGHTTP2_FLAG_NONE, s->id, code);
    gw_h2_touch(s->c);
}

/* Is it the client whom the exchange waits for? Not any more once the app answers: then both may be
 * silent for as long as the app likes. */
static bool owes_body(const struct gw_h2_stream *s)
{
    return s->x != NULL && !s->x->head_sent && !s->x->upgrade && !s->remote_ended && !s->blocked &&
           !s->discard;
}

/* As over HTTP/1: so many bytes in each window of time, and no timer touched for each piece. */
static void watch_body(struct gw_h2_stream *s)
{
    s->window_from = s->x->bytes_in;
    gw_timer_start(&s->c->w->t_body, &s->timer, gw_h2_stream_timeout);
}

void gw_h2_stream_answered(struct gw_h2_stream *s)
{
    s->answered = true;
    gw_timer_start(&s->c->w->t_half, &s->timer, gw_h2_stream_timeout);
}

static void stop_late(struct gw_h2_stream *s)
{
    (void)nghttp2_submit_rst_stream(s->c->ng, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    gw_h2_touch(s->c);
}

void gw_h2_stream_timeout(struct gw_timer *timer)
{
    struct gw_h2_stream *s =
        (struct gw_h2_stream *)((char *)timer - offsetof(struct gw_h2_stream, timer));
    const struct gw_options *o = s->c->w->opt;
    uint64_t came;

    if (s->answered) {
        stop_late(s);
        return;
    }
    if (!s->is_waiting && s->x != NULL) {
        if (!owes_body(s))
            return;
        came = s->x->bytes_in - s->window_from;
        if (came > 0 && came >= o->min_body_rate * o->body_idle_timeout_ms / 1000)
            watch_body(s);
        else
            gw_exchange_front_failed(s->x, 408, "too_slow",
                                     "The request body did not come in time.");
        return;
    }
    gw_h2_stream_lost(s);
    gw_h2_stream_reset(s, NGHTTP2_CANCEL);
}

void gw_h2_stream_lost(struct gw_h2_stream *s)
{
    struct gw_exchange *x = s->x;

    s->x = NULL;
    s->head_due = false;
    gw_timer_stop(&s->timer);
    gw_h2_stream_go_on(s);
    gw_h2_stream_drop_in(s);
    if (x != NULL)
        gw_exchange_front_gone(x);
    if (s->tunnel.t != NULL)
        gw_tunnel_peer_gone(&s->tunnel);
}

/* Would somebody go on for a stream that is closed? A response that was handed over whole comes to
 * its end by itself; one that is only swallowed may never. */
static bool is_waited_for(const struct gw_h2_stream *s)
{
    return (s->x != NULL && (!s->ended || s->mute)) || s->tunnel.t != NULL;
}

void gw_h2_stream_closed(struct gw_h2_stream *s, uint32_t code)
{
    s->closed = true;
    gw_timer_stop(&s->timer);
    gw_h2_stream_go_on(s);
    if (s->tunnel.t != NULL && code == NGHTTP2_NO_ERROR && s->ended && s->remote_ended) {
        s->orderly = true; /* what came last is still to go to the app */
        return;
    }
    s->head_due = false;
    gw_h2_stream_drop_in(s);
    if (is_waited_for(s)) {
        /* While frames are taken its back may be on the stack: later. */
        if (s->c->receiving)
            gw_h2_stream_lost(s);
        else
            gw_h2_stream_due(s);
    }
    gw_h2_stream_release(s);
}

void gw_h2_streams_gone(struct gw_h2_client *c)
{
    for (struct gw_h2_stream *s = c->streams, *next; s != NULL; s = next) {
        next = s->next;
        s->is_due = false;
        s->closed = true;
        gw_h2_stream_lost(s);
        gw_h2_stream_release(s);
    }
    c->due.first = c->due.last = NULL;
}

/* Request */

static void refuse(struct gw_h2_stream *s, int status, const char *why)
{
    struct gw_worker *w = s->c->w;

    gw_count(&w->stats.bad_requests, 1);
    gw_log_refusal(w, &s->c->peer.sa, status, why);
    gw_exchange_front_failed(s->x, status, "bad_request", why);
}

void gw_h2_stream_begin(struct gw_h2_stream *s, bool end)
{
    s->head = s->c->block;
    s->c->block.buf = NULL;
    s->head_due = true;
    s->head_ended = s->remote_ended = end;
    gw_h2_stream_due(s);
}

static void drop_head(struct gw_h2_stream *s)
{
    s->head_due = false;
    gw_buf_put(&s->c->w->bufs, s->head.buf);
    s->head.buf = NULL;
}

static void begin(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;
    struct gw_exchange *x = gw_exchange_new(c->w);
    struct gw_request req;
    const char *why;
    int r;

    if (x == NULL) {
        drop_head(s);
        gw_h2_stream_reset(s, NGHTTP2_REFUSED_STREAM);
        return;
    }
    gw_count(&c->w->stats.h2_requests, 1);
    r = gw_h2_head_request(c->w, &s->head, s->head_ended, &req, s->accept, &why);
    x->front_ops = &gw_h2_front;
    x->front = s;
    x->http2 = true;
    x->tls = c->sock.tls != NULL;
    x->method = req.method_id;
    x->minor = 1;
    s->x = x;
    s->end_passed = s->head_ended || req.framing == GW_BODY_NONE;
    x->request_done =
        s->end_passed; /* not what waits in s->in: the back would take it for no body */
    if (r == 0)
        gw_exchange_start(x, &req, &c->peer.sa);
    else
        refuse(s, r, why);
    drop_head(s);
    if (s->x == NULL || x->back_ops == NULL)
        return;
    x->request_done |= s->remote_ended;
    if (s->end_passed) {
        (void)x->back_ops->end(x, NULL, 0); /* a fault comes as an event */
        return;
    }
    /* A body that is to be empty is awaited: it may turn out not to be. */
    s->flush_due = req.framing != GW_BODY_LENGTH || req.length > 0;
}

int gw_h2_stream_data(struct gw_h2_stream *s, const uint8_t *data, size_t len)
{
    struct gw_h2_client *c = s->c;
    char *room;

    gw_h2_count_progress(c, len, false);
    if ((s->x == NULL && s->tunnel.t == NULL && !s->head_due) || s->discard) {
        (void)nghttp2_session_consume(c->ng, s->id, len);
        gw_h2_touch(c);
        if (s->answered && s->late <= LATE_MAX) {
            s->late += (uint32_t)len;
            if (s->late > LATE_MAX)
                stop_late(s);
        }
        return 0;
    }
    room = gw_buf_room(&c->w->bufs, &s->in, len);
    if (room == NULL)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(room, data, len);
    s->in->len += (uint32_t)len;
    gw_h2_stream_due(s);
    return 0;
}

void gw_h2_stream_ended(struct gw_h2_stream *s)
{
    s->remote_ended = true;
    if (s->x != NULL && !s->x->upgrade)
        s->x->request_done = true;
    if (s->x != NULL || s->tunnel.t != NULL || s->head_due)
        gw_h2_stream_due(s);
}

void gw_h2_stream_trailers(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;

    if (c->block.too_large || s->tunnel.t != NULL || gw_h2_head_trailers(c->w, c->block.buf) < 0) {
        gw_h2_stream_lost(s);
        gw_h2_stream_reset(s, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    s->trailers = c->block.buf;
    c->block.buf = NULL;
    gw_h2_stream_ended(s);
}

/* The request's end goes to the back. */
static void pass_end(struct gw_h2_stream *s)
{
    struct gw_exchange *x = s->x;
    long n = gw_h2_head_trailers(s->c->w, s->trailers);

    s->end_passed = true;
    gw_timer_stop(&s->timer);
    if (x->back_ops->end(x, s->c->w->fields, n > 0 ? (size_t)n : 0) < 0)
        s->discard = true;
}

static void deliver(struct gw_h2_stream *s)
{
    struct gw_exchange *x = s->x;
    struct gw_h2_client *c = s->c;
    size_t len = gw_buf_len(s->in);
    bool last = s->remote_ended && s->trailers == NULL && !s->end_passed;
    ssize_t n = 0;

    if (x == NULL || s->discard || x->back_ops == NULL) {
        gw_h2_stream_drop_in(s);
        return;
    }
    if (s->blocked || x->upgrade)
        return;
    if (len > 0 || last) {
        n = x->back_ops->body(x, len > 0 ? gw_buf_begin(s->in) : "", len, last);
        if (n < 0) { /* it will say why; its answer may be on the way */
            s->discard = true;
            gw_timer_stop(&s->timer);
            gw_h2_stream_drop_in(s);
            return;
        }
        s->flush_due = false;
        x->bytes_in += (uint64_t)n;
    }
    if (n > 0 && s->in != NULL) {
        (void)nghttp2_session_consume(c->ng, s->id, (size_t)n);
        gw_buf_consume(&c->w->bufs, &s->in, (size_t)n);
        gw_h2_touch(c);
    }
    if ((size_t)n < len) {
        s->blocked = true;
        gw_timer_stop(&s->timer); /* the back's clock runs */
        return;
    }
    if (s->remote_ended) {
        if (last)
            s->end_passed = true;
        if (!s->end_passed)
            pass_end(s);
        if (!s->is_waiting)
            gw_timer_stop(&s->timer);
        return;
    }
    if (owes_body(s) && s->timer.next == NULL)
        watch_body(s);
    if (s->flush_due) {
        s->flush_due = false;
        (void)x->back_ops->flush(x);
    }
}

static void look_after(struct gw_h2_stream *s)
{
    if (s->head_due)
        begin(s);
    deliver(s); /* NOLINT(clang-analyzer-unix.Malloc): held, it is not freed */
}

void gw_h2_run_due(struct gw_h2_client *c)
{
    while (c->due.first != NULL) {
        struct gw_h2_stream *s = c->due.first;

        c->due.first = s->due_next;
        if (c->due.first == NULL)
            c->due.last = NULL;
        s->is_due = false;
        s->held = true;
        if (s->closed && !s->orderly && is_waited_for(s))
            gw_h2_stream_lost(s);
        else if (s->tunnel.t != NULL)
            gw_h2_tunnel_deliver(s);
        else if (!s->closed)
            look_after(s);
        s->held = false;
        gw_h2_stream_release(s);
    }
}

void gw_h2_stream_resume(struct gw_h2_stream *s)
{

    s->blocked = false;
    if (s->in != NULL || (s->remote_ended && !s->end_passed))
        gw_h2_stream_due(s);
}
