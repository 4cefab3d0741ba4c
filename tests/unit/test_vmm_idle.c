/* SPDX-License-Identifier: MIT */
/* The idle rule as a table. Times in seconds of one clock; timeout 60, longest hold 600. */
#include "vmm/idle.h"

#include <check.h>
#include <stdlib.h>

struct situation {
    const char *what;
    unsigned now, last, n_holds, held_since;
    bool serving;
    enum vmm_idle_why why;
    unsigned deadline;
    bool stop;
};

static const struct situation situations[] = {
    {"just used", 100, 100, 0, 0, false, VMM_IDLE_TIMEOUT, 160, false},
    {"almost due", 159, 100, 0, 0, false, VMM_IDLE_TIMEOUT, 160, false},
    {"due", 160, 100, 0, 0, false, VMM_IDLE_TIMEOUT, 160, true},
    {"long overdue (the manager was stopped)", 9000, 100, 0, 0, false, VMM_IDLE_TIMEOUT, 160, true},
    {"activity read later than now", 100, 101, 0, 0, false, VMM_IDLE_TIMEOUT, 160, false},
    {"activity far in the future counts as now", 100, 5000, 0, 0, false, VMM_IDLE_TIMEOUT, 160,
     false},
    {"a run holds past the timeout", 400, 100, 1, 100, false, VMM_IDLE_HELD, 700, false},
    {"a run holds up to its allowance", 699, 100, 1, 100, false, VMM_IDLE_HELD, 700, false},
    {"and no longer", 700, 100, 1, 100, false, VMM_IDLE_HELD, 700, true},
    {"many holds: the oldest counts", 650, 640, 5, 50, false, VMM_IDLE_HELD, 700, false},
    {"an old hold, but used a moment ago", 690, 689, 1, 50, false, VMM_IDLE_HELD, 749, false},
    {"a server does not hold", 160, 100, 1, 100, true, VMM_IDLE_SERVING, 160, true},
    {"a server before the deadline", 159, 100, 1, 100, true, VMM_IDLE_SERVING, 160, false},
    {"something listens, but nothing runs", 160, 100, 0, 0, true, VMM_IDLE_TIMEOUT, 160, true},
    {"the clock's first second", 0, 0, 0, 0, false, VMM_IDLE_TIMEOUT, 60, false},
    {"a moment before the warning", 129, 100, 0, 0, false, VMM_IDLE_TIMEOUT, 160, false},
    {"a run that ends in time leaves the time since its end", 500, 480, 0, 0, false,
     VMM_IDLE_TIMEOUT, 540, false},
    {"a held one with a day's allowance left", 161, 100, 1, 161, false, VMM_IDLE_HELD, 761, false},
    {"a hold that began after the last activity", 100, 90, 1, 95, false, VMM_IDLE_HELD, 695, false},
    {"input goes on while a run holds", 695, 694, 1, 100, false, VMM_IDLE_HELD, 754, false},
    {"input ends, the allowance is over", 760, 694, 1, 100, false, VMM_IDLE_HELD, 754, true},
    {"a server and jobs: the server's word", 400, 100, 3, 100, true, VMM_IDLE_SERVING, 160, true},
    {"a server that is used", 400, 390, 1, 100, true, VMM_IDLE_SERVING, 450, false},
    {"many holds that ended", 400, 399, 0, 100, false, VMM_IDLE_TIMEOUT, 459, false},
    {"a hold from the very beginning", 60, 0, 1, 0, false, VMM_IDLE_HELD, 600, false},
    {"the allowance is shorter than the timeout still to come", 600, 590, 1, 0, false,
     VMM_IDLE_HELD, 650, false},
    {"the same a second before its end", 649, 590, 1, 0, false, VMM_IDLE_HELD, 650, false},
    {"the same at its end", 650, 590, 1, 0, false, VMM_IDLE_HELD, 650, true},
    {"the manager slept through the end of a hold", 100000, 100, 1, 100, false, VMM_IDLE_HELD, 700,
     true},
};

