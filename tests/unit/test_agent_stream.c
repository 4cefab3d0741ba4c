/* SPDX-License-Identifier: MIT */
/* A window's bytes: its share of the loop, the ring that keeps them, the marks that are taken out
 * of them. And the router. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "vmm/agent/marker.h"
#include "vmm/agent/ring.h"
#include "vmm/agent/router.h"
#include "vmm/agent/share.h"

/* ---- ring ---- */

START_TEST(ring_keeps_the_newest)
{
    uint8_t all[1000], out[64];
    struct agent_ring r;
    const uint8_t *piece;
    size_t at = 0;

    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (uint8_t)(i ^ (i >> 8));
    ck_assert_int_eq(agent_ring_init(&r, 64), 0);
    ck_assert_uint_eq(agent_ring_begin(&r), 0);
    ck_assert_uint_eq(agent_ring_peek(&r, 0, &piece), 0);
    for (size_t n = 0; at + n <= sizeof(all); at += n, n = (n + 7) % 40) {
        agent_ring_write(&r, all + at, n);
        ck_assert_uint_eq(r.end, at + n);
        ck_assert_uint_eq(agent_ring_begin(&r), r.end > 64 ? r.end - 64 : 0);
        agent_ring_copy(&r, agent_ring_begin(&r), r.end, out);
        ck_assert_mem_eq(out, all + agent_ring_begin(&r), r.end - agent_ring_begin(&r));
    }
    agent_ring_fini(&r);
}
END_TEST

START_TEST(ring_takes_more_than_it_holds)
{
    uint8_t all[200], out[64];
    struct agent_ring r;

    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (uint8_t)i;
    ck_assert_int_eq(agent_ring_init(&r, 64), 0);
    agent_ring_write(&r, all, 10);
    agent_ring_write(&r, all, 200);
    ck_assert_uint_eq(r.end, 210);
    agent_ring_copy(&r, 146, 210, out);
    ck_assert_mem_eq(out, all + 136, 64);
    agent_ring_fini(&r);
}
END_TEST

/* ---- shares ---- */

START_TEST(a_sum_is_divided_among_those_who_take)
{
    struct agent_share s = {.sum = 16};
    uint64_t mine[20] = {0};

    for (uint64_t tick = 1; tick < 10; tick++) {
        for (int turn = 0; turn < 3; turn++) /* within a tick nobody counts twice */
            ck_assert_uint_eq(agent_share_take(&s, &mine[0], tick), 16);
    }
    for (uint64_t tick = 10; tick < 20; tick++) {
        for (unsigned i = 0; i < 20; i++) {
            unsigned n = agent_share_take(&s, &mine[i], tick), known = tick == 10 ? i + 1 : 20;

            ck_assert_uint_eq(n, known < 16 ? 16 / known : 1);
        }
    }
    /* The others have no more: in the tick after the next it is all for one again. */
    ck_assert_uint_eq(agent_share_take(&s, &mine[3], 1000), 1);
    ck_assert_uint_eq(agent_share_take(&s, &mine[3], 1001), 16);
}
END_TEST

/* ---- marks ---- */

#define NONCE      "0123456789abcdef01234567"
#define MARK(what) "\033_transom;" NONCE ";" what "\033\\"

static uint8_t got[4096];
static size_t n_got;
static struct {
    char kind;
    uint64_t number;
    size_t at;
} marks[16];
static size_t n_marks;

static void on_bytes(const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    memcpy(got + n_got, data, len);
    n_got += len;
}

static void on_mark(char kind, uint64_t number, void *arg)
{
    (void)arg;
    marks[n_marks].kind = kind;
    marks[n_marks].number = number;
    marks[n_marks++].at = n_got;
}

static const struct agent_marker_cbs cbs = {on_bytes, on_mark};

