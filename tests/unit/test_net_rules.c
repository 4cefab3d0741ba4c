/* SPDX-License-Identifier: MIT */
#include "vmm/net/dnsmasq.h"
#include "vmm/net/range.h"
#include "vmm/net/rules.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static struct range range;
static struct err err;

static void setup(void)
{
    tr_err_clear(&err);
    ck_assert_int_eq(range_parse("10.9.0.0/28", &range, &err), 0);
}

START_TEST(a_range_gives_its_two_ends_and_a_pool)
{
    char text[RANGE_TEXT];

    ck_assert_str_eq(range_text(range.host, text), "10.9.0.1");
    ck_assert_str_eq(range_text(range.ns, text), "10.9.0.2");
    ck_assert_str_eq(range_text(range.first, text), "10.9.0.4");
    ck_assert_str_eq(range_text(range.last, text), "10.9.0.14");
    ck_assert(range_in_pool(&range, range.first));
    ck_assert(range_in_pool(&range, range.last));
    ck_assert(!range_in_pool(&range, range.ns));
    ck_assert(!range_in_pool(&range, range.last + 1));
}
END_TEST

static const char *const bad_ranges[] = {
    "",
    "10.0.0.0",
    "10.0.0.0/",
    "10.0.0.0/x",
    "10.0.0.0/7",
    "10.0.0.0/29",
    "10.0.0.1/16",
    "256.0.0.0/16",
    "10.0.0/16",
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/8",
    "::1/16",
    "10.0.0.0/16 ",
    "10.0.0.0/-8",
    "10.0.0.0.0.0.0.0.0.0.0.0.0/16",
    "/16",
    "10.0.0.0/16/16",
};

START_TEST(bad_ranges_are_refused_with_a_reason)
{
    struct range out;

    ck_assert_int_eq(range_parse(bad_ranges[_i], &out, &err), UV_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "net.range"));
}
END_TEST

static bool in_list(uint32_t address, void *arg)
{
    const uint32_t *list = arg;

    for (; *list != 0; list++)
        if (*list == address)
            return true;
    return false;
}

START_TEST(addresses_are_taken_in_turn_and_run_out)
{
    uint32_t used[16] = {0}, first, a;
    size_t n = 0;

    ck_assert_int_eq(range_take(&range, in_list, used, &first), 0);
    ck_assert_uint_eq(first, range.first);
    /* Given back at once, it is not the next one. */
    ck_assert_int_eq(range_take(&range, in_list, used, &a), 0);
    ck_assert_uint_eq(a, range.first + 1);
    while (range_take(&range, in_list, used, &a) == 0) {
        ck_assert(range_in_pool(&range, a));
        ck_assert(!in_list(a, used));
        used[n++] = a;
        ck_assert_uint_lt(n, 12);
    }
    ck_assert_uint_eq(n, 11);
    used[4] = used[10]; /* one comes free, wherever the cursor stands */
    used[10] = 0;
    ck_assert_int_eq(range_take(&range, in_list, used, &a), 0);
    ck_assert(!in_list(a, used));
}
END_TEST

START_TEST(overlap_is_found_from_both_sides)
{
    ck_assert(range_overlaps(&range, range.base, 32));
    ck_assert(range_overlaps(&range, range.base, 28));
    ck_assert(range_overlaps(&range, 10U << 24, 8));
    ck_assert(!range_overlaps(&range, range.base + 16, 28));
    ck_assert(!range_overlaps(&range, 11U << 24, 8));
}
END_TEST

