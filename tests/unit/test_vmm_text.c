/* SPDX-License-Identifier: MIT */
#include "vmm/text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/table.h"

START_TEST(identifiers)
{
    char a[VMM_ID_LEN + 1], b[VMM_ID_LEN + 1], hex[41];
    bool seen[256] = {0};
    int n_seen = 0;

    vmm_random_id(a, VMM_ID_LEN);
    vmm_random_id(b, VMM_ID_LEN);
    vmm_random_hex(hex, 40);
    ck_assert_str_ne(a, b);
    ck_assert_uint_eq(strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789"), VMM_ID_LEN);
    ck_assert_uint_eq(strspn(hex, "0123456789abcdef"), 40);
    for (int i = 0; i < 1000; i++) { /* all of the alphabet comes up: 16,000 letters out of 36 */
        vmm_random_id(a, VMM_ID_LEN);
        for (int j = 0; j < VMM_ID_LEN; j++)
            seen[(unsigned char)a[j]] = true;
    }
    for (int i = 0; i < 256; i++)
        n_seen += seen[i];
    ck_assert_int_eq(n_seen, 36);
}
END_TEST

START_TEST(times)
{
    char text[VMM_TIME_SIZE];

    vmm_time_text(1767323045678, text);
    ck_assert_str_eq(text, "2026-01-02T03:04:05.678Z");
    vmm_time_text(0, text);
    ck_assert_str_eq(text, "");
    vmm_time_text(-5, text);
    ck_assert_str_eq(text, "");
    vmm_time_text(INT64_MAX, text);
}
END_TEST

START_TEST(utf8)
{
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"", true},
        {"abc", true},
        {"\xc3\xa9", true},
        {"\xe2\x82\xac", true},
        {"\xf0\x9f\x98\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xc3", false},
        {"\xe2\x82", false},
        {"\xff", false},
        {"\x80", false},
        {"\xc0\x80", false},         /* overlong */
        {"\xe0\x80\x80", false},     /* overlong */
        {"\xf0\x80\x80\x80", false}, /* overlong */
        {"\xed\xa0\x80", false},     /* surrogate */
        {"\xf4\x90\x80\x80", false}, /* above U+10FFFF */
        {"a\xc3(", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(vmm_utf8_valid(cases[i].text, strlen(cases[i].text)) == cases[i].valid,
                      "case %zu", i);
}
END_TEST

START_TEST(queries)
{
    static const struct {
        const char *query, *name, *value; /* NULL: none */
    } cases[] = {
        {"path=a%2Fb", "path", "a/b"},
        {"x=1&path=/tmp/%C3%A9", "path", "/tmp/\xc3\xa9"},
        {"path=a+b", "path", "a+b"}, /* a plus is a plus in paths of files */
        {"path", "path", ""},
        {"path=", "path", ""},
        {"xpath=1", "path", NULL},
        {"pathx=1", "path", NULL},
        {"", "path", NULL},
        {"&&&", "path", NULL},
        {"path=%", "path", NULL},
        {"path=%00", "path", NULL},
        {"path=%4", "path", NULL},
        {"path=1&path=2", "path", "1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *value = vmm_query_get(cases[i].query, cases[i].name);

        ck_assert_msg((value == NULL) == (cases[i].value == NULL), "%s", cases[i].query);
        if (value != NULL)
            ck_assert_str_eq(value, cases[i].value);
        free(value);
    }
}
END_TEST

START_TEST(table_of_many)
{
    struct vmm_table t = {0};
    static int values[5000];
    char key[16];

    ck_assert_ptr_null(vmm_table_get(&t, "x"));
    ck_assert_ptr_null(vmm_table_take(&t, "x"));
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_int_eq(vmm_table_set(&t, key, &values[i]), 0);
    }
    ck_assert_int_eq(vmm_table_set(&t, "key7", &values[8]), 0);
    ck_assert_uint_eq(t.n_entries, 5000);
    ck_assert_ptr_eq(vmm_table_get(&t, "key7"), &values[8]);
    for (int i = 0; i < 5000; i += 2) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_ptr_eq(vmm_table_take(&t, key), &values[i]);
    }
    ck_assert_uint_eq(t.n_entries, 2500);
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        ck_assert_ptr_eq(vmm_table_get(&t, key), i % 2 == 0 ? NULL
                                                 : i == 7   ? &values[8]
                                                            : &values[i]);
    }
    vmm_table_fini(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/text");
    TCase *tc = tcase_create("text");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, identifiers);
    tcase_add_test(tc, times);
    tcase_add_test(tc, utf8);
    tcase_add_test(tc, queries);
    tcase_add_test(tc, table_of_many);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
