/* SPDX-License-Identifier: MIT */
/* Route records and state names. */
#include "transom/state.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL "abcdefgh01234567"

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
    free(text);
}
END_TEST

START_TEST(good_records)
{
    static const char *const good[] = {
        "{\"v\":1,\"state\":\"asleep\",\"instance\":0}",
        "{\"v\":1,\"state\":\"starting\",\"instance\":1,\"address\":\"\",\"port\":0}",
        "{\"v\":1,\"state\":\"running\",\"instance\":1,\"address\":\"::1\",\"port\":65535}",
        "{\"v\":1,\"state\":\"failed\",\"instance\":1,\"new\":{\"x\":[1]}}",
    };
    struct tr_route r;
    struct err err;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        tr_err_clear(&err);
        ck_assert_msg(parse(good[i], &r, &err) == 0, "%s: %s", good[i], err.msg);
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
    static char json[8192];
    char text[300];
    struct tr_route r;
    struct err err;

    memset(text, 'x', sizeof(text));
    for (int len = 126; len <= 129; len++) {
        snprintf(json, sizeof(json),
                 "{\"v\":1,\"state\":\"asleep\",\"instance\":1,\"reason\":\"%.*s\"}", len, text);
        ck_assert_int_eq(parse(json, &r, &err), len <= 127 ? 0 : UV_EINVAL);
    }
    snprintf(json, sizeof(json), "%-4200s", ok);
    ck_assert_int_eq(tr_route_parse(LABEL, json, 4096, &r, &err), 0);
    ck_assert_int_eq(tr_route_parse(LABEL, json, 4097, &r, &err), UV_EINVAL);
    memset(json, '[', sizeof(json));
    ck_assert_int_eq(tr_route_parse(LABEL, json, 4096, &r, &err), UV_EINVAL);
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
