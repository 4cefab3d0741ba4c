/* SPDX-License-Identifier: MIT */
/* The HTTP/2 session: exchanges, flow control, ends of every kind. */
#include "transom/h2.h"

#include <check.h>
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "h2_pair.h"

static struct h2_pair pair;
static struct record creq, sreq; /* what the client and the server saw of "the" stream */
static int n_requests;
static char seen_path[256];

static struct tr_h2_stream *request(const char *path, bool end, struct record *rec)
{
    struct tr_h2_stream *st = NULL;
    size_t n;
    const struct tr_h2_field *f = pair_get_fields(path, &n);

    ck_assert_int_eq(tr_h2_request(pair.client.h2, f, n, end, &record_cbs, rec, &st), 0);
    rec->st = st;
    return st;
}

/* Server: record the stream, answer later. */
static void on_request_record(struct tr_h2 *h2, struct tr_h2_stream *st,
                              const struct tr_h2_head *head, bool end, void *arg)
{
    (void)h2;
    (void)arg;
    n_requests++;
    strncpy(seen_path, head->path != NULL ? head->path : "", sizeof(seen_path) - 1);
    sreq.st = st;
    sreq.head_end = end;
    tr_h2_stream_set(st, &record_cbs, &sreq);
}

static void setup(void)
{
    n_requests = 0;
    seen_path[0] = '\0';
    memset(&creq, 0, sizeof(creq));
    memset(&sreq, 0, sizeof(sreq));
    pair.server.on_request = on_request_record;
    ck_assert_int_eq(pair_open(&pair, NULL, NULL), 0);
}

static void teardown(void)
{
    pair_close(&pair);
    record_clear(&creq);
    record_clear(&sreq);
}

static void reopen(const struct tr_h2_options *client, const struct tr_h2_options *server)
{
    pair_close(&pair);
    ck_assert_int_eq(pair_open(&pair, client, server), 0);
}

START_TEST(exchange_with_bodies_and_trailers)
{
    struct tr_h2_field type = TR_H2_FIELD("content-type", "text/plain");
    struct tr_h2_field sum = TR_H2_FIELD("x-sum", "abc");
    struct tr_h2_stream *st = request("/a/b?c", false, &creq);

    ck_assert_int_eq(tr_h2_write(st, "ping", 4), 1);
    tr_h2_end(st, &sum, 1);
    pair_run(&pair);
    ck_assert_str_eq(seen_path, "/a/b?c");
    ck_assert(!sreq.head_end);
    ck_assert_uint_eq(sreq.body_len, 4);
    ck_assert_int_eq(memcmp(sreq.body, "ping", 4), 0);
    ck_assert_int_eq(sreq.n_end, 1);
    ck_assert_str_eq(sreq.trailer, "abc");
    ck_assert_int_eq(creq.n_head, 0);

    ck_assert_int_eq(tr_h2_respond(sreq.st, 103, &type, 1, false), 0);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &type, 1, false), 0);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &type, 1, false), -EINVAL);
    ck_assert_int_eq(tr_h2_write(sreq.st, "pong!", 5), 1);
    tr_h2_end(sreq.st, &sum, 1);
    tr_h2_end(sreq.st, NULL, 0);
    ck_assert_int_eq(tr_h2_write(sreq.st, "x", 1), -EPIPE);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_info, 1);
    ck_assert_int_eq(creq.n_head, 1);
    ck_assert_int_eq(creq.status, 200);
    ck_assert_uint_eq(creq.body_len, 5);
    ck_assert_str_eq(creq.trailer, "abc");
    ck_assert_int_eq(creq.n_end, 1);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, 0);
    ck_assert_int_eq(sreq.n_close, 1);
    ck_assert_uint_eq(sreq.code, 0);
    ck_assert_uint_eq(tr_h2_n_streams(pair.client.h2), 0);
    ck_assert_uint_eq(tr_h2_n_streams(pair.server.h2), 0);
}
END_TEST

START_TEST(heads_without_bodies)
{
    request("/", true, &creq);
    pair_run(&pair);
    ck_assert(sreq.head_end);
    ck_assert_int_eq(sreq.n_end, 1);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 100, NULL, 0, true), -EINVAL);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 101, NULL, 0, false), -EINVAL);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 204, NULL, 0, true), 0);
    ck_assert_int_eq(tr_h2_write(sreq.st, "x", 1), -EPIPE);
    pair_run(&pair);
    ck_assert(creq.head_end);
    ck_assert_int_eq(creq.status, 204);
    ck_assert_int_eq(creq.n_end, 1);
    ck_assert_int_eq(creq.n_close + sreq.n_close, 2);
    ck_assert_uint_eq(creq.code + sreq.code, 0);
}
END_TEST

