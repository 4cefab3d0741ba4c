/* SPDX-License-Identifier: MIT */
/* Path: open -> bytes both ways -> on_over -> flush what is queued -> close handles -> on_close.
 * Faults (end of file, write error, silence, tr_h2_conn_close) become tr_h2_abort(), so that the
 * streams close first and everything ends in on_over().
 *
 * Calls into the session from outside its callbacks are followed up from an idle handle: the loop
 * does not block while one is active, in whichever phase it was started. */
#include "transom/h2_uv.h"

#include <stdlib.h>
#include <string.h>
#include "transom/channel.h"

#define READ_LEN    (64u << 10)
#define WRITE_HIGH  (256u << 10) /* bytes in libuv's queue at which the session must wait */
#define WRITE_LOW   (64u << 10)
#define STALL_MS    30000
#define LINGER_MS   1000 /* a last GOAWAY gets this long to leave */
#define LAST_CHANCE 1    /* ms: one more turn of the loop before silence is believed */
#define REASON_LEN  160

enum ping_state { PING_NONE, PING_SENT, PING_LATE };

struct tr_h2_conn {
    struct tr_h2 *h2; /* NULL once over */
    uv_loop_t *loop;
    uv_stream_t *stream; /* one of these two; channel is borrowed, NULL once it is gone */
    struct tr_channel *channel;
    struct tr_h2_conn_cbs cbs;
    void *arg;
    uv_idle_t pump;
    uv_timer_t timer; /* keepalive; after the end: linger */
    uv_timer_t stall; /* runs while full (over a stream) */
    uint64_t stall_ms;
    size_t stall_queue; /* bytes that waited when it was started */
    uint64_t ping_ms, last_rx, due;
    enum ping_state ping;
    int n_open;   /* handles whose on_handle_close is due */
    int n_writes; /* uv_write requests under way */
    bool full;    /* send() said so; tr_h2_writable() is due when the queue is low */
    bool closing; /* handles are being closed */
    int fault;    /* of the transport: nothing can be flushed any more */
    int status;
    char reason[REASON_LEN];
};

struct write_req {
    uv_write_t req;
    struct tr_h2_conn *conn;
    uint8_t data[];
};

static void on_handle_close(uv_handle_t *handle)
{
    struct tr_h2_conn *c = handle->data;

    if (handle == (uv_handle_t *)c->stream) {
        free(c->stream);
        c->stream = NULL;
    }
    if (--c->n_open > 0)
        return;
    if (c->cbs.on_close != NULL)
        c->cbs.on_close(c, c->status, c->reason, c->arg);
    free(c);
}

static void close_handles(struct tr_h2_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    if (c->stream != NULL)
        uv_close((uv_handle_t *)c->stream, on_handle_close);
    uv_close((uv_handle_t *)&c->pump, on_handle_close);
    uv_close((uv_handle_t *)&c->timer, on_handle_close);
    uv_close((uv_handle_t *)&c->stall, on_handle_close);
}

static void on_linger(uv_timer_t *timer)
{
    close_handles(timer->data);
}

/* Last event of the session. */
static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct tr_h2_conn *c = arg;

    c->h2 = NULL;
    c->status = status;
    memccpy(c->reason, reason, '\0', sizeof(c->reason) - 1);
    tr_h2_free(h2);
    uv_idle_stop(&c->pump);
    uv_timer_stop(&c->timer);
    uv_timer_stop(&c->stall);
    if (c->stream != NULL) {
        uv_read_stop(c->stream);
        if (c->n_writes > 0 && c->fault == 0 &&
            uv_timer_start(&c->timer, on_linger, LINGER_MS, 0) == 0)
            return;
    }
    close_handles(c);
}

/* ---- sending ---- */

static void on_write(uv_write_t *req, int status)
{
    struct write_req *w = (struct write_req *)req;
    struct tr_h2_conn *c = w->conn;

    free(w);
    c->n_writes--;
    if (c->closing)
        return;
    if (c->h2 == NULL) {
        if (c->n_writes == 0 || status != 0)
            close_handles(c);
        return;
    }
    if (status != 0) {
        c->fault = status;
        tr_h2_abort(c->h2, status, uv_strerror(status));
        return;
    }
    if (c->full && uv_stream_get_write_queue_size(c->stream) <= WRITE_LOW) {
        c->full = false;
        uv_timer_stop(&c->stall);
        tr_h2_writable(c->h2);
    }
}

static void on_stall(uv_timer_t *timer);

static void watch_stall(struct tr_h2_conn *c)
{
    c->stall_queue = uv_stream_get_write_queue_size(c->stream);
    uv_timer_start(&c->stall, on_stall, c->stall_ms, 0);
}

