/* SPDX-License-Identifier: MIT */
#include "gateway/admin.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/admin_cookie.h"
#include "gateway/asset.h"
#include "gateway/http1.h"

#define KEY "transom_0123456789abcdef0123456789abcdef01234567"
#define NOW ((uint64_t)1800000000)

static int secret;

static void setup(void)
{
    secret = gw_admin_secret_create();
    ck_assert_int_ge(secret, 0);
    ck_assert_int_eq(gw_admin_secret_open(secret), 0);
}

static void teardown(void)
{
    close(secret);
}

static struct gw_field fields[8];

/* A request with these name and value pairs; NULL ends them. */
static struct gw_request request(const char *const *pairs)
{
    struct gw_request req = {.fields = fields, .host = GW_STR("admin.test")};

    for (; *pairs != NULL; pairs += 2)
        fields[req.n_fields++] =
            (struct gw_field){.name = pairs[0],
                              .name_len = (uint32_t)strlen(pairs[0]),
                              .value = pairs[1],
                              .value_len = (uint32_t)strlen(pairs[1]),
                              .id = gw_http1_classify(pairs[0], strlen(pairs[0]))};
    return req;
}
#define REQUEST(...) request((const char *const[]){__VA_ARGS__, NULL})

/* "name=value" of a Set-Cookie for KEY. */
static void make(bool secure, char out[GW_ADMIN_COOKIE_MAX])
{
    ck_assert_int_eq(gw_admin_cookie(GW_STR(KEY), secure, NOW, out), 0);
    ck_assert_ptr_null(strstr(out, "transom_0"));
    ck_assert_ptr_nonnull(strstr(out, "; Path=/; HttpOnly; SameSite=Strict"));
    ck_assert_int_eq(strstr(out, "; Secure") != NULL, secure);
    ck_assert_ptr_null(strstr(out, "Domain"));
    *strchr(out, ';') = '\0';
}

static enum gw_admin_sign look(const char *cookie, bool secure, uint64_t now)
{
    struct gw_request req = REQUEST("cookie", cookie);
    char key[GW_ADMIN_KEY_MAX + 1] = "";
    enum gw_admin_sign r = gw_admin_signed_in(&req, secure, now, key);

    ck_assert_str_eq(key, r == GW_ADMIN_SIGNED_IN ? KEY : "");
    return r;
}

START_TEST(a_cookie_gives_its_key_until_it_is_void)
{
    char cookie[GW_ADMIN_COOKIE_MAX], among[GW_ADMIN_COOKIE_MAX + 32];

    make(true, cookie);
    ck_assert_int_eq(strncmp(cookie, "__Host-transom-admin=", 21), 0);
    ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_IN);
    ck_assert_int_eq(look(cookie, true, NOW + GW_ADMIN_LIFE_S - 1), GW_ADMIN_SIGNED_IN);
    ck_assert_int_eq(look(cookie, true, NOW + GW_ADMIN_LIFE_S), GW_ADMIN_SIGNED_OUT);
    ck_assert_int_eq(look(cookie, false, NOW), GW_ADMIN_SIGNED_OUT);
    snprintf(among, sizeof(among), "a=b; %s; c=\"d\"", cookie);
    ck_assert_int_eq(look(among, true, NOW), GW_ADMIN_SIGNED_IN);
    ck_assert_int_eq(look("", true, NOW), GW_ADMIN_SIGNED_OUT);
}
END_TEST

START_TEST(one_for_plain_http_is_none_for_tls)
{
    char cookie[GW_ADMIN_COOKIE_MAX], other[GW_ADMIN_COOKIE_MAX + 8];

    make(false, cookie);
    ck_assert_int_eq(look(cookie, false, NOW), GW_ADMIN_SIGNED_IN);
    snprintf(other, sizeof(other), "__Host-%s", cookie);
    ck_assert_int_eq(look(other, true, NOW), GW_ADMIN_SIGNED_OUT);
}
END_TEST

START_TEST(any_other_byte_voids_it)
{
    char cookie[GW_ADMIN_COOKIE_MAX];
    size_t n;

    make(true, cookie);
    n = strlen(cookie);
    for (size_t i = 21; i < n; i++) {
        char old = cookie[i];

        cookie[i] = old == '0' ? '1' : '0';
        ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_OUT);
        cookie[i] = 'x';
        ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_OUT);
        cookie[i] = old;
    }
    for (; n > 0; n--) {
        cookie[n - 1] = '\0';
        ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_OUT);
    }
}
END_TEST

START_TEST(another_secret_opens_nothing)
{
    char cookie[GW_ADMIN_COOKIE_MAX];
    int other = gw_admin_secret_create(), empty = memfd_create("empty", 0);

    make(true, cookie);
    ck_assert_int_eq(gw_admin_secret_open(empty), -EPROTO);
    ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_IN);
    ck_assert_int_eq(gw_admin_secret_open(other), 0);
    ck_assert_int_eq(look(cookie, true, NOW), GW_ADMIN_SIGNED_OUT);
    close(other);
    close(empty);
}
END_TEST

