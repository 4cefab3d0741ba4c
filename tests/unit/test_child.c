/* SPDX-License-Identifier: MIT */
#include "vmm/proc/child.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uv_loop_t loop;
static int n_calls, status, code, signal_number;
static size_t out_len;
static char out[64], errors[64], explained[256];

static void on_done(const struct child_result *result, void *arg)
{
    struct err err = {0};

    (void)arg;
    n_calls++;
    status = result->status;
    code = result->code;
    signal_number = result->signal;
    out_len = result->out_len;
    (void)snprintf(out, sizeof(out), "%s", result->out);
    (void)snprintf(errors, sizeof(errors), "%s", result->errors);
    ck_assert_int_eq(child_explain(result, "prog", &err), status);
    (void)snprintf(explained, sizeof(explained), "%s", err.msg);
}

static void setup(void)
{
    n_calls = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void teardown(void) /* proves that no handle outlives its operation */
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void run(const char *script, const char *input, uint64_t timeout_ms)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct err err;

    ck_assert_int_eq(child_run(&loop, argv, input, timeout_ms, on_done, NULL, NULL, &err), 0);
    ck_assert_int_eq(n_calls, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_calls, 1);
}

START_TEST(input_output_and_status_come_through)
{
    run("cat; echo oops >&2", "hello", 60000);
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(out, "hello");
    ck_assert_str_eq(errors, "oops");
}
END_TEST

START_TEST(a_bad_end_is_explained)
{
    run("echo why >&2; exit 3", NULL, 60000);
    ck_assert_int_eq(status, UV_EIO);
    ck_assert_int_eq(code, 3);
    ck_assert_str_eq(explained, "prog: exit status 3: why");
}
END_TEST

START_TEST(a_signal_is_told)
{
    run("kill -TERM $$", NULL, 60000);
    ck_assert_int_eq(status, UV_EIO);
    ck_assert_int_eq(signal_number, 15);
}
END_TEST

START_TEST(the_deadline_kills)
{
    run("exec sleep 100", NULL, 50);
    ck_assert_int_eq(status, UV_ETIMEDOUT);
    ck_assert_int_eq(signal_number, 9);
}
END_TEST

START_TEST(output_is_bounded)
{
    run("head -c 1000000 /dev/zero", NULL, 60000);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(out_len, CHILD_OUTPUT_MAX);
}
END_TEST

START_TEST(input_that_nobody_reads_is_no_fault)
{
    char *big = malloc(1 << 20);

    memset(big, 'x', (1 << 20) - 1);
    big[(1 << 20) - 1] = '\0';
    run("exit 0", big, 60000);
    ck_assert_int_eq(status, 0);
    free(big);
}
END_TEST

START_TEST(a_grandchild_does_not_hold_it)
{
    run("sleep 100 & echo $!", NULL, 60000);
    ck_assert_int_eq(status, 0);
    ck_assert_int_gt(atoi(out), 1);
    ck_assert_int_eq(uv_kill(atoi(out), SIGKILL), 0);
}
END_TEST

START_TEST(cancel_calls_back_once)
{
    const char *argv[] = {"sleep", "100", NULL};
    struct child *child;
    struct err err;

    ck_assert_int_eq(child_run(&loop, argv, NULL, 60000, on_done, NULL, &child, &err), 0);
    child_cancel(child);
    child_cancel(child);
    ck_assert_int_eq(n_calls, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_calls, 1);
    ck_assert_int_eq(status, UV_ECANCELED);
}
END_TEST

START_TEST(a_missing_program_is_refused_up_front)
{
    const char *argv[] = {"no-such-program-here", NULL};
    struct err err;

    ck_assert_int_eq(child_run(&loop, argv, "x", 60000, on_done, NULL, NULL, &err), UV_ENOENT);
    ck_assert_ptr_nonnull(strstr(err.msg, "installed"));
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_calls, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/proc/child");
    TCase *tc = tcase_create("contract");
    SRunner *sr = srunner_create(s);
    int n_failed;

    (void)signal(SIGPIPE, SIG_IGN); /* as every program of ours */
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, input_output_and_status_come_through);
    tcase_add_test(tc, a_bad_end_is_explained);
    tcase_add_test(tc, a_signal_is_told);
    tcase_add_test(tc, the_deadline_kills);
    tcase_add_test(tc, output_is_bounded);
    tcase_add_test(tc, input_that_nobody_reads_is_no_fault);
    tcase_add_test(tc, a_grandchild_does_not_hold_it);
    tcase_add_test(tc, cancel_calls_back_once);
    tcase_add_test(tc, a_missing_program_is_refused_up_front);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