START_TEST(trailers_after_an_empty_body)
{
    struct tr_h2_field sum = TR_H2_FIELD("x-sum", "e");

    request("/", true, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, false), 0);
    pair_run(&pair); /* nghttp2 now waits for data */
    ck_assert_int_eq(creq.n_head, 1);
    tr_h2_end(sreq.st, &sum, 1);
    pair_run(&pair);
    ck_assert_str_eq(creq.trailer, "e");
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, 0);
}
END_TEST

START_TEST(one_byte_at_a_time)
{
    struct tr_h2_stream *st = request("/slow", false, &creq);
    bool moved = true;

    ck_assert_int_eq(tr_h2_write(st, "hello", 5), 1);
    tr_h2_end(st, NULL, 0);
    tr_h2_run(pair.client.h2);
    while (moved) {
        moved = pair_deliver(&pair.client, &pair.server, 1);
        moved = pair_deliver(&pair.server, &pair.client, 1) || moved;
    }
    ck_assert_int_eq(sreq.n_end, 1);
    ck_assert_uint_eq(sreq.body_len, 5);
}
END_TEST

/* ---- flow control and queues ---- */

START_TEST(the_peer_sends_no_more_than_the_window)
{
    struct tr_h2_options o = {.stream_window = 70000, .session_window = 100000};
    struct tr_h2_stream *a, *b, *server_a;
    static struct record other;

    memset(&other, 0, sizeof(other));
    reopen(NULL, &o);
    pair_run(&pair); /* settings first */
    sreq.hold = true;
    a = request("/a", false, &creq);
    pair_write(a, 500000);
    pair_run(&pair);
    server_a = sreq.st;
    ck_assert_uint_eq(sreq.held, 70000);
    b = request("/b", false, &other);
    pair_write(b, 500000);
    pair_run(&pair); /* both streams are recorded in sreq; the second gets what the session has */
    ck_assert_uint_eq(sreq.held, 100000);
    tr_h2_stream_consume(server_a, 60000);
    pair_run(&pair);
    ck_assert_uint_eq(sreq.held, 160000);
    record_clear(&other);
    pair_close(&pair);
    ck_assert_int_eq(other.n_close, 1);
}
END_TEST

START_TEST(a_full_queue_says_stop_and_drains_once)
{
    struct tr_h2_options o = {.stream_high_water = 20000};
    struct tr_h2_stream *st;

    reopen(&o, NULL);
    st = request("/", false, &creq);
    ck_assert_int_eq(tr_h2_write(st, "x", 1), 1);
    pair_write(st, 19998);
    ck_assert_int_eq(tr_h2_write(st, "x", 1), 0);
    ck_assert_uint_eq(tr_h2_stream_queued(st), 20000);
    ck_assert_int_eq(creq.n_drain, 0);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_drain, 1);
    ck_assert_uint_eq(tr_h2_stream_queued(st), 0);
    ck_assert_uint_eq(sreq.body_len, 20000);
    ck_assert_int_eq(tr_h2_write(st, "x", 1), 1);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_drain, 1);
}
END_TEST

START_TEST(a_full_transport_is_offered_nothing)
{
    size_t len;

    request("/", true, &creq);
    pair_run(&pair);
    pair.server.out.limit = 50000;
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, false), 0);
    pair_write(sreq.st, 200000);
    tr_h2_end(sreq.st, NULL, 0);
    tr_h2_run(pair.server.h2);
    len = pair.server.out.len;
    ck_assert(pair.server.out.full);
    ck_assert_uint_lt(len, 110000);
    tr_h2_run(pair.server.h2); /* what wake leads to is no licence to send */
    tr_h2_feed(pair.server.h2, (const uint8_t *)"\0\0\4\x8\0\0\0\0\0\0\0\0\1", 13);
    ck_assert_uint_eq(pair.server.out.len, len);
    pair_run(&pair);
    ck_assert_uint_eq(creq.body_len, 200000);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, 0);
}
END_TEST

