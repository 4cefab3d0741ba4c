/* SPDX-License-Identifier: MIT */
/* The runtime (timers, sockets) and the outgoing side of messages on a socket that takes little. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "gateway/out.h"
#include "gateway/runtime.h"

static struct gw_loop *loop;
static struct gw_timeout soon, later;
static int n_fired;

static void setup(void)
{
    ck_assert_int_eq(gw_loop_new(&loop), 0);
    gw_timeout_init(loop, &soon, 5);
    gw_timeout_init(loop, &later, 60000);
    n_fired = 0;
}

static void teardown(void)
{
    gw_loop_free(loop);
}

static void on_timer(struct gw_timer *timer)
{
    ck_assert_ptr_null(timer->next);
    n_fired++;
}

START_TEST(timers_fire_once_and_can_be_stopped)
{
    struct gw_timer a = {0}, b = {0}, c = {0};

    gw_timer_start(&soon, &a, on_timer);
    gw_timer_start(&soon, &b, on_timer);
    gw_timer_start(&later, &c, on_timer);
    gw_timer_stop(&b);
    for (int i = 0; i < 100 && n_fired == 0; i++)
        gw_loop_run(loop, 1000);
    ck_assert_int_eq(n_fired, 1);
    gw_loop_run(loop, 0);
    ck_assert_int_eq(n_fired, 1);
    gw_timer_stop(&c);
    gw_timer_stop(&c);
}
END_TEST

static void on_wake(void *arg)
{
    ++*(int *)arg;
}

START_TEST(a_wake_up_ends_the_sleep)
{
    int n = 0;

    gw_loop_on_wake(loop, on_wake, &n);
    gw_loop_wake(loop);
    gw_loop_wake(loop);
    gw_loop_run(loop, 60000);
    ck_assert_int_eq(n, 1);
}
END_TEST

/* Writes take a few bytes at most, so that every boundary is met (linked with --wrap). */
ssize_t __real_gw_sock_writev(struct gw_sock *sock, const struct iovec *iov, int n); /* NOLINT */
ssize_t __wrap_gw_sock_writev(struct gw_sock *sock, const struct iovec *iov, int n); /* NOLINT */
static size_t budget = SIZE_MAX;

ssize_t __wrap_gw_sock_writev(struct gw_sock *sock, const struct iovec *iov, int n) /* NOLINT */
{
    struct iovec cut[8];
    size_t left = budget;
    int m = 0;

    for (; m < n && left > 0; m++) {
        cut[m] = iov[m];
        if (cut[m].iov_len > left)
            cut[m].iov_len = left;
        left -= cut[m].iov_len;
    }
    return m == 0 ? 0 : __real_gw_sock_writev(sock, cut, m);
}

struct reader {
    char got[65536];
    size_t len;
};

/* A socket pair whose our side takes a few kilobytes at a time. */
static void pair(struct gw_sock *sock, int *other)
{
    int fds[2], small = 1;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    gw_sock_open(loop, sock, fds[0]);
    *other = fds[1];
}

static void drain(int fd, struct reader *r, size_t most)
{
    ssize_t n;

    if (most > sizeof(r->got) - r->len)
        most = sizeof(r->got) - r->len;
    n = read(fd, r->got + r->len, most);
    if (n > 0)
        r->len += (size_t)n;
}

/* Undo the chunked coding. */
static size_t unchunk(const struct reader *r, char *body)
{
    const char *p = r->got;
    size_t len = 0;

    for (;;) {
        char *end;
        size_t n = strtoul(p, &end, 16);

        ck_assert(end[0] == '\r' && end[1] == '\n');
        p = end + 2;
        if (n == 0)
            break;
        memcpy(body + len, p, n);
        len += n;
        p += n;
        ck_assert(p[0] == '\r' && p[1] == '\n');
        p += 2;
    }
    ck_assert(memcmp(p, "\r\n", 2) == 0 && p + 2 == r->got + r->len);
    return len;
}

