/* SPDX-License-Identifier: MIT */
/* An HTTP/2 connection. Path: start -> read, receive, deliver -> (turn ends) take frames, write.
 * Every way to its end goes through RUN -> ENDING -> LINGER -> close, but for a socket that broke.
 */
#include "gateway/h2_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/log.h"

static void on_read(struct gw_sock *sock);
static void settle(struct gw_h2_client *c);
static void on_drain(struct gw_timer *timer);

static struct gw_h2_client *client_of(struct gw_sock *sock)
{
    return (struct gw_h2_client *)((char *)sock - offsetof(struct gw_h2_client, sock));
}

static void release(struct gw_h2_client *c)
{
    if (c->busy == 0 && c->state == GW_H2_CLOSED)
        free(c);
}

/* Everything but the memory. */
static void shut(struct gw_h2_client *c)
{
    struct gw_worker *w = c->w;

    if (c->state == GW_H2_CLOSED)
        return;
    c->failing = true; /* nobody writes any more */
    gw_h2_streams_gone(c);
    c->state = GW_H2_CLOSED;
    nghttp2_session_del(c->ng);
    gw_timer_stop(&c->timer);
    gw_timer_stop(&c->turn);
    gw_timer_stop(&c->drain);
    gw_h2_head_drop(c);
    gw_buf_put(&w->bufs, c->out);
    gw_sock_close(&c->sock);
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        w->h2_clients = c->next;
    gw_gauge(&w->stats.connections, -1);
    gw_gauge(&w->stats.h2_connections, -1);
    atomic_fetch_sub_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
    gw_limits_leave(&w->gw->limits, c->client_slot);
}

/* Timers */

static void on_timeout(struct gw_timer *timer)
{
    struct gw_h2_client *c =
        (struct gw_h2_client *)((char *)timer - offsetof(struct gw_h2_client, timer));
    uint8_t wait = c->wait;

    c->wait = GW_H2_WAIT_NOTHING;
    if (wait == GW_H2_WAIT_IDLE || wait == GW_H2_WAIT_HEAD) {
        (void)gw_h2_fail(c, NGHTTP2_NO_ERROR, "timeout");
        return;
    }
    shut(c);
    release(c);
}

static void await(struct gw_h2_client *c, enum gw_h2_wait wait)
{
    struct gw_timeout *const timeouts[] = {
        [GW_H2_WAIT_IDLE] = &c->w->t_idle,
        [GW_H2_WAIT_HEAD] = &c->w->t_head,
        [GW_H2_WAIT_WRITE] = &c->w->t_body,
        [GW_H2_WAIT_END] = &c->w->t_linger,
    };

    if (c->wait == wait)
        return;
    c->wait = (uint8_t)wait;
    if (wait == GW_H2_WAIT_NOTHING)
        gw_timer_stop(&c->timer);
    else
        gw_timer_start(timeouts[wait], &c->timer, on_timeout);
}

/* Which limit applies now? */
static void choose_timer(struct gw_h2_client *c)
{
    if (c->state == GW_H2_LINGER || c->state == GW_H2_ENDING)
        await(c, GW_H2_WAIT_END);
    else if (c->out != NULL || gw_sock_has_unsent(&c->sock))
        await(c, GW_H2_WAIT_WRITE);
    else if (c->head_open)
        await(c, GW_H2_WAIT_HEAD);
    else if (c->n_streams == 0)
        await(c, GW_H2_WAIT_IDLE);
    else
        await(c, GW_H2_WAIT_NOTHING);
}

/* Output */

static int append(struct gw_h2_client *c, const void *data, size_t len)
{
    char *room = gw_buf_room(&c->w->bufs, &c->out, len);

    if (room == NULL)
        return UV_ENOMEM;
    memcpy(room, data, len);
    c->out->len += (uint32_t)len;
    return 0;
}