START_TEST(streams_that_end_early_give_the_session_window_back)
{
    struct tr_h2_options o = {.stream_window = 60000, .session_window = 100000};

    reopen(NULL, &o);
    pair_run(&pair);
    for (int i = 0; i < 30; i++) { /* each takes more than half of the session's window */
        struct tr_h2_stream *st = request("/", false, &creq);

        sreq.hold = true;
        pair_write(st, 80000);
        pair_run(&pair);
        ck_assert_uint_eq(sreq.held, 60000);
        switch (i % 4) {
        case 0:
            tr_h2_reset(sreq.st, NGHTTP2_CANCEL);
            break;
        case 1:
            tr_h2_reset(creq.st, NGHTTP2_CANCEL);
            break;
        case 2:
            ck_assert_int_eq(tr_h2_respond(sreq.st, 413, NULL, 0, true), 0);
            tr_h2_stream_discard(sreq.st);
            tr_h2_stream_consume(sreq.st, 1); /* after discard: does nothing */
            break;
        default: /* the reset crosses with data */
            tr_h2_stream_consume(sreq.st, 30000);
            tr_h2_run(pair.server.h2);
            pair_deliver(&pair.server, &pair.client, SIZE_MAX);
            tr_h2_reset(sreq.st, NGHTTP2_CANCEL);
            break;
        }
        pair_run(&pair);
        ck_assert_int_eq(creq.n_close, 1);
        ck_assert_int_eq(sreq.n_close, 1);
        ck_assert_uint_eq(creq.code, i % 4 == 2 ? 0 : NGHTTP2_CANCEL);
        record_clear(&creq);
        record_clear(&sreq);
    }
    ck_assert_int_eq(pair.client.n_over + pair.server.n_over, 0); /* nobody overdrew */
}
END_TEST

static void on_data_reset(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
    tr_h2_reset(st, NGHTTP2_CANCEL);
}

static void on_request_reset(struct tr_h2 *h2, struct tr_h2_stream *st,
                             const struct tr_h2_head *head, bool end, void *arg)
{
    static const struct tr_h2_stream_cbs cbs = {.on_data = on_data_reset};

    (void)h2;
    (void)head;
    (void)end;
    (void)arg;
    tr_h2_stream_set(st, &cbs, NULL);
}

START_TEST(a_reset_inside_a_frame_gives_the_rest_of_it_back)
{
    struct tr_h2_options o = {.session_window = 100000};

    pair.server.on_request = on_request_reset;
    reopen(NULL, &o);
    pair_run(&pair);
    for (int i = 0; i < 30; i++) {
        struct tr_h2_stream *st = request("/", false, &creq);

        if (i % 2 == 0) { /* with a full transport nghttp2 keeps the stream a while longer */
            pair.server.out.limit = 1;
            ck_assert_int_eq(tr_h2_ping(pair.server.h2, NULL, NULL), 0);
            tr_h2_run(pair.server.h2);
        }
        pair_write(st, 16000);
        tr_h2_run(pair.client.h2);
        while (pair_deliver(&pair.client, &pair.server, 1000))
            ;
        pair.server.out.limit = 0;
        pair_run(&pair);
        ck_assert_int_eq(creq.n_close, i + 1);
    }
    pair.server.on_request = on_request_record;
    request("/", false, &creq);
    pair_write(creq.st, 90000);
    pair_run(&pair);
    ck_assert_uint_eq(sreq.body_len, 90000);
}
END_TEST

/* ---- ends of streams ---- */

START_TEST(reset_is_reported_later_and_once)
{
    struct tr_h2_stream *st = request("/", false, &creq);

    pair_write(st, 50000);
    pair.client.woken = false;
    tr_h2_reset(st, NGHTTP2_INTERNAL_ERROR);
    ck_assert_int_eq(creq.n_close, 0);
    ck_assert_uint_eq(tr_h2_stream_queued(st), 0);
    ck_assert_int_eq(tr_h2_write(st, "x", 1), -EPIPE);
    tr_h2_end(st, NULL, 0);
    tr_h2_reset(st, NGHTTP2_CANCEL);
    tr_h2_run(pair.client.h2);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_INTERNAL_ERROR);
    pair_run(&pair);
    ck_assert_int_eq(n_requests, 0); /* it had not left yet */

    st = request("/", false, &creq);
    pair_run(&pair);
    tr_h2_reset(st, NGHTTP2_INTERNAL_ERROR);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_close, 2);
    ck_assert_int_eq(sreq.n_close, 1);
    ck_assert_uint_eq(sreq.code, NGHTTP2_INTERNAL_ERROR);
}
END_TEST

