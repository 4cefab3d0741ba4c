/* SPDX-License-Identifier: MIT */
/* What of a secret is hidden, and what is not; pieces and holds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "tests/unit/mask_reference.h"

#define S1  "tok_4f9A-77Zq+/=xY_end"
#define PEM "-----BEGIN KEY-----\nMIIBVwIBADANBgkq\n{\n}\n-----END KEY-----\n"

static struct tr_mask *mask_of(const char *value)
{
    struct tr_mask_secret secret = {value, strlen(value)};
    struct tr_mask *mask;

    ck_assert_int_eq(tr_mask_new(&secret, 1, &mask), 0);
    return mask;
}

static void masked(const char *value, const char *text, const char *want)
{
    struct tr_mask *mask = mask_of(value);
    size_t n;
    char *got = tr_mask_text(mask, text, strlen(text), &n);

    ck_assert_str_eq(got, want);
    ck_assert_uint_eq(n, strlen(want));
    free(got);
    tr_mask_unref(mask);
}

START_TEST(value_is_hidden_wherever_it_stands)
{
    masked(S1, S1, "***");
    masked(S1, "a " S1 " b", "a *** b");
    masked(S1, S1 S1, "***");
    masked(S1, "tok_4f9A-77Zq+/=xY_en " S1, "tok_4f9A-77Zq+/=xY_en ***");
    masked("abababab", "xababababababy", "x***y");
}
END_TEST

START_TEST(line_end_of_the_value_does_not_count)
{
    masked("secretvalue\n", "echo secretvalue\n", "echo ***\n");
    masked("secretvalue\r\n", "secretvalue!", "***!");
}
END_TEST

START_TEST(short_values_hide_nothing)
{
    static const char *const values[] = {"", "a", "42", "\n", "1234567", "123456\n\n"};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        ck_assert(!tr_mask_covers(values[i], strlen(values[i])));
        ck_assert_ptr_null(mask_of(values[i]));
    }
    ck_assert(tr_mask_covers("12345678", 8));
    masked("42", "{ \"a\": 42 }", "{ \"a\": 42 }");
}
END_TEST

START_TEST(lines_of_a_value)
{
    masked(PEM, PEM, "***\n");
    masked(PEM, "-----BEGIN KEY-----\r\nMIIBVwIBADANBgkq\r\n{\r\n}\r\n-----END KEY-----\r\n",
           "***\r\n");
    masked(PEM, "-----BEGIN KEY----- MIIBVwIBADANBgkq { } -----END KEY-----\n", "***\n");
    masked(PEM, "-----BEGIN KEY-----\nMIIBVwIBADANBgkq\n", "-----BEGIN KEY-----\n***\n");
    masked(PEM, "{ } -----END KEY-----", "{ } -----END KEY-----");
    masked("first line of it\n  second: line\r\nx", "second: line", "***");
}
END_TEST

START_TEST(percent_encoded)
{
    masked(S1, "tok_4f9A-77Zq%2B%2F%3DxY_end", "***");
    masked(S1, "tok_4f9A-77Zq%2b%2f%3dxY_end", "***");
    masked(S1, "?a=tok_4f9A-77Zq%2B/%3DxY_end&b=1", "?a=***&b=1");
    masked("a b!c*d'e(f)", "a%20b!c*d'e(f)", "***");
    masked("a b!c*d'e(f)", "a+b%21c*d%27e%28f%29", "***");
    masked("p\xc3\xa4sswort", "p%C3%A4sswort", "***");
}
END_TEST

START_TEST(inside_a_json_string)
{
    masked(PEM, "\"-----BEGIN KEY-----\\nMIIBVwIBADANBgkq\\n{\\n}\\n-----END KEY-----\\n\"",
           "\"***\\n\"");
    masked("q\"uo\\te/\x01yz", "q\\\"uo\\\\te\\/\\u0001yz", "***");
    masked("q\"uo\\te/\x01yz", "q\\\"uo\\\\te/\\u0001yz", "***");
    masked("p\xc3\xa4ssw\xf0\x9f\x98\x80rt", "p\\u00e4ssw\\ud83d\\ude00rt", "***");
    masked("p\xc3\xa4ssw\xf0\x9f\x98\x80rt", "p\\u00E4ssw\\uD83D\\uDE00rt", "***");
}
END_TEST

START_TEST(base64_at_each_alignment)
{
    masked(S1, "dG9rXzRmOUEtNzdacSsvPXhZX2VuZA==", "***A==");
    masked(S1, "dG9rXzRmOUEtNzdacSsvPXhZX2VuZAo=", "***Ao=");
    masked(S1, "dTp0b2tfNGY5QS03N1pxKy89eFlfZW5k", "dTp***");              /* u: */
    masked(S1, "eHRva180ZjlBLTc3WnErLz14WV9lbmR6eg==", "eH***R6eg==");     /* x, zz */
    masked(S1, "eHRva180ZjlBLTc3WnEr\r\nLz14WV9lbmR6eg==", "eH***R6eg=="); /* in lines of 20 */
    masked("\xff\xef\xfe\xfb\xff\xef\xfe\xfb\xff\xef", "/+/++//v/vv/7w", "***w");
    masked("\xff\xef\xfe\xfb\xff\xef\xfe\xfb\xff\xef", "_-_--__v_vv_7w", "***w");
}
END_TEST

