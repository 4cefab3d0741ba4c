/* SPDX-License-Identifier: MIT */
#include "vmm/metrics.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/figures.h"

static int judge(const char *text)
{
    return vmm_metrics_judge(text, strlen(text));
}

START_TEST(requests)
{
    char big[5000];

    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9181\r\n\r\n"), 200);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.0\r\n\r\n"), 200);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nA: b\r\nhOST:localhost\r\nC: d\r\n\r\n"), 200);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nHost: [::1]:9181\r\n\r\n"), 200);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nHost: \r\n\r\n"), 421);
    ck_assert_int_eq(judge("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404);
    ck_assert_int_eq(judge("GET /metrics/ HTTP/1.1\r\n\r\n"), 404);
    ck_assert_int_eq(judge("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
    ck_assert_int_eq(judge("GET /metrics HTTP/1.1\r\nHost: loc"), 0);
    ck_assert_int_eq(judge("GE"), 0);
    ck_assert_int_eq(judge(""), 0);
    ck_assert_int_eq(judge("\r\n\r\n"), 400);
    ck_assert_int_eq(judge("GET\r\n\r\n"), 400);
    ck_assert_int_eq(judge("GET /metrics\r\n\r\n"), 400);
    ck_assert_int_eq(judge("GET /metrics HTTP/2.0\r\n\r\n"), 400);
    ck_assert_int_eq(vmm_metrics_judge("GET /met\0rics HTTP/1.1\r\n\r\n", 27), 400);
    memset(big, 'a', sizeof(big));
    ck_assert_int_eq(vmm_metrics_judge(big, sizeof(big)), 400);
}
END_TEST

START_TEST(start_times_go_to_their_buckets)
{
    struct vmm_figures n = {0};

    vmm_figures_started(&n, VMM_START_COLD, 0);
    vmm_figures_started(&n, VMM_START_COLD, vmm_start_ms[0]);
    vmm_figures_started(&n, VMM_START_COLD, vmm_start_ms[0] + 1);
    vmm_figures_started(&n, VMM_START_TEMPLATE, UINT32_MAX);
    ck_assert_uint_eq(n.starts[VMM_START_COLD][0], 2);
    ck_assert_uint_eq(n.starts[VMM_START_COLD][1], 1);
    ck_assert_uint_eq(n.starts[VMM_START_TEMPLATE][VMM_START_TIMES], 1);
    ck_assert_uint_eq(n.starts_ms[VMM_START_COLD], 2 * vmm_start_ms[0] + 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/metrics");
    TCase *tc = tcase_create("metrics");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, requests);
    tcase_add_test(tc, start_times_go_to_their_buckets);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
