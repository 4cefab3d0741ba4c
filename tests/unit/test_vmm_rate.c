/* SPDX-License-Identifier: MIT */
#include "vmm/rate.h"

#include <check.h>
#include <stdlib.h>

START_TEST(burst_then_the_rate)
{
    struct vmm_rate rate = {0};

    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 1000), 0);
    ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 1000), 100);
    ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 1040), 60);
    ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 1100), 0);
    ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 1100), 100);
    /* Ten seconds at the rate: a hundred and no more. */
    for (uint64_t t = 1101, n = 0; t <= 11100; t++) {
        n += vmm_rate_take(&rate, 10, 5, t) == 0;
        if (t == 11100)
            ck_assert_uint_eq(n, 100);
    }
}
END_TEST

START_TEST(a_pause_fills_it_and_no_more)
{
    struct vmm_rate rate = {0};

    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, 0), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, UINT64_MAX), 0);
    ck_assert_uint_eq(vmm_rate_take(&rate, 10, 5, UINT64_MAX), 100);
    ck_assert_uint_gt(vmm_rate_take(&rate, 10, 5, 1), 0); /* a clock that went back gives nothing */
}
END_TEST

START_TEST(extremes)
{
    struct vmm_rate slow = {0}, fast = {0};

    ck_assert_uint_eq(vmm_rate_take(&slow, 1, 1, 0), 0);
    ck_assert_uint_eq(vmm_rate_take(&slow, 1, 1, 0), 1000);
    ck_assert_uint_eq(vmm_rate_take(&slow, 1, 1, 999), 1);
    ck_assert_uint_eq(vmm_rate_take(&slow, 1, 1, 1000), 0);
    for (int i = 0; i < 1000; i++)
        ck_assert_uint_eq(vmm_rate_take(&fast, 1000000, 1000, 7), 0);
    ck_assert_uint_eq(vmm_rate_take(&fast, 1000000, 1000, 7), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/rate");
    TCase *tc = tcase_create("bucket");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, burst_then_the_rate);
    tcase_add_test(tc, a_pause_fills_it_and_no_more);
    tcase_add_test(tc, extremes);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
