/* SPDX-License-Identifier: MIT */
/* Each allocation of a whole exchange fails once, nghttp2's included: nothing leaks (ASan), nothing
 * crashes, every stream the program was told of is closed once, every session ends. */
#include <assert.h>
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "alloc_fail.h"
#include "transom/channel.h"
#include "transom/h2.h"
#include "transom/h2_uv.h"

/* ---- two sessions joined in memory, without memory from the heap ---- */

struct end {
    struct tr_h2 *h2;
    uint8_t wire[1 << 17];
    size_t len;
    int n_told, n_closed, n_over, status;
};
static struct end client, server;
static bool pinged;

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    struct end *e = arg;

    assert(e->len + len <= sizeof(e->wire)); /* check's own macros would allocate */
    memcpy(e->wire + e->len, data, len);
    e->len += len;
    return true;
}

static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct end *e = arg;

    (void)reason;
    assert(e->n_over++ == 0);
    assert(e->n_told == e->n_closed);
    e->status = status;
    e->h2 = NULL;
    tr_h2_free(h2);
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)arg;
    tr_h2_stream_consume(st, len);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    ((struct end *)arg)->n_closed++;
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    static const uint8_t body[9000];
    struct tr_h2_field f = TR_H2_FIELD("x-sum", "1");

    (void)trailers;
    if (arg == &client)
        return;
    (void)!tr_h2_respond(st, 103, &f, 1, false);
    if (tr_h2_respond(st, 200, &f, 1, false) != 0 || tr_h2_write(st, body, sizeof(body)) < 0)
        tr_h2_reset(st, 2);
    else
        tr_h2_end(st, &f, 1);
}

static const struct tr_h2_stream_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_close = on_close};

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    (void)h2;
    (void)head;
    (void)end;
    (void)arg;
    server.n_told++;
    tr_h2_stream_set(st, &cbs, &server);
}

static int request(struct tr_h2 *h2, struct end *e, struct tr_h2_stream **st)
{
    struct tr_h2_field f[24] = {
        TR_H2_FIELD(":method", "POST"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "test"),
        TR_H2_FIELD(":path", "/"),
    };
    int r;

    for (int i = 4; i < 24; i++)
        f[i] = TR_H2_FIELD("x-many", "fields");
    r = tr_h2_request(h2, f, 24, false, &cbs, e, st);
    if (r == 0)
        e->n_told++;
    return r;
}

static void move(struct end *from, struct end *to)
{
    static uint8_t copy[1 << 17];
    size_t len = from->len;

    memcpy(copy, from->wire, len);
    from->len = 0;
    if (to->h2 != NULL)
        tr_h2_feed(to->h2, copy, len);
}

static void settle(void)
{
    do {
        if (client.h2 != NULL)
            tr_h2_run(client.h2);
        if (server.h2 != NULL)
            tr_h2_run(server.h2);
        move(&client, &server);
        move(&server, &client);
    } while (client.len + server.len > 0);
}

static void on_pong(int status, void *arg)
{
    (void)status;
    (void)arg;
    assert(pinged);
    pinged = false;
}

static void exchange(void)
{
    struct tr_h2_cbs c = {.on_request = on_request, .send = on_send, .on_over = on_over};
    struct tr_h2_field sum = TR_H2_FIELD("x-sum", "1");
    struct tr_h2_stream *st = NULL;

    if (tr_h2_new(false, NULL, &c, &client, &client.h2) != 0 ||
        tr_h2_new(true, NULL, &c, &server, &server.h2) != 0)
        return;
    settle();
    for (int i = 0; i < 3 && client.h2 != NULL; i++) {
        if (request(client.h2, &client, &st) != 0)
            continue;
        if (tr_h2_write(st, "hello", 5) < 0)
            tr_h2_reset(st, 2);
        else if (i == 1)
            tr_h2_reset(st, 8);
        else
            tr_h2_end(st, &sum, 1);
        settle();
    }
    if (client.h2 != NULL)
        pinged = tr_h2_ping(client.h2, on_pong, NULL) == 0;
    settle();
    if (server.h2 != NULL)
        tr_h2_shutdown(server.h2);
    settle();
}