START_TEST(doubled_cookies_are_none)
{
    char cookie[GW_ADMIN_COOKIE_MAX], twice[2 * GW_ADMIN_COOKIE_MAX + 8];
    char key[GW_ADMIN_KEY_MAX + 1];
    struct gw_request req;

    make(true, cookie);
    snprintf(twice, sizeof(twice), "%s; __Host-transom-admin=x", cookie);
    ck_assert_int_eq(look(twice, true, NOW), GW_ADMIN_DOUBLED);
    snprintf(twice, sizeof(twice), "%s;%s", cookie, cookie);
    ck_assert_int_eq(look(twice, true, NOW), GW_ADMIN_DOUBLED);
    req = REQUEST("cookie", cookie, "Cookie", cookie);
    ck_assert_int_eq(gw_admin_signed_in(&req, true, NOW, key), GW_ADMIN_DOUBLED);
}
END_TEST

START_TEST(keys_have_a_form)
{
    static const char *const bad[] = {"", "a b", "a\r\nx: y", "a,b", "a;b", "\xc3\xa4"};
    char longest[GW_ADMIN_KEY_MAX + 2], out[GW_ADMIN_COOKIE_MAX];

    ck_assert(gw_admin_key_valid(GW_STR(KEY)));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert(!gw_admin_key_valid((struct gw_str){bad[i], strlen(bad[i])}));
    memset(longest, 'k', sizeof(longest));
    ck_assert(gw_admin_key_valid((struct gw_str){longest, GW_ADMIN_KEY_MAX}));
    ck_assert(!gw_admin_key_valid((struct gw_str){longest, GW_ADMIN_KEY_MAX + 1}));
    ck_assert_int_eq(gw_admin_cookie((struct gw_str){longest, GW_ADMIN_KEY_MAX}, true, NOW, out),
                     0);
    ck_assert_ptr_nonnull(strstr(out, "; Max-Age=43200"));
    ck_assert_int_eq(
        gw_admin_cookie((struct gw_str){longest, GW_ADMIN_KEY_MAX + 1}, true, NOW, out), -EINVAL);
    ck_assert_int_eq(gw_admin_cookie(GW_STR(""), true, NOW, out), 0);
    ck_assert_str_eq(out, "__Host-transom-admin=; Path=/; HttpOnly; SameSite=Strict; Secure; "
                          "Max-Age=0");
}
END_TEST

static bool same(const char *origin, bool secure)
{
    struct gw_request req = REQUEST("Origin", origin);

    return gw_admin_same_origin(&req, secure);
}

START_TEST(origins_are_compared_exactly)
{
    static const char *const bad[] = {"http://admin.test",
                                      "https://admin.test:443",
                                      "https://admin.test/",
                                      "https://admin.tes",
                                      "https://admin.test.evil",
                                      "https://api.test",
                                      "null",
                                      ""};
    struct gw_request req = {.host = GW_STR("admin.test")};

    ck_assert(same("https://admin.test", true));
    ck_assert(same("http://admin.test", false));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!same(bad[i], true), "%s", bad[i]);
    ck_assert(!gw_admin_same_origin(&req, true));
    req = REQUEST("Origin", "https://admin.test", "origin", "https://admin.test");
    ck_assert(!gw_admin_same_origin(&req, true));
}
END_TEST

START_TEST(what_the_browser_says_of_the_asker_counts)
{
    struct gw_request req = {0};

    ck_assert(!gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty");
    ck_assert(!gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "websocket");
    ck_assert(!gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Site", "same-site", "Sec-Fetch-Dest", "empty");
    ck_assert(gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Site", "none");
    ck_assert(gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Dest", "iframe");
    ck_assert(gw_admin_is_foreign(&req));
    req = REQUEST("Sec-Fetch-Dest", "document");
    ck_assert(gw_admin_is_foreign(&req));
}
END_TEST

START_TEST(codings_are_chosen)
{
    static const struct {
        const char *accept;
        enum gw_coding want;
    } cases[] = {
        {"gzip, deflate, br, zstd", GW_CODING_BROTLI},
        {"gzip", GW_CODING_GZIP},
        {"GZIP;q=0.5", GW_CODING_GZIP},
        {"br;q=0, gzip", GW_CODING_GZIP},
        {"br; q=0.000,gzip; q=0", GW_CODING_IDENTITY},
        {"identity", GW_CODING_IDENTITY},
        {"brr, xgzip", GW_CODING_IDENTITY},
        {"", GW_CODING_IDENTITY},
        {" , ;q=1,, br ", GW_CODING_BROTLI},
    };
    struct gw_request req = {0};

    ck_assert_int_eq(gw_asset_coding(&req), GW_CODING_IDENTITY);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        req = REQUEST("Accept-Encoding", cases[i].accept);
        ck_assert_msg(gw_asset_coding(&req) == cases[i].want, "%s", cases[i].accept);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/admin");
    TCase *tc = tcase_create("rules");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_cookie_gives_its_key_until_it_is_void);
    tcase_add_test(tc, one_for_plain_http_is_none_for_tls);
    tcase_add_test(tc, any_other_byte_voids_it);
    tcase_add_test(tc, another_secret_opens_nothing);
    tcase_add_test(tc, doubled_cookies_are_none);
    tcase_add_test(tc, keys_have_a_form);
    tcase_add_test(tc, origins_are_compared_exactly);
    tcase_add_test(tc, what_the_browser_says_of_the_asker_counts);
    tcase_add_test(tc, codings_are_chosen);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