START_TEST(chunks_survive_any_partial_write)
{
    static struct reader r;
    static char body[3000], got[65536];
    struct gw_bufs bufs = {0};
    struct gw_out out = {.framing = GW_BODY_CHUNKED};
    struct gw_sock sock;
    size_t at = 0;
    int other;
    unsigned seed = (unsigned)_i;

    memset(&r, 0, sizeof(r));
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)('a' + i % 26);
    pair(&sock, &other);
    for (int turns = 0; !out.ended || gw_out_is_pending(&out); turns++) {
        size_t left = sizeof(body) - at;
        size_t show =
            left < 1 + (size_t)rand_r(&seed) % 9000 ? left : 1 + (size_t)rand_r(&seed) % 9000;
        ssize_t n;

        ck_assert_int_lt(turns, 100000);
        if (show < out.chunk_left) /* what a chunk has begun is shown again */
            show = (size_t)out.chunk_left;
        if (show > left)
            show = left;
        budget = (size_t)rand_r(&seed) % 12;
        n = gw_out_write(&bufs, &out, &sock, body + at, show, show == left);
        ck_assert_int_ge(n, 0);
        at += (size_t)n;
        drain(other, &r, 1 + (size_t)rand_r(&seed) % 3000);
    }
    budget = SIZE_MAX;
    ck_assert_uint_eq(at, sizeof(body));
    for (size_t before = r.len + 1; before != r.len;) {
        before = r.len;
        drain(other, &r, sizeof(r.got));
    }
    ck_assert_uint_eq(unchunk(&r, got), sizeof(body));
    ck_assert_int_eq(memcmp(got, body, sizeof(body)), 0);
    gw_sock_close(&sock);
    close(other);
    gw_bufs_fini(&bufs);
}
END_TEST

START_TEST(a_borrowed_head_is_left_alone)
{
    struct gw_bufs bufs = {0};
    struct gw_buf *head = gw_buf_get(&bufs, 100);
    struct gw_out out = {.pending = head, .borrowed = true, .framing = GW_BODY_CHUNKED};
    struct gw_field field = {.name = "T", .name_len = 1, .value = "1", .value_len = 1};
    struct gw_sock sock;
    char got[200];
    int other;

    memcpy(head->data, "HEAD", 4);
    head->len = 4;
    pair(&sock, &other);
    ck_assert_int_eq(gw_out_trailers(&bufs, &out, &field, 1), 0);
    ck_assert_ptr_ne(out.pending, head);
    ck_assert_int_eq(gw_out_write(&bufs, &out, &sock, NULL, 0, false), 0);
    ck_assert_int_eq(read(other, got, sizeof(got)), 15);
    ck_assert_int_eq(memcmp(got, "HEAD0\r\nT: 1\r\n\r\n", 15), 0);
    ck_assert(head->len == 4 && memcmp(head->data, "HEAD", 4) == 0);
    gw_buf_put(&bufs, head);
    gw_sock_close(&sock);
    close(other);
    gw_bufs_fini(&bufs);
}
END_TEST

static int status_seen;

static void on_connect(struct gw_sock *sock, int status)
{
    (void)sock;
    status_seen = status;
}

START_TEST(connecting_reports_the_reason)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int held = socket(AF_INET, SOCK_STREAM, 0);
    struct gw_sock sock;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(held, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(getsockname(held, (struct sockaddr *)&addr, &len), 0);
    status_seen = 1;
    if (gw_sock_connect(loop, &sock, (struct sockaddr *)&addr, len, on_connect) == 0) {
        for (int i = 0; i < 100 && status_seen == 1; i++)
            gw_loop_run(loop, 100);
        ck_assert_int_eq(status_seen, UV_ECONNREFUSED);
        gw_sock_close(&sock);
    }
    close(held);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/runtime");
    TCase *tc = tcase_create("runtime");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, timers_fire_once_and_can_be_stopped);
    tcase_add_test(tc, a_wake_up_ends_the_sleep);
    tcase_add_loop_test(tc, chunks_survive_any_partial_write, 0, 20);
    tcase_add_test(tc, a_borrowed_head_is_left_alone);
    tcase_add_test(tc, connecting_reports_the_reason);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
