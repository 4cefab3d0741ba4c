/* SPDX-License-Identifier: MIT */
#include "transom/log.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *capture;
static int saved_stderr;
static char captured[64 * 1024];

static void setup(void)
{
    capture = tmpfile();
    ck_assert_ptr_nonnull(capture);
    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fileno(capture), STDERR_FILENO), 0);
    tr_log_init("test", TR_LOG_INFO);
}

static void teardown(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    fclose(capture);
}

/* All that was logged so far. */
static const char *output(void)
{
    ssize_t n = pread(fileno(capture), captured, sizeof(captured) - 1, 0);

    ck_assert_int_ge(n, 0);
    captured[n] = '\0';
    return captured;
}

START_TEST(line_has_time_level_component_and_ids)
{
    regex_t re;

    tr_log(TR_LOG_WARN, "vm=abc req=1", "disk %d is full", 3);
    ck_assert_int_eq(regcomp(&re,
                             "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                             "warn test: vm=abc req=1: disk 3 is full\n$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    ck_assert_msg(regexec(&re, output(), 0, NULL, 0) == 0, "got: %s", captured);
    regfree(&re);
}
END_TEST

static void expect_json(const char *ids, const char *text, const char *rest)
{
    char expected[300];
    const char *at;

    ck_assert_int_eq(ftruncate(fileno(capture), 0), 0);
    lseek(STDERR_FILENO, 0, SEEK_SET);
    tr_log(TR_LOG_INFO, ids, "%s", text);
    ck_assert(strncmp(output(), "{\"time\":\"20", 11) == 0);
    at = strstr(captured, "Z\",");
    snprintf(expected, sizeof(expected), "\"level\":\"info\",\"component\":\"test\"%s}\n", rest);
    ck_assert_str_eq(at + 3, expected);
}

START_TEST(a_line_as_json)
{
    char text[6000];

    tr_log_set_json(true);
    expect_json("", "plain", ",\"message\":\"plain\"");
    expect_json("vm=abc req=1", "x", ",\"vm\":\"abc\",\"req\":\"1\",\"message\":\"x\"");
    expect_json("abc k=\"v", "x", ",\"id\":\"abc\",\"k\":\"\\\"v\",\"message\":\"x\"");
    expect_json("", "a\"b\\c\nd\x7f", ",\"message\":\"a\\\"b\\\\c\\u000ad\\u007f\"");
    expect_json("", "\xc3\xa4 \xf0\x9f\x8c\xa7", ",\"message\":\"\xc3\xa4 \xf0\x9f\x8c\xa7\"");
    expect_json("", "\xff\xc3 \xed\xa0\x80",
                ",\"message\":\"\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\"");
    memset(text, '"',
           sizeof(text) - 1); /* twice as long when escaped: cut, and whole all the same */
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(ftruncate(fileno(capture), 0), 0);
    lseek(STDERR_FILENO, 0, SEEK_SET);
    log_info("%s", text);
    ck_assert_int_lt(strlen(output()), 4097);
    ck_assert_str_eq(captured + strlen(captured) - 5, "\\\"\"}\n");
    tr_log_set_json(false);
}
END_TEST

START_TEST(levels_are_obeyed_and_parsed)
{
    enum tr_log_level level = TR_LOG_WARN;

    log_debug("hidden one");
    tr_log_set_level(TR_LOG_ERROR);
    log_warn("hidden two");
    log_error("shown");
    ck_assert_ptr_null(strstr(output(), "hidden"));
    ck_assert_ptr_nonnull(strstr(output(), "error test: shown\n"));
    ck_assert_int_eq(tr_log_parse_level("debug", &level), 0);
    ck_assert_int_eq(level, TR_LOG_DEBUG);
    ck_assert_int_eq(tr_log_parse_level("loud", &level), -EINVAL);
    ck_assert_int_eq(level, TR_LOG_DEBUG);
}
END_TEST

START_TEST(secrets_are_masked_wherever_they_stand)
{
    static const char secret[] = "hunter2hunter2";

    ck_assert_int_eq(tr_log_secret_add(secret, strlen(secret)), 0);
    ck_assert_int_eq(tr_log_secret_add("short", 5), 0); /* ignored */
    tr_log(TR_LOG_INFO, "id=hunter2hunter2", "a %s b %s%s short", secret, secret, secret);
    ck_assert_ptr_null(strstr(output(), "hunter2"));
    ck_assert_ptr_nonnull(strstr(captured, "id=***: a *** b ****** short\n"));
    tr_log_secret_remove(secret, strlen(secret));
    log_info("%s", secret);
    ck_assert_ptr_nonnull(strstr(output(), secret));
}
END_TEST

START_TEST(a_secret_that_runs_over_the_cut_is_masked)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    char text[5000];

    /* The line is cut at 4,096 bytes, somewhere inside the last of many copies. */
    ck_assert_int_eq(tr_log_secret_add(secret, strlen(secret)), 0);
    for (size_t shift = 0; shift < strlen(secret); shift++) {
        size_t len = shift;

        memset(text, 'x', shift);
        while (len + strlen(secret) < sizeof(text)) {
            memcpy(text + len, secret, strlen(secret));
            len += strlen(secret);
        }
        text[len] = '\0';
        ck_assert_int_eq(ftruncate(fileno(capture), 0), 0);
        lseek(STDERR_FILENO, 0, SEEK_SET);
        log_info("%s", text);
        ck_assert_msg(strstr(output(), "01234567") == NULL, "shift %zu: %s", shift, captured);
    }
    tr_log_secret_remove(secret, strlen(secret));
}
END_TEST

START_TEST(control_characters_cannot_forge_lines)
{
    log_info("one\n2026-01-01 error\033[31m");
    ck_assert_ptr_nonnull(strstr(output(), "one?2026-01-01 error?[31m\n"));
    ck_assert_ptr_eq(strchr(captured, '\n'), captured + strlen(captured) - 1);
}
END_TEST

START_TEST(errno_is_kept_and_long_lines_are_cut)
{
    char text[10000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    errno = EXDEV;
    log_info("%s", text);
    ck_assert_int_eq(errno, EXDEV);
    ck_assert_uint_eq(strlen(output()), 4096);
    ck_assert_int_eq(captured[4095], '\n');
}
END_TEST

static void *write_lines(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_info("%s", (const char *)arg);
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    pthread_t threads[2];
    int n = 0;

    ck_assert_int_eq(pthread_create(&threads[0], NULL, write_lines, "aaaaaaaaaaaaaaaa"), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, write_lines, "bbbbbbbbbbbbbbbb"), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    output();
    for (char *save, *line = strtok_r(captured, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        n++;
        ck_assert_msg(strstr(line, "test: aaaaaaaaaaaaaaaa") != NULL ||
                          strstr(line, "test: bbbbbbbbbbbbbbbb") != NULL,
                      "%s", line);
    }
    ck_assert_int_eq(n, 400);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("conf/log");
    TCase *tc = tcase_create("log");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, line_has_time_level_component_and_ids);
    tcase_add_test(tc, a_line_as_json);
    tcase_add_test(tc, levels_are_obeyed_and_parsed);
    tcase_add_test(tc, secrets_are_masked_wherever_they_stand);
    tcase_add_test(tc, a_secret_that_runs_over_the_cut_is_masked);
    tcase_add_test(tc, control_characters_cannot_forge_lines);
    tcase_add_test(tc, errno_is_kept_and_long_lines_are_cut);
    tcase_add_test(tc, lines_of_threads_do_not_mix);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
