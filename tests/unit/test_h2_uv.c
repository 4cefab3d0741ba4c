/* SPDX-License-Identifier: MIT */
/* HTTP/2 over libuv: real socketpairs, large bodies, slow readers, every way to end. */
#include "transom/h2_uv.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "transom/channel.h"

#define BODY_LEN ((size_t)100 << 20)

static uv_loop_t loop;

/* One end of a connection. */
struct end {
    struct tr_h2_conn *conn;
    int n_close, status;
    int streams_closed; /* when on_close ran */
    char reason[160];
};
static struct end client, server;

/* A body on its way: a sender that obeys the queue, a receiver that may be slow. */
struct flow {
    struct tr_h2_stream *st;
    size_t left, got, max_queued;
    bool bad;
    bool slow; /* give window back from the timer only */
    size_t held;
    int n_head, n_end, n_close;
    uint32_t code;
};
static struct flow up, down; /* as the client, as the server sees it */
static uv_timer_t ticker;

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 31 + (i >> 13));
}

static void flow_send(struct flow *f)
{
    static uint8_t buf[50000];
    static size_t pos;
    int r = 1;

    while (f->left > 0 && r == 1) {
        size_t n = f->left < sizeof(buf) ? f->left : sizeof(buf);

        pos = BODY_LEN - f->left;
        for (size_t i = 0; i < n; i++)
            buf[i] = pattern(pos + i);
        r = tr_h2_write(f->st, buf, n);
        ck_assert_int_ge(r, 0);
        f->left -= n;
        if (tr_h2_stream_queued(f->st) > f->max_queued)
            f->max_queued = tr_h2_stream_queued(f->st);
    }
    if (f->left == 0)
        tr_h2_end(f->st, NULL, 0);
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    (void)st;
    (void)end;
    ((struct flow *)arg)->n_head += head->status == 200;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct flow *f = arg;

    for (size_t i = 0; i < len; i++)
        f->bad = f->bad || data[i] != pattern(f->got + i);
    f->got += len;
    if (f->slow)
        f->held += len;
    else
        tr_h2_stream_consume(st, len);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    (void)st;
    (void)trailers;
    ((struct flow *)arg)->n_end++;
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    (void)st;
    flow_send(arg);
}

static void on_stream_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct flow *f = arg;

    (void)st;
    f->n_close++;
    f->code = code;
    f->st = NULL;
}

static const struct tr_h2_stream_cbs flow_cbs = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_drain = on_drain,
    .on_close = on_stream_close,
};

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    (void)h2;
    (void)arg;
    (void)end;
    down.st = st;
    tr_h2_stream_set(st, &flow_cbs, &down);
    if (strcmp(head->path, "/stay") == 0)
        return;
    ck_assert_int_eq(tr_h2_respond(st, 200, NULL, 0, false), 0);
    down.left = BODY_LEN;
    flow_send(&down);
}

static void on_conn_close(struct tr_h2_conn *conn, int status, const char *reason, void *arg)
{
    struct end *e = arg;

    ck_assert_ptr_eq(conn, e->conn);
    e->n_close++;
    e->status = status;
    e->streams_closed = up.n_close;
    strncpy(e->reason, reason, sizeof(e->reason) - 1);
    e->conn = NULL;
}

static const struct tr_h2_conn_cbs conn_cbs = {.on_request = on_request, .on_close = on_conn_close};

static uv_stream_t *stream_of(int fd)
{
    uv_pipe_t *pipe = malloc(sizeof(*pipe));

    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(uv_pipe_init(&loop, pipe, 0), 0);
    ck_assert_int_eq(uv_pipe_open(pipe, fd), 0);
    return (uv_stream_t *)pipe;
}

