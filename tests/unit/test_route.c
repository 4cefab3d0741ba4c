/* SPDX-License-Identifier: MIT */
/* Route records and state names. */
#include "transom/state.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define LABEL           "abcdefgh01234567"
#define KEY_63          "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define KEY             "0" KEY_63
#define ASLEEP(members) "{\"v\":1,\"state\":\"asleep\",\"instance\":1," members "}"

static int parse(const char *json, struct tr_route *out, struct err *err)
{
    return tr_route_parse(LABEL, json, strlen(json), out, err);
}

START_TEST(a_record_survives_the_round_trip)
{
    struct tr_route in = {
        .label = LABEL,
        .state = TR_SANDBOX_FAILED,
        .address = "100.64.0.6",
        .port = 8080,
        .instance = 9007199254740993ull,
        .node = "n\"1\\",
        .session = "0123456789abcdef",
        .owner = "local",
        .reason = "no space left on device \xe2\x82\xac",
    };
    struct tr_route out;
    char *text = tr_route_encode(&in);

    memset(&out, 0x55, sizeof(out));
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(parse(text, &out, NULL), 0);
    ck_assert_str_eq(out.label, in.label);
    ck_assert_int_eq(out.state, in.state);
    ck_assert_str_eq(out.address, in.address);
    ck_assert_uint_eq(out.port, in.port);
    ck_assert_uint_eq(out.instance, in.instance);
    ck_assert_str_eq(out.node, in.node);
    ck_assert_str_eq(out.session, in.session);
    ck_assert_str_eq(out.owner, in.owner);
    ck_assert_str_eq(out.reason, in.reason);
    ck_assert_int_eq(out.protocol, TR_PROTOCOL_HTTP1);
    ck_assert(!out.wake);
    ck_assert_uint_eq(out.agent_port, 0);
    ck_assert_ptr_null(out.extra); /* a plain route stays small */
    tr_route_fini(&out);
    free(text);
}
END_TEST

static const struct tr_route_rule some_rules[] = {
    {.prefix = "/b", .prefix_len = 2, .port = 3000},
    {.prefix = "/api/v1", .prefix_len = 7, .port = 65535, .strip = true, .protocol = 1},
    {.prefix = "/a", .prefix_len = 2, .port = 1},
};
static const struct tr_route_port some_ports[] = {{.port = 9000}, {.port = 22, .protocol = 1}};

static void check_some(const struct tr_route_extra *x)
{
    ck_assert_ptr_nonnull(x);
    ck_assert_uint_eq(x->n_rules, 3);
    ck_assert_str_eq(x->rules[0].prefix, "/api/v1"); /* longest first, then by name */
    ck_assert_uint_eq(x->rules[0].prefix_len, 7);
    ck_assert_uint_eq(x->rules[0].port, 65535);
    ck_assert(x->rules[0].strip);
    ck_assert_int_eq(x->rules[0].protocol, TR_PROTOCOL_H2C);
    ck_assert_str_eq(x->rules[1].prefix, "/a");
    ck_assert(!x->rules[1].strip);
    ck_assert_int_eq(x->rules[1].protocol, TR_PROTOCOL_HTTP1);
    ck_assert_str_eq(x->rules[2].prefix, "/b");
    ck_assert_uint_eq(x->rules[2].port, 3000);
    ck_assert_uint_eq(x->n_ports, 2);
    ck_assert_uint_eq(x->ports[0].port, 22);
    ck_assert_int_eq(x->ports[0].protocol, TR_PROTOCOL_H2C);
    ck_assert_uint_eq(x->ports[1].port, 9000);
    ck_assert_int_eq(x->ports[1].protocol, TR_PROTOCOL_HTTP1);
}

START_TEST(rules_ports_and_access_survive_the_round_trip)
{
    struct tr_route in = {
        .label = LABEL, .port = 3001, .protocol = TR_PROTOCOL_H2C, .wake = true, .agent_port = 982};
    uint8_t key[TR_ROUTE_KEY_SIZE];
    struct tr_route out;
    char *text;

    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)(i * 37 + 5);
    ck_assert_int_eq(tr_route_extra_new(some_rules, 3, some_ports, 2, key, true, &in.extra, NULL),
                     0);
    check_some(in.extra);
    text = tr_route_encode(&in);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(parse(text, &out, NULL), 0);
    free(text);
    check_some(out.extra);
    ck_assert(out.extra->is_private);
    ck_assert(out.extra->embed);
    ck_assert_mem_eq(out.extra->key, key, sizeof(key));
    ck_assert_int_eq(out.protocol, TR_PROTOCOL_H2C);
    ck_assert(out.wake);
    ck_assert_uint_eq(out.agent_port, 982);
    ck_assert_uint_eq(out.port, 3001);
    tr_route_fini(&in);
    tr_route_fini(&out);
}
END_TEST

