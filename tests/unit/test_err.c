/* SPDX-License-Identifier: MIT */
#include "transom/err.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(reason_is_set_and_prefixed)
{
    struct err err;

    ck_assert_int_eq(tr_err_set(&err, -ENOENT, "%s is missing", "disk"), -ENOENT);
    ck_assert_int_eq(err.code, -ENOENT);
    ck_assert_str_eq(err.msg, "disk is missing");
    ck_assert_int_eq(tr_err_wrap(&err, "vm %d", 7), -ENOENT);
    ck_assert_str_eq(err.msg, "vm 7: disk is missing");
    tr_err_clear(&err);
    ck_assert_int_eq(err.code, 0);
    ck_assert_str_eq(err.msg, "");
}
END_TEST

START_TEST(null_is_allowed)
{
    ck_assert_int_eq(tr_err_set(NULL, -EIO, "x"), -EIO);
    ck_assert_int_eq(tr_err_wrap(NULL, "x"), -1);
    tr_err_clear(NULL);
}
END_TEST

START_TEST(long_texts_are_cut)
{
    struct err err;
    char text[2000];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    tr_err_set(&err, -EIO, "%s", text);
    ck_assert_uint_eq(strlen(err.msg), sizeof(err.msg) - 1);
    tr_err_wrap(&err, "front");
    ck_assert_uint_eq(strlen(err.msg), sizeof(err.msg) - 1);
    ck_assert_int_eq(strncmp(err.msg, "front: aaa", 10), 0);
    tr_err_wrap(&err, "%s", text); /* no room for what was below */
    ck_assert_uint_eq(strlen(err.msg), sizeof(err.msg) - 1);
    ck_assert_ptr_null(strstr(err.msg, "front"));
    ck_assert_int_eq(err.code, -EIO);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("conf/err");
    TCase *tc = tcase_create("err");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, reason_is_set_and_prefixed);
    tcase_add_test(tc, null_is_allowed);
    tcase_add_test(tc, long_texts_are_cut);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
