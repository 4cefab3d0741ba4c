/* SPDX-License-Identifier: MIT */
/* Cookies for shared domains, redirects to the app's own address. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/rewrite.h"

/* Exactly as much room as is promised, so that a sanitizer sees a byte too many. */
static char *cookie(const char *value)
{
    size_t len = strlen(value), n;
    char *copy = malloc(len + 1), *out = malloc(len + 1);

    memcpy(copy, value, len);
    out = realloc(out, len > 0 ? len : 1);
    n = gw_rewrite_cookie((struct gw_str){copy, len}, "test", "preview.test", out);
    if (n > 0) {
        memcpy(copy, out, n);
        copy[n] = '\0';
    } else {
        free(copy);
        copy = strdup("same");
    }
    free(out);
    return copy;
}

static void check_cookie(const char *value, const char *expected)
{
    char *got = cookie(value);

    ck_assert_msg(strcmp(got, expected) == 0, "%s: got %s", value, got);
    free(got);
}

START_TEST(cookies_for_shared_domains_become_host_only)
{
    check_cookie("c=3; Domain=preview.test", "c=3");
    check_cookie("c=3;domain=.PREVIEW.Test ; Path=/", "c=3; Path=/");
    check_cookie("c=3; Path=/; Domain = preview.test.; HttpOnly", "c=3; Path=/; HttpOnly");
    check_cookie("c=3; Domain=test", "c=3");
    check_cookie("c=3; \tDOMAIN=\tlocalhost\t; Secure", "c=3; Secure");
    check_cookie("c=3; Domain=a.preview.test; Domain=preview.test", "c=3; Domain=a.preview.test");
    check_cookie("c=3; Domain=preview.test; Domain=test;", "c=3;");
    check_cookie("c=3; Domain=%70review.test", "c=3");
    check_cookie("c=3; Domain=\xef\xbd\x90review.test", "c=3");
    check_cookie("c=3; Domain=\"preview.test\"", "c=3");
}
END_TEST

START_TEST(other_cookies_are_left_alone)
{
    static const char *const values[] = {
        "a=1; Path=/; Expires=Wed, 01 Jan 2031 00:00:00 GMT",
        "b=2; Path=/; HttpOnly; SameSite=Lax",
        "c=3; Domain=ab12ab12ab12ab12.preview.test",
        "c=3; Domain=xpreview.test",
        "c=3; Domain=",
        "c=3; Domain",
        "c=3; XDomain=preview.test",
        "c=3; Domain=example.com",
        "Domain=preview.test",
        "Domain=preview.test; Path=/x",
        "c=Domain=preview.test",
        "session",
        ";;;;; ; ;",
    };

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        check_cookie(values[i], "same");
    ck_assert_uint_eq(gw_rewrite_cookie((struct gw_str){"", 0}, "test", "preview.test", NULL), 0);
}
END_TEST

static const struct gw_rewrite_own plain = {
    .host = {"ab12.preview.test:8443", 22}, .address = "100.64.0.6", .port = 3000, .port2 = 8080};

static void check_location(const struct gw_rewrite_own *own, const char *value,
                           const char *expected)
{
    size_t len = strlen(value), room = len + own->host.len + GW_REWRITE_SCHEME, n;
    char *copy = malloc(len > 0 ? len : 1), *out = malloc(room);

    memcpy(copy, value, len); /* NOLINT(bugprone-not-null-terminated-result): exact bounds */
    n = gw_rewrite_location((struct gw_str){copy, len}, own, out);
    ck_assert_uint_le(n, room);
    if (expected == NULL)
        ck_assert_msg(n == 0, "%s: got %.*s", value, (int)n, out);
    else
        ck_assert_msg(n == strlen(expected) && memcmp(out, expected, n) == 0, "%s: got %.*s", value,
                      (int)n, out);
    free(copy);
    free(out);
}

START_TEST(redirects_to_the_app_itself_lead_to_its_public_host)
{
    struct gw_rewrite_own tls = plain, v6 = plain, port80 = plain;

    check_location(&plain, "http://localhost:8080/login", "http://ab12.preview.test:8443/login");
    check_location(&plain, "HTTP://LocalHost:3000", "http://ab12.preview.test:8443");
    check_location(&plain, "https://127.0.0.1:8080?a=http://localhost:8080/",
                   "http://ab12.preview.test:8443?a=http://localhost:8080/");
    check_location(&plain, "http://0.0.0.0:8080/%2F#f", "http://ab12.preview.test:8443/%2F#f");
    check_location(&plain, "http://[::1]:8080/", "http://ab12.preview.test:8443/");
    check_location(&plain, "http://100.64.0.6:3000/", "http://ab12.preview.test:8443/");
    check_location(&plain, "//localhost:8080/x", "//ab12.preview.test:8443/x");
    tls.tls = true;
    check_location(&tls, "http://localhost:8080/login", "https://ab12.preview.test:8443/login");
    v6.address = "fd00::6";
    check_location(&v6, "http://[FD00::6]:8080/", "http://ab12.preview.test:8443/");
    check_location(&v6, "http://fd00::6:8080/", NULL);
    port80.port = 80;
    port80.port2 = 0;
    check_location(&port80, "http://localhost/x", "http://ab12.preview.test:8443/x");
    check_location(&port80, "https://localhost/x", NULL);
    check_location(&port80, "http://localhost:8080/x", NULL);
}
END_TEST

START_TEST(other_redirects_are_left_alone)
{
    static const char *const values[] = {
        "",
        "/",
        "/login",
        "login?next=http://localhost:8080/",
        "?localhost:8080",
        "http://ab12.preview.test:8080/login",
        "https://idp.example/auth?redirect_uri=http%3A%2F%2Flocalhost%3A8080%2Fcb",
        "//other.example/x",
        "//",
        "http://",
        "https://",
        "http:///localhost:8080",
        "http:localhost:8080",
        "http:/localhost:8080/",
        "http://localhost:8080.evil.example/",
        "http://localhost.evil.example:8080/",
        "http://user@localhost:8080/",
        "http://localhost:8080@evil.example/",
        "http://localhost:8080\\@evil.example/",
        "http://localhost:08080/",
        "http://localhost:/",
        "http://localhost:80800/",
        "http://localhost:808o/",
        "http://localhost:5000/",
        "http://localhost/",
        "http://[::1/",
        "http://[::1]x:8080/",
        "http://100.64.0.7:8080/",
        "ftp://localhost:8080/",
        "http://localhost :8080/",
    };

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        check_location(&plain, values[i], NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/rewrite");
    TCase *tc = tcase_create("fields");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, cookies_for_shared_domains_become_host_only);
    tcase_add_test(tc, other_cookies_are_left_alone);
    tcase_add_test(tc, redirects_to_the_app_itself_lead_to_its_public_host);
    tcase_add_test(tc, other_redirects_are_left_alone);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