START_TEST(blank_line_ends_a_wrapped_form)
{
    masked(S1, "dG9rXzRmOUEtNzda\n\n\ncSsvPXhZX2VuZA", "dG9rXzRmOUEtNzda\n\n\ncSsvPXhZX2VuZA");
}
END_TEST

START_TEST(nul_bytes_are_bytes)
{
    struct tr_mask *mask = mask_of(S1);
    size_t n;
    char *got = tr_mask_text(mask, "a\0" S1, 2 + strlen(S1), &n);

    ck_assert_uint_eq(n, 5);
    ck_assert_mem_eq(got, "a\0***", 6);
    free(got);
    tr_mask_unref(mask);
}
END_TEST

START_TEST(long_values_have_no_encoded_forms)
{
    char *value = malloc(TR_MASK_VALUE_MAX + 2), *text = malloc(TR_MASK_VALUE_MAX + 20);
    struct tr_mask_secret secret = {value, TR_MASK_VALUE_MAX + 1}, five[5];
    struct tr_mask *mask;

    for (size_t i = 0; i <= TR_MASK_VALUE_MAX; i++)
        value[i] = (char)('a' + i * i % 26);
    value[TR_MASK_VALUE_MAX + 1] = '\0';
    ck_assert_int_eq(tr_mask_new(&secret, 1, &mask), UV_E2BIG);
    value[TR_MASK_VALUE_MAX] = '\0';
    sprintf(text, "<%s>", value);
    masked(value, text, "<***>");
    for (size_t i = 0; i < 5; i++)
        five[i] = (struct tr_mask_secret){value, TR_MASK_VALUE_MAX};
    ck_assert_int_eq(tr_mask_new(five, 5, &mask), UV_E2BIG);
    free(value);
    free(text);
}
END_TEST

static char shown[256];

static void show(const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    strncat(shown, (const char *)data, len);
}

START_TEST(beginning_of_a_secret_is_held)
{
    struct tr_mask *mask = mask_of(S1);
    struct tr_masker *m;

    shown[0] = '\0';
    ck_assert_int_eq(tr_masker_new(mask, show, NULL, &m), 0);
    ck_assert_int_eq(tr_masker_write(m, "see tok_4f9A", 12), 0);
    ck_assert_str_eq(shown, "see ");
    ck_assert_uint_eq(tr_masker_held(m), 8);
    ck_assert_int_eq(tr_masker_write(m, "-77Zq+/=xY_end.", 15), 0);
    ck_assert_str_eq(shown, "see ***.");
    ck_assert_uint_eq(tr_masker_held(m), 0);
    /* Shown for want of more: what comes after it is hidden all the same. */
    ck_assert_int_eq(tr_masker_write(m, " tok_4f9A", 9), 0);
    tr_masker_flush(m);
    ck_assert_str_eq(shown, "see ***. tok_4f9A");
    ck_assert_int_eq(tr_masker_write(m, "-77Zq+/=xY_end;", 15), 0);
    ck_assert_str_eq(shown, "see ***. tok_4f9A***;");
    tr_masker_free(m);
    tr_mask_unref(mask);
}
END_TEST

