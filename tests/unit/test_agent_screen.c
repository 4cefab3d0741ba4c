/* SPDX-License-Identifier: MIT */
#include "vmm/agent/screen.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char seen[8192];

static void on_shown(const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    strncat(seen, (const char *)data, len);
}

/* What is left of text, however it is cut, and the modes it ends in. */
static void check(const char *text, const char *left, const char *wanted)
{
    size_t len = strlen(text);

    for (size_t cut = 0; cut <= len; cut++) {
        char modes[AGENT_SCREEN_MODES];
        struct agent_screen s;
        size_t n;

        seen[0] = '\0';
        agent_screen_init(&s);
        agent_screen_feed(&s, (const uint8_t *)text, cut, on_shown, NULL);
        agent_screen_feed(&s, (const uint8_t *)text + cut, len - cut, on_shown, NULL);
        agent_screen_flush(&s, on_shown, NULL);
        ck_assert_str_eq(seen, left);
        n = agent_screen_modes(&s, modes);
        ck_assert_uint_eq(n, strlen(wanted));
        ck_assert_mem_eq(modes, wanted, n);
    }
}

START_TEST(questions_are_left_out)
{
    static const char *const questions[] = {"\033[c",
                                            "\033[0c",
                                            "\033[>c",
                                            "\033[=c",
                                            "\033[5n",
                                            "\033[6n",
                                            "\033[?6n",
                                            "\033[?996n",
                                            "\033[?2026$p",
                                            "\033[4$p",
                                            "\033[>q",
                                            "\033[>0q",
                                            "\033[?u",
                                            "\033[?4m",
                                            "\033[18t",
                                            "\033[21t",
                                            "\033[x",
                                            "\033[?1;1;0S",
                                            "\033[1$w",
                                            "\033[1;1;1;1;9;9*y",
                                            "\033Z",
                                            "\005",
                                            "\033]11;?\007",
                                            "\033]11;?\033\\",
                                            "\033]4;1;?\007",
                                            "\033]4;1;?;2;?\007",
                                            "\033]52;c;?\007",
                                            "\033]52;c;YQ==\007",
                                            "\033P$qm\033\\",
                                            "\033P+q544e\033\\",
                                            "\033_Gi=1,a=q;AAAA\033\\",
                                            "\033[1'|"};

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        char text[128];

        snprintf(text, sizeof(text), "a%sb", questions[i]);
        check(text, "ab", "");
    }
}
END_TEST

START_TEST(all_else_stays)
{
    static const char *const others[] = {"plain\r\n\ttext",
                                         "\033[1;31mred\033[m",
                                         "\033[2J\033[H",
                                         "\033[3;4H",
                                         "\033]0;title\007",
                                         "\033]8;;http://x/?a;\033\\link\033]8;;\033\\",
                                         "\033[22;0;0t",
                                         "\033[>1u",
                                         "\033[>4;1m",
                                         "\033[>4n",
                                         "\033[1 q",
                                         "\033[S",
                                         "\033[5S",
                                         "\033P0;1q#0~\033\\",
                                         "\033\033[1m",
                                         "\033[1\030m",
                                         "\033]0;cut\032x",
                                         "\033]0;a\033[1mb",
                                         "\033P0q\033[1mb",
                                         "\033Xsos\033\\",
                                         "\303\244\033[K",
                                         "\0337\0338\033M",
                                         "\033[12;34",
                                         "\033]0;unfinished",
                                         "\033",
                                         "\033P1;2",
                                         "\033[1\0337"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        check(others[i], others[i], "");
}
END_TEST

START_TEST(long_sequences_pass)
{
    static char text[3000], tail[4000];

    for (size_t n = AGENT_SCREEN_HELD - 6; n < AGENT_SCREEN_HELD + 3; n++) {
        memset(text, 'x', n);
        snprintf(tail, sizeof(tail), "\033]0;%.*s\033\\\033[?1h", (int)n, text);
        check(tail, tail, "\033[?1h");
        snprintf(tail, sizeof(tail), "\033]0;%.*s\007\033[?1h", (int)n, text);
        check(tail, tail, "\033[?1h");
        memset(text, '1', n);
        snprintf(tail, sizeof(tail), "\033[%.*sm\033[?1h", (int)n, text);
        check(tail, tail, "\033[?1h");
    }
}
END_TEST

START_TEST(modes_are_known)
{
    static const struct {
        const char *text, *modes;
    } cases[] = {
        {"\033[?1049h", "\033[?1049h"},
        {"\033[?47h", "\033[?1049h"},
        {"\033[?1047h\033[?1049l", ""},
        {"\033[?25l\033[?2004h\033[?1h\033=", "\033[?1h\033[?2004h\033[?25l\033="},
        {"\033[?1000;1006h", "\033[?1000h\033[?1006h"},
        {"\033[?1000;1006h\033[?1000l", "\033[?1006h"},
        {"\033[?7l", "\033[?7l"},
        {"\033[?7l\033[?7h", ""},
        {"\033[2;20r\033[?6h", "\033[2;20r\033[?6h"},
        {"\033[5r", "\033[5;r"},
        {"\033[2;20r\033[r", ""},
        {"\033(0", "\033(0"},
        {"\033)0\016", "\033)0\016"},
        {"\033)0\016\017\033(0\033(B", "\033)0"},
        {"\033[4h", "\033[4h"},
        {"\033[4h\033[4l", ""},
        {"\033[?66h", "\033="},
        {"\033[?1049h\033[?25l\033[4h\033(0\033[3;4r\033c", ""},
        {"\033[?1049h\033[?1006h\033[?6h\033[!p", "\033[?1049h\033[?1006h"},
        {"\033[?9999h\033[?1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;2004h",
         "\033[?1h\033[?5h\033[?9h\033[?6h"},
        {"\033[?99999999999999999999h", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check(cases[i].text, cases[i].text, cases[i].modes);
}
END_TEST

START_TEST(modes_fit_and_come_back)
{
    static const char all[] =
        "\033[?1049;1;5;9;1000;1002;1003h\033[?1004;1005;1006;1015;1016;2004;6h"
        "\033[?7;25l\033[4h\033=\033(0\033)A\016\033[59999;59999r";
    char modes[AGENT_SCREEN_MODES], again[AGENT_SCREEN_MODES];
    struct agent_screen s, t;
    size_t n;

    agent_screen_init(&s);
    agent_screen_feed(&s, (const uint8_t *)all, sizeof(all) - 1, NULL, NULL);
    n = agent_screen_modes(&s, modes);
    ck_assert_uint_lt(n, sizeof(modes));
    ck_assert(agent_screen_is_alternate(&s));
    agent_screen_init(&t);
    agent_screen_feed(&t, (const uint8_t *)modes, n, NULL, NULL);
    ck_assert_uint_eq(agent_screen_modes(&t, again), n);
    ck_assert_mem_eq(again, modes, n);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/agent/screen");
    TCase *tc = tcase_create("screen");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, questions_are_left_out);
    tcase_add_test(tc, all_else_stays);
    tcase_add_test(tc, long_sequences_pass);
    tcase_add_test(tc, modes_are_known);
    tcase_add_test(tc, modes_fit_and_come_back);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
