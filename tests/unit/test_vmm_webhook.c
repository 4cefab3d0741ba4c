/* SPDX-License-Identifier: MIT */
#include "vmm/webhook.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(urls)
{
    static const char *const good[] = {"https://example.com", "http://example.com:8080/a?b=c#d",
                                       "https://[2606:4700::1]/x", "https://a/@b"};
    static const char *const bad[] = {"",
                                      "example.com",
                                      "ftp://example.com",
                                      "https://",
                                      "https:///x",
                                      "https://:80",
                                      "https://user@example.com",
                                      "https://user:password@example.com/",
                                      "https://example.com/a b",
                                      "https://example.com/\r\nA: b",
                                      "https://ex\xc3\xa4mple.com",
                                      "file:///etc/passwd",
                                      "HTTPS://example.com"};
    char big[VMM_WEBHOOK_URL_MAX + 2] = "https://";

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(vmm_webhook_url_valid(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!vmm_webhook_url_valid(bad[i]), "%s", bad[i]);
    memset(big + 8, 'a', sizeof(big) - 9);
    ck_assert(!vmm_webhook_url_valid(big));
    big[VMM_WEBHOOK_URL_MAX] = '\0';
    ck_assert(vmm_webhook_url_valid(big));
}
END_TEST

START_TEST(patterns)
{
    ck_assert(vmm_webhook_pattern_valid("*"));
    ck_assert(vmm_webhook_pattern_valid("session.created"));
    ck_assert(vmm_webhook_pattern_valid("sandbox.*"));
    ck_assert(!vmm_webhook_pattern_valid(""));
    ck_assert(!vmm_webhook_pattern_valid(".*"));
    ck_assert(!vmm_webhook_pattern_valid("sand*"));
    ck_assert(!vmm_webhook_pattern_valid("sandbox.**"));
    ck_assert(!vmm_webhook_pattern_valid("*.created"));
    ck_assert(!vmm_webhook_pattern_valid("a b"));
    ck_assert(!vmm_webhook_pattern_valid("abcdefghijabcdefghijabcdefghijabcdefghija"));
    ck_assert(vmm_webhook_matches("*", "session.created"));
    ck_assert(vmm_webhook_matches("session.*", "session.created"));
    ck_assert(!vmm_webhook_matches("session.*", "sessions"));
    ck_assert(!vmm_webhook_matches("session.created", "session.created.twice"));
}
END_TEST

START_TEST(tries_end)
{
    unsigned n = 1, last = 0, delay;

    while ((delay = vmm_webhook_delay(n)) != 0) {
        ck_assert_uint_gt(delay, last);
        last = delay;
        n++;
    }
    ck_assert_uint_eq(n, 8);
    ck_assert_uint_eq(vmm_webhook_delay(0), 0);
}
END_TEST

START_TEST(signature)
{
    char out[100];

    vmm_webhook_sign("key", 17, "{\"a\":1}", out);
    ck_assert_str_eq(out, "t=17,v1="
                          "d3ba6f10f19da4394710a748dca6f7e47d0e9b749037df9a7f34f40df5063979");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/webhook");
    TCase *tc = tcase_create("webhook");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, urls);
    tcase_add_test(tc, patterns);
    tcase_add_test(tc, tries_end);
    tcase_add_test(tc, signature);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