/* Feed in pieces of every length: the outcome must not depend on them. */
static void expect(const char *in, size_t len, const char *out, size_t out_len, size_t want_marks)
{
    for (size_t step = 1; step <= len; step++) {
        struct agent_marker m;

        agent_marker_init(&m, NONCE);
        n_got = n_marks = 0;
        for (size_t at = 0; at < len; at += step)
            agent_marker_feed(&m, (const uint8_t *)in + at, len - at < step ? len - at : step, &cbs,
                              NULL);
        agent_marker_flush(&m, &cbs, NULL);
        ck_assert(!agent_marker_holds(&m));
        ck_assert_uint_eq(n_got, out_len);
        ck_assert_mem_eq(got, out, out_len);
        ck_assert_uint_eq(n_marks, want_marks);
    }
}

#define EXPECT(in, out, n) expect(in, sizeof(in) - 1, out, sizeof(out) - 1, n)

START_TEST(marks_are_taken_out)
{
    EXPECT("plain text", "plain text", 0);
    EXPECT("a" MARK("S12") "hello\r\n" MARK("E12") "$ ", "ahello\r\n$ ", 2);
    ck_assert_int_eq(marks[0].kind, 'S');
    ck_assert_uint_eq(marks[0].number, 12);
    ck_assert_uint_eq(marks[0].at, 1);
    ck_assert_int_eq(marks[1].kind, 'E');
    ck_assert_uint_eq(marks[1].at, 8);
    EXPECT(MARK("S1") MARK("E1"), "", 2);
}
END_TEST

START_TEST(what_only_looks_like_a_mark_stays)
{
    EXPECT("\033[31mred\033[0m\033", "\033[31mred\033[0m\033", 0);
    EXPECT("\033_transom;ffffffffffffffffffffffff;S1\033\\",
           "\033_transom;ffffffffffffffffffffffff;S1\033\\", 0);
    EXPECT(MARK("X1"), MARK("X1"), 0);
    EXPECT(MARK("S"), MARK("S"), 0);
    EXPECT(MARK("S1234567890123456789"), MARK("S1234567890123456789"), 0);
    EXPECT("\033_transom;" NONCE ";S1", "\033_transom;" NONCE ";S1", 0);
    EXPECT("\033\033" MARK("S7"), "\033\033", 1);
    EXPECT("\033_trans" MARK("S7") "x", "\033_transx", 1);
    EXPECT("\033_transom;" NONCE ";S1" MARK("S7"), "\033_transom;" NONCE ";S1", 1);
}
END_TEST

START_TEST(only_a_possible_mark_is_held_back)
{
    struct agent_marker m;

    agent_marker_init(&m, NONCE);
    n_got = n_marks = 0;
    agent_marker_feed(&m, (const uint8_t *)"abc\033", 4, &cbs, NULL);
    ck_assert_uint_eq(n_got, 3);
    ck_assert(agent_marker_holds(&m));
    agent_marker_flush(&m, &cbs, NULL);
    ck_assert_uint_eq(n_got, 4);
    agent_marker_feed(&m, (const uint8_t *)"[0m", 3, &cbs, NULL);
    ck_assert_mem_eq(got, "abc\033[0m", 7);
}
END_TEST

/* ---- router ---- */

static void handler(struct agent_request *req)
{
    (void)req;
}

static const struct agent_route routes[] = {
    {"GET", "/v1/windows", 0, false, handler},    {"POST", "/v1/windows/*/run", 0, false, handler},
    {"GET", "/v1/windows/*", 0, false, handler},  {"DELETE", "/v1/windows/*", 0, false, handler},
    {"GET", "/v1/files/list", 0, false, handler},
};

static int find(const char *method, const char *target, int *index, struct agent_target *t)
{
    const struct agent_route *route = NULL;
    int r;

    r = agent_route_find(routes, sizeof(routes) / sizeof(routes[0]), method, target, &route, t);
    *index = route != NULL ? (int)(route - routes) : -1;
    return r;
}

