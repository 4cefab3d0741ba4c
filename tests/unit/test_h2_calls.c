/* SPDX-License-Identifier: MIT */
/* Every call that may come from inside every callback of the HTTP/2 session. */
#include <check.h>
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include "h2_pair.h"
#include "transom/h2.h"

static struct h2_pair pair;

enum where { W_REQUEST, W_HEAD, W_DATA, W_END, W_DRAIN, W_CLOSE, W_PONG, N_WHERE };
enum what { DO_FREE, DO_ABORT, DO_ABORT_LATER, DO_RESET, DO_SHUTDOWN, DO_RUN, N_WHAT };

static struct {
    enum where where;
    enum what what;
    bool server; /* whose callback */
    int n_done;
} act;

static void do_act(enum where where, bool server, struct tr_h2_stream *st)
{
    struct side *s = server ? &pair.server : &pair.client;

    if (act.where != where || act.server != server || act.n_done > 0 || s->h2 == NULL)
        return;
    act.n_done++;
    switch (act.what) {
    case DO_FREE:
        tr_h2_free(s->h2);
        s->h2 = NULL;
        break;
    case DO_ABORT:
        tr_h2_abort(s->h2, -EIO, "test");
        break;
    case DO_ABORT_LATER:
        tr_h2_abort_later(s->h2, -EIO, "test");
        break;
    case DO_RESET:
        if (st != NULL)
            tr_h2_reset(st, NGHTTP2_CANCEL);
        break;
    case DO_SHUTDOWN:
        tr_h2_shutdown(s->h2);
        break;
    default:
        tr_h2_writable(s->h2);
        break;
    }
}

struct actor {
    struct record rec;
    bool server;
};
static struct actor ca, sa[8];
static int n_sa;

static void act_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    record_cbs.on_head(st, head, end, arg);
    do_act(W_HEAD, ((struct actor *)arg)->server, st);
    ck_assert_str_eq(tr_h2_head_get(head, "x-a"), "1"); /* still there */
}

static void act_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    record_cbs.on_data(st, data, len, arg);
    do_act(W_DATA, ((struct actor *)arg)->server, st);
}

static void act_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct actor *a = arg;

    record_cbs.on_end(st, trailers, arg);
    do_act(W_END, a->server, st);
    if (a->server) {
        struct tr_h2_field f = TR_H2_FIELD("x-a", "1");

        if (tr_h2_respond(st, 200, &f, 1, false) == 0 && tr_h2_write(st, "abc", 3) >= 0)
            tr_h2_end(st, &f, 1);
    }
}

static void act_drain(struct tr_h2_stream *st, void *arg)
{
    record_cbs.on_drain(st, arg);
    do_act(W_DRAIN, ((struct actor *)arg)->server, st);
}

static void act_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    record_cbs.on_close(st, code, arg);
    do_act(W_CLOSE, ((struct actor *)arg)->server, st);
}

static const struct tr_h2_stream_cbs act_cbs = {act_head, act_data, act_end, act_drain, act_close};

static void on_request_act(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                           bool end, void *arg)
{
    struct actor *a = &sa[n_sa++];

    (void)h2;
    (void)end;
    (void)arg;
    ck_assert_ptr_eq(tr_h2_stream_session(st), h2);
    a->server = true;
    a->rec.st = st;
    tr_h2_stream_set(st, &act_cbs, a);
    ck_assert_ptr_eq(tr_h2_stream_arg(st), a);
    do_act(W_REQUEST, true, st);
    ck_assert_str_eq(head->path, "/");
}

static void act_pong(int status, void *arg)
{
    (void)status;
    do_act(W_PONG, arg != NULL, NULL);
}

START_TEST(any_call_from_any_callback)
{
    struct tr_h2_options o = {.stream_high_water = 1000};
    struct tr_h2_field f[4];
    size_t n;
    bool meets = true;

    act.where = (enum where)(_i % N_WHERE);
    act.what = (enum what)(_i / N_WHERE % N_WHAT);
    act.server = _i / N_WHERE / N_WHAT == 1;
    act.n_done = 0;
    n_sa = 0;
    memset(&ca, 0, sizeof(ca));
    memset(sa, 0, sizeof(sa));
    pair.server.on_request = on_request_act;
    ck_assert_int_eq(pair_open(&pair, &o, &o), 0);
    memcpy(f, pair_get_fields("/", &n), sizeof(f));
    ck_assert_int_eq(tr_h2_request(pair.client.h2, f, n, false, &act_cbs, &ca, &ca.rec.st), 0);
    ck_assert_int_ge(tr_h2_ping(pair.client.h2, act_pong, NULL), 0);
    ck_assert_int_ge(tr_h2_ping(pair.server.h2, act_pong, &act), 0);
    pair_write(ca.rec.st, 2000);
    tr_h2_end(ca.rec.st, NULL, 0);
    pair_run(&pair);
    if ((act.where == W_HEAD && act.server) || (act.where == W_REQUEST && !act.server) ||
        (act.where == W_DRAIN && act.server))
        meets = false;
    ck_assert_int_eq(act.n_done, meets ? 1 : 0);
    pair_close(&pair);
    ck_assert_int_eq(ca.rec.n_close, 1);
    for (int i = 0; i < n_sa; i++)
        ck_assert_int_eq(sa[i].rec.n_close, 1);
    ck_assert_int_le(pair.client.n_over, 1);
    ck_assert_int_le(pair.server.n_over, 1);
    record_clear(&ca.rec);
    record_clear(&sa[0].rec);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/h2_calls");
    TCase *tc = tcase_create("calls");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_loop_test(tc, any_call_from_any_callback, 0, N_WHERE * N_WHAT * 2);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
