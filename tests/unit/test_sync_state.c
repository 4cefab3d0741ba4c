/* SPDX-License-Identifier: MIT */
#include "sync/state.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "alloc_fail.h"

static struct sync_state *st;

static void setup(void)
{
    ck_assert_int_eq(sync_state_new(0, 0, &st), 0);
}

static void teardown(void)
{
    sync_state_free(st);
}

static int put(const char *path)
{
    struct sync_node *node;

    return sync_state_put(st, path, strlen(path), &node);
}

static struct sync_node *get(const char *path)
{
    return sync_state_get(st, path, strlen(path));
}

START_TEST(a_folder_comes_right_before_what_is_in_it)
{
    static const char *const in[] = {"a.b", "b",      "a/b/c", "a",    "a/b",
                                     "a0",  "a/\x01", "a!",    "a/b.c"};
    static const char *const want[] = {"a",  "a/\x01", "a/b", "a/b/c", "a/b.c",
                                       "a!", "a.b",    "a0",  "b"};
    struct sync_cursor c;
    size_t n = 0;

    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        ck_assert_int_eq(put(in[i]), 0);
    for (sync_cursor_start(&c, st, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c))
        ck_assert_str_eq(sync_cursor_get(&c)->path, want[n++]);
    ck_assert_uint_eq(n, 9);
    sync_cursor_start(&c, st, "a/b.", 4);
    ck_assert_str_eq(sync_cursor_get(&c)->path, "a/b.c");
    sync_cursor_start(&c, st, "c", 1);
    ck_assert_ptr_null(sync_cursor_get(&c));
    sync_state_remove_below(st, "a", 1);
    ck_assert_uint_eq(sync_state_count(st), 5);
    ck_assert_ptr_nonnull(get("a"));
    ck_assert_ptr_nonnull(get("a!"));
    ck_assert_ptr_null(get("a/b"));
    sync_state_remove_below(st, "", 0);
    ck_assert_uint_eq(sync_state_count(st), 0);
    sync_state_remove_below(st, "", 0);
}
END_TEST

START_TEST(putting_twice_is_one_node)
{
    struct sync_node *a, *b;

    ck_assert_int_eq(sync_state_put(st, "x", 1, &a), 0);
    a->value.what = SYNC_IS_DIR;
    ck_assert_int_eq(put("w"), 0);
    ck_assert_int_eq(put("y"), 0);
    ck_assert_int_eq(sync_state_put(st, "x", 1, &b), 0);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(b->value.what, SYNC_IS_DIR);
    sync_state_remove(st, "x", 1);
    sync_state_remove(st, "x", 1);
    ck_assert_uint_eq(sync_state_count(st), 2);
    ck_assert_ptr_null(get("x"));
}
END_TEST