START_TEST(reset_does_not_wait_for_a_full_transport)
{
    request("/", true, &creq);
    pair_run(&pair);
    pair.server.out.limit = 1;
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, false), 0);
    pair_write(sreq.st, 100000);
    tr_h2_run(pair.server.h2);
    ck_assert(pair.server.out.full);
    tr_h2_reset(sreq.st, NGHTTP2_CANCEL);
    tr_h2_run(pair.server.h2);
    ck_assert_int_eq(sreq.n_close, 1);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_CANCEL);
}
END_TEST

START_TEST(no_error_before_the_end_is_no_good_end)
{
    request("/", false, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, false), 0);
    pair_write(sreq.st, 10);
    pair_run(&pair);
    tr_h2_reset(sreq.st, NGHTTP2_NO_ERROR);
    pair_run(&pair);
    ck_assert_uint_eq(sreq.code, NGHTTP2_NO_ERROR); /* what it asked for */
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_CANCEL); /* a truncated answer */

    request("/", false, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, true), 0);
    tr_h2_stream_discard(sreq.st);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_close, 2);
    ck_assert_uint_eq(creq.code, NGHTTP2_NO_ERROR); /* a whole answer to half a request */
    ck_assert_int_eq(sreq.n_close, 2);
    ck_assert_uint_eq(sreq.code, NGHTTP2_NO_ERROR);
}
END_TEST

/* ---- ends of sessions ---- */

START_TEST(server_shutdown_lets_everything_sent_finish)
{
    static struct record late;

    memset(&late, 0, sizeof(late));
    request("/early", true, &creq);
    pair_run(&pair);
    {
        struct tr_h2_stream *early = sreq.st, *server_late;

        tr_h2_shutdown(pair.server.h2);
        tr_h2_shutdown(pair.server.h2);
        request("/late", true, &late); /* crosses with the notice */
        pair_run(&pair);
        ck_assert_str_eq(seen_path, "/late");
        server_late = sreq.st;
        ck_assert(!tr_h2_can_request(pair.client.h2));
        ck_assert_int_eq(tr_h2_respond(early, 200, NULL, 0, true), 0);
        pair_run(&pair);
        ck_assert_int_eq(pair.server.n_over, 0);
        ck_assert_int_eq(tr_h2_respond(server_late, 200, NULL, 0, true), 0);
        pair_run(&pair);
    }
    ck_assert_int_eq(creq.status, 200);
    ck_assert_int_eq(late.status, 200);
    ck_assert_int_eq(late.n_close, 1);
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(pair.server.over_status, 0);
    ck_assert_int_eq(pair.client.n_over, 1);
    ck_assert_int_eq(pair.client.over_status, 0);
    record_clear(&late);
}
END_TEST

START_TEST(client_shutdown)
{
    request("/", true, &creq);
    pair_run(&pair);
    tr_h2_shutdown(pair.client.h2);
    ck_assert(!tr_h2_can_request(pair.client.h2));
    pair_run(&pair);
    ck_assert_int_eq(pair.client.n_over, 0);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, true), 0);
    pair_run(&pair);
    ck_assert_int_eq(creq.status, 200);
    ck_assert_int_eq(pair.client.n_over, 1);
    ck_assert_int_eq(pair.client.over_status, 0);
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(pair.server.over_status, 0);
}
END_TEST

START_TEST(idle_shutdown_is_over_at_once)
{
    pair_run(&pair);
    tr_h2_shutdown(_i == 0 ? pair.client.h2 : pair.server.h2);
    pair_run(&pair);
    ck_assert_int_eq(pair.client.n_over, 1);
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(pair.client.over_status, 0);
    ck_assert_int_eq(pair.server.over_status, 0);
}
END_TEST