/* A session cannot end as long as its last GOAWAY waits behind what the peer does not read. */
static void on_stall(uv_timer_t *timer)
{
    struct tr_h2_conn *c = timer->data;

    if (c->h2 == NULL || !c->full)
        return;
    if (uv_stream_get_write_queue_size(c->stream) < c->stall_queue) {
        watch_stall(c);
        return;
    }
    c->fault = UV_ETIMEDOUT;
    tr_h2_abort(c->h2, UV_ETIMEDOUT, "the peer does not read");
}

static bool send_failed(struct tr_h2_conn *c, int status)
{
    c->fault = status;
    tr_h2_abort(c->h2, status, uv_strerror(status)); /* from a callback: takes effect after it */
    return false;
}

static bool send_stream(struct tr_h2_conn *c, const uint8_t *data, size_t len)
{
    struct write_req *w;
    uv_buf_t buf;
    int n = 0, r;

    if (c->n_writes == 0) {
        buf = uv_buf_init((char *)data, (unsigned)len);
        n = uv_try_write(c->stream, &buf, 1);
        if (n == UV_EAGAIN)
            n = 0;
        if (n < 0)
            return send_failed(c, n);
        if ((size_t)n == len)
            return true;
    }
    len -= (size_t)n;
    w = malloc(sizeof(*w) + len);
    if (w == NULL)
        return send_failed(c, UV_ENOMEM);
    w->conn = c;
    memcpy(w->data, data + n, len);
    buf = uv_buf_init((char *)w->data, (unsigned)len);
    r = uv_write(&w->req, c->stream, &buf, 1, on_write);
    if (r != 0) {
        free(w);
        return send_failed(c, r);
    }
    c->n_writes++;
    if (uv_stream_get_write_queue_size(c->stream) < WRITE_HIGH)
        return true;
    if (!c->full)
        watch_stall(c);
    c->full = true;
    return false;
}

static bool send_channel(struct tr_h2_conn *c, const uint8_t *data, size_t len)
{
    int r = c->channel == NULL ? UV_EPIPE : tr_channel_write(c->channel, data, len);

    if (r < 0)
        return send_failed(c, r);
    c->full = r == 0;
    return r == 1;
}

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    struct tr_h2_conn *c = arg;

    if (c->fault != 0)
        return false;
    return c->stream != NULL ? send_stream(c, data, len) : send_channel(c, data, len);
}

/* ---- follow-up of calls from outside ---- */

static void on_pump(uv_idle_t *idle)
{
    struct tr_h2_conn *c = idle->data;

    uv_idle_stop(idle);
    if (c->h2 != NULL)
        tr_h2_run(c->h2);
}

static void wake(void *arg)
{
    struct tr_h2_conn *c = arg;

    if (!c->closing)
        uv_idle_start(&c->pump, on_pump); /* cannot fail: the callback is not NULL */
}

/* ---- receiving ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    /* libuv reads into it and calls on_read at once: one buffer serves every connection of a
     * thread. */
    static _Thread_local char space[READ_LEN];

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(space, sizeof(space));
}

static void received(struct tr_h2_conn *c, const uint8_t *data, size_t len)
{
    c->last_rx = uv_now(c->loop);
    c->ping = PING_NONE; /* the timer finds out how long it is silent from now on */
    if (c->h2 != NULL && c->fault == 0)
        tr_h2_feed(c->h2, data, len);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct tr_h2_conn *c = stream->data;

    if (c->h2 == NULL || n == 0)
        return;
    if (n > 0) {
        received(c, (const uint8_t *)buf->base, (size_t)n);
        return;
    }
    c->fault = (int)n;
    tr_h2_abort(c->h2, (int)n, n == UV_EOF ? "connection closed by peer" : uv_strerror((int)n));
}

/* ---- keepalive ---- */

static void on_keepalive(uv_timer_t *timer);

static void keepalive_in(struct tr_h2_conn *c, uint64_t ms)
{
    c->due = uv_now(c->loop) + ms;
    uv_timer_start(&c->timer, on_keepalive, ms, 0);
}

static void on_keepalive(uv_timer_t *timer)
{
    struct tr_h2_conn *c = timer->data;
    uint64_t now = uv_now(c->loop), silence = now - c->last_rx;

    if (c->h2 == NULL)
        return;
    if (c->ping == PING_NONE && silence < c->ping_ms) {
        keepalive_in(c, c->ping_ms - silence);
    } else if (c->ping == PING_NONE) {
        if (tr_h2_ping(c->h2, NULL, NULL) == 0) /* no memory: perhaps next time */
            c->ping = PING_SENT;
        keepalive_in(c, c->ping_ms);
    } else if (now - c->due > c->ping_ms / 4) {
        /* We were the ones who stood still, and perhaps the peer with us: no judgement. */
        c->ping = PING_SENT;
        keepalive_in(c, c->ping_ms);
    } else if (c->ping == PING_SENT) {
        /* Timers run before sockets are read: the answer may be there. */
        c->ping = PING_LATE;
        keepalive_in(c, LAST_CHANCE);
    } else {
        tr_h2_abort(c->h2, UV_ETIMEDOUT, "no answer to a ping");
    }
}

