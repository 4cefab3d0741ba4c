/* SPDX-License-Identifier: MIT */
#include "gateway/framing.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *from, const char *to)
{
    char *out = malloc(strlen(from) + 1);
    size_t n = gw_framing_policy((struct gw_str){from, strlen(from)}, out);

    ck_assert_msg(n == strlen(to) && memcmp(out, to, n) == 0, "%s: %.*s", from, (int)n, out);
    free(out);
}

START_TEST(the_directive_alone_is_cut)
{
    expect("", "");
    expect("default-src 'self'", "default-src 'self'");
    expect("frame-ancestors 'none'", "");
    expect("frame-ancestors", "");
    expect("Frame-Ancestors https://a.example; img-src *", " img-src *");
    expect("default-src 'self'; frame-ancestors 'none'; img-src *",
           "default-src 'self'; img-src *");
    expect("default-src 'self'; frame-ancestors 'none'", "default-src 'self';");
    expect("a b; frame-ancestors 'none', c d;frame-ancestors 'self';e f", "a b;, c d;e f");
    expect("frame-ancestors-x 'none'; x-frame-ancestors y",
           "frame-ancestors-x 'none'; x-frame-ancestors y");
    expect("frame-src 'none'; sandbox frame-ancestors",
           "frame-src 'none'; sandbox frame-ancestors");
    expect(";;,;", ";;,;");
    expect("frame-ancestors\t'none';", "");
}
END_TEST

START_TEST(a_response_head)
{
    struct gw_field fields[] = {
        {.name = "X-Frame-Options", .name_len = 15, .value = "DENY", .value_len = 4},
        {.name = "Content-Security-Policy",
         .name_len = 23,
         .value = "frame-ancestors x",
         .value_len = 17},
        {.name = "content-security-policy",
         .name_len = 23,
         .value = "frame-ancestors x; a b",
         .value_len = 22},
        {.name = "content-security-policy-report-only",
         .name_len = 35,
         .value = "frame-ancestors x",
         .value_len = 17},
        {.name = "x-frame-option", .name_len = 14, .value = "DENY", .value_len = 4},
    };
    struct gw_response resp = {.fields = fields, .n_fields = 5};
    char out[64];

    ck_assert_uint_eq(gw_framing_room(&resp), 39);
    (void)gw_framing_apply(&resp, out);
    ck_assert(fields[0].hop_by_hop && fields[1].hop_by_hop);
    ck_assert(!fields[2].hop_by_hop && !fields[3].hop_by_hop && !fields[4].hop_by_hop);
    ck_assert_uint_eq(fields[2].value_len, 4);
    ck_assert(memcmp(fields[2].value, " a b", 4) == 0);
    ck_assert_uint_eq(fields[3].value_len, 17);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/framing");
    TCase *tc = tcase_create("framing");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, the_directive_alone_is_cut);
    tcase_add_test(tc, a_response_head);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
