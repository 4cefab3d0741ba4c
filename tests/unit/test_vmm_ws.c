/* SPDX-License-Identifier: MIT */
#include "vmm/ws.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTINUATION, TEXT, BINARY, CLOSE = 8, PING, PONG };
#define FIN 0x80

static struct vmm_ws *ws;
static uint8_t sent[300000];
static size_t n_sent;
static char binary[200000], text[VMM_WS_TEXT_MAX + 1];
static size_t n_binary, n_texts;
static bool refuse, close_on_text;

static int on_send(const uint8_t *data, size_t len, void *arg)
{
    ck_assert_ptr_eq(arg, &n_sent);
    if (refuse)
        return -1;
    ck_assert_uint_le(n_sent + len, sizeof(sent));
    memcpy(sent + n_sent, data, len);
    n_sent += len;
    return 0;
}

static void on_binary(const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    ck_assert_uint_gt(len, 0);
    ck_assert_uint_le(n_binary + len, sizeof(binary));
    memcpy(binary + n_binary, data, len);
    n_binary += len;
}

static void on_text(const char *message, size_t len, void *arg)
{
    (void)arg;
    ck_assert_uint_le(len, VMM_WS_TEXT_MAX);
    ck_assert_uint_eq(strlen(message), len);
    memcpy(text, message, len + 1);
    n_texts++;
    if (close_on_text)
        vmm_ws_close(ws, VMM_WS_POLICY, "no");
}

static const struct vmm_ws_cbs cbs = {.send = on_send, .on_binary = on_binary, .on_text = on_text};

static void setup(void)
{
    n_sent = n_binary = n_texts = 0;
    refuse = close_on_text = false;
    ck_assert_int_eq(vmm_ws_new(&cbs, &n_sent, &ws), 0);
}

static void teardown(void)
{
    vmm_ws_free(ws);
}

static size_t put_frame(uint8_t *out, int first, const void *payload, size_t len, bool mask)
{
    static const uint8_t key[4] = {0x12, 0x9a, 0x00, 0xff};
    size_t n = 0;

    out[n++] = (uint8_t)first;
    if (len < 126) {
        out[n++] = (uint8_t)(len | (mask ? 0x80 : 0));
    } else if (len < 65536) {
        out[n++] = (uint8_t)(126 | (mask ? 0x80 : 0));
        out[n++] = (uint8_t)(len >> 8);
        out[n++] = (uint8_t)len;
    } else {
        out[n++] = (uint8_t)(127 | (mask ? 0x80 : 0));
        for (int shift = 56; shift >= 0; shift -= 8)
            out[n++] = (uint8_t)((uint64_t)len >> shift);
    }
    for (size_t i = 0; mask && i < 4; i++)
        out[n++] = key[i];
    for (size_t i = 0; i < len; i++)
        out[n++] = ((const uint8_t *)payload)[i] ^ (mask ? key[i % 4] : 0);
    return n;
}

/* A masked frame from the client. */
static void feed(int first, const void *payload, size_t len)
{
    static uint8_t bytes[200000];

    vmm_ws_feed(ws, bytes, put_frame(bytes, first, payload, len, true));
}

/* What was sent is this frame and nothing else. */
static void check_sent(int first, const void *payload, size_t len)
{
    static uint8_t bytes[200000];
    size_t n = put_frame(bytes, first, payload, len, false);

    ck_assert_uint_eq(n_sent, n);
    ck_assert_mem_eq(sent, bytes, n);
    n_sent = 0;
}

static void check_closed(uint16_t code)
{
    ck_assert(vmm_ws_is_over(ws));
    ck_assert_uint_ge(n_sent, 4);
    ck_assert_uint_eq(sent[0], FIN | CLOSE);
    ck_assert_uint_eq(sent[1], n_sent - 2);
    ck_assert_uint_eq(sent[2] << 8 | sent[3], code);
    n_sent = 0;
    feed(FIN | BINARY, "late", 4);
    vmm_ws_text(ws, "late");
    vmm_ws_binary(ws, (const uint8_t *)"late", 4);
    vmm_ws_ping(ws);
    vmm_ws_close(ws, VMM_WS_NORMAL, "late");
    ck_assert_uint_eq(n_sent, 0);
}

START_TEST(messages_are_passed_on)
{
    feed(FIN | BINARY, "ls\n", 3);
    feed(FIN | BINARY, "", 0);
    feed(FIN | TEXT, "{\"a\":1}", 7);
    ck_assert_uint_eq(n_binary, 3);
    ck_assert_mem_eq(binary, "ls\n", 3);
    ck_assert_str_eq(text, "{\"a\":1}");
    ck_assert_uint_eq(n_sent, 0);
    ck_assert(!vmm_ws_is_over(ws));
}
END_TEST