START_TEST(routes_are_found)
{
    struct agent_target t;
    int i;

    ck_assert_int_eq(find("GET", "/v1/windows", &i, &t), 0);
    ck_assert_int_eq(i, 0);
    agent_target_fini(&t);
    ck_assert_int_eq(find("POST", "/v1/windows/a%2Fb%20%00%e6%b5%8b+/run?x", &i, &t), 0);
    ck_assert_int_eq(i, 1);
    ck_assert_uint_eq(t.n_params, 1);
    ck_assert_uint_eq(t.params[0].len, 9);
    ck_assert_mem_eq(t.params[0].at, "a/b \0\xe6\xb5\x8b+", 10);
    agent_target_fini(&t);
    ck_assert_int_eq(find("GET", "/v1/windows/", &i, &t), 0); /* an empty name, refused later */
    ck_assert_int_eq(i, 2);
    ck_assert_uint_eq(t.params[0].len, 0);
    agent_target_fini(&t);
    ck_assert_int_eq(find("DELETE", "/v1/windows/x", &i, &t), 0);
    ck_assert_int_eq(i, 3);
    agent_target_fini(&t);
}
END_TEST

START_TEST(what_is_no_route)
{
    struct agent_target t;
    int i;

    ck_assert_int_eq(find("GET", "/v1/window", &i, &t), UV_ENOENT);
    ck_assert_int_eq(find("GET", "/v1/windows/x/y", &i, &t), UV_ENOENT);
    ck_assert_int_eq(find("GET", "", &i, &t), UV_ENOENT);
    ck_assert_int_eq(find("GET", "/v1/windows/x/run/", &i, &t), UV_ENOENT);
    ck_assert_int_eq(find("GET", "/v1/windows/x/run", &i, &t), UV_ENOTSUP);
    ck_assert_int_eq(find("get", "/v1/windows", &i, &t), UV_ENOTSUP);
    ck_assert_int_eq(find("GET", "/v1/windows/%", &i, &t), UV_EINVAL);
    ck_assert_int_eq(find("GET", "/v1/windows/%4", &i, &t), UV_EINVAL);
    ck_assert_int_eq(find("GET", "/v1/windows/%4g", &i, &t), UV_EINVAL);
    ck_assert_int_eq(find("GET", "/v1/files/list?path=%f", &i, &t), UV_EINVAL);
    ck_assert_int_eq(find("GET", "/v1/files/list?a&b&c&d&e&f&g&h&i", &i, &t), UV_EINVAL);
}
END_TEST

START_TEST(queries_are_decoded)
{
    const struct agent_text *v;
    struct agent_target t;
    int i;

    ck_assert_int_eq(find("GET", "/v1/files/list?path=a+b%2B%26&&mode=&flag&path=2", &i, &t), 0);
    v = agent_target_query(&t, "path");
    ck_assert_ptr_nonnull(v);
    ck_assert_str_eq(v->at, "a b+&");
    ck_assert_uint_eq(v->len, 5);
    v = agent_target_query(&t, "mode");
    ck_assert_ptr_nonnull(v);
    ck_assert_uint_eq(v->len, 0);
    ck_assert_ptr_nonnull(agent_target_query(&t, "flag"));
    ck_assert_ptr_null(agent_target_query(&t, "pat"));
    ck_assert_uint_eq(t.n_query, 4);
    agent_target_fini(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent/stream");
    TCase *tc = tcase_create("stream");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, ring_keeps_the_newest);
    tcase_add_test(tc, ring_takes_more_than_it_holds);
    tcase_add_test(tc, a_sum_is_divided_among_those_who_take);
    tcase_add_test(tc, marks_are_taken_out);
    tcase_add_test(tc, what_only_looks_like_a_mark_stays);
    tcase_add_test(tc, only_a_possible_mark_is_held_back);
    tcase_add_test(tc, routes_are_found);
    tcase_add_test(tc, what_is_no_route);
    tcase_add_test(tc, queries_are_decoded);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
