/* SPDX-License-Identifier: MIT */
/* What an agent tells of its machine comes from a guest: only figures that can be true pass. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include "vmm/machine_internal.h"

static json_t *check(const char *told)
{
    json_t *in = json_loads(told, 0, NULL), *out;

    ck_assert_ptr_nonnull(in);
    out = machine_stats_check(in);
    ck_assert_ptr_nonnull(out);
    json_decref(in);
    return out;
}

START_TEST(figures_pass)
{
    json_t *out = check("{\"seq\": 5, \"type\": \"stats\", \"cpu_percent\": 12.5, \"cpus\": 2,"
                        " \"load1\": 0, \"mem_total_kb\": 500000, \"time_ms\": 7}");

    ck_assert_uint_eq(json_object_size(out), 4);
    ck_assert_double_eq(json_real_value(json_object_get(out, "cpu_percent")), 12.5);
    ck_assert_int_eq(json_integer_value(json_object_get(out, "cpus")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(out, "mem_total_kb")), 500000);
    json_decref(out);
}
END_TEST

START_TEST(nonsense_does_not)
{
    static const char *const told[] = {
        "{}",
        "{\"cpu_percent\": 100.1}",
        "{\"cpu_percent\": -1}",
        "{\"cpu_percent\": \"7\"}",
        "{\"cpus\": 1e300}",
        "{\"cpus\": [2]}",
        "{\"mem_total_kb\": 9223372036854775807}",
        "{\"disk_used_kb\": {\"a\": 1}}",
        "{\"host_cpu_ms\": 1}",
        "{\"at\": \"now\"}",
        "{\"net_sent_bytes\": 1}",
    };

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        json_t *out = check(told[i]);

        ck_assert_msg(json_object_size(out) == 0, "%s", told[i]);
        json_decref(out);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/stats");
    TCase *tc = tcase_create("checks");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, figures_pass);
    tcase_add_test(tc, nonsense_does_not);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
