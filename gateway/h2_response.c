/* SPDX-License-Identifier: MIT */
/* Responses: what the exchange, or a tunnel, asks of a stream. What is shown is offered to nghttp2
 * at once, which frames as much as the windows allow; it is copied into the connection's output and
 * nowhere else. A stream whose back kept some waits until a window opens or the socket takes what
 * is there. */
#include "gateway/h2_internal.h"

#include <assert.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#define QUEUED_MAX 1000 /* 1xx from an app that never comes to the point */

static int32_t window_of(const struct gw_h2_stream *s)
{
    int32_t mine = nghttp2_session_get_stream_remote_window_size(s->c->ng, s->id);
    int32_t all = nghttp2_session_get_remote_window_size(s->c->ng);

    return mine < all ? mine : all;
}

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

int gw_h2_stream_submit(struct gw_h2_stream *s, const struct gw_response *resp, bool body)
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
    return gw_h2_stream_submit(s, resp, with_body);
}

static int front_head(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_h2_stream *s = x->front;

    if (x->upgrade && resp->status / 100 == 2) {
        /* On this stream it would say that the WebSocket is open (RFC 8441 section 5). */
        struct gw_response none = {.status = 502, .has_length = true};

        x->status = 502;
        s->mute = s->ended = true;
        return gw_h2_stream_submit(s, &none, false);
    }
    s->ended = resp->framing == GW_BODY_NONE;
    return gw_h2_stream_submit(s, resp, !s->ended);
}

ssize_t gw_h2_stream_send(struct gw_h2_stream *s, const char *data, size_t len, bool last)
{
    struct gw_h2_client *c = s->c;
    size_t taken = 0;

    if (s->closed || c->failing || c->broken)
        return UV_EPIPE;
    assert(!c->inside);
    do {
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
        if (left > 0)
            break;
    } while (taken < len);
    s->data = NULL;
    if (c->out != NULL && c->out->len == 0) { /* the window is shut: nothing is on its way */
        gw_buf_put(&c->w->bufs, c->out);
        c->out = NULL;
    }
    gw_h2_count_progress(c, taken, taken == len);
    gw_h2_touch(c);
    if (taken < len) {
        s->last = false;
        gw_h2_stream_wait(s);
    } else {
        s->ended = last;
        gw_h2_stream_go_on(s);
    }
    return (ssize_t)taken;
}

int gw_h2_stream_finish(struct gw_h2_stream *s, const struct gw_field *trailers, size_t n_trailers)
{
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
        return nghttp2_submit_trailer(c->ng, s->id, to, n) == 0 ? 0 : UV_ENOMEM;
    s->last = true;
    (void)nghttp2_session_resume_data(c->ng, s->id);
    return 0;
}

static ssize_t front_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct gw_h2_stream *s = x->front;
    ssize_t n;

    if (s->mute)
        return (ssize_t)len;
    if (len == 0)
        return last ? gw_h2_stream_finish(s, NULL, 0) : 0;
    n = gw_h2_stream_send(s, data, len, last);
    if (n < 0)
        return n;
    x->bytes_out += (uint64_t)n;
    if (s->is_waiting && (n > 0 || s->timer.next == NULL))
        gw_timer_start(&s->c->w->t_body, &s->timer, gw_h2_stream_timeout);
    else if (!s->is_waiting)
        gw_timer_stop(&s->timer);
    return n;
}

static int front_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    return gw_h2_stream_finish(x->front, trailers, n_trailers);
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
    gw_h2_stream_drop_in(s);
    if (s->closed) {
        gw_h2_stream_release(s);
        return;
    }
    /* Until nghttp2 has sent the last of it, and the client's end came. */
    s->discard = true;
    gw_timer_start(s->answered ? &s->c->w->t_half : &s->c->w->t_body, &s->timer,
                   gw_h2_stream_timeout);
}

static void front_broken(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;

    s->x = NULL;
    gw_h2_stream_reset(s, NGHTTP2_INTERNAL_ERROR);
}

static void front_resume(struct gw_exchange *x)
{
    gw_h2_stream_resume(x->front);
}

void gw_h2_run_waiting(struct gw_h2_client *c)
{
    size_t n = 0;

    for (struct gw_h2_stream *s = c->waiting.first; s != NULL; s = s->wait_next)
        n++;
    for (; n > 0 && c->waiting.first != NULL && gw_buf_len(c->out) < GW_H2_OUT_HIGH; n--) {
        struct gw_h2_stream *s = c->waiting.first;

        gw_h2_stream_go_on(s);
        if (window_of(s) <= 0)
            gw_h2_stream_wait(s);
        else if (s->tunnel.t != NULL)
            gw_tunnel_peer_writable(&s->tunnel);
        else if (s->x != NULL && s->x->back_ops != NULL)
            s->x->back_ops->resume(s->x);
    }
    /* The others have waited for this one's bytes to go, which may be at once: no event says so. */
    if (n > 0 && c->waiting.first != NULL)
        c->window_moved = true;
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
    .upgrade = gw_h2_stream_upgrade,
};
