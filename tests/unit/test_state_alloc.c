/* SPDX-License-Identifier: MIT */
/* Each allocation of the state library's own fails once. hiredis' are not ours to let fail. */
#include <assert.h>
#include <check.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "alloc_fail.h"
#include "redis_server.h"
#include "transom/state.h"

static uv_loop_t loop;
static struct redis_server server;
static int n_up, n_down, n_close, n_sent, n_replies;

static void on_reply(struct redisReply *reply, void *arg)
{
    (void)reply;
    (void)arg;
    n_replies++;
}

static void on_up(struct tr_redis *r, void *arg)
{
    static const char script[] = "return redis.call('incr', KEYS[1])";
    const char *get[] = {"GET", "k"}, *flush[] = {"SCRIPT", "FLUSH"}, *key[] = {"k"};

    (void)arg;
    n_up++;
    n_sent += tr_redis_command(r, on_reply, NULL, 2, get, NULL) == 0;
    n_sent += tr_redis_script(r, script, on_reply, NULL, 1, 1, key, NULL) == 0;
    n_sent += tr_redis_command(r, on_reply, NULL, 2, flush, NULL) == 0;
    n_sent += tr_redis_script(r, script, on_reply, NULL, 1, 1, key, NULL) == 0;
    n_sent += tr_redis_script(r, script, on_reply, NULL, 1, 1, key, NULL) == 0;
}

static void on_down(struct tr_redis *r, const char *why, void *arg)
{
    (void)r;
    (void)arg;
    assert(why[0] != '\0');
    n_down++;
}

static void on_close(struct tr_redis *r, void *arg)
{
    (void)r;
    (void)arg;
    n_close++;
}

START_TEST(a_connection_survives_each_failed_allocation)
{
    static const struct tr_redis_cbs cbs = {
        .on_up = on_up, .on_down = on_down, .on_close = on_close};
    struct tr_redis *r = NULL;
    bool failed;
    long n = 1;
    int opened;

    redis_server_start(&server, "");
    do {
        n_up = n_down = n_close = n_sent = n_replies = 0;
        ck_assert_int_eq(uv_loop_init(&loop), 0);
        alloc_fail_at(n++);
        opened = tr_redis_open(&loop, server.url, &cbs, NULL, &r, NULL);
        while (opened == 0 && (n_up == 0 || n_replies < n_sent))
            uv_run(&loop, UV_RUN_ONCE);
        failed = alloc_failed();
        if (opened == 0)
            tr_redis_close(r);
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(n_close, opened == 0 ? 1 : 0);
        ck_assert_int_eq(n_replies, n_sent);
        ck_assert_int_ge(n_sent, failed && opened == 0 ? 1 : 0);
        ck_assert_int_eq(uv_loop_close(&loop), 0);
    } while (failed);
    ck_assert_int_eq(n_sent, 5);
    ck_assert_int_ge(n, 10);
    redis_server_kill(&server);
}
END_TEST

/* jansson's memory, by way of objects that are wrapped. */
static void *json_malloc_here(size_t size)
{
    return malloc(size);
}

START_TEST(records_survive_each_failed_allocation)
{
    static const struct tr_route_rule rule = {.prefix = "/a", .prefix_len = 2, .port = 1};
    static const struct tr_route_port port = {.port = 2};
    static const uint8_t key[TR_ROUTE_KEY_SIZE];
    struct tr_route in = {.label = "abcdefgh01234567",
                          .protocol = TR_PROTOCOL_H2C,
                          .wake = true,
                          .agent_port = 982},
                    out;
    struct err err;
    char *text;
    bool failed;
    long n = 1;

    json_set_alloc_funcs(json_malloc_here, free);
    do {
        int r;

        alloc_fail_at(n++);
        r = tr_route_extra_new(&rule, 1, &port, 1, key, false, &in.extra, NULL);
        failed = alloc_failed();
        ck_assert_int_eq(r, failed ? UV_ENOMEM : 0);
    } while (failed);
    n = 1;
    do {
        alloc_fail_at(n++);
        text = tr_route_encode(&in);
        failed = alloc_failed();
        ck_assert_msg((text == NULL) == failed, "%ld: %s", n - 1, text);
        free(text);
    } while (failed);
    ck_assert_int_gt(n, 10);
    text = tr_route_encode(&in);
    n = 1;
    do {
        int r;

        tr_err_clear(&err);
        alloc_fail_at(n++);
        r = tr_route_parse(in.label, text, strlen(text), &out, &err);
        failed = alloc_failed();
        ck_assert_int_eq(r != 0, failed);
        ck_assert_int_eq(err.code, r);
        if (r == 0)
            tr_route_fini(&out);
    } while (failed);
    ck_assert_int_gt(n, 10);
    tr_route_fini(&in);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state/alloc");
    TCase *tc = tcase_create("alloc");
    SRunner *sr = srunner_create(s);
    int n_failed;

    signal(SIGPIPE, SIG_IGN);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_connection_survives_each_failed_allocation);
    tcase_add_test(tc, records_survive_each_failed_allocation);
    suite_add_tcase(s, tc);
    redis_server_init(&server); /* here, so that a test that fails leaves nothing behind */
    srunner_run_all(sr, CK_ENV);
    redis_server_fini(&server);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