START_TEST(fragments_with_a_ping_in_between)
{
    feed(TEXT, "on", 2);
    feed(FIN | PING, "are you there", 13);
    feed(CONTINUATION, "", 0);
    feed(CONTINUATION | FIN, "e", 1);
    check_sent(FIN | PONG, "are you there", 13);
    ck_assert_str_eq(text, "one");
    feed(BINARY, "ab", 2);
    feed(FIN | PONG, "", 0);
    feed(FIN | CONTINUATION, "c", 1);
    ck_assert_mem_eq(binary, "abc", 3);
    ck_assert_uint_eq(n_texts, 1);
    ck_assert_uint_eq(n_sent, 0);
}
END_TEST

START_TEST(byte_by_byte)
{
    uint8_t bytes[1000];
    size_t n = put_frame(bytes, FIN | BINARY, "hello", 5, true);

    n += put_frame(bytes + n, TEXT, "t\xc3", 2, true);
    n += put_frame(bytes + n, FIN | CONTINUATION, "\xbc", 1, true);
    n += put_frame(bytes + n, FIN | PING, "p", 1, true);
    for (size_t i = 0; i < n; i++)
        vmm_ws_feed(ws, bytes + i, 1);
    ck_assert_mem_eq(binary, "hello", 5);
    ck_assert_str_eq(text, "t\xc3\xbc");
    check_sent(FIN | PONG, "p", 1);
}
END_TEST

START_TEST(bounds_of_binary_messages)
{
    static char much[VMM_WS_BINARY_MAX + 1];

    feed(FIN | BINARY, much, VMM_WS_BINARY_MAX);
    ck_assert_uint_eq(n_binary, VMM_WS_BINARY_MAX);
    feed(BINARY, much, VMM_WS_BINARY_MAX);
    ck_assert_uint_eq(n_binary, 2 * VMM_WS_BINARY_MAX);
    feed(FIN | CONTINUATION, "x", 1);
    ck_assert_uint_eq(n_binary, 2 * VMM_WS_BINARY_MAX);
    check_closed(VMM_WS_TOO_BIG);
}
END_TEST

START_TEST(a_frame_too_big_at_once)
{
    static char much[VMM_WS_BINARY_MAX + 1];

    feed(FIN | BINARY, much, VMM_WS_BINARY_MAX + 1);
    ck_assert_uint_eq(n_binary, 0);
    check_closed(VMM_WS_TOO_BIG);
}
END_TEST

START_TEST(a_length_that_nobody_has)
{
    static const uint8_t head[] = {FIN | BINARY, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff,
                                   0xff,         0xff, 0xff, 1,    2,    3,    4};

    vmm_ws_feed(ws, head, sizeof(head));
    ck_assert(!vmm_ws_is_over(ws)); /* libwslay looks when a byte of it is there */
    vmm_ws_feed(ws, head, 1);
    check_closed(VMM_WS_TOO_BIG);
}
END_TEST

START_TEST(bounds_of_text_messages)
{
    static char much[VMM_WS_TEXT_MAX + 1];

    memset(much, 'a', sizeof(much));
    feed(FIN | TEXT, much, VMM_WS_TEXT_MAX);
    ck_assert_uint_eq(strlen(text), VMM_WS_TEXT_MAX);
    feed(TEXT, much, VMM_WS_TEXT_MAX);
    feed(FIN | CONTINUATION, "a", 1);
    ck_assert_uint_eq(n_texts, 1);
    check_closed(VMM_WS_TOO_BIG);
}
END_TEST

/* RFC 6455 sections 5.1, 5.2, 5.4, 5.5, 8.1 */
static const struct {
    int first;
    const char *payload;
    size_t len;
    bool mask;
    uint16_t code;
} bad[] = {
    {FIN | BINARY, "x", 1, false, 1002},
    {FIN | 0x40 | BINARY, "x", 1, true, 1002},
    {FIN | 0x10 | BINARY, "x", 1, true, 1002},
    {FIN | 3, "x", 1, true, 1002},
    {FIN | 0xb, "x", 1, true, 1002},
    {FIN | CONTINUATION, "x", 1, true, 1002},
    {FIN | TEXT, "\xff", 1, true, 1007},
    {FIN | TEXT, "\xc3", 1, true, 1007},
    {FIN | CLOSE, "\x00\x01", 2, true, 1002},
    {FIN | CLOSE, "\x03\xed", 2, true, 1002},
    {FIN | CLOSE, "\x03\xe8\xff", 3, true, 1007},
};

START_TEST(what_is_against_the_rules)
{
    uint8_t bytes[64];

    vmm_ws_feed(ws, bytes,
                put_frame(bytes, bad[_i].first, bad[_i].payload, bad[_i].len, bad[_i].mask));
    ck_assert_uint_eq(n_binary + n_texts, 0);
    check_closed(bad[_i].code);
}
END_TEST

/* libwslay gives no reason for these. */
START_TEST(control_frames_that_are_none)
{
    char much[126] = "";

    if (_i == 0)
        feed(FIN | PING, much, sizeof(much));
    else
        feed(PING, "x", 1);
    ck_assert(vmm_ws_is_over(ws));
    check_sent(FIN | CLOSE, "", 0);
}
END_TEST

