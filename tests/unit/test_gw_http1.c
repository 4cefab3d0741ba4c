/* SPDX-License-Identifier: MIT */
/* Heads. The many malformed ones are tried on the whole gateway (40-gateway-malformed); here stands
 * what is read out of good ones, and bodies. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/body.h"
#include "gateway/http1.h"

#define N_FIELDS 20

static struct gw_field fields[N_FIELDS];
static struct gw_request req;
static struct gw_response resp;
static const char *why;

static int request(const char *text)
{
    struct gw_http1_limits limits = {65536, N_FIELDS};
    struct gw_http1_scan scan = {0};
    size_t len = strlen(text);

    ck_assert_int_eq(gw_http1_find_end(&scan, text, len), (long)len);
    return gw_http1_parse_request(text, len, &limits, fields, &req, &why);
}

static int response(const char *text, enum gw_method method)
{
    struct gw_http1_limits limits = {65536, N_FIELDS};

    return gw_http1_parse_response(text, strlen(text), &limits, method, fields, &resp, &why);
}

#define ck_str(s, text)                                                                            \
    ck_assert_msg((s).len == strlen(text) && memcmp((s).p, text, (s).len) == 0, "%.*s is not %s",  \
                  (int)(s).len, (s).p, text)

START_TEST(end_is_found_in_pieces)
{
    const char *text = "GET / HTTP/1.1\r\nHost: a\r\n\r\nbody\n";
    struct gw_http1_scan scan = {0};

    for (size_t n = 0; n < 27; n++)
        ck_assert_int_eq(gw_http1_find_end(&scan, text, n), 0);
    ck_assert_int_eq(gw_http1_find_end(&scan, text, 28), 27);
}
END_TEST

START_TEST(bare_line_feed_is_an_error_at_once)
{
    struct gw_http1_scan scan = {0};

    ck_assert_int_lt(gw_http1_find_end(&scan, "GET / HTTP/1.1\n", 15), 0);
    memset(&scan, 0, sizeof(scan));
    ck_assert_int_lt(gw_http1_find_end(&scan, "\n", 1), 0);
}
END_TEST

START_TEST(request_is_taken_apart)
{
    ck_assert_int_eq(request("GET /a?b HTTP/1.1\r\nHost:  a.test \r\nX-Y:z\r\n\r\n"), 0);
    ck_str(req.method, "GET");
    ck_str(req.target, "/a?b");
    ck_str(req.host, "a.test");
    ck_assert_uint_eq(req.n_fields, 2);
    ck_assert_uint_eq(fields[0].id, GW_FIELD_HOST);
    ck_assert_uint_eq(fields[1].value_len, 1);
    ck_assert(req.keep_alive && req.framing == GW_BODY_NONE && req.method_id == GW_METHOD_GET);
}
END_TEST

START_TEST(framing_of_requests)
{
    ck_assert_int_eq(request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n"), 0);
    ck_assert(req.framing == GW_BODY_LENGTH && req.length == 7);
    ck_assert_int_eq(request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), 0);
    ck_assert(req.framing == GW_BODY_NONE);
    ck_assert_int_eq(request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"),
                     0);
    ck_assert(req.framing == GW_BODY_CHUNKED);
    ck_assert_int_eq(
        request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501);
    ck_assert_int_eq(
        request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"), 400);
}
END_TEST

START_TEST(keep_alive_by_version_and_word)
{
    ck_assert_int_eq(request("GET / HTTP/1.0\r\n\r\n"), 0);
    ck_assert(!req.keep_alive);
    ck_assert_int_eq(request("GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n"), 0);
    ck_assert(req.keep_alive);
    ck_assert_int_eq(request("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n"
                             "Connection: close\r\n\r\n"),
                     0);
    ck_assert(!req.keep_alive);
}
END_TEST

START_TEST(connection_names_other_fields)
{
    ck_assert_int_eq(request("GET / HTTP/1.1\r\nX-A: 1\r\nhost: a\r\nConnection: x-a, Host\r\n"
                             "x-a: 2\r\nX-AB: 3\r\n\r\n"),
                     0);
    ck_assert(fields[0].hop_by_hop && fields[3].hop_by_hop);
    ck_assert(!fields[1].hop_by_hop && !fields[4].hop_by_hop);
}
END_TEST

START_TEST(forwarded_names_with_underscores)
{
    ck_assert_uint_eq(gw_http1_classify("X_Forwarded-FOR", 15), GW_FIELD_X_FORWARDED_FOR);
    ck_assert_uint_eq(gw_http1_classify("x-forwarded-server", 18), GW_FIELD_X_FORWARDED);
    ck_assert_uint_eq(gw_http1_classify("x_real_ip", 9), GW_FIELD_X_REAL_IP);
    ck_assert_uint_eq(gw_http1_classify("content_length", 14), GW_FIELD_OTHER);
    ck_assert_uint_eq(gw_http1_classify("x-forwarded", 11), GW_FIELD_OTHER);
}
END_TEST

START_TEST(too_many_fields)
{
    char text[1024];

    for (int n = N_FIELDS; n <= N_FIELDS + 1; n++) {
        int at = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");

        for (int i = 1; i < n; i++)
            at += snprintf(text + at, sizeof(text) - (size_t)at, "A: b\r\n");
        snprintf(text + at, sizeof(text) - (size_t)at, "\r\n");
        ck_assert_int_eq(request(text), n == N_FIELDS ? 0 : 431);
    }
}
END_TEST

START_TEST(framing_of_responses)
{
    ck_assert_int_eq(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", GW_METHOD_GET), 0);
    ck_assert(resp.framing == GW_BODY_LENGTH && resp.length == 3 && resp.keep_alive);
    ck_assert_int_eq(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", GW_METHOD_HEAD), 0);
    ck_assert(resp.framing == GW_BODY_NONE && resp.has_length && resp.length == 3);
    ck_assert_int_eq(response("HTTP/1.1 304 X\r\nContent-Length: 3\r\n\r\n", GW_METHOD_GET), 0);
    ck_assert(resp.framing == GW_BODY_NONE && resp.has_length);
    ck_assert_int_eq(
        response("HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n", GW_METHOD_GET), 0);
    ck_assert(resp.framing == GW_BODY_NONE && !resp.has_length && !resp.keep_alive);
    ck_assert_int_eq(response("HTTP/1.1 200\r\n\r\n", GW_METHOD_GET), 0);
    ck_assert(resp.framing == GW_BODY_CLOSE && !resp.keep_alive);
    ck_assert_int_eq(response("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", GW_METHOD_GET), 0);
    ck_assert(!resp.keep_alive);
    ck_assert_int_eq(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
                              GW_METHOD_GET),
                     0);
    ck_assert(resp.framing == GW_BODY_LENGTH);
}
END_TEST

START_TEST(trailers_without_framing_fields)
{
    const char *text = "grpc-status: 0\r\nContent-Length: 5\r\nHost: x\r\nX: y\r\n\r\n";
    struct gw_http1_limits limits = {65536, N_FIELDS};
    size_t n;

    ck_assert_int_eq(gw_http1_parse_trailers(text, strlen(text), &limits, fields, &n), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(memcmp(fields[1].name, "X", 1), 0);
}
END_TEST

START_TEST(body_of_known_length)
{
    struct gw_body b;
    struct gw_body_part part;
    char text[] = "abcdeNEXT";

    gw_body_start(&b, GW_BODY_LENGTH, 5);
    ck_assert_int_eq(gw_body_decode(&b, text, 3, 100, &part), GW_BODY_MORE);
    ck_assert_uint_eq(part.plain, 3);
    ck_assert_int_eq(gw_body_decode(&b, text + 3, 6, 100, &part), GW_BODY_DONE);
    ck_assert(part.plain == 2 && part.used == 2 && b.done);
}
END_TEST

START_TEST(body_bytes_go_before_trailers)
{
    struct gw_body b;
    struct gw_body_part part;
    char text[] = "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\nNEXT";
    size_t len = strlen(text);

    gw_body_start(&b, GW_BODY_CHUNKED, 0);
    ck_assert_int_eq(gw_body_decode(&b, text, len, 100, &part), GW_BODY_MORE);
    ck_assert(part.plain == 5 && memcmp(text, "abcde", 5) == 0);
    ck_assert_int_eq(gw_body_decode(&b, text + part.used, len - part.used, 100, &part),
                     GW_BODY_DONE);
    ck_assert(part.plain == 0 && part.trailers_len == 8);
    ck_assert_int_eq(memcmp(part.trailers + 8, "NEXT", 4), 0);
}
END_TEST

START_TEST(what_waits_is_one_piece)
{
    struct gw_bufs bufs = {0};
    struct gw_in in = {0};
    struct gw_body b;
    struct gw_body_part part;
    char text[] = "3\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n";

    gw_body_start(&b, GW_BODY_CHUNKED, 0);
    ck_assert_int_eq(gw_body_decode(&b, text, strlen(text), 100, &part), GW_BODY_MORE);
    ck_assert_int_eq(gw_in_keep_part(&bufs, &in, text, strlen(text), &part, 2), 0);
    ck_assert_uint_eq(in.plain, 3);
    ck_assert_uint_eq(in.buf->len, 3 + strlen("T: 1\r\n\r\n"));
    ck_assert_int_eq(memcmp(gw_buf_begin(in.buf), "cdeT: 1\r\n\r\n", in.buf->len), 0);
    gw_in_drop(&bufs, &in);
    gw_bufs_fini(&bufs);
}
END_TEST

START_TEST(chunk_lines)
{
    char line[20];

    ck_assert_uint_eq(gw_chunked_line(line, 31), 4);
    ck_assert_int_eq(memcmp(line, "1f\r\n", 4), 0);
    ck_assert_uint_eq(gw_chunked_line(line, UINT64_MAX), 18);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/http1");
    TCase *tc = tcase_create("messages");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, end_is_found_in_pieces);
    tcase_add_test(tc, bare_line_feed_is_an_error_at_once);
    tcase_add_test(tc, request_is_taken_apart);
    tcase_add_test(tc, framing_of_requests);
    tcase_add_test(tc, keep_alive_by_version_and_word);
    tcase_add_test(tc, connection_names_other_fields);
    tcase_add_test(tc, forwarded_names_with_underscores);
    tcase_add_test(tc, too_many_fields);
    tcase_add_test(tc, framing_of_responses);
    tcase_add_test(tc, trailers_without_framing_fields);
    tcase_add_test(tc, body_of_known_length);
    tcase_add_test(tc, body_bytes_go_before_trailers);
    tcase_add_test(tc, what_waits_is_one_piece);
    tcase_add_test(tc, chunk_lines);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
