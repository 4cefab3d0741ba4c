/* SPDX-License-Identifier: MIT */
/* The life of a sandbox against a driver that only notes what it is told. */
#include "vmm/sandbox.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vmm_sandbox sb;
static int n_starts, n_stops, n_forced, n_saves, n_changes;
static int start_status, save_status, admit_status;
static uint64_t saved_instance;
static char trail[512]; /* states in the order they were told to the world */

struct answer {
    int n, status;
    char why[VMM_REASON_SIZE];
};

static int admit(struct vmm_sandbox *s, struct err *err)
{
    (void)s;
    return admit_status == 0 ? 0 : tr_err_set(err, admit_status, "full");
}

static int save(struct vmm_sandbox *s, struct err *err)
{
    n_saves++;
    saved_instance = s->instance;
    return save_status == 0 ? 0 : tr_err_set(err, save_status, "disk full");
}

static int start(struct vmm_sandbox *s, struct err *err)
{
    ck_assert_uint_eq(s->instance, saved_instance); /* kept before it is used */
    n_starts++;
    return start_status == 0 ? 0 : tr_err_set(err, start_status, "no image");
}

static void stop(struct vmm_sandbox *s, bool force)
{
    (void)s;
    n_stops++;
    n_forced += force;
}

static void changed(struct vmm_sandbox *s)
{
    n_changes++;
    strncat(trail, tr_sandbox_state_name(s->state), sizeof(trail) - strlen(trail) - 1);
    strncat(trail, " ", sizeof(trail) - strlen(trail) - 1);
}

static const struct vmm_sandbox_ops ops = {
    .admit = admit, .save = save, .start = start, .stop = stop, .changed = changed};

static void on_answer(struct vmm_sandbox *s, int status, const char *why, void *arg)
{
    struct answer *a = arg;

    (void)s;
    a->n++;
    a->status = status;
    snprintf(a->why, sizeof(a->why), "%s", why);
}

static void setup(void)
{
    memset(&sb, 0, sizeof(sb));
    sb.ops = &ops;
    sb.start_timeout_ms = 5000;
    memcpy(sb.label, "abcdefghijklmnop", 17);
    n_starts = n_stops = n_forced = n_saves = n_changes = 0;
    start_status = save_status = admit_status = 0;
    saved_instance = 0;
    trail[0] = '\0';
}

static void teardown(void)
{
    vmm_sandbox_fini(&sb);
    ck_assert_ptr_null(sb.waiters);
}

static void run_up(void)
{
    struct err err = {0};

    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), 1);
    vmm_sandbox_on_up(&sb, "100.64.0.6");
}

START_TEST(later_callers_join_the_start)
{
    struct answer a[3] = {0};
    struct err err = {0};

    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a[i], &err), 1);
    ck_assert_int_eq(n_starts, 1);
    ck_assert_int_eq(a[0].n, 0);
    vmm_sandbox_on_up(&sb, "100.64.0.6");
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(a[i].n, 1);
        ck_assert_int_eq(a[i].status, 0);
    }
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a[0], &err), 0);
    ck_assert_int_eq(a[0].n, 1);
    ck_assert_uint_eq(sb.instance, 1);
    ck_assert_str_eq(sb.address, "100.64.0.6");
    ck_assert_str_eq(trail, "starting running ");
}
END_TEST

START_TEST(failed_start_is_told_when_the_remains_are_gone)
{
    struct answer a = {0}, late = {0};
    struct err err = {0};

    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a, &err), 1);
    vmm_sandbox_on_lost(&sb, true, "no such kernel");
    ck_assert_int_eq(n_forced, 1);
    ck_assert_int_eq(a.n, 0);
    /* Who comes now gets a start of its own. */
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &late, &err), 1);
    ck_assert_int_eq(n_starts, 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(a.n, 1);
    ck_assert_int_eq(a.status, -EIO);
    ck_assert_str_eq(a.why, "no such kernel");
    ck_assert_int_eq(n_starts, 2);
    ck_assert_int_eq(sb.state, TR_SANDBOX_STARTING);
    vmm_sandbox_on_up(&sb, "");
    ck_assert_int_eq(late.n, 1);
    ck_assert_int_eq(late.status, 0);
    ck_assert_uint_eq(sb.instance, 2);
    ck_assert_str_eq(trail, "starting stopping failed starting running ");
}
END_TEST