START_TEST(a_request_that_can_no_longer_leave_is_closed)
{
    pair_run(&pair);
    request("/", true, &creq); /* not sent yet */
    tr_h2_feed(pair.client.h2, (const uint8_t *)"\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_REFUSED_STREAM);
    ck_assert_int_eq(pair.client.n_over, 1);
    ck_assert_int_eq(pair.client.over_status, 0);
}
END_TEST

START_TEST(a_lowered_limit_makes_requests_wait)
{
    struct tr_h2_options o = {.max_streams = 1};
    struct record rec[3];

    memset(rec, 0, sizeof(rec));
    reopen(NULL, &o);
    for (int i = 0; i < 3; i++)
        request("/", true, &rec[i]);
    /* The server's settings arrive before they leave. */
    pair_deliver(&pair.server, &pair.client, SIZE_MAX);
    pair_run(&pair);
    ck_assert_int_eq(n_requests, 1);
    tr_h2_reset(rec[1].st, NGHTTP2_CANCEL); /* while it waits */
    pair_run(&pair);
    ck_assert_int_eq(rec[1].n_close, 1);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, true), 0);
    pair_run(&pair);
    ck_assert_int_eq(rec[0].n_close, 1);
    ck_assert_int_eq(n_requests, 2);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, true), 0);
    pair_run(&pair);
    ck_assert_int_eq(rec[2].n_close, 1);
    ck_assert_int_eq(rec[2].status, 200);
}
END_TEST

static int n_pongs, pong_status;

static void on_pong(int status, void *arg)
{
    ck_assert_ptr_eq(arg, &n_pongs);
    n_pongs++;
    pong_status = status;
}

START_TEST(abort_closes_streams_first)
{
    n_pongs = 0;
    request("/", true, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_ping(pair.client.h2, on_pong, &n_pongs), 0);
    if (_i == 0) {
        tr_h2_abort(pair.client.h2, -ECONNRESET, "gone");
    } else {
        tr_h2_abort_later(pair.client.h2, -ECONNRESET, "gone");
        ck_assert_int_eq(creq.n_close + pair.client.n_over + n_pongs, 0);
        ck_assert(pair.client.woken);
        tr_h2_feed(pair.client.h2, (const uint8_t *)"garbage", 7); /* is not looked at */
        tr_h2_run(pair.client.h2);
    }
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_CANCEL);
    ck_assert_int_eq(n_pongs, 1);
    ck_assert_int_eq(pong_status, -ECONNRESET);
    ck_assert_int_eq(pair.client.n_over, 1);
    ck_assert_int_eq(pair.client.over_status, -ECONNRESET);
    ck_assert_str_eq(pair.client.over_reason, "gone");
}
END_TEST

START_TEST(free_closes_streams_without_on_over)
{
    n_pongs = 0;
    request("/", true, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_ping(pair.client.h2, on_pong, &n_pongs), 0);
    tr_h2_free(pair.client.h2);
    pair.client.h2 = NULL;
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_CANCEL);
    ck_assert_int_eq(pong_status, -ECANCELED);
    ck_assert_int_eq(pair.client.n_over, 0);
    tr_h2_free(NULL);
}
END_TEST

START_TEST(pings_are_answered_in_order)
{
    n_pongs = 0;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(tr_h2_ping(pair.client.h2, on_pong, &n_pongs), 0);
    ck_assert_int_eq(tr_h2_ping(pair.server.h2, NULL, NULL), 0);
    ck_assert_int_eq(n_pongs, 0);
    pair_run(&pair);
    ck_assert_int_eq(n_pongs, 3);
    ck_assert_int_eq(pong_status, 0);
}
END_TEST

START_TEST(garbage_ends_the_session_with_a_reason)
{
    tr_h2_feed(pair.server.h2, (const uint8_t *)"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(pair.server.over_status, -EPROTO);
    ck_assert_str_ne(pair.server.over_reason, "");
    /* A frame that breaks the rules later: GOAWAY goes out, the client learns why. */
    teardown();
    setup();
    pair_run(&pair);
    request("/", true, &creq);
    pair_run(&pair);
    tr_h2_feed(pair.server.h2, (const uint8_t *)"\0\0\5\4\0\0\0\0\0abcde", 14);
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(sreq.n_close, 1);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_close, 0); /* the server may have answered */
    tr_h2_abort(pair.client.h2, -EPIPE, "end of file");
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_CANCEL);
    ck_assert_int_eq(pair.client.over_status, -EPROTO); /* the first reason stays */
    ck_assert_ptr_nonnull(strstr(pair.client.over_reason, "FRAME_SIZE"));
}
END_TEST

/* ---- heads ---- */