START_TEST(secrets_change_under_way)
{
    struct tr_mask *first = mask_of(S1), *second = mask_of("another-secret");
    struct tr_masker *m;

    shown[0] = '\0';
    ck_assert_int_eq(tr_masker_new(NULL, show, NULL, &m), 0);
    ck_assert_int_eq(tr_masker_write(m, S1 " ", strlen(S1) + 1), 0);
    tr_masker_set(m, first);
    ck_assert_int_eq(tr_masker_write(m, S1 " tok_", strlen(S1) + 5), 0);
    tr_masker_set(m, second);
    ck_assert_int_eq(tr_masker_write(m, "another-secret " S1, strlen(S1) + 15), 0);
    tr_masker_set(m, NULL);
    ck_assert_int_eq(tr_masker_write(m, " another-secret", 15), 0);
    ck_assert_str_eq(shown, S1 " *** tok_*** " S1 " another-secret");
    tr_masker_free(m);
    tr_mask_unref(first);
    tr_mask_unref(second);
}
END_TEST

/* Any pieces, several secrets that overlap: as the reference says. */
START_TEST(pieces_make_no_difference)
{
    struct tr_mask_secret secrets[] = {
        {"abcdefgh", 8}, {"efghijklmn", 10}, {"ghijklmnopqr\nstuvwxyz", 21}};
    static const char text[] =
        "abcdefghijklmnopqr\r\nstuvwxyz abcdefgijklmn efghijklm efghijklmnYWJj\n"
        "ZGVmZ2g= abcdefgefghijklmnopqr stuvwxyz%0Aghijklmnopqr%0Astuvwxyz";
    size_t want_len;
    char *want = mask_reference(secrets, 3, text, sizeof(text) - 1, &want_len);
    struct tr_mask *mask;

    ck_assert_int_eq(tr_mask_new(secrets, 3, &mask), 0);
    for (size_t step = 1; step < sizeof(text); step++) {
        struct tr_masker *m;

        shown[0] = '\0';
        ck_assert_int_eq(tr_masker_new(mask, show, NULL, &m), 0);
        for (size_t at = 0; at < sizeof(text) - 1; at += step) {
            size_t left = sizeof(text) - 1 - at;

            ck_assert_int_eq(tr_masker_write(m, text + at, left < step ? left : step), 0);
        }
        tr_masker_flush(m);
        ck_assert_str_eq(shown, want);
        tr_masker_free(m);
    }
    free(want);
    tr_mask_unref(mask);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mask");
    TCase *tc = tcase_create("mask");
    SRunner *runner;
    int failed;

    tcase_add_test(tc, value_is_hidden_wherever_it_stands);
    tcase_add_test(tc, line_end_of_the_value_does_not_count);
    tcase_add_test(tc, short_values_hide_nothing);
    tcase_add_test(tc, lines_of_a_value);
    tcase_add_test(tc, percent_encoded);
    tcase_add_test(tc, inside_a_json_string);
    tcase_add_test(tc, base64_at_each_alignment);
    tcase_add_test(tc, blank_line_ends_a_wrapped_form);
    tcase_add_test(tc, nul_bytes_are_bytes);
    tcase_add_test(tc, long_values_have_no_encoded_forms);
    tcase_add_test(tc, beginning_of_a_secret_is_held);
    tcase_add_test(tc, secrets_change_under_way);
    tcase_add_test(tc, pieces_make_no_difference);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(s, tc);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
