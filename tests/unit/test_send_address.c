/* SPDX-License-Identifier: MIT */
#include "vmm/send/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static struct sockaddr_storage sa;

static const struct sockaddr *address(const char *text)
{
    memset(&sa, 0, sizeof(sa));
    sa.ss_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    ck_assert_int_eq(inet_pton(sa.ss_family, text,
                               sa.ss_family == AF_INET6
                                   ? (void *)&((struct sockaddr_in6 *)&sa)->sin6_addr
                                   : (void *)&((struct sockaddr_in *)&sa)->sin_addr),
                     1);
    return (struct sockaddr *)&sa;
}

START_TEST(public_ones)
{
    static const char *const good[] = {"1.1.1.1",         "93.184.216.34",   "100.63.255.255",
                                       "100.128.0.0",     "172.15.255.255",  "172.32.0.0",
                                       "223.255.255.255", "192.167.255.255", "2606:4700::1111",
                                       "2a00:1450::1",    "::ffff:1.1.1.1"};
    static const char *const bad[] = {"0.0.0.0",
                                      "0.1.2.3",
                                      "10.0.0.1",
                                      "10.255.255.255",
                                      "100.64.0.1",
                                      "100.127.255.255",
                                      "127.0.0.1",
                                      "127.255.255.255",
                                      "169.254.169.254",
                                      "172.16.0.1",
                                      "172.31.255.255",
                                      "192.0.0.1",
                                      "192.0.2.1",
                                      "192.168.1.1",
                                      "198.18.0.1",
                                      "198.51.100.1",
                                      "203.0.113.1",
                                      "224.0.0.1",
                                      "239.1.1.1",
                                      "240.0.0.1",
                                      "255.255.255.255",
                                      "::",
                                      "::1",
                                      "fe80::1",
                                      "fc00::1",
                                      "fd12::1",
                                      "ff02::1",
                                      "2001::1",
                                      "2001:db8::1",
                                      "2002:7f00:1::",
                                      "64:ff9b::7f00:1",
                                      "::ffff:127.0.0.1",
                                      "::ffff:10.0.0.1",
                                      "::127.0.0.1",
                                      "3fff::1",
                                      "100::1",
                                      "4000::1"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(send_address_public(address(good[i])), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!send_address_public(address(bad[i])), "%s", bad[i]);
    memset(&sa, 0, sizeof(sa));
    sa.ss_family = AF_UNIX;
    ck_assert(!send_address_public((struct sockaddr *)&sa));
}
END_TEST

START_TEST(what_is_allowed_besides)
{
    json_t *allow = json_pack("[s, s, s, i]", "10.1.0.0/16", "fd00:1::/32", "192.168.1.7", 5);

    ck_assert(send_address_allowed(address("10.1.2.3"), allow));
    ck_assert(send_address_allowed(address("::ffff:10.1.2.3"), allow));
    ck_assert(!send_address_allowed(address("10.2.0.0"), allow));
    ck_assert(send_address_allowed(address("192.168.1.7"), allow));
    ck_assert(!send_address_allowed(address("192.168.1.8"), allow));
    ck_assert(send_address_allowed(address("fd00:1:2::1"), allow));
    ck_assert(!send_address_allowed(address("fd00:2::1"), allow));
    ck_assert(!send_address_allowed(address("127.0.0.1"), allow));
    ck_assert(send_address_allowed(address("1.1.1.1"), allow));
    ck_assert(send_address_allowed(address("1.1.1.1"), NULL));
    json_decref(allow);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("send/address");
    TCase *tc = tcase_create("addresses");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, public_ones);
    tcase_add_test(tc, what_is_allowed_besides);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
