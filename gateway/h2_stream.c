/* SPDX-License-Identifier: MIT */
/* A stream: the front half of its exchange.
 *
 * Response: what the back shows is offered to nghttp2 at once, which frames as much as the windows
 * allow; it is copied into the connection's output and nowhere else. A stream whose back kept some
 * waits until a window opens or the socket takes what is there.
 * Request: body bytes wait in the stream until nghttp2 is done receiving, so that one call shows
 * the back all that came; the peer's window is given back only for what the back has taken.
 *
 * An object lives until nghttp2, the exchange and the due list have let go of it. */
#include "gateway/h2_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/log.h"
#include "gateway/pages.h"
#include "gateway/tunnel.h"

#define FREE_STREAMS_MAX 1024
#define QUEUED_MAX       1000 /* 1xx from an app that never comes to the point */

static void deliver(struct gw_h2_stream *s);

static int32_t window_of(const struct gw_h2_stream *s)
{
    int32_t mine = nghttp2_session_get_stream_remote_window_size(s->c->ng, s->id);
    int32_t all = nghttp2_session_get_remote_window_size(s->c->ng);

    return mine < all ? mine : all;
}

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

static void set_due(struct gw_h2_stream *s)
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

static void stop_waiting(struct gw_h2_stream *s)
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

static void start_waiting(struct gw_h2_stream *s)
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
static void release(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;
    struct gw_worker *w = c->w;

    if (!s->closed || s->x != NULL || s->is_due)
        return;
    gw_timer_stop(&s->timer);
    stop_waiting(s);
    gw_buf_put(&w->bufs, s->in);
    gw_buf_put(&w->bufs, s->trailers);
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
static void drop_in(struct gw_h2_stream *s)
{
    if (s->in == NULL)
        return;
    (void)nghttp2_session_consume(s->c->ng, s->id, s->in->len);
    gw_buf_put(&s->c->w->bufs, s->in);
    s->in = NULL;
    gw_h2_touch(s->c);
}

/* End both directions; the exchange is over. */
static void reset(struct gw_h2_stream *s, uint32_t code)
{
    assert(s->x == NULL);
    gw_timer_stop(&s->timer);
    stop_waiting(s);
    drop_in(s);
    if (s->closed) {
        release(s);
        return;
    }
    (void)nghttp2_submit_rst_stream(s->c->ng, NGHTTP2_FLAG_NONE, s->id, code);
    gw_h2_touch(s->c);
}

static void on_timeout(struct gw_timer *timer)
{
    struct gw_h2_stream *s =
        (struct gw_h2_stream *)((char *)timer - offsetof(struct gw_h2_stream, timer));
    struct gw_exchange *x = s->x;

    s->x = NULL;
    if (x != NULL)
        gw_exchange_front_gone(x);
    reset(s, NGHTTP2_CANCEL);
}

void gw_h2_stream_lost(struct gw_h2_stream *s)
{
    struct gw_exchange *x = s->x;

    s->x = NULL;
    gw_timer_stop(&s->timer);
    stop_waiting(s);
    drop_in(s);
    if (x != NULL)
        gw_exchange_front_gone(x);
}

void gw_h2_stream_closed(struct gw_h2_stream *s)
{
    s->closed = true;
    gw_timer_stop(&s->timer);
    stop_waiting(s);
    drop_in(s);
    if (s->x != NULL && !s->ended) {
        /* While frames are taken its back may be on the stack: later. */
        if (s->c->receiving)
            gw_h2_stream_lost(s);
        else
            set_due(s);
    }
    release(s);
}

void gw_h2_streams_gone(struct gw_h2_client *c)
{
    for (struct gw_h2_stream *s = c->streams, *next; s != NULL; s = next) {
        next = s->next;
        s->is_due = false;
        s->closed = true;
        gw_h2_stream_lost(s);
        release(s);
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
    struct gw_h2_client *c = s->c;
    struct gw_exchange *x = gw_exchange_new(c->w);
    struct gw_request req;
    const char *why;
    int r;

    if (x == NULL) {
        reset(s, NGHTTP2_REFUSED_STREAM);
        return;
    }
    gw_count(&c->w->stats.h2_requests, 1);
    r = gw_h2_head_request(c, end, &req, s->accept, &why);
    x->front_ops = &gw_h2_front;
    x->front = s;
    x->http2 = true;
    x->tls = c->sock.tls != NULL;
    x->method = req.method_id;
    x->minor = 1;
    x->request_done = end || req.framing == GW_BODY_NONE;
    s->x = x;
    s->remote_ended = end;
    s->end_passed = x->request_done;
    if (r != 0) {
        refuse(s, r, why);
        return;
    }
    gw_exchange_start(x, &req, &c->peer.sa);
    if (s->x == NULL || x->back_ops == NULL)
        return;
    if (x->request_done) {
        (void)x->back_ops->end(x, NULL, 0); /* a fault comes as an event */
        return;
    }
    s->flush_due = true;
    set_due(s);
}

int gw_h2_stream_data(struct gw_h2_stream *s, const uint8_t *data, size_t len)
{
    struct gw_h2_client *c = s->c;
    char *room;

    gw_h2_count_progress(c, len);
    if (s->x == NULL || s->discard) {
        (void)nghttp2_session_consume(c->ng, s->id, len);
        gw_h2_touch(c);
        return 0;
    }
    room = gw_buf_room(&c->w->bufs, &s->in, len);
    if (room == NULL)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(room, data, len);
    s->in->len += (uint32_t)len;
    set_due(s);
    return 0;
}

void gw_h2_stream_ended(struct gw_h2_stream *s)
{
    s->remote_ended = true;
    if (s->x == NULL)
        return;
    s->x->request_done = true;
    set_due(s);
}

void gw_h2_stream_trailers(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;
    struct gw_exchange *x = s->x;

    if (c->head_too_large || gw_h2_head_trailers(c->w, c->head) < 0) {
        s->x = NULL;
        if (x != NULL)
            gw_exchange_front_gone(x);
        reset(s, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    s->trailers = c->head;
    c->head = NULL;
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
        drop_in(s);
        return;
    }
    if (s->blocked)
        return;
    if (len > 0 || last) {
        n = x->back_ops->body(x, len > 0 ? gw_buf_begin(s->in) : "", len, last);
        if (n < 0) { /* it will say why; its answer may be on the way */
            s->discard = true;
            gw_timer_stop(&s->timer);
            drop_in(s);
            return;
        }
        s->flush_due = false;
        x->bytes_in += (uint64_t)n;
    }
    if (n > 0) {
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
    gw_timer_start(&c->w->t_body, &s->timer, on_timeout);
    if (s->flush_due) {
        s->flush_due = false;
        (void)x->back_ops->flush(x);
    }
}

void gw_h2_run_due(struct gw_h2_client *c)
{
    while (c->due.first != NULL) {
        struct gw_h2_stream *s = c->due.first;

        c->due.first = s->due_next;
        if (c->due.first == NULL)
            c->due.last = NULL;
        s->is_due = false;
        if (s->closed) {
            if (s->x != NULL && !s->ended)
                gw_h2_stream_lost(s);
            release(s);
        } else {
            deliver(s);
        }
    }
}

static void front_resume(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;

    s->blocked = false;
    if (s->in != NULL || (s->remote_ended && !s->end_passed))
        set_due(s);
}

/* Response */

ssize_t gw_h2_read_body(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
                        nghttp2_data_source *source, void *arg)
{
    struct gw_h2_stream *s = source->ptr;
    size_t have = s->page != NULL ? s->page->len : s->data_len;

    (void)ng;
    (void)id;
    (void)buf;
    (void)arg;
    if (have == 0 && !s->last)
        return NGHTTP2_ERR_DEFERRED;
    if (have <= len && s->last)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (have > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)(have < len ? have : len);
}

int gw_h2_send_body(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t len,
                    nghttp2_data_source *source, void *arg)
{
    struct gw_h2_stream *s = source->ptr;
    struct gw_h2_client *c = arg;
    char *room = gw_buf_room(&c->w->bufs, &c->out, 9 + len);

    (void)ng;
    (void)frame;
    if (room == NULL)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(room, head, 9);
    if (s->page != NULL) {
        memcpy(room + 9, gw_buf_begin(s->page), len);
        gw_buf_consume(&c->w->bufs, &s->page, len);
    } else {
        memcpy(room + 9, s->data, len);
        s->data += len;
        s->data_len -= len;
    }
    c->out->len += 9 + (uint32_t)len;
    return 0;
}

static nghttp2_nv nv(const char *name, size_t name_len, const char *value, size_t value_len)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .namelen = name_len,
                        .value = (uint8_t *)value,
                        .valuelen = value_len,
                        .flags = NGHTTP2_NV_FLAG_NONE};
}

static size_t put_number(char *p, uint64_t n)
{
    char digits[20];
    size_t len = 0;

    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    for (size_t i = 0; i < len; i++)
        p[i] = digits[len - 1 - i];
    return len;
}

/* Fields for nghttp2, which copies them and makes names lower case. status[3], length[20]: memory
 * for their text. Returns how many. */
static size_t to_nv(const struct gw_worker *w, const struct gw_response *resp, char *status,
                    char *length)
{
    nghttp2_nv *to = w->h2_nv;
    size_t n = 0;

    for (size_t i = 0, code = (size_t)resp->status; i < 3; i++, code /= 10)
        status[2 - i] = (char)('0' + code % 10);
    to[n++] = nv(":status", 7, status, 3);
    for (size_t i = 0; i < resp->n_fields; i++) {
        const struct gw_field *f = &resp->fields[i];

        if (gw_response_passes(f))
            to[n++] = nv(f->name, f->name_len, f->value, f->value_len);
    }
    if (resp->has_length)
        to[n++] = nv("content-length", 14, length, put_number(length, resp->length));
    return n;
}

static int submit(struct gw_h2_stream *s, const struct gw_response *resp, bool body)
{
    nghttp2_data_provider provider = {.source = {.ptr = s}, .read_callback = gw_h2_read_body};
    struct gw_h2_client *c = s->c;
    char status[3], length[20];
    size_t n;

    if (s->closed || c->failing)
        return UV_EPIPE;
    n = to_nv(c->w, resp, status, length);
    if (nghttp2_submit_response(c->ng, s->id, c->w->h2_nv, n, body ? &provider : NULL) != 0)
        return UV_ENOMEM;
    gw_h2_touch(c);
    return 0;
}

static int front_interim(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_h2_stream *s = x->front;
    struct gw_h2_client *c = s->c;
    char status[3], length[20];
    size_t n;

    if (s->closed || c->failing)
        return UV_EPIPE;
    if (nghttp2_session_get_outbound_queue_size(c->ng) > QUEUED_MAX)
        return UV_ENOBUFS;
    n = to_nv(c->w, resp, status, length);
    if (nghttp2_submit_headers(c->ng, NGHTTP2_FLAG_NONE, s->id, NULL, c->w->h2_nv, n, NULL) != 0)
        return UV_ENOMEM;
    gw_h2_touch(c);
    return 0;
}

static int front_page(struct gw_exchange *x, const struct gw_response *resp, const char *body,
                      size_t len)
{
    struct gw_h2_stream *s = x->front;
    bool with_body = x->method != GW_METHOD_HEAD && len > 0;
    char *room;

    if (with_body) {
        room = gw_buf_room(&s->c->w->bufs, &s->page, len);
        if (room == NULL)
            return UV_ENOMEM;
        memcpy(room, body, len);
        s->page->len = (uint32_t)len;
    }
    s->last = s->ended = true;
    return submit(s, resp, with_body);
}

static int front_head(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_h2_stream *s = x->front;

    if (x->upgrade && resp->status / 100 == 2) {
        /* On this stream it would say that the WebSocket is open (RFC 8441 section 5). */
        struct gw_response none = {.status = 502, .has_length = true};

        x->status = 502;
        s->mute = s->ended = true;
        return submit(s, &none, false);
    }
    s->ended = resp->framing == GW_BODY_NONE;
    return submit(s, resp, !s->ended);
}

static ssize_t front_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct gw_h2_stream *s = x->front;
    struct gw_h2_client *c = s->c;
    size_t taken = 0;

    if (s->mute)
        return (ssize_t)len;
    if (s->closed || c->failing || c->broken)
        return UV_EPIPE;
    assert(!c->inside);
    while (taken < len || last) {
        size_t part = len - taken, left;

        if (gw_buf_len(c->out) >= GW_H2_OUT_HIGH) {
            gw_h2_write(c);
            if (c->broken)
                return UV_EPIPE;
            if (gw_buf_len(c->out) >= GW_H2_OUT_HIGH)
                break;
        }
        if (part > GW_H2_OUT_HIGH)
            part = GW_H2_OUT_HIGH;
        if (gw_buf_room(&c->w->bufs, &c->out, part + 256) == NULL)
            return UV_ENOMEM;
        s->data = data + taken;
        s->data_len = part;
        s->last = last && taken + part == len;
        (void)nghttp2_session_resume_data(c->ng, s->id); /* fails when it need not be */
        gw_h2_pump(c);
        left = s->data_len;
        s->data_len = 0;
        taken += part - left;
        if (left > 0 || taken == len)
            break;
    }
    s->data = NULL;
    x->bytes_out += taken;
    gw_h2_count_progress(c, taken);
    gw_h2_touch(c);
    if (taken < len) {
        s->last = false;
        start_waiting(s);
        gw_timer_start(&c->w->t_body, &s->timer, on_timeout);
    } else {
        s->ended = last;
        stop_waiting(s);
        if (s->remote_ended || s->blocked || s->discard)
            gw_timer_stop(&s->timer);
    }
    return (ssize_t)taken;
}

static int front_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    struct gw_h2_stream *s = x->front;
    struct gw_h2_client *c = s->c;
    nghttp2_nv *to = c->w->h2_nv;
    size_t n = 0;

    if (s->ended)
        return 0;
    if (s->closed || c->failing)
        return UV_EPIPE;
    s->ended = true;
    gw_h2_touch(c);
    for (size_t i = 0; i < n_trailers; i++)
        to[n++] =
            nv(trailers[i].name, trailers[i].name_len, trailers[i].value, trailers[i].value_len);
    /* An empty DATA frame would wait for a window that the client need not open any more. */
    if (n > 0 || window_of(s) <= 0)
        return nghttp2_submit_trailer(c->ng, s->id, c->w->h2_nv, n) == 0 ? 0 : UV_ENOMEM;
    s->last = true;
    (void)nghttp2_session_resume_data(c->ng, s->id);
    return 0;
}