/* The rules as a whole: whoever changes them sees here what changes. */
static const char namespace_golden[] =
    "table inet transom\n"
    "delete table inet transom\n"
    "table inet transom {\n"
    "  set denied {\n"
    "    type ipv4_addr; flags interval; auto-merge\n"
    "    elements = { 10.9.0.0/28, 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, "
    "169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, 224.0.0.0/3 }\n"
    "  }\n"
    "  set machines {\n"
    "    type ifname . ipv4_addr\n"
    "    elements = { \"ta\" . 10.9.0.4, \"tb\" . 10.9.0.5 }\n"
    "  }\n"
    "  chain pin {\n"
    "    type filter hook prerouting priority raw; policy accept;\n"
    "    iifname { \"lo\", \"uplink\" } accept\n"
    "    meta nfproto ipv6 drop\n"
    "    iifname . ip saddr != @machines drop\n"
    "  }\n"
    "  chain refuse {\n"
    "    meta l4proto tcp reject with tcp reset\n"
    "    reject with icmpx type admin-prohibited\n"
    "  }\n"
    "  chain input {\n"
    "    type filter hook input priority filter; policy drop;\n"
    "    iifname \"lo\" accept\n"
    "    ct state invalid drop\n"
    "    ct state established,related accept\n"
    "    iifname \"uplink\" ip saddr 10.9.0.1 icmp type echo-request accept\n"
    "    iifname \"uplink\" drop\n"
    "    ip daddr 10.9.0.2 meta l4proto { tcp, udp } th dport 53 accept\n"
    "    ip daddr 169.254.1.1 icmp type echo-request accept\n"
    "    jump refuse\n"
    "  }\n"
    "  chain forward {\n"
    "    type filter hook forward priority filter; policy drop;\n"
    "    ct state invalid drop\n"
    "    ct state established,related accept\n"
    "    iifname \"uplink\" ip saddr 10.9.0.1 accept\n"
    "    iifname \"uplink\" drop\n"
    "    oifname != \"uplink\" jump refuse\n"
    "    ip daddr @denied jump refuse\n"
    "    accept\n"
    "  }\n"
    "  chain fetch {\n"
    "    ip daddr 10.9.0.2 meta l4proto { tcp, udp } th dport 53 accept\n"
    "    ip daddr @denied jump refuse\n"
    "    oifname \"lo\" jump refuse\n"
    "  }\n"
    "  chain output {\n"
    "    type filter hook output priority filter; policy accept;\n"
    "    meta skuid 65533 jump fetch\n"
    "  }\n"
    "}\n";

START_TEST(namespace_rules_are_as_they_were)
{
    struct rules_pair pairs[] = {{"ta", range.first}, {"tb", range.first + 1}};
    char *text = rules_namespace(&range, pairs, 2);

    ck_assert_str_eq(text, namespace_golden);
    free(text);
    text = rules_namespace(&range, NULL, 0);
    ck_assert_ptr_null(strstr(strstr(text, "set machines"), "elements"));
    free(text);
}
END_TEST

static const char host_golden[] =
    "table ip transom_n\n"
    "delete table ip transom_n\n"
    "table ip transom_n {\n"
    "  chain forwarding_was_off {\n"
    "  }\n"
    "  chain input {\n"
    "    type filter hook input priority filter; policy accept;\n"
    "    iifname != \"vh\" accept\n"
    "    ct state established,related accept\n"
    "    ip saddr 10.9.0.2 ip daddr 10.9.0.1 meta l4proto { tcp, udp } th dport 53053 accept\n"
    "    meta l4proto tcp reject with tcp reset\n"
    "    reject with icmp type admin-prohibited\n"
    "  }\n"
    "  chain forward {\n"
    "    type filter hook forward priority filter; policy accept;\n"
    "    iifname \"vh\" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n"
    "    oifname \"vh\" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n"
    "    iifname \"vh\" oifname \"vh\" drop\n"
    "    iifname \"vh\" ip saddr != 10.9.0.0/28 drop\n"
    "    oifname \"vh\" ct state established,related accept\n"
    "    oifname \"vh\" drop\n"
    "  }\n"
    "  chain postrouting {\n"
    "    type nat hook postrouting priority srcnat; policy accept;\n"
    "    ip saddr 10.9.0.0/28 oifname != \"vh\" masquerade\n"
    "  }\n"
    "}\n";

START_TEST(host_rules_are_as_they_were)
{
    char *text = rules_host(&range, "transom_n", "vh", true);

    ck_assert_str_eq(text, host_golden);
    free(text);
    text = rules_host(&range, "transom_n", "vh", false);
    ck_assert_ptr_null(strstr(text, RULES_WAS_OFF));
    free(text);
}
END_TEST

START_TEST(elements_are_added_and_removed)
{
    struct rules_pair pair = {"ta", range.first};
    char *text = rules_add(&pair);

    ck_assert_str_eq(text, "add element inet transom machines { \"ta\" . 10.9.0.4 }\n");
    free(text);
    text = rules_remove(&pair);
    ck_assert_str_eq(text, "delete element inet transom machines { \"ta\" . 10.9.0.4 }\n");
    free(text);
}
END_TEST

