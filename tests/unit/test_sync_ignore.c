/* SPDX-License-Identifier: MIT */
/* What git is no oracle for: .transomignore, limits, changes, memory, time. The language itself is
 * compared with git in tests/integration/15-sync-filter. */
#include "sync/ignore.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "alloc_fail.h"
#include "sync/wild.h"

static struct sync_ignore *ig;
static struct sync_ignore_hit hit;

static void setup(void)
{
    ck_assert_int_eq(sync_ignore_new(&ig), 0);
}

static void teardown(void)
{
    sync_ignore_free(ig);
}

static int set(enum sync_ignore_level level, const char *dir, const char *text)
{
    return sync_ignore_set(ig, level, dir, strlen(dir), text, strlen(text), NULL);
}

static enum sync_ignore_verdict ask(const char *path)
{
    size_t len = strlen(path);
    bool is_dir = path[len - 1] == '/';

    return sync_ignore_check(ig, path, len - is_dir, is_dir, &hit);
}

START_TEST(transomignore_is_on_top)
{
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "", "*.csv\n"), 0);
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "web", "dist/\n"), 0);
    ck_assert_int_eq(ask("web/dist/x"), SYNC_IGNORE_YES);
    ck_assert_int_eq(ask("a.csv"), SYNC_IGNORE_YES);
    ck_assert_int_eq(set(SYNC_IGNORE_TRANSOM, "", "!/web/dist/\nsecret.*\n!b.csv\n"), 0);
    ck_assert_int_eq(ask("web/dist/x"), SYNC_IGNORE_NONE);
    ck_assert_int_eq(ask("web/dist/"), SYNC_IGNORE_KEEP);
    ck_assert_int_eq(ask("secret.csv"), SYNC_IGNORE_YES);
    ck_assert_int_eq(ask("a.csv"), SYNC_IGNORE_YES);
    ck_assert_int_eq(ask("web/b.csv"), SYNC_IGNORE_KEEP);
    ck_assert_int_eq(set(SYNC_IGNORE_TRANSOM, "web", "b.csv\n"),
                     0); /* the deeper one is asked first */
    ck_assert_int_eq(ask("web/b.csv"), SYNC_IGNORE_YES);
    sync_ignore_drop(ig, SYNC_IGNORE_TRANSOM, "", 0);
    sync_ignore_drop(ig, SYNC_IGNORE_TRANSOM, "", 0);
    ck_assert_int_eq(ask("web/dist/x"), SYNC_IGNORE_YES);
}
END_TEST

START_TEST(the_line_that_decides_is_named)
{
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "a/b", "# first\n\nx\nout/\n"), 0);
    ck_assert_int_eq(ask("a/b/out/y/z"), SYNC_IGNORE_YES);
    ck_assert_str_eq(hit.dir, "a/b");
    ck_assert_uint_eq(hit.line, 4);
    ck_assert_uint_eq(hit.up_to, strlen("a/b/out"));
    ck_assert_int_eq(hit.level, SYNC_IGNORE_GIT);
    ck_assert_int_eq(ask("a/bout/x"), SYNC_IGNORE_NONE);
    ck_assert_uint_eq(hit.line, 0);
    ck_assert_int_eq(ask("out/x"), SYNC_IGNORE_NONE);
}
END_TEST

START_TEST(one_folder_at_a_time)
{
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "", "a/\n"), 0);
    ck_assert_int_eq(sync_ignore_check_last(ig, "a/b", 3, false, NULL), SYNC_IGNORE_NONE);
    ck_assert_int_eq(sync_ignore_check(ig, "a/b", 3, false, NULL), SYNC_IGNORE_YES);
    ck_assert_int_eq(sync_ignore_check_last(ig, "a", 1, true, NULL), SYNC_IGNORE_YES);
    ck_assert_int_eq(sync_ignore_check_last(ig, "a", 1, false, NULL), SYNC_IGNORE_NONE);
}
END_TEST