void gw_h2_pump(struct gw_h2_client *c)
{
    const uint8_t *frame;
    ssize_t n = 0;

    if (c->inside || c->state != GW_H2_RUN || c->failing)
        return;
    c->inside = true;
    while (gw_buf_len(c->out) < 2 * GW_H2_OUT_HIGH) {
        n = nghttp2_session_mem_send(c->ng, &frame);
        if (n <= 0)
            break;
        if (append(c, frame, (size_t)n) != 0) {
            n = UV_ENOMEM;
            break;
        }
    }
    c->inside = false;
    if (n < 0)
        (void)gw_h2_fail(c, NGHTTP2_INTERNAL_ERROR, "no memory");
}

static void on_writable(struct gw_sock *sock)
{
    struct gw_h2_client *c = client_of(sock);

    c->busy++;
    if (c->wait == GW_H2_WAIT_WRITE)
        c->wait = GW_H2_WAIT_NOTHING; /* some has left: the clock starts anew */
    c->window_moved = true;
    settle(c);
    c->busy--;
    release(c);
}

void gw_h2_write(struct gw_h2_client *c)
{
    while (c->out != NULL && !c->broken) {
        struct iovec iov = {gw_buf_begin(c->out), c->out->len};
        ssize_t n = gw_sock_writev(&c->sock, &iov, 1);

        if (n < 0) {
            c->broken = true;
            gw_h2_touch(c);
            return;
        }
        if (n == 0)
            break;
        gw_buf_consume(&c->w->bufs, &c->out, (size_t)n);
    }
    if (!c->broken && (c->out != NULL || gw_sock_has_unsent(&c->sock)))
        gw_sock_write_start(&c->sock, on_writable);
}

static void on_turn(struct gw_timer *timer)
{
    struct gw_h2_client *c =
        (struct gw_h2_client *)((char *)timer - offsetof(struct gw_h2_client, turn));

    c->busy++;
    settle(c);
    c->busy--;
    release(c);
}

void gw_h2_touch(struct gw_h2_client *c)
{
    if (c->turn.next == NULL && c->state != GW_H2_CLOSED)
        gw_timer_start(&c->w->t_now, &c->turn, on_turn);
}