START_TEST(the_mark_is_found_in_the_right_table)
{
    static const char text[] = "table ip transom_a {\n\tchain forward {\n\t}\n}\n"
                               "table ip other {\n\tchain forwarding_was_off {\n\t}\n}\n"
                               "table ip transom_b {\n\tchain forwarding_was_off {\n\t}\n}\n"
                               "table ip6 transom_c {\n\tchain forwarding_was_off {\n\t}\n}\n";
    struct rules_survey survey;

    rules_read_survey(text, "transom_a", &survey);
    ck_assert(!survey.ours_was_off);
    ck_assert(survey.other_was_off);
    ck_assert(survey.others);
    rules_read_survey(text, "transom_b", &survey);
    ck_assert(survey.ours_was_off);
    ck_assert(!survey.other_was_off);
    ck_assert(survey.others);
    rules_read_survey("table ip transom_b {\n}\n", "transom_b", &survey);
    ck_assert(!survey.others);
    rules_read_survey("", "transom_b", &survey);
    ck_assert(!survey.ours_was_off && !survey.others);
}
END_TEST

START_TEST(a_firewall_that_blocks_us_is_noticed)
{
    static const struct {
        const char *text, *blocker;
    } cases[] = {
        {"table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; "
         "policy "
         "drop;\n\t}\n}\n",
         "ip filter FORWARD"},
        {"table inet fw {\n\tchain in {\n\t\ttype filter hook input priority 10; policy drop;\n",
         "inet fw in"},
        {"table ip6 filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; "
         "policy drop;\n",
         ""},
        {"table ip filter {\n\tchain OUTPUT {\n\t\ttype filter hook output priority filter; policy "
         "drop;\n",
         ""},
        {"table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; "
         "policy "
         "accept;\n",
         ""},
        {"table ip transom_x {\n\tchain forward {\n\t\ttype filter hook forward priority filter; "
         "policy drop;\n",
         ""},
    };
    struct rules_survey survey;

    rules_read_survey(cases[_i].text, "transom_a", &survey);
    ck_assert_str_eq(survey.blocker, cases[_i].blocker);
}
END_TEST

START_TEST(name_servers_know_whom_to_ask)
{
    static const char *const servers[] = {"10.0.0.1#5353", "10.0.0.2"};
    struct dnsmasq_options options = {.dir = "/d",
                                      .name = "n",
                                      .netns = "x",
                                      .listen = "10.9.0.2",
                                      .port = 53,
                                      .servers = servers,
                                      .n_servers = 2};
    char *text = dnsmasq_config(&options, "nobody");

    ck_assert_ptr_nonnull(strstr(text, "\nuser=nobody\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nlisten-address=10.9.0.2\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nport=53\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nno-resolv\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nserver=10.0.0.1#5353\nserver=10.0.0.2\n"));
    free(text);
    options.n_servers = 0;
    text = dnsmasq_config(&options, "");
    ck_assert_ptr_nonnull(strstr(text, "\nresolv-file=/etc/resolv.conf\n"));
    ck_assert_ptr_null(strstr(text, "no-resolv"));
    ck_assert_ptr_null(strstr(text, "user="));
    ck_assert_ptr_nonnull(strstr(text, "\nno-daemon\n"));
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/net");
    TCase *tc = tcase_create("rules");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, a_range_gives_its_two_ends_and_a_pool);
    tcase_add_loop_test(tc, bad_ranges_are_refused_with_a_reason, 0,
                        sizeof(bad_ranges) / sizeof(bad_ranges[0]));
    tcase_add_test(tc, addresses_are_taken_in_turn_and_run_out);
    tcase_add_test(tc, overlap_is_found_from_both_sides);
    tcase_add_test(tc, namespace_rules_are_as_they_were);
    tcase_add_test(tc, host_rules_are_as_they_were);
    tcase_add_test(tc, elements_are_added_and_removed);
    tcase_add_loop_test(tc, a_firewall_that_blocks_us_is_noticed, 0, 6);
    tcase_add_test(tc, name_servers_know_whom_to_ask);
    tcase_add_test(tc, the_mark_is_found_in_the_right_table);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