static void open_both(uint64_t ping_ms, const struct tr_h2_options *options)
{
    int fd[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    ck_assert_int_eq(tr_h2_conn_open(stream_of(fd[0]), false, options, ping_ms, &conn_cbs, &client,
                                     &client.conn),
                     0);
    ck_assert_int_eq(
        tr_h2_conn_open(stream_of(fd[1]), true, options, 0, &conn_cbs, &server, &server.conn), 0);
}

static void start_request(const char *path, bool end)
{
    struct tr_h2_field f[] = {
        TR_H2_FIELD(":method", "POST"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "test"),
        TR_H2_FIELD(":path", path),
    };

    ck_assert_int_eq(
        tr_h2_request(tr_h2_conn_session(client.conn), f, 4, end, &flow_cbs, &up, &up.st), 0);
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&client, 0, sizeof(client));
    memset(&server, 0, sizeof(server));
    memset(&up, 0, sizeof(up));
    memset(&down, 0, sizeof(down));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    if (client.conn != NULL)
        tr_h2_conn_close(client.conn);
    if (server.conn != NULL)
        tr_h2_conn_close(server.conn);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void give_back(struct flow *f)
{
    size_t n = f->held;

    if (f->st == NULL || n == 0)
        return;
    f->held = 0;
    tr_h2_stream_consume(f->st, n);
}

static void on_tick(uv_timer_t *timer)
{
    /* The senders' memory stays bounded, however slow the readers are. */
    ck_assert_uint_le(up.held, 256 << 10);
    ck_assert_uint_le(down.held, 256 << 10);
    give_back(&up);
    give_back(&down);
    if (up.n_close > 0 && down.n_close > 0) {
        uv_close((uv_handle_t *)timer, NULL);
        tr_h2_conn_close(client.conn);
    }
}

START_TEST(large_bodies_both_ways_with_slow_readers)
{
    open_both(0, NULL);
    up.slow = down.slow = true;
    start_request("/", false);
    up.left = BODY_LEN;
    flow_send(&up);
    ck_assert_int_eq(uv_timer_init(&loop, &ticker), 0);
    ck_assert_int_eq(uv_timer_start(&ticker, on_tick, 1, 1), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_uint_eq(up.got, BODY_LEN);
    ck_assert_uint_eq(down.got, BODY_LEN);
    ck_assert(!up.bad && !down.bad);
    ck_assert_int_eq(up.n_head, 1);
    ck_assert_int_eq(up.n_end, 1);
    ck_assert_int_eq(down.n_end, 1);
    ck_assert_uint_eq(up.code, 0);
    ck_assert_uint_eq(down.code, 0);
    ck_assert_uint_le(up.max_queued, (256 << 10) + 50000);
    ck_assert_uint_le(down.max_queued, (256 << 10) + 50000);
    ck_assert_int_eq(client.n_close, 1);
    ck_assert_int_eq(client.status, UV_ECANCELED);
    ck_assert_int_eq(server.n_close, 1);
    ck_assert_int_eq(server.status, UV_EOF);
}
END_TEST

#define RUN_UNTIL(cond)                                                                            \
    while (!(cond))                                                                                \
    ck_assert_msg(uv_run(&loop, UV_RUN_ONCE) != 0 || (cond), "loop ended early: %s", #cond)

static void on_alarm(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_close((uv_handle_t *)timer, NULL);
}

static void run_for(uint64_t ms)
{
    static uv_timer_t timer;
    bool done = false;

    timer.data = &done;
    uv_update_time(&loop);
    ck_assert_int_eq(uv_timer_init(&loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_alarm, ms, 0), 0);
    RUN_UNTIL(done);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* ---- ends ---- */

START_TEST(graceful_shutdown_ends_both_with_status_0)
{
    open_both(0, NULL);
    start_request("/stay", true);
    RUN_UNTIL(down.st != NULL);
    tr_h2_shutdown(tr_h2_conn_session(_i == 0 ? client.conn : server.conn));
    for (int i = 0; i < 10; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(client.n_close + server.n_close, 0);
    ck_assert_int_eq(tr_h2_respond(down.st, 200, NULL, 0, true), 0);
    RUN_UNTIL(client.n_close == 1 && server.n_close == 1);
    ck_assert_int_eq(up.n_head, 1);
    ck_assert_uint_eq(up.code, 0);
    ck_assert_int_eq(client.status, 0);
    ck_assert_int_eq(server.status, 0);
}
END_TEST

START_TEST(close_is_told_later_streams_first)
{
    open_both(0, NULL);
    start_request("/stay", true);
    if (_i == 1)
        RUN_UNTIL(down.st != NULL);
    tr_h2_conn_close(client.conn);
    tr_h2_conn_close(client.conn);
    ck_assert_int_eq(up.n_close + client.n_close, 0);
    RUN_UNTIL(client.n_close == 1 && server.n_close == 1);
    ck_assert_int_eq(client.streams_closed, 1);
    ck_assert_int_eq(client.status, UV_ECANCELED);
    /* A unix socket closed with bytes unread resets. */
    ck_assert(server.status == UV_EOF || server.status == UV_ECONNRESET);
    ck_assert_int_eq(down.n_close, _i);
}
END_TEST

/* A raw peer of the client (or of the server): bytes by hand. */
static int raw = -1;
static size_t raw_have; /* bytes read and not looked at yet */

static void open_raw(bool is_server, uint64_t ping_ms, struct end *e)
{
    int fd[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    ck_assert_int_eq(
        tr_h2_conn_open(stream_of(fd[0]), is_server, NULL, ping_ms, &conn_cbs, e, &e->conn), 0);
    raw = fd[1];
    raw_have = 0;
}

/* Turn the loop until the raw peer has seen a frame of that type; its payload goes to out. */
static void raw_expect(uint8_t type, uint8_t *out, bool skip_preface)
{
    static uint8_t buf[1 << 18];
    size_t at = skip_preface ? 24 : 0;
    size_t have = raw_have;
    for (;;) {
        ssize_t n = recv(raw, buf + have, sizeof(buf) - have, MSG_DONTWAIT);

        if (n > 0)
            have += (size_t)n;
        while (have >= at + 9) {
            size_t len = (size_t)buf[at] << 16 | (size_t)buf[at + 1] << 8 | buf[at + 2];
            uint8_t t = buf[at + 3];

            if (have < at + 9 + len)
                break;
            if (t == type && out != NULL)
                memcpy(out, buf + at + 9, len);
            at += 9 + len;
            if (t == type) {
                raw_have = have - at;
                memmove(buf, buf + at, raw_have);
                return;
            }
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

START_TEST(lost_peer_closes_streams_then_the_connection)
{
    open_raw(false, 0, &client);
    start_request("/", true);
    raw_expect(1, NULL, true);
    close(raw);
    RUN_UNTIL(client.n_close == 1);
    ck_assert_int_eq(up.n_close, 1);
    ck_assert_int_eq(client.status, UV_EOF);
    ck_assert_str_ne(client.reason, "");
}
END_TEST

START_TEST(a_broken_peer_is_told_why)
{
    uint8_t goaway[64];

    open_raw(true, 0, &server);
    ck_assert_int_eq(write(raw, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33), 33);
    raw_expect(4, NULL, false);
    ck_assert_int_eq(write(raw, "\0\0\1\6\0\0\0\0\0x", 10), 10); /* a PING of one byte */
    raw_expect(7, goaway, false);
    ck_assert_uint_eq(goaway[7], 6); /* FRAME_SIZE_ERROR */
    RUN_UNTIL(server.n_close == 1);
    ck_assert_int_eq(server.status, UV_EPROTO);
    close(raw);
}
END_TEST

START_TEST(a_peer_that_does_not_read_costs_bounded_memory_and_time)
{
    /* Settings with the largest window, the same for the session, then GET /. */
    static const uint8_t hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                   "\0\0\6\4\0\0\0\0\0\0\4\x7f\xff\xff\xff"
                                   "\0\0\4\x8\0\0\0\0\0\x7f\xff\0\0"
                                   "\0\0\6\1\5\0\0\0\1\x82\x86\x84\x41\1m";
    struct tr_h2_options o = {.write_stall_ms = 200};
    uv_stream_t *stream;
    size_t left;
    int fd[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    stream = stream_of(fd[0]);
    ck_assert_int_eq(tr_h2_conn_open(stream, true, &o, 0, &conn_cbs, &server, &server.conn), 0);
    ck_assert_int_eq(write(fd[1], hello, sizeof(hello) - 1), sizeof(hello) - 1);
    RUN_UNTIL(down.st != NULL);
    do {
        left = down.left;
        for (int i = 0; i < 20; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
    } while (down.left != left);
    ck_assert_uint_gt(left, BODY_LEN / 2);
    ck_assert_uint_le(uv_stream_get_write_queue_size(stream), (256 << 10) + 50000);
    /* A reader, however slow, is waited for. */
    for (int i = 0; i < 5; i++) {
        static char buf[300000];

        for (size_t n = 0; n < 300000;) {
            ssize_t r = recv(fd[1], buf, 1000, MSG_DONTWAIT);

            n += r > 0 ? (size_t)r : 0;
            uv_run(&loop, UV_RUN_NOWAIT);
        }
        run_for(100);
        ck_assert_int_eq(server.n_close, 0);
    }
    /* The last GOAWAY cannot leave; the connection does not wait for ever. */
    ck_assert_int_eq(write(fd[1], "\0\0\1\6\0\0\0\0\0x", 10), 10);
    RUN_UNTIL(server.n_close == 1);
    ck_assert_int_eq(server.status, UV_ETIMEDOUT);
    ck_assert_int_eq(down.n_close, 1);
    close(fd[1]);
}
END_TEST

START_TEST(what_is_queued_leaves_before_the_end)
{
    static const uint8_t hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                   "\0\0\0\4\0\0\0\0\0"
                                   "\0\0\6\1\5\0\0\0\1\x82\x86\x84\x41\1m";
    uv_stream_t *stream;
    int fd[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    ck_assert_int_eq(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
    stream = stream_of(fd[0]);
    ck_assert_int_eq(tr_h2_conn_open(stream, true, NULL, 0, &conn_cbs, &server, &server.conn), 0);
    ck_assert_int_eq(write(fd[1], hello, sizeof(hello) - 1), sizeof(hello) - 1);
    RUN_UNTIL(down.st != NULL); /* the answer fills the window of 65,535 bytes */
    ck_assert_uint_gt(uv_stream_get_write_queue_size(stream), 0);
    ck_assert_int_eq(write(fd[1], "\0\0\1\6\0\0\0\0\0x", 10), 10);
    RUN_UNTIL(tr_h2_conn_session(server.conn) == NULL);
    ck_assert_int_eq(server.n_close, 0);
    raw = fd[1];
    raw_have = 0;
    raw_expect(7, NULL, false);
    RUN_UNTIL(server.n_close == 1);
    ck_assert_int_eq(server.status, UV_EPROTO);
    close(raw);
}
END_TEST

/* ---- silence ---- */

START_TEST(a_silent_peer_is_given_up)
{
    uint64_t at;

    at = uv_now(&loop); /* by the clock that the timers go by */
    open_raw(false, 50, &client);
    start_request("/", true);
    RUN_UNTIL(client.n_close == 1);
    ck_assert_int_eq(client.status, UV_ETIMEDOUT);
    ck_assert_int_eq(up.n_close, 1);
    ck_assert_uint_ge(uv_now(&loop) - at, 99);
    close(raw);
}
END_TEST

START_TEST(a_quiet_peer_that_answers_is_kept)
{
    open_both(20, NULL);
    run_for(400);
    ck_assert_int_eq(client.n_close + server.n_close, 0);
}
END_TEST

START_TEST(a_pause_of_our_own_is_not_the_peers_silence)
{
    uint8_t ack[17] = {0, 0, 8, 6, 1};
    uint64_t until;

    open_raw(false, 100, &client);
    raw_expect(4, NULL, true);
    ck_assert_int_eq(write(raw, "\0\0\0\4\0\0\0\0\0", 9), 9);
    for (int i = 0; i < 9; i++) {
        bool both = i % 3 == 0; /* the peer stands still as well */

        raw_expect(6, ack + 9, false);
        if (!both) /* answered at once, but our loop does not turn: for long, or just too long */
            ck_assert_int_eq(write(raw, ack, sizeof(ack)), sizeof(ack));
        until = uv_hrtime() + (i % 3 == 1 ? 105000000 : 300000000);
        while (uv_hrtime() < until)
            ;
        run_for(5);
        ck_assert_int_eq(client.n_close, 0);
        if (both)
            ck_assert_int_eq(write(raw, ack, sizeof(ack)), sizeof(ack));
    }
    close(raw);
    RUN_UNTIL(client.n_close == 1);
}
END_TEST

/* ---- close from inside callbacks ---- */

static struct end *victim;
static int acts;

static void close_victim(void)
{
    acts++;
    tr_h2_conn_close(victim->conn);
}

static void closing_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end,
                         void *arg)
{
    on_head(st, head, end, arg);
    if (acts == 0)
        close_victim();
}

static void closing_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    on_data(st, data, len, arg);
    if (acts == 0)
        close_victim();
    else
        ck_assert_ptr_eq(victim, &server); /* no data after close */
}

static void closing_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    on_stream_close(st, code, arg);
    if (acts == 0)
        close_victim();
}

START_TEST(close_from_inside_a_callback)
{
    struct tr_h2_stream_cbs cbs = flow_cbs;

    open_both(0, NULL);
    victim = _i < 3 ? &client : &server;
    acts = 0;
    switch (_i % 3) {
    case 0:
        cbs.on_head = closing_head;
        break;
    case 1:
        cbs.on_data = closing_data;
        break;
    default:
        cbs.on_close = closing_close;
        break;
    }
    start_request("/", false);
    tr_h2_stream_set(up.st, &cbs, &up);
    RUN_UNTIL(down.st != NULL);
    if (_i % 3 == 2)
        tr_h2_reset(up.st, 8);
    RUN_UNTIL(client.n_close == 1 && server.n_close == 1);
    ck_assert_int_eq(acts, 1);
    ck_assert_int_eq(up.n_close, 1);
    ck_assert_int_eq(down.n_close, 1);
}
END_TEST

START_TEST(a_stream_that_cannot_be_read_stays_the_callers)
{
    uv_pipe_t *pipe = malloc(sizeof(*pipe));

    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(uv_pipe_init(&loop, pipe, 0), 0);
    ck_assert_int_lt(
        tr_h2_conn_open((uv_stream_t *)pipe, true, NULL, 0, &conn_cbs, &server, &server.conn), 0);
    ck_assert_ptr_null(server.conn);
    uv_close((uv_handle_t *)pipe, (uv_close_cb)free);
}
END_TEST

/* ---- over the machine channel ---- */

struct chan {
    struct tr_channel *ch;
    struct end *end;
    bool is_server;
    int n_open, n_close;
};
static struct chan host, guest;

static void chan_open(struct tr_channel *ch, void *arg)
{
    struct chan *c = arg;

    c->n_open++;
    memset(c->end, 0, sizeof(*c->end));
    ck_assert_int_eq(
        tr_h2_conn_open_channel(ch, c->is_server, NULL, 0, &conn_cbs, c->end, &c->end->conn), 0);
}

static void chan_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    (void)ch;
    if (((struct chan *)arg)->end->conn != NULL)
        tr_h2_conn_channel_data(((struct chan *)arg)->end->conn, data, len);
}

static void chan_drain(struct tr_channel *ch, void *arg)
{
    (void)ch;
    if (((struct chan *)arg)->end->conn != NULL)
        tr_h2_conn_channel_drain(((struct chan *)arg)->end->conn);
}

static struct end old_ends[8];
static int n_old;

static void chan_end(struct tr_channel *ch, int status, void *arg)
{
    struct chan *c = arg;

    (void)ch;
    if (c->end->conn != NULL)
        tr_h2_conn_channel_closed(c->end->conn, status);
    c->end = &old_ends[n_old++]; /* a new conversation may begin before the old one's on_close */
}

static void chan_close(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)status;
    ((struct chan *)arg)->n_close++;
}

static const struct tr_channel_cbs chan_cbs = {chan_open, chan_data, chan_drain, chan_end,
                                               chan_close};

static void open_host(int fd)
{
    host = (struct chan){.end = &client, .is_server = false};
    ck_assert_int_eq(tr_channel_open(&loop, fd, fd, true, false, &chan_cbs, &host, &host.ch), 0);
}

START_TEST(sessions_over_the_channel)
{
    int fd[2];

    n_old = 0;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    guest = (struct chan){.end = &server, .is_server = true};
    ck_assert_int_eq(
        tr_channel_open(&loop, fd[1], fd[1], false, false, &chan_cbs, &guest, &guest.ch), 0);
    open_host(dup(fd[0])); /* the wire outlives the host */
    RUN_UNTIL(client.conn != NULL && server.conn != NULL);
    start_request("/", false);
    up.left = BODY_LEN;
    flow_send(&up);
    RUN_UNTIL(up.n_close == 1 && down.n_close == 1);
    ck_assert_uint_eq(up.got, BODY_LEN);
    ck_assert_uint_eq(down.got, BODY_LEN);
    ck_assert(!up.bad && !down.bad);

    /* The manager goes away with a request under way, and comes back. */
    memset(&up, 0, sizeof(up));
    memset(&down, 0, sizeof(down));
    start_request("/stay", true);
    RUN_UNTIL(down.st != NULL);
    tr_channel_close(host.ch);
    RUN_UNTIL(host.n_close == 1 && client.n_close == 1);
    ck_assert_int_eq(up.n_close, 1);
    ck_assert_int_eq(server.n_close, 0); /* it does not know yet */
    open_host(fd[0]);
    RUN_UNTIL(host.n_open == 1 && guest.n_open == 2 && server.n_close == 1);
    ck_assert_int_eq(down.n_close, 1);
    ck_assert_int_eq(server.status, UV_ECONNRESET);
    memset(&up, 0, sizeof(up));
    memset(&down, 0, sizeof(down));
    start_request("/stay", true);
    RUN_UNTIL(down.st != NULL);
    ck_assert_int_eq(tr_h2_respond(down.st, 200, NULL, 0, true), 0);
    RUN_UNTIL(up.n_close == 1);
    ck_assert_int_eq(up.n_head, 1);
    tr_channel_close(host.ch);
    RUN_UNTIL(host.n_close == 1 && guest.n_close == 1);
    RUN_UNTIL(client.conn == NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/h2_uv");
    TCase *tc = tcase_create("conn");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, large_bodies_both_ways_with_slow_readers);
    tcase_add_loop_test(tc, graceful_shutdown_ends_both_with_status_0, 0, 2);
    tcase_add_loop_test(tc, close_is_told_later_streams_first, 0, 2);
    tcase_add_test(tc, lost_peer_closes_streams_then_the_connection);
    tcase_add_test(tc, a_broken_peer_is_told_why);
    tcase_add_test(tc, a_peer_that_does_not_read_costs_bounded_memory_and_time);
    tcase_add_test(tc, what_is_queued_leaves_before_the_end);
    tcase_add_test(tc, a_silent_peer_is_given_up);
    tcase_add_test(tc, a_quiet_peer_that_answers_is_kept);
    tcase_add_test(tc, a_pause_of_our_own_is_not_the_peers_silence);
    tcase_add_loop_test(tc, close_from_inside_a_callback, 0, 6);
    tcase_add_test(tc, a_stream_that_cannot_be_read_stays_the_callers);
    tcase_add_test(tc, sessions_over_the_channel);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
