/* SPDX-License-Identifier: MIT */
#include "gateway/proxy_protocol.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V2(cmd, family, len) "\r\n\r\n\0\r\nQUIT\n" cmd family len
#define IP4                  "\x0a\x00\x00\x01\xc0\x00\x02\x02\x04\xd2\x00\x50"

static union gw_peer source;
static const char *why;

static int parse(const char *p, size_t n)
{
    /* In memory of exactly this size, for the address sanitizer. */
    unsigned char *copy = malloc(n > 0 ? n : 1);
    int r;

    memcpy(copy, p, n);
    why = NULL;
    r = gw_proxy_parse(copy, n, &source, &why);
    ck_assert(r >= -EPROTO && r <= (int)n);
    ck_assert((r < 0) == (why != NULL));
    free(copy);
    return r;
}

static void put(char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
}

/* Whole with a rest behind it; and each beginning of it wants more. */
static void check_good(const char *p, size_t n, const char *address, int port)
{
    char text[INET6_ADDRSTRLEN] = "", longer[3000];

    memcpy(longer, p, n);
    put(longer + n, "GET / HTTP/1.1\r\n", 16);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(parse(p, i), 0);
    ck_assert_int_eq(parse(p, n), (int)n);
    ck_assert_int_eq(parse(longer, n + 16), (int)n);
    if (address == NULL) {
        ck_assert_int_eq(source.sa.sa_family, AF_UNSPEC);
        return;
    }
    if (source.sa.sa_family == AF_INET)
        inet_ntop(AF_INET, &source.in.sin_addr, text, sizeof(text));
    else if (source.sa.sa_family == AF_INET6)
        inet_ntop(AF_INET6, &source.in6.sin6_addr, text, sizeof(text));
    ck_assert_str_eq(text, address);
    ck_assert_int_eq(ntohs(source.in.sin_port), port); /* the same place in both */
}
#define GOOD(literal, address, port) check_good(literal, sizeof(literal) - 1, address, port)
#define BAD(literal)                 ck_assert_int_eq(parse(literal, sizeof(literal) - 1), -EPROTO)

START_TEST(version_1)
{
    GOOD("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n", "192.0.2.7", 56324);
    GOOD("PROXY TCP4 255.255.255.255 255.255.255.255 65535 0\r\n", "255.255.255.255", 65535);
    GOOD("PROXY TCP6 2001:db8::1 ::1 1 443\r\n", "2001:db8::1", 1);
    GOOD("PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:"
         "ffff 65535 65535\r\n",
         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65535);
    GOOD("PROXY UNKNOWN\r\n", NULL, 0);
    GOOD("PROXY UNKNOWN ffff::1 whatever 1 2\r\n", NULL, 0);
}
END_TEST

START_TEST(version_1_faults)
{
    char line[200];

    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 56324 65536\r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 056324 443\r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 1\r\n");
    BAD("PROXY TCP4 192.0.2.7  198.51.100.1 56324 443\r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 -1 443\r\n");
    BAD("PROXY TCP4 192.0.2.007 198.51.100.1 1 443\r\n");
    BAD("PROXY TCP4 ::1 ::1 1 2\r\n");
    BAD("PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n");
    BAD("PROXY TCP4 192.0.2.7 x 1 2\r\n");
    BAD("PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n");
    BAD("PROXY UNKNOWNS\r\n");
    BAD("PROXY \r\n");
    BAD("PROXY TCP4\r\n");
    BAD("PROXY TCP4 192.0.2.7 198.51.100.1 1 2\rX");
    BAD("PROXY\tTCP4");
    BAD("proxy TCP4");
    BAD("GET / HTTP/1.1\r\n\r\n");
    BAD("\x16\x03\x01");
    memset(line, 'x', sizeof(line));
    put(line, "PROXY UNKNOWN ", 14);
    ck_assert_int_eq(parse(line, 106), 0);
    ck_assert_int_eq(parse(line, 107), -EPROTO);
    ck_assert_int_eq(parse(line, 200), -EPROTO);
    put(line + 105, "\r\n", 2);
    ck_assert_int_eq(parse(line, 200), 107);
    put(line + 105, "x\r\n", 3);
    ck_assert_int_eq(parse(line, 200), -EPROTO);
}
END_TEST

START_TEST(version_2)
{
    char head[2100];

    GOOD(V2("\x21", "\x11", "\x00\x0c") IP4, "10.0.0.1", 1234);
    GOOD(V2("\x21", "\x11", "\x00\x14") IP4 "\x03\x00\x02zz\x04\x00\x00", "10.0.0.1", 1234);
    GOOD(V2("\x21", "\x21", "\x00\x24") "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"
                                        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x16\x01\xbb",
         "2001:db8::1", 22);
    GOOD(V2("\x20", "\x00", "\x00\x00"), NULL, 0);
    GOOD(V2("\x20", "\x11", "\x00\x0c") IP4, NULL, 0); /* LOCAL: not its address */
    GOOD(V2("\x20", "\x77", "\x00\x03") "abc", NULL, 0);
    GOOD(V2("\x21", "\x00", "\x00\x03") "abc", NULL, 0);
    memset(head, 0, sizeof(head));
    put(head, V2("\x21", "\x31", "\x00\xd8"), 16);
    check_good(head, 16 + 216, NULL, 0);
    put(head, V2("\x20", "\x00", "\x07\xf0"), 16); /* 2048 in all */
    check_good(head, 2048, NULL, 0);
    put(head, V2("\x20", "\x00", "\x07\xf1"), 16);
    ck_assert_int_eq(parse(head, 16), -EPROTO);
}
END_TEST

START_TEST(version_2_faults)
{
    BAD(V2("\x11", "\x11", "\x00\x0c"));
    BAD(V2("\x31", "\x11", "\x00\x0c"));
    BAD(V2("\x22", "\x11", "\x00\x0c"));
    BAD(V2("\x21", "\x12", "\x00\x0c") IP4);
    BAD(V2("\x21", "\x41", "\x00\x0c") IP4);
    BAD(V2("\x21", "\x11", "\x00\x0b") "\x0a\x00\x00\x01\xc0\x00\x02\x02\x04\xd2\x00");
    BAD(V2("\x21", "\x21", "\x00\x0c") IP4);
    BAD(V2("\x21", "\x11", "\x00\x0d") IP4 "\x01");
    BAD(V2("\x21", "\x11", "\x00\x10") IP4 "\x01\x00\x02z");
    BAD("\r\n\r\n\0\r\nQUIX");
    BAD("\r\n\r\nG");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/proxy_protocol");
    TCase *tc = tcase_create("header");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, version_1);
    tcase_add_test(tc, version_1_faults);
    tcase_add_test(tc, version_2);
    tcase_add_test(tc, version_2_faults);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