int gw_h2_fail(struct gw_h2_client *c, uint32_t code, const char *why)
{
    if (!c->failing && c->state == GW_H2_RUN) {
        c->failing = true;
        c->fail_code = code;
        c->fail_why = why;
        gw_h2_touch(c);
    }
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* The last frame, written without nghttp2, which may have been stopped in the middle of things. */
static void say_goodbye(struct gw_h2_client *c, uint32_t code)
{
    uint32_t last = (uint32_t)nghttp2_session_get_last_proc_stream_id(c->ng);
    unsigned char frame[17] = {0, 0, 8, NGHTTP2_GOAWAY};

    for (int i = 0; i < 4; i++) {
        frame[9 + i] = (unsigned char)(last >> (24 - 8 * i));
        frame[13 + i] = (unsigned char)(code >> (24 - 8 * i));
    }
    (void)append(c, frame, sizeof(frame));
}

/* The session is over: what is in out goes still. */
static void end(struct gw_h2_client *c)
{
    if (c->failing) {
        if (c->fail_code != NGHTTP2_NO_ERROR) {
            gw_count(&c->w->stats.h2_cut, 1);
            gw_log_refusal(c->w, &c->peer.sa, 0, c->fail_why);
        }
        say_goodbye(c, c->fail_code);
    }
    c->failing = true;
    gw_h2_streams_gone(c);
    gw_h2_head_drop(c);
    c->state = GW_H2_ENDING;
}

/* Bring everything to rest: what a callback left to do is done here. */
static void settle(struct gw_h2_client *c)
{
    while (c->state == GW_H2_RUN && !c->failing && !c->broken) {
        gw_h2_pump(c); /* what is wrong with a stream is known before its request goes on */
        gw_h2_run_due(c);
        gw_h2_pump(c);
        gw_h2_write(c);
        if (c->window_moved && c->out == NULL) {
            c->window_moved = false;
            gw_h2_run_waiting(c);
        } else if (c->due.first == NULL || c->out != NULL) {
            break;
        }
    }
    if (c->state != GW_H2_RUN)
        gw_h2_write(c);
    if (c->state == GW_H2_RUN && !c->broken) {
        if (!c->failing && c->draining && c->last_goaway && c->n_streams == 0 && c->out == NULL)
            (void)gw_h2_fail(c, NGHTTP2_NO_ERROR, "drained");
        if (c->failing ||
            (!nghttp2_session_want_read(c->ng) && !nghttp2_session_want_write(c->ng))) {
            end(c);
            gw_h2_write(c);
        }
    }
    if (c->state == GW_H2_ENDING && !c->broken && c->out == NULL && !gw_sock_has_unsent(&c->sock)) {
        c->state = GW_H2_LINGER;
        gw_sock_shutdown(&c->sock);
    }
    if (c->broken) {
        shut(c);
        return;
    }
    if (c->state != GW_H2_CLOSED)
        choose_timer(c);
}

/* Input */

static void receive(struct gw_h2_client *c, const char *p, size_t n)
{
    ssize_t r;

    c->inside = c->receiving = true;
    r = nghttp2_session_mem_recv(c->ng, (const uint8_t *)p, n);
    c->inside = c->receiving = false;
    if (r == NGHTTP2_ERR_FLOODED)
        (void)gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "flood of frames");
    else if (r == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
        (void)gw_h2_fail(c, NGHTTP2_PROTOCOL_ERROR, "no HTTP/2 preface");
    else if (r < 0)
        (void)gw_h2_fail(c, NGHTTP2_INTERNAL_ERROR, "session failed");
}

static void on_read(struct gw_sock *sock)
{
    struct gw_h2_client *c = client_of(sock);
    char *p = gw_loop_scratch(c->w->loop);
    ssize_t n = gw_sock_read(sock, p, GW_SCRATCH_LEN);

    if (n == UV_EAGAIN)
        return;
    c->busy++;
    if (n <= 0) {
        shut(c);
    } else if (c->state == GW_H2_RUN && !c->failing) {
        receive(c, p, (size_t)n);
        gw_h2_touch(c);
    }
    c->busy--;
    release(c);
}

/* Callbacks of nghttp2 */

static struct gw_h2_stream *stream_of(nghttp2_session *ng, int32_t id)
{
    return nghttp2_session_get_stream_user_data(ng, id);
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct gw_h2_client *c = arg;
    struct gw_h2_stream *s;

    gw_h2_head_begin(c);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = gw_h2_stream_new(c, frame->hd.stream_id);
    if (s == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    (void)nghttp2_session_set_stream_user_data(ng, s->id, s);
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
    nghttp2_vec n = nghttp2_rcbuf_get_buf(name), v = nghttp2_rcbuf_get_buf(value);
    struct gw_h2_client *c = arg;
    int r = gw_h2_head_add(c, n.base, n.len, v.base, v.len);

    (void)ng;
    (void)frame;
    (void)flags;
    if (r == 0)
        return 0;
    gw_h2_head_drop(c); /* nothing more is heard of this block */
    if (!gw_h2_count_reset(c))
        return gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many oversized heads");
    return r;
}

/* What nghttp2 would leave out silently. */
static int on_invalid_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                             nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
    (void)ng;
    (void)frame;
    (void)name;
    (void)value;
    (void)flags;
    gw_h2_head_drop(arg);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *arg)
{
    struct gw_h2_client *c = arg;
    bool noise;

    switch (hd->type) {
    case NGHTTP2_HEADERS: /* of a stream that is closed: ignored */
        noise = stream_of(ng, hd->stream_id) == NULL &&
                hd->stream_id <= nghttp2_session_get_last_proc_stream_id(ng);
        break;
    case NGHTTP2_RST_STREAM: /* counted as such */
        noise = false;
        break;
    case NGHTTP2_DATA: /* empty ones: see on_frame_recv() */
        noise = stream_of(ng, hd->stream_id) == NULL;
        break;
    case NGHTTP2_PRIORITY: /* nghttp2 does not look at them any more */
        if (hd->stream_id == 0)
            return gw_h2_fail(c, NGHTTP2_PROTOCOL_ERROR, "PRIORITY of no stream");
        noise = true;
        break;
    default:
        noise = true;
    }
    if (noise && !gw_h2_count_noise(c))
        return gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "flood of frames");
    return 0;
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct gw_h2_client *c = arg;
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    struct gw_h2_stream *s = stream_of(ng, frame->hd.stream_id);

    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (s != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            gw_h2_stream_begin(s, end);
        else if (s != NULL)
            gw_h2_stream_trailers(s);
        gw_h2_head_drop(c);
        break;
    case NGHTTP2_DATA:
        if (!end && frame->hd.length <= frame->data.padlen && !gw_h2_count_noise(c))
            return gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "flood of frames");
        if (s != NULL && end)
            gw_h2_stream_ended(s);
        break;
    case NGHTTP2_RST_STREAM:
        if (!gw_h2_count_reset(c))
            return gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many streams were reset");
        break;
    case NGHTTP2_WINDOW_UPDATE:
    case NGHTTP2_SETTINGS:
        c->window_moved = true;
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && c->draining && !c->last_goaway)
            gw_timer_start(&c->w->t_now, &c->drain, on_drain);
        break;
    default:
        break;
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *arg)
{
    struct gw_h2_stream *s = stream_of(ng, frame->hd.stream_id);

    (void)error;
    if (frame->hd.type == NGHTTP2_HEADERS)
        gw_h2_head_drop(arg);
    if (s != NULL)
        gw_h2_stream_lost(s);
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct gw_h2_stream *s = stream_of(ng, id);

    (void)flags;
    (void)arg;
    if (s == NULL)
        return nghttp2_session_consume(ng, id, len) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    return gw_h2_stream_data(s, data, len);
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
    struct gw_h2_stream *s = stream_of(ng, id);

    (void)arg;
    if (s != NULL)
        gw_h2_stream_closed(s, code);
    return 0;
}