START_TEST(what_may_not_be_sent_is_refused)
{
    static const struct tr_h2_field bad[] = {
        {"Upper", 5, "x", 1},
        {"a b", 3, "x", 1},
        {"", 0, "x", 1},
        {"connection", 10, "close", 5},
        {"transfer-encoding", 17, "chunked", 7},
        {"x", 1, "a\nb", 3},
        {"x", 1, "a\rb", 3},
        {"x", 1, "a\0b", 3},
        {"x", 1, " lead", 5},
        {":status", 7, "200", 3},
    };
    struct tr_h2_field ok[] = {TR_H2_FIELD("x-a", "v"), {"x-b", 3, "\xc3\xa9 tab\there", 11}};
    struct tr_h2_stream *st = NULL;
    size_t n;
    struct tr_h2_field f[5];

    request("/", true, &creq);
    pair_run(&pair);
    memcpy(f, pair_get_fields("/", &n), 4 * sizeof(f[0]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &bad[i], 1, true), -EINVAL);
        f[4] = bad[i];
        if (bad[i].name_len == 0 || bad[i].name[0] != ':')
            ck_assert_int_eq(tr_h2_request(pair.client.h2, f, 5, true, &record_cbs, &creq, &st),
                             -EINVAL);
    }
    ck_assert_ptr_null(st);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 99, NULL, 0, true), -EINVAL);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 1000, NULL, 0, true), -EINVAL);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, ok, 2, false), 0);
    pair_run(&pair);
    tr_h2_end(sreq.st, &bad[5], 1); /* too late to refuse: the stream is reset */
    pair_run(&pair);
    ck_assert_int_eq(creq.status, 200);
    ck_assert_uint_eq(creq.code, NGHTTP2_INTERNAL_ERROR);
    ck_assert_uint_eq(tr_h2_n_streams(pair.client.h2), 0);
}
END_TEST

static void request_with(const struct tr_h2_field *extra, size_t n_extra, bool end)
{
    static struct tr_h2_field f[1000];
    size_t n;

    memcpy(f, pair_get_fields("/", &n), 4 * sizeof(f[0]));
    for (size_t i = 0; i < n_extra; i++)
        f[4 + i] = extra[n_extra == 1 ? 0 : i];
    ck_assert_int_eq(
        tr_h2_request(pair.client.h2, f, 4 + n_extra, end, &record_cbs, &creq, &creq.st), 0);
}

START_TEST(a_head_that_is_too_large_costs_its_stream_only)
{
    struct tr_h2_options o = {.max_head_bytes = 8000};
    static char big[8000];
    static struct tr_h2_field many[300];
    struct tr_h2_field one = {"x-big", 5, big, sizeof(big)};

    reopen(&o, &o);
    memset(big, 'v', sizeof(big));
    for (size_t i = 0; i < 300; i++)
        many[i] = TR_H2_FIELD("a", ""); /* 33 bytes by the rule, 1 on the wire */
    switch (_i) {
    case 0:
        request_with(&one, 1, true);
        break;
    case 1:
        request_with(many, 300, true);
        break;
    case 2: /* trailers */
        request_with(NULL, 0, false);
        pair_run(&pair);
        tr_h2_end(creq.st, many, 300);
        break;
    default: /* of a response */
        request_with(NULL, 0, true);
        pair_run(&pair);
        ck_assert_int_eq(tr_h2_respond(sreq.st, 200, many, 300, true), 0);
        break;
    }
    pair_run(&pair);
    ck_assert_int_eq(n_requests, _i < 2 ? 0 : 1);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_ENHANCE_YOUR_CALM);
    ck_assert_int_eq(creq.n_head, 0);
    ck_assert_int_eq(sreq.n_close, n_requests);
    record_clear(&creq);
    record_clear(&sreq);
    n_requests = 0;
    request_with(many, 200, true); /* fits */
    pair_run(&pair);
    ck_assert_int_eq(n_requests, 1);
}
END_TEST

START_TEST(a_head_beyond_what_can_be_sent_resets_the_stream)
{
    static char big[300 << 10];
    struct tr_h2_field one = {"x-big", 5, big, sizeof(big)};

    memset(big, 'v', sizeof(big));
    request("/", true, &creq);
    pair_run(&pair);
    ck_assert_int_eq(tr_h2_respond(sreq.st, 200, &one, 1, true), 0);
    pair_run(&pair);
    ck_assert_int_eq(sreq.n_close, 1);
    ck_assert_int_eq(creq.n_close, 1);
    ck_assert_uint_eq(creq.code, NGHTTP2_INTERNAL_ERROR);
    request_with(&one, 1, true);
    pair_run(&pair);
    ck_assert_int_eq(creq.n_close, 2);
    ck_assert_uint_ne(creq.code, 0);
    ck_assert_int_eq(pair.client.n_over + pair.server.n_over, 0);
}
END_TEST