START_TEST(an_extra_lives_until_the_last_reference)
{
    struct tr_route_extra *x, *again;

    ck_assert_int_eq(tr_route_extra_new(some_rules, 3, some_ports, 2, NULL, true, &x, NULL), 0);
    ck_assert(!x->is_private && !x->embed);
    again = tr_route_extra_ref(x);
    ck_assert_ptr_eq(again, x);
    tr_route_extra_unref(x);
    check_some(again);
    tr_route_extra_unref(again);
    ck_assert_ptr_null(tr_route_extra_ref(NULL));
    tr_route_extra_unref(NULL);
    ck_assert_int_eq(tr_route_extra_new(NULL, 0, NULL, 0, NULL, true, &x, NULL), 0);
    ck_assert_ptr_null(x);
}
END_TEST

START_TEST(an_extra_is_bounded_and_without_doubles)
{
    struct tr_route_rule rules[TR_ROUTE_RULES_MAX + 1];
    struct tr_route_port ports[TR_ROUTE_PORTS_MAX + 1];
    char prefixes[TR_ROUTE_RULES_MAX + 1][TR_ROUTE_PREFIX_MAX + 1];
    struct tr_route route = {.label = LABEL}, out;
    uint8_t key[TR_ROUTE_KEY_SIZE] = {0};
    struct tr_route_extra *x;
    struct err err = {0};
    char *text;

    for (uint16_t i = 0; i <= TR_ROUTE_RULES_MAX; i++) {
        memset(prefixes[i], 'x', TR_ROUTE_PREFIX_MAX);
        memcpy(prefixes[i], (char[]){'/', (char)('A' + i)}, 2);
        prefixes[i][TR_ROUTE_PREFIX_MAX] = '\0';
        rules[i] = (struct tr_route_rule){
            .prefix = prefixes[i], .prefix_len = TR_ROUTE_PREFIX_MAX, .port = 65535};
    }
    prefixes['\\' - 'A'][1] = prefixes['[' - 'A'][1] = prefixes[']' - 'A'][1] = '~';
    prefixes['[' - 'A'][2] = '1';
    prefixes[']' - 'A'][2] = '2';
    prefixes['^' - 'A'][1] = prefixes['`' - 'A'][1] = '_';
    prefixes['^' - 'A'][2] = '1';
    prefixes['`' - 'A'][2] = '2';
    for (uint16_t i = 0; i <= TR_ROUTE_PORTS_MAX; i++)
        ports[i] = (struct tr_route_port){.port = (uint16_t)(65535 - i)};

    ck_assert_int_eq(tr_route_extra_new(rules, 33, NULL, 0, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "rules: more than 32");
    ck_assert_int_eq(tr_route_extra_new(NULL, 0, ports, 65, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "ports: more than 64");

    /* The largest there can be fits into a record. */
    ck_assert_msg(tr_route_extra_new(rules, 32, ports, 64, key, true, &route.extra, &err) == 0,
                  "%s", err.msg);
    memset(route.node, '\\', sizeof(route.node) - 1);
    memset(route.owner, '\\', sizeof(route.owner) - 1);
    memset(route.reason, '\\', sizeof(route.reason) - 1);
    text = tr_route_encode(&route);
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(parse(text, &out, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(out.extra->n_rules, 32);
    ck_assert_uint_eq(out.extra->n_ports, 64);
    tr_route_fini(&route);
    tr_route_fini(&out);
    free(text);

    rules[7] = rules[3];
    ck_assert_int_eq(tr_route_extra_new(rules, 32, NULL, 0, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "rules[7].prefix: the same as rules[3]");
    rules[3].port = 0;
    ck_assert_int_eq(tr_route_extra_new(rules, 7, NULL, 0, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "rules[3].port: out of range");
    ports[2] = ports[1];
    ck_assert_int_eq(tr_route_extra_new(NULL, 0, ports, 3, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "ports[2].port: the same as ports[1]");
    ports[1].port = 0;
    ck_assert_int_eq(tr_route_extra_new(NULL, 0, ports, 2, NULL, false, &x, &err), UV_EINVAL);
    ck_assert_str_eq(err.msg, "ports[1].port: out of range");
    ck_assert_ptr_null(x);
}
END_TEST

START_TEST(prefixes)
{
    static const char *const good[] = {
        "/a",   "/api/v1",   "/~x",    "/a.b",         "/...",   "/.x",  "/..x/x..",
        "/%20", "/%C3%A9/x", "/a:b@c", "/!$&'()*+,;=", "/-_.~x", "/%25", "/%3F",
    };
    static const char *const bad[] = {
        "",      "/",      "a",         "api/",  "/a/",   "//",      "//a",     "/a//b", "/.",
        "/..",   "/a/.",   "/a/..",     "/./a",  "/../a", "/a/../b", "/a\\b",   "/a b",  "/a?b",
        "/a#b",  "/a\x7f", "/\xc3\xa9", "/\t",   "/%",    "/%2",     "/%2g",    "/%2f",  "/%2F",
        "/%5C",  "/%00",   "/%0A",      "/%7F",  "/%41",  "/%2E",    "/%2E%2E", "/a%2D", "/%7E",
        "/%c3x", "/a\"",   "/<a>",      "/a[b]", "/a{b}", "/a|b",    "/a^b",    "/a`b",
    };
    char text[TR_ROUTE_PREFIX_MAX + 2];
    const char *why;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        why = "";
        ck_assert_msg(tr_route_prefix_valid(good[i], strlen(good[i]), &why), "%s: %s", good[i],
                      why);
        ck_assert_str_eq(why, "");
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why = NULL;
        ck_assert_msg(!tr_route_prefix_valid(bad[i], strlen(bad[i]), &why), "%s", bad[i]);
        ck_assert_ptr_nonnull(why);
        ck_assert(!tr_route_prefix_valid(bad[i], strlen(bad[i]), NULL));
    }
    ck_assert(!tr_route_prefix_valid("/a\0b", 4, NULL));
    ck_assert(!tr_route_prefix_valid("/a%2", 3, NULL)); /* cut off: does not read on */
    memset(text, 'x', sizeof(text));
    text[0] = '/';
    ck_assert(tr_route_prefix_valid(text, TR_ROUTE_PREFIX_MAX, NULL));
    ck_assert(!tr_route_prefix_valid(text, TR_ROUTE_PREFIX_MAX + 1, NULL));
}
END_TEST

START_TEST(protocol_names)
{
    enum tr_protocol p;

    for (int i = TR_PROTOCOL_HTTP1; i <= TR_PROTOCOL_H2C; i++) {
        ck_assert_int_eq(tr_protocol_parse(tr_protocol_name(i), &p), 0);
        ck_assert_int_eq((int)p, i);
    }
    ck_assert_int_eq(tr_protocol_parse("", &p), UV_EINVAL);
    ck_assert_int_eq(tr_protocol_parse("h2", &p), UV_EINVAL);
    ck_assert_str_eq(tr_protocol_name((enum tr_protocol)99), "unknown");
}
END_TEST

START_TEST(good_records)
{
    static const char *const good[] = {
        "{\"v\":1,\"state\":\"asleep\",\"instance\":0}",
        "{\"v\":1,\"state\":\"starting\",\"instance\":1,\"address\":\"\",\"port\":0}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"::1\",\"port\":65535}",
        "{\"v\":1,\"state\":\"failed\",\"instance\":1,\"new\":{\"x\":[1]}}",
        ASLEEP("\"rules\":[],\"ports\":[],\"wake\":false,\"agent_port\":0"),
        ASLEEP("\"protocol\":\"http1\",\"access\":{\"mode\":\"public\",\"key\":7,\"new\":1}"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\",\"port\":1,\"new\":1}]"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"" KEY "\"}"),
    };
    struct tr_route r;
    struct err err;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        tr_err_clear(&err);
        ck_assert_msg(parse(good[i], &r, &err) == 0, "%s: %s", good[i], err.msg);
        tr_route_fini(&r);
    }
}
END_TEST

START_TEST(bad_records_are_refused_with_a_reason)
{
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{",
        "{}",
        "{\"v\":1}x",
        "{\"v\":2,\"state\":\"asleep\",\"instance\":1}",
        "{\"v\":1.0,\"state\":\"asleep\",\"instance\":1}",
        "{\"v\":1,\"state\":\"dreaming\",\"instance\":1}",
        "{\"v\":1,\"state\":7,\"instance\":1}",
        "{\"v\":1,\"instance\":1}",
        "{\"v\":1,\"state\":\"asleep\"}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":-1}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":99999999999999999999}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"instance\":2}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"1.2.3.4\"}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"1.2.3.4\",\"port\":0}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"1.2.3.4\",\"port\":65536}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"1.2.3.4\",\"port\":\"80\"}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"localhost\",\"port\":80}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"1.2.3.4 \",\"port\":80}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"fe80::1%eth0\",\"port\":80}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"reason\":\"a\\nb\"}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"reason\":\"a\\u0000b\"}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"session\":\"short\"}",
        "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"reason\":\"\xff\"}",
        ASLEEP("\"protocol\":\"h3\""),
        ASLEEP("\"protocol\":1"),
        ASLEEP("\"wake\":1"),
        ASLEEP("\"agent_port\":65536"),
        ASLEEP("\"agent_port\":-1"),
        ASLEEP("\"agent_port\":\"982\""),
        ASLEEP("\"rules\":{}"),
        ASLEEP("\"rules\":[1]"),
        ASLEEP("\"rules\":[{}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\"}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\",\"port\":0}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a/\",\"port\":1}]"),
        ASLEEP("\"rules\":[{\"prefix\":7,\"port\":1}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\\n\",\"port\":1}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\",\"port\":1,\"strip\":0}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\",\"port\":1,\"protocol\":\"\\u0001\"}]"),
        ASLEEP("\"rules\":[{\"prefix\":\"/a\",\"port\":1},{\"prefix\":\"/a\",\"port\":2}]"),
        ASLEEP("\"ports\":1"),
        ASLEEP("\"ports\":[3000]"),
        ASLEEP("\"ports\":[{\"port\":65536}]"),
        ASLEEP("\"ports\":[{\"port\":1,\"protocol\":\"tcp\"}]"),
        ASLEEP("\"ports\":[{\"port\":1},{\"port\":1}]"),
        ASLEEP("\"access\":\"private\""),
        ASLEEP("\"access\":{}"),
        ASLEEP("\"access\":{\"mode\":\"secret\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"" KEY "0\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"A" KEY_63 "\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"" KEY_63 "\"}"),
        ASLEEP("\"access\":{\"mode\":\"private\",\"key\":\"" KEY "\",\"embed\":\"yes\"}"),
    };
    struct tr_route r = {.port = 77};
    struct err err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tr_err_clear(&err);
        ck_assert_msg(parse(bad[i], &r, &err) == UV_EINVAL, "%s", bad[i]);
        ck_assert_int_eq(err.code, UV_EINVAL);
        ck_assert_int_ne(err.msg[0], '\0');
    }
    ck_assert_uint_eq(r.port, 77); /* untouched */
}
END_TEST

START_TEST(lengths_are_bounded)
{
    static const char ok[] = "{\"v\":1,\"state\":\"asleep\",\"instance\":1}";
    static char json[20000];
    char text[300];
    struct tr_route r;
    struct err err;

    memset(text, 'x', sizeof(text));
    for (int len = 126; len <= 129; len++) {
        snprintf(json, sizeof(json),
                 "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"reason\":\"%.*s\"}", len, text);
        ck_assert_int_eq(parse(json, &r, &err), len <= 127 ? 0 : UV_EINVAL);
    }
    snprintf(json, sizeof(json), "%-17000s", ok);
    ck_assert_int_eq(tr_route_parse(LABEL, json, TR_ROUTE_RECORD_MAX, &r, &err), 0);
    ck_assert_int_eq(tr_route_parse(LABEL, json, TR_ROUTE_RECORD_MAX + 1, &r, &err), UV_EINVAL);
    memset(json, '[', sizeof(json));
    ck_assert_int_eq(tr_route_parse(LABEL, json, TR_ROUTE_RECORD_MAX, &r, &err), UV_EINVAL);
}
END_TEST

START_TEST(labels)
{
    static const char *const bad[] = {"", "abcdefgh0123456", "abcdefgh012345678",
                                      "Abcdefgh01234567", "abcdefgh0123456-"};
    const char *ok = "{\"v\":1,\"state\":\"asleep\",\"instance\":0}";
    struct tr_route r;

    ck_assert(tr_label_valid(LABEL, 16));
    ck_assert(!tr_label_valid("abcdefgh0123456\0", 16));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert(!tr_label_valid(bad[i], strlen(bad[i])));
        ck_assert_int_eq(tr_route_parse(bad[i], ok, strlen(ok), &r, NULL), UV_EINVAL);
    }
}
END_TEST

START_TEST(state_names)
{
    for (int i = TR_SANDBOX_ASLEEP; i <= TR_SANDBOX_FAILED; i++) {
        enum tr_sandbox_state s = TR_SANDBOX_FAILED;

        ck_assert_int_eq(tr_sandbox_state_parse(tr_sandbox_state_name(i), &s), 0);
        ck_assert_int_eq((int)s, i);
    }
    ck_assert_int_eq(tr_sandbox_state_parse("", &(enum tr_sandbox_state){0}), UV_EINVAL);
    ck_assert_str_eq(tr_sandbox_state_name((enum tr_sandbox_state)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state/route");
    TCase *tc = tcase_create("route");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, a_record_survives_the_round_trip);
    tcase_add_test(tc, rules_ports_and_access_survive_the_round_trip);
    tcase_add_test(tc, an_extra_lives_until_the_last_reference);
    tcase_add_test(tc, an_extra_is_bounded_and_without_doubles);
    tcase_add_test(tc, prefixes);
    tcase_add_test(tc, protocol_names);
    tcase_add_test(tc, good_records);
    tcase_add_test(tc, bad_records_are_refused_with_a_reason);
    tcase_add_test(tc, lengths_are_bounded);
    tcase_add_test(tc, labels);
    tcase_add_test(tc, state_names);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