/* Resets that the client provoked; the others have codes of their own. */
static bool is_its_fault(uint32_t code)
{
    switch (code) {
    case NGHTTP2_PROTOCOL_ERROR:
    case NGHTTP2_FLOW_CONTROL_ERROR:
    case NGHTTP2_STREAM_CLOSED:
    case NGHTTP2_FRAME_SIZE_ERROR:
    case NGHTTP2_REFUSED_STREAM:
        return true;
    default:
        return false;
    }
}

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct gw_h2_client *c = arg;
    struct gw_h2_stream *s;

    if (frame->hd.type == NGHTTP2_RST_STREAM && is_its_fault(frame->rst_stream.error_code) &&
        !gw_h2_count_reset(c))
        return gw_h2_fail(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many streams were reset");
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    s = stream_of(ng, frame->hd.stream_id);
    if (s != NULL && !s->remote_ended && s->tunnel.t == NULL)
        gw_h2_stream_answered(s);
    return 0;
}

/* Frames of unknown types are announced like others, and dropped here. */
static int on_extension(nghttp2_session *ng, void **payload, const nghttp2_frame_hd *hd, void *arg)
{
    (void)ng;
    (void)payload;
    (void)hd;
    (void)arg;
    return NGHTTP2_ERR_CANCEL;
}

/* Start and end */

static nghttp2_session_callbacks *callbacks;

static void make_callbacks(void)
{
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        abort(); /* at start */
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, on_extension);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, gw_h2_send_body);
}

static int make_session(struct gw_h2_client *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct gw_options *o = c->w->opt;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, o->http2_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, GW_H2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)o->limits.head_bytes},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_option *option;
    int r = nghttp2_option_new(&option);

    pthread_once(&once, make_callbacks);
    if (r != 0)
        return UV_ENOMEM;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, 2 * o->limits.head_bytes + 65536);
    nghttp2_option_set_max_continuations(option, o->limits.head_bytes / 16384 + 8);
    nghttp2_option_set_max_outbound_ack(option, 500);
    for (unsigned type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++)
        nghttp2_option_set_user_recv_extension_type(option, (uint8_t)type);
    r = nghttp2_session_server_new2(&c->ng, callbacks, c, option);
    nghttp2_option_del(option);
    if (r == 0)
        r = nghttp2_submit_settings(c->ng, NGHTTP2_FLAG_NONE, settings,
                                    sizeof(settings) / sizeof(settings[0]));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(c->ng, NGHTTP2_FLAG_NONE, 0,
                                                  GW_H2_SESSION_WINDOW);
    return r == 0 ? 0 : UV_ENOMEM;
}