static char seen_protocol[32];

static void on_request_connect(struct tr_h2 *h2, struct tr_h2_stream *st,
                               const struct tr_h2_head *head, bool end, void *arg)
{
    on_request_record(h2, st, head, end, arg);
    ck_assert_str_eq(head->method, "CONNECT");
    ck_assert_str_eq(head->authority, "127.0.0.1:8080");
    snprintf(seen_protocol, sizeof(seen_protocol), "%s",
             head->protocol != NULL ? head->protocol : "");
    ck_assert_int_eq(tr_h2_respond(st, 200, NULL, 0, false), 0);
}

START_TEST(connect_and_extended_connect)
{
    struct tr_h2_options on = {.connect_protocol = true};
    struct tr_h2_field f[] = {
        TR_H2_FIELD(":method", "CONNECT"),     TR_H2_FIELD(":authority", "127.0.0.1:8080"),
        TR_H2_FIELD(":protocol", "websocket"), TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":path", "/chat"),
    };

    pair.server.on_request = on_request_connect;
    reopen(NULL, _i == 2 ? &on : NULL);
    pair_run(&pair);
    ck_assert(tr_h2_peer_connect_protocol(pair.client.h2) == (_i == 2));
    ck_assert_int_eq(
        tr_h2_request(pair.client.h2, f, _i == 0 ? 2 : 5, false, &record_cbs, &creq, &creq.st), 0);
    pair_run(&pair);
    if (_i == 1) { /* not offered */
        ck_assert_int_eq(n_requests, 0);
        ck_assert_int_eq(creq.n_close, 1);
        return;
    }
    ck_assert_str_eq(seen_protocol, _i == 2 ? "websocket" : "");
    ck_assert_int_eq(creq.status, 200);
    pair_write(creq.st, 100);
    pair_write(sreq.st, 200);
    pair_run(&pair);
    ck_assert_uint_eq(sreq.body_len, 100);
    ck_assert_uint_eq(creq.body_len, 200);
    tr_h2_end(creq.st, NULL, 0); /* half closed: the other direction goes on */
    pair_run(&pair);
    ck_assert_int_eq(sreq.n_end, 1);
    pair_write(sreq.st, 300);
    tr_h2_end(sreq.st, NULL, 0);
    pair_run(&pair);
    ck_assert_uint_eq(creq.body_len, 500);
    ck_assert_uint_eq(creq.code, 0);
    ck_assert_int_eq(creq.n_close, 1);
}
END_TEST

/* ---- bounds ---- */

START_TEST(the_peers_limit_of_streams_is_kept)
{
    struct tr_h2_options o = {.max_streams = 3};
    struct record rec[4];
    struct tr_h2_stream *st = NULL;
    size_t n;
    const struct tr_h2_field *f;

    memset(rec, 0, sizeof(rec));
    reopen(NULL, &o);
    pair_run(&pair);
    for (int i = 0; i < 3; i++) {
        ck_assert(tr_h2_can_request(pair.client.h2));
        request("/", true, &rec[i]);
    }
    ck_assert(!tr_h2_can_request(pair.client.h2));
    f = pair_get_fields("/", &n);
    ck_assert_int_eq(tr_h2_request(pair.client.h2, f, n, true, &record_cbs, &rec[3], &st), -EAGAIN);
    ck_assert_uint_eq(tr_h2_n_streams(pair.client.h2), 3);
    tr_h2_reset(rec[0].st, NGHTTP2_CANCEL);
    pair_run(&pair);
    ck_assert_uint_eq(tr_h2_n_streams(pair.client.h2), 2);
    ck_assert(tr_h2_can_request(pair.client.h2));
    request("/", true, &rec[3]);
    pair_close(&pair);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(rec[i].n_close, 1);
}
END_TEST

START_TEST(floods_end_the_session_in_bounded_memory)
{
    static const uint8_t ping[17] = {0, 0, 8, 6, 0, 0, 0, 0, 0, 1};
    static const uint8_t settings[9] = {0, 0, 0, 4};
    int i;

    pair_run(&pair);
    pair.server.out.limit = 1; /* the attacker does not read */
    tr_h2_feed(pair.server.h2, ping, sizeof(ping));
    for (i = 0; i < 5000 && pair.server.n_over == 0; i++) {
        if (_i == 0)
            tr_h2_feed(pair.server.h2, ping, sizeof(ping));
        else
            tr_h2_feed(pair.server.h2, settings, sizeof(settings));
    }
    ck_assert_int_eq(pair.server.n_over, 1);
    ck_assert_int_eq(pair.server.over_status, -EPROTO);
    ck_assert_int_le(i, 1001);
}
END_TEST

