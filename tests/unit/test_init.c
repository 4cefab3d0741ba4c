/* SPDX-License-Identifier: MIT */
#include "vmm/agent/init.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(word_is_found_whole)
{
    char value[16];

    ck_assert(
        agent_cmdline_word("quiet transom.root=root x", "transom.root", value, sizeof(value)));
    ck_assert_str_eq(value, "root");
    ck_assert(agent_cmdline_word("transom.data=d\n", "transom.data", value, sizeof(value)));
    ck_assert_str_eq(value, "d");
    /* Not as the end or the start of another word. */
    ck_assert(!agent_cmdline_word("xtransom.root=a transom.roots=b", "transom.root", value,
                                  sizeof(value)));
    ck_assert_str_eq(value, "");
    ck_assert(!agent_cmdline_word("transom.root", "transom.root", value, sizeof(value)));
    ck_assert(!agent_cmdline_word("", "transom.root", value, sizeof(value)));
}
END_TEST

START_TEST(last_word_wins)
{
    char value[16];

    ck_assert(agent_cmdline_word("  a=1   a=2 b=3", "a", value, sizeof(value)));
    ck_assert_str_eq(value, "2");
    ck_assert(agent_cmdline_word("a=1 a=", "a", value, sizeof(value)));
    ck_assert_str_eq(value, "");
}
END_TEST

START_TEST(long_value_is_cut)
{
    char value[4];

    ck_assert(agent_cmdline_word("a=12345", "a", value, sizeof(value)));
    ck_assert_str_eq(value, "123");
}
END_TEST

START_TEST(module_lines)
{
    char file[16];
    unsigned device = 7;

    ck_assert(agent_module_line("00-virtio.ko\n", file, sizeof(file), &device));
    ck_assert_str_eq(file, "00-virtio.ko");
    ck_assert_uint_eq(device, 0);
    ck_assert(agent_module_line("13-vsock.ko 19\n", file, sizeof(file), &device));
    ck_assert_str_eq(file, "13-vsock.ko");
    ck_assert_uint_eq(device, 19);
    ck_assert(!agent_module_line("\n", file, sizeof(file), &device));
    ck_assert(!agent_module_line("", file, sizeof(file), &device));
    ck_assert(agent_module_line("a-name-longer-than-the-buffer.ko 2", file, sizeof(file), &device));
    ck_assert_str_eq(file, "a-name-longer-t");
    ck_assert_uint_eq(device, 2);
}
END_TEST

START_TEST(timer_rates)
{
    static const char list[] =
        "Timer List Version: v0.9\n"
        "Tick Device: mode:     1\nBroadcast device\nClock Event Device: <NULL>\n"
        "Tick Device: mode:     1\nPer CPU device: 0\nClock Event Device: lapic\n"
        " max_delta_ns:   34360150773\n min_delta_ns:   1000\n mult:           %u\n"
        " shift:          32\n mode:           3\n";
    char text[sizeof(list) + 16];

    snprintf(text, sizeof(text), list, 268432234u); /* as seen */
    ck_assert_uint_eq(agent_lapic_khz(text), 62499);
    snprintf(text, sizeof(text), list, 1000u);
    ck_assert_uint_eq(agent_lapic_khz(text), 0);
    text[strlen(text) / 2] = '\0';
    ck_assert_uint_eq(agent_lapic_khz(text), 0);
    ck_assert_uint_eq(agent_lapic_khz("Clock Event Device: lapic-deadline\n mult: 1\n shift: 0\n"),
                      0);
    ck_assert_uint_eq(agent_lapic_khz("Clock Event Device: lapic\n mult: 99999999999\n shift: 2\n"),
                      0);
    ck_assert_uint_eq(agent_lapic_khz("Clock Event Device: lapic\n mult: 2\n shift: 99\n"), 0);
    ck_assert_uint_eq(agent_lapic_khz(""), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/agent/init");
    TCase *tc = tcase_create("parsers");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, word_is_found_whole);
    tcase_add_test(tc, last_word_wins);
    tcase_add_test(tc, long_value_is_cut);
    tcase_add_test(tc, module_lines);
    tcase_add_test(tc, timer_rates);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