START_TEST(a_close_is_answered)
{
    feed(FIN | CLOSE, "\x03\xe8thanks", 8);
    check_sent(FIN | CLOSE, "\x03\xe8thanks", 8);
    ck_assert(vmm_ws_is_over(ws));
    feed(FIN | BINARY, "late", 4);
    ck_assert_uint_eq(n_binary, 0);
}
END_TEST

START_TEST(sending)
{
    static uint8_t much[70000];

    vmm_ws_binary(ws, (const uint8_t *)"out", 3);
    check_sent(FIN | BINARY, "out", 3);
    vmm_ws_binary(ws, much, sizeof(much));
    check_sent(FIN | BINARY, much, sizeof(much));
    vmm_ws_text(ws, "{}");
    check_sent(FIN | TEXT, "{}", 2);
    vmm_ws_ping(ws);
    check_sent(FIN | PING, "", 0);
    vmm_ws_close(ws, VMM_WS_NORMAL, "bye");
    check_sent(FIN | CLOSE,
               "\x03\xe8"
               "bye",
               5);
    ck_assert(vmm_ws_is_over(ws));
}
END_TEST

START_TEST(a_close_from_inside)
{
    uint8_t bytes[100];
    size_t n = put_frame(bytes, FIN | TEXT, "x", 1, true);

    n += put_frame(bytes + n, FIN | TEXT, "y", 1, true);
    close_on_text = true;
    vmm_ws_feed(ws, bytes, n);
    ck_assert_uint_eq(n_texts, 1);
    check_closed(VMM_WS_POLICY);
}
END_TEST

START_TEST(nothing_can_be_sent)
{
    refuse = true;
    vmm_ws_text(ws, "x");
    ck_assert(vmm_ws_is_over(ws));
    refuse = false;
    vmm_ws_close(ws, VMM_WS_NORMAL, "");
    feed(FIN | BINARY, "x", 1);
    ck_assert_uint_eq(n_sent + n_binary, 0);
}
END_TEST

static void offer(const char *const *values, size_t n, struct vmm_ws_offer *out)
{
    struct tr_h2_field fields[4];
    struct tr_h2_head head = {.fields = fields, .n_fields = n};

    for (size_t i = 0; i < n; i++)
        fields[i] = TR_H2_FIELD("sec-websocket-protocol", values[i]);
    vmm_ws_read_offer(&head, out);
}

START_TEST(offers)
{
    struct vmm_ws_offer o;
    char longest[32 + VMM_WS_KEY_SIZE];
    const char *one = longest;

    offer(NULL, 0, &o);
    ck_assert(!o.any && !o.ours && *o.key == '\0');
    offer((const char *const[]){"transom.v1"}, 1, &o);
    ck_assert(o.any && o.ours && *o.key == '\0');
    offer((const char *const[]){" , transom.key.abc ,\ttransom.v1,,"}, 1, &o);
    ck_assert(o.any && o.ours);
    ck_assert_str_eq(o.key, "abc");
    offer((const char *const[]){"transom.v1", "transom.key.x"}, 2, &o);
    ck_assert(o.ours);
    ck_assert_str_eq(o.key, "x");
    offer((const char *const[]){"transom.v12, transom.key., Transom.v1, transom.v"}, 1, &o);
    ck_assert(o.any && !o.ours && *o.key == '\0');
    offer((const char *const[]){" ,"}, 1, &o);
    ck_assert(!o.any);
    snprintf(longest, sizeof(longest), "transom.key.%0*d", VMM_WS_KEY_SIZE - 1, 1);
    offer(&one, 1, &o);
    ck_assert_uint_eq(strlen(o.key), VMM_WS_KEY_SIZE - 1);
    snprintf(longest, sizeof(longest), "transom.key.%0*d", VMM_WS_KEY_SIZE, 1);
    offer(&one, 1, &o);
    ck_assert(o.any && *o.key == '\0');
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/ws");
    TCase *tc = tcase_create("frames");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, messages_are_passed_on);
    tcase_add_test(tc, fragments_with_a_ping_in_between);
    tcase_add_test(tc, byte_by_byte);
    tcase_add_test(tc, bounds_of_binary_messages);
    tcase_add_test(tc, a_frame_too_big_at_once);
    tcase_add_test(tc, a_length_that_nobody_has);
    tcase_add_test(tc, bounds_of_text_messages);
    tcase_add_loop_test(tc, what_is_against_the_rules, 0, (int)(sizeof(bad) / sizeof(bad[0])));
    tcase_add_loop_test(tc, control_frames_that_are_none, 0, 2);
    tcase_add_test(tc, a_close_is_answered);
    tcase_add_test(tc, sending);
    tcase_add_test(tc, a_close_from_inside);
    tcase_add_test(tc, nothing_can_be_sent);
    tcase_add_test(tc, offers);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
