/* SPDX-License-Identifier: MIT */
#include "gateway/path_rules.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE(text, to, strips)                                                                     \
    {                                                                                              \
        .prefix = (text), .prefix_len = sizeof(text) - 1, .port = (to), .strip = (strips)          \
    }

/* Shortest first: the order must not matter. */
static const struct tr_route_rule rules[] = {
    RULE("/api", 3000, true),
    RULE("/a%20b", 3003, false),
    RULE("/api/v2", 3002, false),
    RULE("/static", 3001, false),
};
#define N_RULES (sizeof(rules) / sizeof(rules[0]))

/* "PORT TARGET" as the app sees it, or "bad". */
static const char *seen(const char *target)
{
    static char text[512];
    struct gw_str s = {target, strlen(target)};
    const struct tr_route_rule *rule = NULL;
    bool slash = false;

    switch (gw_path_match(rules, N_RULES, s, &rule)) {
    case GW_PATH_BAD:
        return "bad";
    case GW_PATH_NONE:
        snprintf(text, sizeof(text), "8080 %s", target);
        return text;
    default:
        if (rule->strip)
            s = gw_path_strip(rule, s, &slash);
        snprintf(text, sizeof(text), "%u %s%.*s", rule->port, slash ? "/" : "", (int)s.len, s.p);
        return text;
    }
}

START_TEST(whole_segments)
{
    static const char *const table[][2] = {
        {"/api", "3000 /"},
        {"/api/", "3000 /"},
        {"/api?x=1", "3000 /?x=1"},
        {"/api/?x=1", "3000 /?x=1"},
        {"/api/v1?u=/api/2", "3000 /v1?u=/api/2"},
        {"/apiary", "8080 /apiary"},
        {"/api-x", "8080 /api-x"},
        {"/api;x", "8080 /api;x"},
        {"/API/v1", "8080 /API/v1"},
        {"/?next=/api/", "8080 /?next=/api/"},
        {"/?../api/", "8080 /?../api/"},
        {"/?\\", "8080 /?\\"},
        {"/", "8080 /"},
        {"*", "8080 *"},
        {"/api/v2", "3002 /api/v2"},
        {"/api/v2/x", "3002 /api/v2/x"},
        {"/api/v22", "3000 /v22"},
        {"/x/api", "8080 /x/api"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_str_eq(seen(table[i][0]), table[i][1]);
}
END_TEST

START_TEST(bytes_stay_as_they_are)
{
    static const char *const table[][2] = {
        {"/api/a%2Fb%20c%3F", "3000 /a%2Fb%20c%3F"},
        {"/static/node_modules/@o/p", "3001 /static/node_modules/@o/p"},
        {"/a//b", "8080 /a//b"},
        {"/api/a//b", "3000 /a//b"},
        {"/api/%E4%BD", "3000 /%E4%BD"},
        {"/api/\xe4\xbd", "3000 /\xe4\xbd"},
        {"/api/%zz%", "3000 /%zz%"},
        {"/%61pi/y", "3000 /y"},
        {"/%61%70%69", "3000 /"},
        {"/%2561pi/y", "8080 /%2561pi/y"},
        {"/a%20b/c", "3003 /a%20b/c"},
        {"/a b", "8080 /a b"},
        {"/%61%20b", "3003 /%61%20b"},
        {"//api/y", "8080 //api/y"},
        {"/api%2Fy", "8080 /api%2Fy"},
        {"/api%2fv2", "8080 /api%2fv2"},
        {"/api/...", "3000 /..."},
        {"/api/.well-known", "3000 /.well-known"},
        {"/api/..x/.y./z..", "3000 /..x/.y./z.."},
        {"/api/x%5cy", "3000 /x%5cy"},
        {"/api/x;../y", "3000 /x;../y"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_str_eq(seen(table[i][0]), table[i][1]);
}
END_TEST

START_TEST(what_resolves_differently_is_refused)
{
    static const char *const table[] = {
        "/x/../api/y",    "/x/%2e%2e/api/y",  "/./api/y",
        "/api/../secret", "/api/..%2fsecret", "/api\\y",
        "/api/.",         "/api/..",          "/.",
        "/..?x",          "/api/%2E",         "/api/.%2e",
        "/api/..;/x",     "/api/.;a=b",       "/x%2f..%2fapi",
        "/x/..%5capi",    "/x\\..\\api",      "..",
        "/api/%2e./x",    "/%2e%2e",
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_str_eq(seen(table[i]), "bad");
}
END_TEST

START_TEST(stripping_leaves_one_slash)
{
    ck_assert_str_eq(seen("/api//evil.test/"), "3000 /evil.test/");
    ck_assert_str_eq(seen("/api///"), "3000 /");
    ck_assert_str_eq(seen("/api//?x"), "3000 /?x");
    ck_assert_str_eq(seen("/api/%2Fx"), "3000 /%2Fx");
}
END_TEST

START_TEST(without_rules_nothing_is_looked_at)
{
    const struct tr_route_rule *rule;

    ck_assert_int_eq(gw_path_match(NULL, 0, GW_STR("/../x\\"), &rule), GW_PATH_NONE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/path_rules");
    TCase *tc = tcase_create("rules");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, whole_segments);
    tcase_add_test(tc, bytes_stay_as_they_are);
    tcase_add_test(tc, what_resolves_differently_is_refused);
    tcase_add_test(tc, stripping_leaves_one_slash);
    tcase_add_test(tc, without_rules_nothing_is_looked_at);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
