/* SPDX-License-Identifier: MIT */
#include "vmm/agent/init.h"

#include <check.h>
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
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
