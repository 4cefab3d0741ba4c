/* SPDX-License-Identifier: MIT */
/* What nghttp2 reports, turned into the events of h2.h. A stream whose user data is NULL was ended
 * by us already: what still comes for it is dropped. After a program's callback has run the session
 * may be freed or aborting; the memory stays until leave(), but no further event may be told. */
#include "vmm/link/h2_internal.h"

#include <stdlib.h>
#include <string.h>

static struct tr_h2_stream *stream_of(nghttp2_session *ng, int32_t id)
{
    return id == 0 ? NULL : nghttp2_session_get_stream_user_data(ng, id);
}

/* Push is switched off (ENABLE_PUSH 0), and servers get none. nghttp2 would refuse each one by a
 * RST_STREAM, without end for a peer that does not read them. */
static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *arg)
{
    (void)ng;
    if (hd->type != NGHTTP2_PUSH_PROMISE)
        return 0;
    h2_fail(arg, -EPROTO, "PUSH_PROMISE though push is switched off");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st;

    if (h2->server && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        st = h2_stream_new(h2, frame->hd.stream_id);
        if (st == NULL)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        (void)nghttp2_session_set_stream_user_data(ng, st->id, st); /* it exists: it begins */
        return 0;
    }
    st = stream_of(ng, frame->hd.stream_id);
    if (st != NULL)
        h2_head_clear(&st->cur);
    return 0;
}

static uint32_t head_fault_code(int fault)
{
    if (fault == -EMSGSIZE)
        return NGHTTP2_ENHANCE_YOUR_CALM;
    return fault == -EPROTO ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_INTERNAL_ERROR;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st = stream_of(ng, frame->hd.stream_id);
    int r;

    (void)flags;
    if (st == NULL)
        return 0;
    r = h2_head_add(st->announced && h2->server ? &st->cur
                    : h2->server                ? &st->req
                                                : &st->cur,
                    name, value, h2->options.max_head_bytes);
    if (r == 0)
        return 0;
    (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, st->id, head_fault_code(r));
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void tell_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers)
{
    if (st->gone || !h2_alive(st->h2))
        return;
    st->in_done = true;
    if (st->cbs.on_end != NULL)
        st->cbs.on_end(st, trailers, st->arg);
}

static void on_headers_done(struct tr_h2 *h2, struct tr_h2_stream *st, const nghttp2_frame *frame)
{
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const struct tr_h2_head *head;

    if (h2->server && !st->announced) {
        head = h2_head_finish(&st->req);
        st->announced = true;
        h2->n_announced++;
        if (h2->cbs.on_request != NULL)
            h2->cbs.on_request(h2, st, head, end, h2->arg);
        else
            tr_h2_reset(st, NGHTTP2_REFUSED_STREAM);
        if (end)
            tell_end(st, NULL);
        return;
    }
    head = h2_head_finish(&st->cur);
    if (!h2->server && head->status != 0) {
        if (st->cbs.on_head != NULL)
            st->cbs.on_head(st, head, end, st->arg);
        if (end)
            tell_end(st, NULL);
    } else if (end) {
        tell_end(st, head);
    }
    h2_head_clear(&st->cur);
}

static void on_pong(struct tr_h2 *h2, const uint8_t *opaque)
{
    struct h2_ping *ping = h2->pings;

    if (ping == NULL || memcmp(opaque, &ping->id, sizeof(ping->id)) != 0)
        return; /* not an answer to us; answers come in order */
    h2->pings = ping->next;
    if (h2->pings == NULL)
        h2->pings_tail = &h2->pings;
    if (ping->cb != NULL)
        ping->cb(0, ping->arg);
    free(ping);
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st = stream_of(ng, frame->hd.stream_id);

    if (!h2_alive(h2))
        return 0;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (st != NULL)
            on_headers_done(h2, st, frame);
        break;
    case NGHTTP2_DATA:
        if (st != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            tell_end(st, NULL);
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
            on_pong(h2, frame->ping.opaque_data);
        break;
    case NGHTTP2_GOAWAY:
        h2->goaway_seen = true;
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR) {
            const char *name = nghttp2_http2_strerror(frame->goaway.error_code);

            h2_note(h2, -EPROTO, name, strlen(name));
        }
        break;
    default:
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t stream_id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st = stream_of(ng, stream_id);

    (void)flags;
    if (!h2_alive(h2))
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* stops the feed, nothing else */
    if (st == NULL) { /* the rest of a frame in whose middle we ended the stream */
        (void)nghttp2_session_consume_connection(ng, len);
        return 0;
    }
    if (st->cbs.on_data == NULL || st->discard) {
        (void)nghttp2_session_consume(ng, stream_id, len);
        return 0;
    }
    st->unconsumed += len;
    st->cbs.on_data(st, data, len, st->arg);
    return 0;
}

/* NO_ERROR is how a server says that it needs no more of the request; before the end of what we
 * wait for it still means that the stream was cut short. */
static uint32_t close_code(const struct tr_h2_stream *st, uint32_t code)
{
    bool whole = st->h2->server ? st->out_done : st->in_done;

    return code == NGHTTP2_NO_ERROR && !whole ? NGHTTP2_CANCEL : code;
}

static int on_stream_close(nghttp2_session *ng, int32_t stream_id, uint32_t code, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st = stream_of(ng, stream_id);

    if (!h2->server)
        h2->n_wire--;
    if (st == NULL)
        return 0;
    code = close_code(st, code);
    h2_stream_detach(st);
    if (h2_alive(h2)) {
        h2_stream_report(st, code);
    } else { /* the session is ending: with the others, in close_all() */
        st->code = code;
        h2_list_add(&h2->closing, st);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct tr_h2 *h2 = arg;
    struct tr_h2_stream *st;

    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
        const char *name = nghttp2_http2_strerror(frame->goaway.error_code);

        if (frame->goaway.opaque_data_len > 0) /* nghttp2's own words for what was wrong */
            h2_note(h2, -EPROTO, (const char *)frame->goaway.opaque_data,
                    frame->goaway.opaque_data_len);
        else
            h2_note(h2, -EPROTO, name, strlen(name));
    }
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    st = stream_of(ng, frame->hd.stream_id);
    if (st == NULL)
        return 0;
    st->out_done = true;
    if (h2->server && st->discard && !st->in_done)
        (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
    return 0;
}

/* A head that cannot be sent (too large for nghttp2) would leave its stream waiting for ever. */
static int on_frame_not_send(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *arg)
{
    (void)arg;
    (void)error;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_INTERNAL_ERROR);
    return 0;
}

void h2_recv_callbacks(nghttp2_session_callbacks *cbs)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(cbs, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cbs, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(cbs, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cbs, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cbs, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cbs, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cbs, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cbs, on_frame_not_send);
}