/* ---- public ---- */

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    struct tr_h2_conn *c = arg;

    if (c->cbs.on_request != NULL)
        c->cbs.on_request(h2, st, head, end, c->arg);
}

static int conn_new(uv_loop_t *loop, bool server, const struct tr_h2_options *options,
                    uint64_t ping_ms, const struct tr_h2_conn_cbs *cbs, void *arg,
                    struct tr_h2_conn **out)
{
    struct tr_h2_conn *c = calloc(1, sizeof(*c));
    struct tr_h2_cbs h2_cbs = {
        .on_request = on_request, .send = on_send, .wake = wake, .on_over = on_over};
    int r;

    if (c == NULL)
        return UV_ENOMEM;
    c->loop = loop;
    c->cbs = *cbs;
    c->arg = arg;
    c->ping_ms = ping_ms;
    c->last_rx = uv_now(loop);
    c->stall_ms =
        options != NULL && options->write_stall_ms != 0 ? options->write_stall_ms : STALL_MS;
    r = tr_h2_new(server, options, &h2_cbs, c, &c->h2);
    if (r != 0) {
        free(c);
        return r;
    }
    *out = c;
    return 0;
}

/* Handles come last, since taking them back would need the loop. */
static void start(struct tr_h2_conn *c)
{
    if (uv_idle_init(c->loop, &c->pump) != 0 || uv_timer_init(c->loop, &c->timer) != 0 ||
        uv_timer_init(c->loop, &c->stall) != 0)
        abort(); /* cannot fail on Unix */
    c->pump.data = c->timer.data = c->stall.data = c;
    c->n_open += 3;
    if (c->ping_ms > 0)
        keepalive_in(c, c->ping_ms);
    wake(c); /* the preface */
}

int tr_h2_conn_open(uv_stream_t *stream, bool server, const struct tr_h2_options *options,
                    uint64_t ping_ms, const struct tr_h2_conn_cbs *cbs, void *arg,
                    struct tr_h2_conn **out)
{
    struct tr_h2_conn *c;
    int r = conn_new(stream->loop, server, options, ping_ms, cbs, arg, &c);

    if (r != 0)
        return r;
    r = uv_read_start(stream, on_alloc, on_read);
    if (r != 0) {
        tr_h2_free(c->h2);
        free(c);
        return r;
    }
    c->stream = stream;
    c->n_open = 1;
    stream->data = c;
    start(c);
    *out = c;
    return 0;
}

int tr_h2_conn_open_channel(struct tr_channel *channel, bool server,
                            const struct tr_h2_options *options, uint64_t ping_ms,
                            const struct tr_h2_conn_cbs *cbs, void *arg, struct tr_h2_conn **out)
{
    struct tr_h2_conn *c;
    int r = conn_new(tr_channel_loop(channel), server, options, ping_ms, cbs, arg, &c);

    if (r != 0)
        return r;
    c->channel = channel;
    start(c);
    *out = c;
    return 0;
}

struct tr_h2 *tr_h2_conn_session(struct tr_h2_conn *conn)
{
    return conn->h2;
}

void tr_h2_conn_close(struct tr_h2_conn *conn)
{
    if (conn->h2 == NULL) {
        close_handles(conn); /* no more lingering */
        return;
    }
    if (conn->fault != 0)
        return;
    conn->fault = UV_ECANCELED;
    tr_h2_abort_later(conn->h2, UV_ECANCELED, "closed");
}

void tr_h2_conn_channel_data(struct tr_h2_conn *conn, const uint8_t *data, size_t len)
{
    received(conn, data, len);
}

void tr_h2_conn_channel_drain(struct tr_h2_conn *conn)
{
    if (!conn->full)
        return;
    conn->full = false;
    if (conn->h2 != NULL)
        tr_h2_writable(conn->h2);
}

void tr_h2_conn_channel_closed(struct tr_h2_conn *conn, int status)
{
    conn->channel = NULL;
    if (conn->h2 == NULL)
        return;
    conn->fault = status != 0 ? status : UV_EOF;
    tr_h2_abort_later(conn->h2, conn->fault, "channel closed");
}