/* Against a plain table of what there should be. */
START_TEST(thousands_of_random_changes)
{
    enum { NAMES = 4000, STEPS = 60000 };
    static bool is_there[NAMES];
    unsigned seed = 5;
    size_t n = 0;
    char path[32], last[32];
    struct sync_cursor c;

    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % NAMES;

        snprintf(path, sizeof(path), "%d/%d", i / 40, i % 40);
        if (step / 10000 % 2 == 0 || rand_r(&seed) % 8 == 0) {
            ck_assert_int_eq(put(path), 0);
            n += !is_there[i];
            is_there[i] = true;
        } else if (rand_r(&seed) % 64 != 0) {
            sync_state_remove(st, path, strlen(path));
            n -= is_there[i];
            is_there[i] = false;
        } else {
            snprintf(path, sizeof(path), "%d", i / 40);
            sync_state_remove_below(st, path, strlen(path));
            for (int k = i / 40 * 40; k < i / 40 * 40 + 40; k++) {
                n -= is_there[k];
                is_there[k] = false;
            }
        }
        ck_assert_uint_eq(sync_state_count(st), n);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(path, sizeof(path), "%d/%d", i / 40, i % 40);
        ck_assert_int_eq(get(path) != NULL, is_there[i]);
    }
    last[0] = '\0';
    for (sync_cursor_start(&c, st, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c)) {
        ck_assert_int_lt(sync_path_order(last, strlen(last), sync_cursor_get(&c)->path,
                                         sync_cursor_get(&c)->len),
                         0);
        snprintf(last, sizeof(last), "%s", sync_cursor_get(&c)->path);
        n--;
    }
    ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(a_million_names_are_too_many)
{
    char path[64];
    int r = 0;
    long i;

    for (i = 0; i < 1000000 && r == 0; i++) {
        /* Neither in order nor all in one folder. */
        snprintf(path, sizeof(path), "%ld/%ld", i * 7919 % 1000, i);
        r = put(path);
    }
    ck_assert_int_eq(r, -ENOSPC);
    ck_assert_int_eq(i, SYNC_STATE_NODES_MAX + 1);
    ck_assert_uint_eq(sync_state_count(st), SYNC_STATE_NODES_MAX);
    ck_assert_int_eq(put("0/0"), 0); /* what is there already is no new name */
    sync_state_remove(st, "0/0", 3);
    ck_assert_int_eq(put("1"), 0);
    ck_assert_int_eq(put("2"), -ENOSPC);
    sync_state_remove_below(st, "", 0);
    ck_assert_int_eq(put("2"), 0);
}
END_TEST

START_TEST(so_are_too_many_bytes_of_names)
{
    static char path[4096];
    int n = 0, r;

    memset(path, 'x', 4000);
    do {
        snprintf(path + 4000, sizeof(path) - 4000, "%d", n++);
        r = put(path);
    } while (r == 0);
    ck_assert_int_eq(r, -ENOSPC);
    ck_assert_int_ge(n, SYNC_STATE_BYTES_MAX / 4010);
    ck_assert_int_le(n, SYNC_STATE_BYTES_MAX / 4000 + 1);
}
END_TEST

START_TEST(values)
{
    struct sync_value a = {.what = SYNC_IS_FILE}, b = a;

    ck_assert(sync_value_is_same(&a, &b));
    b.is_exec = true;
    ck_assert(!sync_value_is_same(&a, &b));
    a.what = b.what = SYNC_IS_LINK;
    ck_assert(sync_value_is_same(&a, &b));
    b.id.bytes[19] = 1;
    ck_assert(!sync_value_is_same(&a, &b));
    a.what = b.what = SYNC_IS_DIR;
    ck_assert(sync_value_is_same(&a, &b));
    a.what = b.what = SYNC_IS_LEFT_OUT;
    ck_assert(sync_value_is_same(&a, &b));
    a.has_id = b.has_id = true;
    ck_assert(!sync_value_is_same(&a, &b));
    b = a;
    b.is_there = true;
    ck_assert(!sync_value_is_same(&a, &b));
}
END_TEST

START_TEST(memory_runs_out_at_every_place)
{
    char path[16];
    size_t n = 0;

    for (int i = 0; i < 2000; i++) {
        int r;

        snprintf(path, sizeof(path), "%d", i * 7 % 2003);
        for (long at = 1;; at++) {
            alloc_fail_at(at);
            r = put(path);
            if (!alloc_failed())
                break;
            ck_assert_int_eq(r, -ENOMEM);
            ck_assert_uint_eq(sync_state_count(st), n);
            ck_assert_ptr_null(get(path));
        }
        ck_assert_int_eq(r, 0);
        ck_assert_uint_eq(sync_state_count(st), ++n);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/state");
    TCase *tc = tcase_create("map");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, a_folder_comes_right_before_what_is_in_it);
    tcase_add_test(tc, putting_twice_is_one_node);
    tcase_add_test(tc, thousands_of_random_changes);
    tcase_add_test(tc, a_million_names_are_too_many);
    tcase_add_test(tc, so_are_too_many_bytes_of_names);
    tcase_add_test(tc, values);
    tcase_add_test(tc, memory_runs_out_at_every_place);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
