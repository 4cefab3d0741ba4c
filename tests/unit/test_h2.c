/* SPDX-License-Identifier: MIT */
/* The HTTP/2 session: exchanges, flow control, ends of every kind. */
#include "transom/h2.h"

#include <check.h>
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include "h2_pair.h"

static struct h2_pair pair;
static struct record creq, sreq; /* what the client and the server saw of "the" stream */
static int n_requests;
static char seen_path[256];

static const struct tr_h2_field *get_fields(const char *path, size_t *n)
{
    static struct tr_h2_field f[4];

    f[0] = TR_H2_FIELD(":method", "GET");
    f[1] = TR_H2_FIELD(":scheme", "http");
    f[2] = TR_H2_FIELD(":authority", "test");
    f[3] = TR_H2_FIELD(":path", path);
    *n = 4;
    return f;
}

static struct tr_h2_stream *request(const char *path, bool end, struct record *rec)
{
    struct tr_h2_stream *st = NULL;
    size_t n;
    const struct tr_h2_field *f = get_fields(path, &n);

    ck_assert_int_eq(tr_h2_request(pair.client.h2, f, n, end, &record_cbs, rec, &st), 0);
    rec->st = st;
    return st;
}

/* Server: record the stream, answer later. */
static void on_request_record(struct tr_h2 *h2, struct tr_h2_stream *st,
                              const struct tr_h2_head *head, bool end, void *arg)
{
    (void)h2;
    (void)arg;
    n_requests++;
    strncpy(seen_path, head->path != NULL ? head->path : "", sizeof(seen_path) - 1);
    sreq.st = st;
    sreq.head_end = end;
    tr_h2_stream_set(st, &record_cbs, &sreq);
}

static void setup(void)
{
    n_requests = 0;
    seen_path[0] = '\0';
    memset(&creq, 0, sizeof(creq));
    memset(&sreq, 0, sizeof(sreq));
    pair.server.on_request = on_request_record;
    ck_assert_int_eq(pair_open(&pair, NULL, NULL), 0);
}

static void teardown(void)
{
    pair_close(&pair);
    record_clear(&creq);
    record_clear(&sreq);
}

START_TEST(exchange_with_bodies_and_trailers)
{
    struct tr_h2_field type = TR_H2_FIELD("content-type", "text/plain");
    struct tr_h2_field sum = TR_H2_FIELD("x-sum", "abc");
    struct tr_h2_stream *st = request("/a/b?c", false, &creq);

    ck_assert_int_eq(tr_h2_write(st, "ping", 4), 1);
    tr_h2_end(st, &sum, 1);
    pair_run(&pair);
    ck_assert_str_eq(seen_path, "/a/b?c");
    ck_assert(!sreq.head_end);
    ck_assert_uint_eq(sreq.body_len, 4);
    ck_assert_int_eq(memcmp(sreq.body, "ping", 4), 0);
    ck_assert_int_eq(sreq.n_end, 1);
    ck_assert_str_eq(sreq.trailer, "abc");
    ck_assert_int_eq(creq.n_head, 0);

    ck_assert_int_eq(tr_h2_respond(sreq.st, 103, &type, 1, false), 0);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &type, 1, false), 0);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &type, 1, false), -EINVAL);
    ck_assert_int_eq(tr_h2_write(sreq.st, "pong!", 5), 1);
    tr_h2_end(sreq.st, &sum, 1);
    tr_h2_end(sreq.st, NULL, 0);
    ck_assert_int_eq(tr_h2_write(sreq.st, "x", 1), -EPIPE);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_info, 1);
    ck_assert_int_eq(creq.n_head, 1);
    ck_assert_int_eq(creq.status, 200);
    ck_assert_uint_eq(creq.body_len, 5);
    ck_assert_str_eq(creq.trailer, "abc");
    ck_assert_int_eq(creq.n_end, 1);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, 0);
    ck_assert_int_eq(sreq.n_close, 1);
    ck_assert_uint_eq(sreq.code, 0);
    ck_assert_uint_eq(tr_h2_n_streams(pair.client.h2), 0);
    ck_assert_uint_eq(tr_h2_n_streams(pair.server.h2), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/h2");
    TCase *tc = tcase_create("session");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, exchange_with_bodies_and_trailers);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