START_TEST(a_session_survives_each_failed_allocation)
{
    long n = 1;
    int n_ok = 0;
    bool failed;

    do {
        memset(&client, 0, sizeof(client));
        memset(&server, 0, sizeof(server));
        pinged = false;
        alloc_fail_at(n++);
        exchange();
        failed = alloc_failed();
        n_ok += client.n_over == 1 && client.status == 0 && server.status == 0;
        tr_h2_free(client.h2);
        tr_h2_free(server.h2);
        ck_assert_int_eq(client.n_told, client.n_closed);
        ck_assert_int_eq(server.n_told, server.n_closed);
        ck_assert(!pinged);
    } while (failed);
    ck_assert_int_gt(n, 100);  /* it did reach into nghttp2 */
    ck_assert_int_gt(n_ok, 5); /* some failures cost one stream only */
    ck_assert_int_eq(client.n_told, 3);
    ck_assert_int_eq(server.n_told, 2);
}
END_TEST

/* ---- the channel, and connections on it and on a stream ---- */

static uv_loop_t loop;

struct conn_end {
    struct tr_channel *ch;
    struct tr_h2_conn *conn;
    int n_conn, n_conn_closed, n_wire, n_wire_closed;
    bool is_server, answered, gave_up;
};
static struct conn_end ends[2];

static void on_conn_close(struct tr_h2_conn *conn, int status, const char *reason, void *arg)
{
    struct conn_end *e = arg;

    (void)status;
    (void)reason;
    e->n_conn_closed++;
    if (e->conn == conn)
        e->conn = NULL;
}

static const struct tr_h2_conn_cbs conn_cbs = {.on_request = on_request, .on_close = on_conn_close};

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    (void)st;
    (void)head;
    (void)end;
    (void)arg;
    ends[0].answered = true;
}

static const struct tr_h2_stream_cbs asker_cbs = {
    .on_head = on_head, .on_data = on_data, .on_close = on_close};

static void ask(struct conn_end *e)
{
    struct tr_h2_stream *st;

    if (e->is_server)
        return;
    if (request(tr_h2_conn_session(e->conn), &client, &st) != 0) {
        e->gave_up = true;
        return;
    }
    tr_h2_stream_set(st, &asker_cbs, &client);
    tr_h2_end(st, NULL, 0);
}

static void chan_open(struct tr_channel *ch, void *arg)
{
    struct conn_end *e = arg;

    if (tr_h2_conn_open_channel(ch, e->is_server, NULL, 1000, &conn_cbs, e, &e->conn) == 0) {
        e->n_conn++;
        ask(e);
    } else {
        tr_channel_close(ch);
    }
}

static void chan_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    struct conn_end *e = arg;

    (void)ch;
    if (e->conn != NULL)
        tr_h2_conn_channel_data(e->conn, data, len);
}

static void chan_end(struct tr_channel *ch, int status, void *arg)
{
    struct conn_end *e = arg;

    (void)ch;
    if (e->conn != NULL)
        tr_h2_conn_channel_closed(e->conn, status);
}

static void chan_close(struct tr_channel *ch, int status, void *arg)
{
    struct conn_end *e = arg;

    (void)ch;
    (void)status;
    e->n_wire_closed++;
    e->ch = NULL;
}

static const struct tr_channel_cbs chan_cbs = {
    .on_open = chan_open, .on_data = chan_data, .on_end = chan_end, .on_close = chan_close};

static int open_channel(struct conn_end *e, int fd)
{
    int r = tr_channel_open(&loop, fd, fd, !e->is_server, false, &chan_cbs, e, &e->ch);

    if (r != 0)
        close(fd);
    return r;
}

static int open_stream(struct conn_end *e, int fd)
{
    uv_pipe_t *pipe;

    alloc_fail_at(0); /* the handle is the caller's affair */
    pipe = malloc(sizeof(*pipe));
    if (pipe == NULL || uv_pipe_init(&loop, pipe, 0) != 0 || uv_pipe_open(pipe, fd) != 0)
        abort();
    return tr_h2_conn_open((uv_stream_t *)pipe, e->is_server, NULL, 1000, &conn_cbs, e, &e->conn);
}

