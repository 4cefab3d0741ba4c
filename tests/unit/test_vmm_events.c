/* SPDX-License-Identifier: MIT */
/* The ring of events: order, owners, what is lost and how one learns of it. */
#include "vmm/events.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vmm_events *events;
static int n_wakes;

static void setup(void)
{
    events = calloc(1, sizeof(*events));
    snprintf(events->node, sizeof(events->node), "n1");
    n_wakes = 0;
}

static void teardown(void)
{
    vmm_events_fini(events);
    free(events);
}

static uint64_t add(const char *owner, int number)
{
    const struct vmm_event *ev =
        vmm_events_add(events, "test", owner, json_pack("{si}", "number", number));

    ck_assert_ptr_nonnull(ev);
    return ev->id;
}

START_TEST(ids_grow_and_texts_are_whole)
{
    uint64_t first = add("alice", 1), second = add("alice", 2);
    const struct vmm_event *ev = vmm_events_next(events, first, NULL);
    json_t *text;

    ck_assert_uint_gt(second, first);
    ck_assert_uint_eq(ev->id, second);
    text = json_loads(ev->text, 0, NULL);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(text, "id")), second);
    ck_assert_str_eq(json_string_value(json_object_get(text, "owner")), "alice");
    ck_assert_str_eq(json_string_value(json_object_get(text, "node")), "n1");
    ck_assert_int_eq(json_integer_value(json_object_get(text, "number")), 2);
    ck_assert_ptr_null(vmm_events_next(events, second, NULL));
    json_decref(text);
}
END_TEST

START_TEST(id_does_not_go_back_with_the_clock)
{
    uint64_t id;

    events->last_id = UINT64_C(9000000000000000);
    id = add("alice", 1);
    ck_assert_uint_eq(id, UINT64_C(9000000000000001));
}
END_TEST

START_TEST(owners_see_their_own)
{
    uint64_t at = 0;
    int n = 0;
    const struct vmm_event *ev;

    for (int i = 0; i < 10; i++)
        add(i % 2 ? "alice" : "bob", i);
    while ((ev = vmm_events_next(events, at, "alice")) != NULL) {
        ck_assert_str_eq(ev->owner, "alice");
        ck_assert_ptr_null(strstr(ev->text, "bob"));
        at = ev->id;
        n++;
    }
    ck_assert_int_eq(n, 5);
    ck_assert_ptr_null(vmm_events_next(events, 0, "alic"));
}
END_TEST

START_TEST(ring_is_bounded_and_the_horizon_says_so)
{
    uint64_t first = add("alice", 0), last = 0;

    ck_assert_uint_lt(vmm_events_horizon(events), first);
    for (int i = 1; i <= VMM_EVENTS_KEPT; i++)
        last = add("alice", i);
    ck_assert_uint_eq(events->n, VMM_EVENTS_KEPT);
    ck_assert_uint_ge(vmm_events_horizon(events), first);
    ck_assert_uint_eq(vmm_events_next(events, last - 1, NULL)->id, last);
    ck_assert_uint_gt(vmm_events_next(events, 0, NULL)->id, vmm_events_horizon(events));
}
END_TEST

static void on_wake(struct vmm_listener *listener)
{
    n_wakes++;
    if (n_wakes == 2)
        vmm_events_unlisten(events, listener); /* allowed from inside */
}

START_TEST(listeners_are_woken_until_they_leave)
{
    struct vmm_listener one = {.wake = on_wake}, two = {.wake = on_wake};

    vmm_events_listen(events, &one);
    add("alice", 1);
    ck_assert_int_eq(n_wakes, 1);
    vmm_events_listen(events, &two);
    add("alice", 2);
    ck_assert_int_eq(n_wakes, 3); /* two left at its first wake */
    add("alice", 3);
    ck_assert_int_eq(n_wakes, 4);
    vmm_events_unlisten(events, &one);
    add("alice", 4);
    ck_assert_int_eq(n_wakes, 4);
}
END_TEST

static uint64_t add_last(const char *key, int number)
{
    const struct vmm_event *ev =
        vmm_events_add_last(events, "stats", "alice", key, json_pack("{si}", "number", number));

    ck_assert_ptr_nonnull(ev);
    return ev->id;
}

/* Only the last sample of each sandbox is kept, all else in its order. */
START_TEST(samples_replace_each_other)
{
    uint64_t first = add("alice", 1), second, third, last, at = 0, seen[8];
    size_t n = 0;

    (void)add_last("a", 2);
    second = add("bob", 3);
    (void)add_last("b", 4);
    (void)add_last("a", 5);
    third = add_last("b", 6);
    last = add_last("a", 7);
    for (const struct vmm_event *ev; (ev = vmm_events_next(events, at, NULL)) != NULL; at = ev->id)
        seen[n++] = ev->id;
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(seen[0], first);
    ck_assert_uint_eq(seen[1], second);
    ck_assert_uint_eq(seen[2], third);
    ck_assert_uint_eq(seen[3], last);
    ck_assert_uint_eq(vmm_events_horizon(events), first - 1);
    for (int i = 0; i < 3 * VMM_EVENTS_KEPT; i++)
        (void)add_last("a", i);
    ck_assert_uint_eq(events->n, 4); /* the first event is kept as ever */
    ck_assert_uint_eq(vmm_events_next(events, 0, NULL)->id, first);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/events");
    TCase *tc = tcase_create("ring");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, samples_replace_each_other);
    tcase_add_test(tc, ids_grow_and_texts_are_whole);
    tcase_add_test(tc, id_does_not_go_back_with_the_clock);
    tcase_add_test(tc, owners_see_their_own);
    tcase_add_test(tc, ring_is_bounded_and_the_horizon_says_so);
    tcase_add_test(tc, listeners_are_woken_until_they_leave);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
