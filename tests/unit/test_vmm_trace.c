/* SPDX-License-Identifier: MIT */
#include "vmm/trace.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define GOOD "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

START_TEST(forms_of_traceparent)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-010",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331 01",
        "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
    };

    ck_assert(vmm_traceparent_valid(GOOD));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!vmm_traceparent_valid(bad[i]), "%s", bad[i]);
}
END_TEST

static struct vmm_request read_both(const char *id, const char *trace)
{
    struct tr_h2_field fields[] = {TR_H2_FIELD("x-request-id", id),
                                   TR_H2_FIELD("traceparent", trace)};
    struct tr_h2_head head = {.fields = fields, .n_fields = 2};
    struct vmm_request req = {.head = &head};

    vmm_trace_read(&req);
    req.head = NULL;
    return req;
}

START_TEST(what_cannot_stand_in_a_log_is_replaced)
{
    char ids[VMM_TRACE_IDS];
    struct vmm_request req = read_both("edge-17", GOOD);

    ck_assert_str_eq(vmm_trace_ids(&req, ids), "req=edge-17 trace=" GOOD);
    req = read_both("two words", "x");
    ck_assert_uint_eq(strlen(req.id), 16);
    ck_assert_str_eq(req.trace, "");
    req = read_both("0123456789012345678901234567890123456789012345678901234567890123456789", "");
    ck_assert_uint_eq(strlen(req.id), 16);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/trace");
    TCase *tc = tcase_create("ids");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, forms_of_traceparent);
    tcase_add_test(tc, what_cannot_stand_in_a_log_is_replaced);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