static void setup_ends(void)
{
    memset(&client, 0, sizeof(client));
    memset(&server, 0, sizeof(server));
    memset(ends, 0, sizeof(ends));
    ends[1].is_server = true;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void close_ends(void)
{
    for (int i = 0; i < 2; i++) {
        if (ends[i].conn != NULL)
            tr_h2_conn_close(ends[i].conn);
        if (ends[i].ch != NULL)
            tr_channel_close(ends[i].ch);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ends[i].n_conn, ends[i].n_conn_closed);
        ck_assert_int_eq(ends[i].n_wire, ends[i].n_wire_closed);
    }
    ck_assert_int_eq(client.n_told, client.n_closed);
    ck_assert_int_eq(server.n_told, server.n_closed);
}

START_TEST(channels_survive_each_failed_allocation)
{
    long n = 1;
    int n_answered = 0;
    bool failed;

    do {
        int fd[2];

        setup_ends();
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        alloc_fail_at(n++);
        ends[0].n_wire = open_channel(&ends[0], fd[0]) == 0;
        ends[1].n_wire = open_channel(&ends[1], fd[1]) == 0;
        while (ends[0].n_wire_closed < ends[0].n_wire && ends[1].n_wire_closed < ends[1].n_wire &&
               client.n_closed == 0 && !ends[0].gave_up &&
               ends[0].n_conn_closed + ends[1].n_conn_closed == 0)
            uv_run(&loop, UV_RUN_ONCE);
        failed = alloc_failed();
        n_answered += ends[0].answered;
        close_ends();
    } while (failed);
    ck_assert(ends[0].answered);
    ck_assert_int_gt(n, 60);
    ck_assert_int_lt(n_answered, n);
}
END_TEST

START_TEST(connections_survive_each_failed_allocation)
{
    long n = 1;
    bool failed;

    do {
        int fd[2], r[2];

        setup_ends();
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
        r[0] = open_stream(&ends[0], fd[0]);
        r[1] = open_stream(&ends[1], fd[1]);
        ck_assert_int_eq(r[0] | r[1], 0);
        ends[0].n_conn = ends[1].n_conn = 1;
        alloc_fail_at(n++);
        ask(&ends[0]);
        while (ends[0].n_conn_closed + ends[1].n_conn_closed == 0 && client.n_told > 0 &&
               client.n_closed == 0)
            uv_run(&loop, UV_RUN_ONCE);
        failed = alloc_failed();
        close_ends();
    } while (failed);
    ck_assert(ends[0].answered);
    ck_assert_int_gt(n, 30);
}
END_TEST

START_TEST(an_open_that_fails_leaves_the_stream_to_the_caller)
{
    for (long n = 1;; n++) {
        uv_pipe_t pipe;
        int fd[2], r;

        setup_ends();
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
        ck_assert_int_eq(uv_pipe_init(&loop, &pipe, 0), 0);
        ck_assert_int_eq(uv_pipe_open(&pipe, fd[0]), 0);
        close(fd[1]);
        alloc_fail_at(n);
        r = 0;
        if (n <= 8) /* beyond, it would be taken: pipe is not from malloc */
            r = tr_h2_conn_open((uv_stream_t *)&pipe, true, NULL, 0, &conn_cbs, &ends[0],
                                &ends[0].conn);
        if (n <= 8)
            ck_assert(alloc_failed());
        alloc_fail_at(0);
        uv_close((uv_handle_t *)&pipe, NULL);
        close_ends();
        if (n > 8)
            break;
        ck_assert_int_eq(r, UV_ENOMEM);
        ck_assert_ptr_null(ends[0].conn);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/alloc");
    TCase *tc = tcase_create("alloc");
    SRunner *sr = srunner_create(s);
    int n_failed;

    signal(SIGPIPE, SIG_IGN);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_session_survives_each_failed_allocation);
    tcase_add_test(tc, channels_survive_each_failed_allocation);
    tcase_add_test(tc, connections_survive_each_failed_allocation);
    tcase_add_test(tc, an_open_that_fails_leaves_the_stream_to_the_caller);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