static int front_flush(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;

    if (s->closed || s->c->failing || s->c->broken)
        return UV_EPIPE;
    gw_h2_touch(s->c);
    return 0;
}

static void front_done(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;

    s->x = NULL;
    drop_in(s);
    if (s->closed) {
        release(s);
        return;
    }
    /* Until nghttp2 has sent the last of it. */
    s->discard = true;
    gw_timer_start(&s->c->w->t_body, &s->timer, on_timeout);
}

static void front_broken(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;

    s->x = NULL;
    reset(s, NGHTTP2_INTERNAL_ERROR);
}

static int front_upgrade(struct gw_exchange *x, const struct gw_response *resp,
                         struct gw_tunnel_end *end)
{
    (void)x;
    (void)resp;
    (void)end;
    return UV_ENOTSUP;
}

void gw_h2_run_waiting(struct gw_h2_client *c)
{
    size_t n = 0;

    for (struct gw_h2_stream *s = c->waiting.first; s != NULL; s = s->wait_next)
        n++;
    while (n-- > 0 && c->waiting.first != NULL && gw_buf_len(c->out) < GW_H2_OUT_HIGH) {
        struct gw_h2_stream *s = c->waiting.first;

        stop_waiting(s);
        if (s->x != NULL && s->x->back_ops != NULL && window_of(s) > 0)
            s->x->back_ops->resume(s->x);
        else
            start_waiting(s);
    }
}

const struct gw_front_ops gw_h2_front = {
    .interim = front_interim,
    .head = front_head,
    .body = front_body,
    .end = front_end,
    .flush = front_flush,
    .page = front_page,
    .resume = front_resume,
    .done = front_done,
    .broken = front_broken,
    .upgrade = front_upgrade,
};