START_TEST(what_is_over_a_limit_leaves_no_verdict)
{
    static char big[SYNC_IGNORE_FILE_MAX + 1];
    struct err err;

    memset(big, 'x', sizeof(big));
    ck_assert_int_eq(sync_ignore_set(ig, SYNC_IGNORE_GIT, "a", 1, big, sizeof(big), &err), -E2BIG);
    ck_assert_int_eq(ask("a/x"), SYNC_IGNORE_UNSURE);
    ck_assert_int_eq(ask("b/x"), SYNC_IGNORE_NONE);
    ck_assert_int_eq(sync_ignore_set(ig, SYNC_IGNORE_GIT, "a", 1, big, sizeof(big) - 1, &err), 0);
    ck_assert_int_eq(ask("a/x"), SYNC_IGNORE_NONE);
    for (size_t i = 1; i < sizeof(big); i += 2)
        big[i] = '\n';
    ck_assert_int_eq(
        sync_ignore_set(ig, SYNC_IGNORE_GIT, "a", 1, big, SYNC_IGNORE_LINES_MAX * 2, &err), 0);
    ck_assert_int_eq(
        sync_ignore_set(ig, SYNC_IGNORE_GIT, "a", 1, big, SYNC_IGNORE_LINES_MAX * 2 + 2, &err),
        -E2BIG);
    ck_assert_int_eq(ask("a/y"), SYNC_IGNORE_UNSURE);
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "../a", "x"), -EINVAL);
}
END_TEST

START_TEST(the_session_has_limits_too)
{
    static char text[SYNC_IGNORE_FILE_MAX];
    char dir[16];
    int n = 0, r;

    memset(text, 'x', sizeof(text));
    do {
        snprintf(dir, sizeof(dir), "d%d", n++);
        r = sync_ignore_set(ig, SYNC_IGNORE_GIT, dir, strlen(dir), text, sizeof(text), NULL);
    } while (r == 0);
    ck_assert_int_eq(r, -E2BIG);
    ck_assert_int_eq(n, SYNC_IGNORE_TOTAL_MAX / SYNC_IGNORE_FILE_MAX + 1);
    ck_assert_int_eq(ask("d32/x"), SYNC_IGNORE_UNSURE);
    ck_assert_int_eq(ask("d0/x"), SYNC_IGNORE_NONE);
    sync_ignore_drop(ig, SYNC_IGNORE_GIT, "d0", 2);
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "d32", "x"), 0);
    ck_assert_int_eq(ask("d32/x"), SYNC_IGNORE_YES);
    for (n = 0, r = 0; r == 0; n++) {
        snprintf(dir, sizeof(dir), "e%d", n);
        r = set(SYNC_IGNORE_GIT, dir, "x");
    }
    ck_assert_int_eq(r, -ENOSPC);
    ck_assert_int_eq(ask("unrelated"), SYNC_IGNORE_UNSURE);
}
END_TEST

START_TEST(memory_runs_out_at_every_place)
{
    for (long n = 1;; n++) {
        int r;

        alloc_fail_at(n);
        r = set(SYNC_IGNORE_GIT, "a", "x\ny\n");
        if (!alloc_failed()) {
            ck_assert_int_eq(r, 0);
            break;
        }
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_int_eq(ask("a/x"), SYNC_IGNORE_NONE);
    }
    ck_assert_int_eq(ask("a/x"), SYNC_IGNORE_YES);
    alloc_fail_at(1);
    ck_assert_int_eq(set(SYNC_IGNORE_GIT, "a", "z\n"), -ENOMEM); /* what was there stays */
    ck_assert(alloc_failed());
    ck_assert_int_eq(ask("a/x"), SYNC_IGNORE_YES);
}
END_TEST

/* Repeat a unit from the start of the buffer, and end with a last byte. */
static void fill(char *buffer, size_t len, const char *unit, char last)
{
    for (size_t i = 0, n = strlen(unit); i < len; i++)
        buffer[i] = unit[i % n];
    buffer[len - 1] = last;
}

/* Backtracking would need more than the age of the world. */
START_TEST(no_pattern_takes_long)
{
    static char pattern[4095], text[4095];
    const size_t len = sizeof(text);

    fill(text, len, "a", 'a');
    fill(pattern, len, "*a", 'b');
    ck_assert(!sync_wild_match(pattern, len, text, len, true));
    ck_assert(!sync_wild_match(pattern, len, text, len, false));
    fill(text, len, "a/", 'a');
    fill(pattern, len, "**/*a/", 'b');
    ck_assert(!sync_wild_match(pattern, len, text, len, true));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/ignore");
    TCase *tc = tcase_create("ignore");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 30);
    tcase_add_test(tc, transomignore_is_on_top);
    tcase_add_test(tc, the_line_that_decides_is_named);
    tcase_add_test(tc, one_folder_at_a_time);
    tcase_add_test(tc, what_is_over_a_limit_leaves_no_verdict);
    tcase_add_test(tc, the_session_has_limits_too);
    tcase_add_test(tc, memory_runs_out_at_every_place);
    tcase_add_test(tc, no_pattern_takes_long);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