START_TEST(start_that_cannot_begin_fails_at_once)
{
    struct answer a = {0};
    struct err err = {0};

    start_status = -EIO;
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a, &err), -EIO);
    ck_assert_str_eq(err.msg, "no image");
    ck_assert_int_eq(sb.state, TR_SANDBOX_FAILED);
    ck_assert_str_eq(sb.reason, "no image");
    ck_assert_int_eq(a.n, 0);
    ck_assert_int_eq(n_stops, 0);
    start_status = 0;
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a, &err), 1);
    ck_assert_str_eq(sb.reason, "");
    vmm_sandbox_on_up(&sb, "100.64.0.6"); /* answers while its waiter is still there */
    ck_assert_int_eq(a.n, 1);
}
END_TEST

START_TEST(record_that_cannot_be_kept_prevents_the_start)
{
    struct err err = {0};

    save_status = -ENOSPC;
    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), -ENOSPC);
    ck_assert_int_eq(n_starts, 0);
    ck_assert_int_eq(sb.state, TR_SANDBOX_ASLEEP);
    ck_assert_ptr_nonnull(strstr(err.msg, "disk full"));
}
END_TEST

START_TEST(full_node_refuses)
{
    struct err err = {0};

    admit_status = -ENOSPC;
    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), -ENOSPC);
    ck_assert_uint_eq(sb.instance, 0);
    ck_assert_int_eq(n_saves, 0);
}
END_TEST

START_TEST(stop_during_start_cancels_it)
{
    struct answer starter = {0}, stopper = {0};
    struct err err = {0};

    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &starter, &err), 1);
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "stopped", false, on_answer, &stopper, &err), 1);
    vmm_sandbox_on_up(&sb, "100.64.0.6"); /* too late: it crossed the stop */
    ck_assert_int_eq(sb.state, TR_SANDBOX_STOPPING);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(starter.status, -ECANCELED);
    ck_assert_int_eq(stopper.n, 1);
    ck_assert_int_eq(stopper.status, 0);
    ck_assert_int_eq(sb.state, TR_SANDBOX_ASLEEP);
    ck_assert_str_eq(sb.reason, "stopped");
}
END_TEST

START_TEST(start_during_stop_begins_when_it_is_down)
{
    struct answer a = {0};
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "idle", false, NULL, NULL, &err), 1);
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a, &err), 1);
    ck_assert_int_eq(n_starts, 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(n_starts, 2);
    vmm_sandbox_on_up(&sb, "");
    ck_assert_int_eq(a.status, 0);
    ck_assert_int_eq(a.n, 1);
}
END_TEST

START_TEST(second_stop_with_force_reaches_the_machine)
{
    struct answer a[2] = {0};
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "one", false, on_answer, &a[0], &err), 1);
    ck_assert_int_eq(n_forced, 0);
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "two", true, on_answer, &a[1], &err), 1);
    ck_assert_int_eq(n_forced, 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(a[0].n + a[1].n, 2);
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "three", false, on_answer, &a[0], &err), 0);
    ck_assert_int_eq(a[0].n, 1);
}
END_TEST

START_TEST(machine_that_ends_by_itself)
{
    struct err err = {0};

    run_up();
    vmm_sandbox_on_lost(&sb, false, "powered off");
    ck_assert_str_eq(sb.address, "");
    vmm_sandbox_on_lost(&sb, true, "second message about the same end");
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(sb.state, TR_SANDBOX_ASLEEP);
    ck_assert_str_eq(sb.reason, "powered off");
    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), 1);
    vmm_sandbox_on_up(&sb, "");
    vmm_sandbox_on_lost(&sb, true, "killed");
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(sb.state, TR_SANDBOX_FAILED);
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "cleared", false, NULL, NULL, &err), 0);
    ck_assert_int_eq(sb.state, TR_SANDBOX_ASLEEP);
}
END_TEST

START_TEST(reset_starts_a_new_instance)
{
    struct answer a = {0}, joined = {0};
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_reset(&sb, on_answer, &a, &err), 1);
    ck_assert_int_eq(n_forced, 1);
    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &joined, &err), 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(a.n, 0);
    vmm_sandbox_on_up(&sb, "");
    ck_assert_int_eq(a.status, 0);
    ck_assert_int_eq(a.n + joined.n, 2);
    ck_assert_uint_eq(sb.instance, 2);
}
END_TEST

START_TEST(reset_keeps_those_who_wait_for_the_first_start)
{
    struct answer first = {0}, reset = {0};
    struct err err = {0};

    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &first, &err), 1);
    ck_assert_int_eq(vmm_sandbox_reset(&sb, on_answer, &reset, &err), 1);
    vmm_sandbox_on_down(&sb);
    vmm_sandbox_on_up(&sb, "");
    ck_assert_int_eq(first.status + reset.status, 0);
    ck_assert_int_eq(first.n + reset.n, 2);
}
END_TEST