static const struct {
    const char *what;
    unsigned now, last, timeout, warning, held_since; /* 0: nothing holds */
    bool warn;
} warnings[] = {
    {"far from the end", 100, 100, 3600, 300, 0, false},
    {"a second too early", 3399, 100, 3600, 300, 0, false},
    {"just in time", 3400, 100, 3600, 300, 0, true},
    {"a second before the end", 3699, 100, 3600, 300, 0, true},
    {"at the end it is too late", 3700, 100, 3600, 300, 0, false},
    {"used again", 3500, 3500, 3600, 300, 0, false},
    {"a short time: half of it", 109, 100, 20, 300, 0, false},
    {"a short time: the other half", 110, 100, 20, 300, 0, true},
    {"nobody wants to know", 3699, 100, 3600, 0, 0, false},
    {"something holds it", 3699, 100, 3600, 300, 100, false},
    {"the hold's allowance ends", 86300, 100, 3600, 300, 100, true},
};

static const struct {
    bool persist;
    unsigned own, limit;
} limits[] = {
    {false, 0, 3600}, {false, 20, 20},   {false, 90000, 90000},
    {true, 0, 86400}, {true, 20, 86400}, {true, 90000, 90000},
};

START_TEST(warning)
{
    struct vmm_idle in = {
        .now_ms = warnings[_i].now * 1000ull,
        .last_activity_ms = warnings[_i].last * 1000ull,
        .timeout_ms = warnings[_i].timeout * 1000ull,
        .warning_ms = warnings[_i].warning * 1000ull,
        .n_holds = warnings[_i].held_since != 0,
        .oldest_hold_ms = warnings[_i].held_since * 1000ull,
        .max_run_ms = 86400000,
    };

    ck_assert_msg(vmm_idle_judge(&in).warn == warnings[_i].warn, "%s", warnings[_i].what);
}
END_TEST

START_TEST(limit)
{
    ck_assert_uint_eq(vmm_idle_timeout(limits[_i].persist, limits[_i].own, 3600, 86400),
                      limits[_i].limit);
}
END_TEST

START_TEST(rule)
{
    const struct situation *s = &situations[_i];
    struct vmm_idle in = {
        .now_ms = s->now * 1000ull,
        .last_activity_ms = s->last * 1000ull,
        .timeout_ms = 60000,
        .n_holds = s->n_holds,
        .oldest_hold_ms = s->held_since * 1000ull,
        .max_run_ms = 600000,
        .holds_listen = s->serving,
    };
    struct vmm_idle_verdict v = vmm_idle_judge(&in);

    ck_assert_msg(v.why == s->why, "%s: why %d", s->what, (int)v.why);
    ck_assert_msg(v.deadline_ms == s->deadline * 1000ull, "%s: deadline %llu", s->what,
                  (unsigned long long)v.deadline_ms);
    ck_assert_msg(v.stop == s->stop, "%s: stop %d", s->what, (int)v.stop);
    ck_assert_uint_gt(__builtin_strlen(vmm_idle_why_text(v.why)), 0);
}
END_TEST

START_TEST(endless_timeout_does_not_wrap)
{
    struct vmm_idle in = {.now_ms = 1000, .last_activity_ms = 900, .timeout_ms = UINT64_MAX};
    struct vmm_idle_verdict v = vmm_idle_judge(&in);

    ck_assert(!v.stop);
    in.n_holds = 1;
    in.oldest_hold_ms = 500;
    in.max_run_ms = UINT64_MAX;
    v = vmm_idle_judge(&in);
    ck_assert(!v.stop);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/idle");
    TCase *tc = tcase_create("rule");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_loop_test(tc, rule, 0, sizeof(situations) / sizeof(situations[0]));
    tcase_add_loop_test(tc, warning, 0, sizeof(warnings) / sizeof(warnings[0]));
    tcase_add_loop_test(tc, limit, 0, sizeof(limits) / sizeof(limits[0]));
    tcase_add_test(tc, endless_timeout_does_not_wrap);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