void *gw_h2_new_fields(size_t n)
{
    return calloc(n, sizeof(nghttp2_nv));
}

void gw_h2_start(struct gw_worker *w, struct gw_sock *sock, const union gw_peer *peer,
                 uint16_t client_slot, const char *received, size_t len)
{
    struct gw_h2_client *c = calloc(1, sizeof(*c));

    if (w->h2_nv == NULL)
        w->h2_nv = gw_h2_new_fields(w->opt->limits.n_fields + GW_FIELDS_EXTRA);
    if (c != NULL) {
        c->w = w;
        c->peer = *peer;
        c->client_slot = client_slot;
        c->limits.at = gw_loop_now(w->loop);
    }
    if (c == NULL || w->h2_nv == NULL || make_session(c) != 0) {
        if (c != NULL)
            nghttp2_session_del(c->ng);
        free(c);
        gw_sock_close(sock);
        atomic_fetch_sub_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
        gw_limits_leave(&w->gw->limits, client_slot);
        return;
    }
    gw_sock_move(sock, &c->sock);
    c->next = w->h2_clients;
    if (c->next != NULL)
        c->next->prev = c;
    w->h2_clients = c;
    gw_gauge(&w->stats.connections, 1);
    gw_gauge(&w->stats.h2_connections, 1);
    gw_count(&w->stats.h2_accepted, 1);
    if (w->draining)
        gw_h2_drain(c);
    gw_sock_read_start(&c->sock, on_read);
    gw_h2_touch(c);
    if (len > 0)
        receive(c, received, len);
}

void gw_h2_close(struct gw_h2_client *c)
{
    if (c->state == GW_H2_RUN && !c->broken) {
        if (!c->failing)
            (void)gw_h2_fail(c, NGHTTP2_NO_ERROR, "closed");
        end(c);
        gw_h2_write(c);
    }
    shut(c);
    release(c);
}

struct gw_h2_client *gw_h2_next(struct gw_h2_client *c)
{
    return c->next;
}

/* The client knows by now, or should: what it began since is refused. */
static void on_drain(struct gw_timer *timer)
{
    struct gw_h2_client *c =
        (struct gw_h2_client *)((char *)timer - offsetof(struct gw_h2_client, drain));

    if (c->state != GW_H2_RUN || c->failing)
        return;
    c->last_goaway = true;
    (void)nghttp2_submit_goaway(c->ng, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(c->ng), NGHTTP2_NO_ERROR,
                                NULL, 0);
    gw_h2_touch(c);
}

/* RFC 9113 section 6.8: first a GOAWAY that refuses nothing, a round trip later the real one. */
void gw_h2_drain(struct gw_h2_client *c)
{
    if (c->draining || c->state != GW_H2_RUN || c->failing)
        return;
    c->draining = true;
    if (nghttp2_submit_shutdown_notice(c->ng) != 0 ||
        nghttp2_submit_ping(c->ng, NGHTTP2_FLAG_NONE, NULL) != 0) {
        (void)gw_h2_fail(c, NGHTTP2_NO_ERROR, "drained");
        return;
    }
    gw_timer_start(&c->w->t_half, &c->drain, on_drain);
    gw_h2_touch(c);
}

void gw_h2_fini(struct gw_worker *w)
{
    while (w->free_h2_streams != NULL) {
        struct gw_h2_stream *next = w->free_h2_streams->next;

        free(w->free_h2_streams);
        w->free_h2_streams = next;
    }
    free(w->h2_nv);
}
