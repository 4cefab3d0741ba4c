/* SPDX-License-Identifier: MIT */
#include "gateway/figures.h"

#include <check.h>
#include <stdlib.h>

START_TEST(quantiles_are_upper_bounds)
{
    uint64_t counts[GW_DURATIONS + 1] = {0};

    ck_assert_uint_eq(gw_figures_quantile(counts, 0.5), 0);
    counts[0] = 90; /* up to 1 ms */
    counts[4] = 9;  /* up to 25 ms */
    counts[GW_DURATIONS] = 1;
    ck_assert_uint_eq(gw_figures_quantile(counts, 0.5), 1);
    ck_assert_uint_eq(gw_figures_quantile(counts, 0.9), 1);
    ck_assert_uint_eq(gw_figures_quantile(counts, 0.95), 25);
    ck_assert_uint_eq(gw_figures_quantile(counts, 0.99), 25);
    ck_assert_uint_eq(gw_figures_quantile(counts, 1), gw_duration_ms[GW_DURATIONS - 1]);
    counts[0] = counts[4] = 0;
    ck_assert_uint_eq(gw_figures_quantile(counts, 0.5), gw_duration_ms[GW_DURATIONS - 1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/figures");
    TCase *tc = tcase_create("quantiles");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, quantiles_are_upper_bounds);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