START_TEST(start_has_a_deadline)
{
    struct answer a = {0};
    struct err err = {0};

    ck_assert_int_eq(vmm_sandbox_start(&sb, on_answer, &a, &err), 1);
    vmm_sandbox_tick(&sb, 1000000); /* the clock begins with the first tick */
    vmm_sandbox_tick(&sb, 1004999);
    ck_assert_int_eq(n_stops, 0);
    vmm_sandbox_tick(&sb, 1005000);
    ck_assert_int_eq(n_forced, 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(a.status, -EIO);
    ck_assert_ptr_nonnull(strstr(a.why, "not up within 5 s"));
    ck_assert_int_eq(sb.state, TR_SANDBOX_FAILED);
    vmm_sandbox_tick(&sb, 9000000);
    ck_assert_int_eq(n_stops, 1);
}
END_TEST

START_TEST(stop_is_forced_again_and_again)
{
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "idle", false, NULL, NULL, &err), 1);
    vmm_sandbox_tick(&sb, 1);
    vmm_sandbox_tick(&sb, 20001);
    vmm_sandbox_tick(&sb, 30000);
    ck_assert_int_eq(n_forced, 1);
    vmm_sandbox_tick(&sb, 40001);
    ck_assert_int_eq(n_forced, 2);
    ck_assert_int_eq(sb.state, TR_SANDBOX_STOPPING);
    vmm_sandbox_on_down(&sb);
}
END_TEST

START_TEST(closed_sandbox_does_not_start)
{
    struct answer a = {0};
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_reset(&sb, on_answer, &a, &err), 1);
    sb.closed = true;
    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), -ESHUTDOWN);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(a.n, 1);
    ck_assert_int_eq(a.status, -ESHUTDOWN);
    ck_assert_int_eq(sb.state, TR_SANDBOX_ASLEEP);
    ck_assert_int_eq(n_starts, 1);
}
END_TEST

START_TEST(adoption_goes_straight_to_running)
{
    struct err err = {0};

    sb.instance = 7;
    vmm_sandbox_adopt(&sb, "100.64.0.9", 1234);
    ck_assert_int_eq(sb.state, TR_SANDBOX_RUNNING);
    ck_assert_int_eq(vmm_sandbox_start(&sb, NULL, NULL, &err), 0);
    ck_assert_uint_eq(sb.instance, 7);
    ck_assert_int_eq(n_saves + n_starts, 0);
}
END_TEST

/* A callback that starts the sandbox again, as an impatient caller would. */
static void start_again(struct vmm_sandbox *s, int status, const char *why, void *arg)
{
    struct err err = {0};

    (void)why;
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(vmm_sandbox_start(s, on_answer, arg, &err), 1);
}

START_TEST(callback_may_start_it_again)
{
    struct answer a = {0};
    struct err err = {0};

    run_up();
    ck_assert_int_eq(vmm_sandbox_stop(&sb, "x", false, start_again, &a, &err), 1);
    vmm_sandbox_on_down(&sb);
    ck_assert_int_eq(n_starts, 2);
    ck_assert_int_eq(sb.state, TR_SANDBOX_STARTING);
    vmm_sandbox_on_up(&sb, "");
    ck_assert_int_eq(a.n, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/sandbox");
    TCase *tc = tcase_create("life");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, later_callers_join_the_start);
    tcase_add_test(tc, failed_start_is_told_when_the_remains_are_gone);
    tcase_add_test(tc, start_that_cannot_begin_fails_at_once);
    tcase_add_test(tc, record_that_cannot_be_kept_prevents_the_start);
    tcase_add_test(tc, full_node_refuses);
    tcase_add_test(tc, stop_during_start_cancels_it);
    tcase_add_test(tc, start_during_stop_begins_when_it_is_down);
    tcase_add_test(tc, second_stop_with_force_reaches_the_machine);
    tcase_add_test(tc, machine_that_ends_by_itself);
    tcase_add_test(tc, reset_starts_a_new_instance);
    tcase_add_test(tc, reset_keeps_those_who_wait_for_the_first_start);
    tcase_add_test(tc, start_has_a_deadline);
    tcase_add_test(tc, stop_is_forced_again_and_again);
    tcase_add_test(tc, closed_sandbox_does_not_start);
    tcase_add_test(tc, adoption_goes_straight_to_running);
    tcase_add_test(tc, callback_may_start_it_again);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