START_TEST(slow_readers_hold_up_nobody)
{
    struct tr_h2_options o = {.max_streams = 20, .stream_window = 50000};
    struct record rec[20];

    memset(rec, 0, sizeof(rec));
    reopen(&o, &o);
    pair_run(&pair);
    for (int i = 0; i < 20; i++) { /* all but the last are not read */
        rec[i].hold = i < 19;
        request("/", true, &rec[i]);
        pair_run(&pair);
        ck_assert_int_eq(tr_h2_respond(sreq.st, 200, NULL, 0, false), 0);
        pair_write(sreq.st, 150000);
        tr_h2_end(sreq.st, NULL, 0);
        pair_run(&pair);
        ck_assert_uint_eq(rec[i].body_len, i < 19 ? 50000 : 150000);
    }
    pair_close(&pair);
    for (int i = 0; i < 20; i++)
        record_clear(&rec[i]);
}
END_TEST

START_TEST(rapid_resets_end_the_session)
{
    struct tr_h2_options o = {.reset_rate = 1000};
    int i;

    if (_i == 1)
        reopen(NULL, &o);
    pair_run(&pair);
    for (i = 0; i < 5000 && pair.client.n_over == 0; i++) {
        struct tr_h2_stream *st = request("/", true, &creq);

        tr_h2_run(pair.client.h2);
        pair_deliver(&pair.client, &pair.server, SIZE_MAX);
        tr_h2_reset(st, NGHTTP2_CANCEL);
        pair_run(&pair);
    }
    ck_assert_int_eq(pair.server.n_over, 1 - _i);
    ck_assert_int_ge(i, 900);
    ck_assert(_i == 1 || i <= 2000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/h2");
    TCase *tc = tcase_create("session");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, exchange_with_bodies_and_trailers);
    tcase_add_test(tc, heads_without_bodies);
    tcase_add_test(tc, trailers_after_an_empty_body);
    tcase_add_test(tc, one_byte_at_a_time);
    tcase_add_test(tc, the_peer_sends_no_more_than_the_window);
    tcase_add_test(tc, a_full_queue_says_stop_and_drains_once);
    tcase_add_test(tc, a_full_transport_is_offered_nothing);
    tcase_add_test(tc, streams_that_end_early_give_the_session_window_back);
    tcase_add_test(tc, a_reset_inside_a_frame_gives_the_rest_of_it_back);
    tcase_add_test(tc, reset_is_reported_later_and_once);
    tcase_add_test(tc, reset_does_not_wait_for_a_full_transport);
    tcase_add_test(tc, no_error_before_the_end_is_no_good_end);
    tcase_add_test(tc, server_shutdown_lets_everything_sent_finish);
    tcase_add_test(tc, client_shutdown);
    tcase_add_loop_test(tc, idle_shutdown_is_over_at_once, 0, 2);
    tcase_add_test(tc, a_request_that_can_no_longer_leave_is_closed);
    tcase_add_test(tc, a_lowered_limit_makes_requests_wait);
    tcase_add_loop_test(tc, abort_closes_streams_first, 0, 2);
    tcase_add_test(tc, free_closes_streams_without_on_over);
    tcase_add_test(tc, pings_are_answered_in_order);
    tcase_add_test(tc, garbage_ends_the_session_with_a_reason);
    tcase_add_test(tc, what_may_not_be_sent_is_refused);
    tcase_add_loop_test(tc, a_head_that_is_too_large_costs_its_stream_only, 0, 4);
    tcase_add_test(tc, a_head_beyond_what_can_be_sent_resets_the_stream);
    tcase_add_loop_test(tc, connect_and_extended_connect, 0, 3);
    tcase_add_test(tc, the_peers_limit_of_streams_is_kept);
    tcase_add_loop_test(tc, floods_end_the_session_in_bounded_memory, 0, 2);
    tcase_add_test(tc, slow_readers_hold_up_nobody);
    tcase_add_loop_test(tc, rapid_resets_end_the_session, 0, 2);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
