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

#define BODY_LEN ((size_t)100 << 20)

static uv_loop_t loop;

/* One end of a connection. */
struct end {
    struct tr_h2_conn *conn;
    int n_close, status;
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

int main(void)
{
    Suite *s = suite_create("link/h2_uv");
    TCase *tc = tcase_create("conn");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, large_bodies_both_ways_with_slow_readers);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
