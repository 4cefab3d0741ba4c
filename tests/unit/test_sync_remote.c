/* SPDX-License-Identifier: MIT */
/* The host's half against the agent's (sync/serve.h) over HTTP/2 in memory, and against an agent
 * who lies. */
#include "sync/remote.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h2_pair.h"
#include "sync/serve.h"
#include "tree_fixture.h"

/* The agent: serves, says what it was told to say, refuses, or does nothing. */
enum { HONEST, LIAR, REFUSER, SILENT };

static struct h2_pair pair;
static uv_loop_t loop;
static int agent;
static struct tr_h2_stream *agent_st;
static struct sync_serve *serve;
static struct sync_pack *lies;
static bool agent_full, agent_ended;
static size_t n_received; /* bytes of the request */

/* What the host's callbacks saw. */
static struct {
    size_t n_listings, n_entries, n_listed, n_hashed, n_reading, n_pieces, n_read, n_applied;
    size_t n_bytes, n_dirty, n_lost, n_overflow, n_drain, n_done;
    int status[64]; /* by index, of whatever answers last */
    struct sync_sig sig[64];
    struct sync_id id;
    char head[64], last[300];
    bool writer;
    int done, lost;
    char why[200];
} seen;
static struct sync_remote *call;
static bool hold_at_piece;

static void on_listing(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)arg;
    seen.n_listings++;
    seen.status[index] = status;
    seen.sig[index] = *sig;
}

static void on_entry(uint32_t index, const struct sync_tree_entry *entry, void *arg)
{
    (void)arg;
    (void)index;
    seen.n_entries++;
    snprintf(seen.last, sizeof(seen.last), "%.*s", (int)entry->name_len, entry->name);
}

static void on_listed(uint32_t index, int status, bool changed, void *arg)
{
    (void)arg;
    (void)changed;
    seen.n_listed++;
    seen.status[index] = status;
}

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    (void)arg;
    seen.n_hashed++;
    seen.status[index] = status;
    seen.id = read->id;
    snprintf(seen.head, sizeof(seen.head), "%.*s", (int)head_len, (const char *)head);
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)arg;
    (void)sig;
    seen.n_reading++;
    seen.status[index] = status;
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    (void)arg;
    (void)index;
    (void)bytes;
    seen.n_pieces++;
    seen.n_bytes += len;
    if (hold_at_piece)
        sync_remote_hold(call, true);
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    (void)arg;
    seen.n_read++;
    seen.status[index] = status;
    seen.id = read->id;
    seen.writer = read->writer;
}

static void on_applied(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)arg;
    seen.n_applied++;
    seen.status[index] = status;
    seen.sig[index] = *sig;
}

static void on_dirty(const char *dir, size_t len, void *arg)
{
    (void)arg;
    seen.n_dirty++;
    snprintf(seen.last, sizeof(seen.last), "%.*s", (int)len, dir);
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    (void)arg;
    (void)dir;
    (void)len;
    seen.n_lost++;
    seen.lost = status;
}

static void on_overflow(void *arg)
{
    (void)arg;
    seen.n_overflow++;
}

static void on_drain(void *arg)
{
    (void)arg;
    seen.n_drain++;
}

static void on_done(struct sync_remote *c, int status, const struct err *err, void *arg)
{
    (void)arg;
    ck_assert_ptr_eq(c, call);
    seen.n_done++;
    seen.done = status;
    snprintf(seen.why, sizeof(seen.why), "%s", err->msg);
}

static const struct sync_remote_cbs cbs = {.on_listing = on_listing,
                                           .on_entry = on_entry,
                                           .on_listed = on_listed,
                                           .on_hashed = on_hashed,
                                           .on_reading = on_reading,
                                           .on_piece = on_piece,
                                           .on_read = on_read,
                                           .on_applied = on_applied,
                                           .on_dirty = on_dirty,
                                           .on_lost = on_lost,
                                           .on_overflow = on_overflow,
                                           .on_drain = on_drain,
                                           .on_done = on_done};

/* ---- the agent ---- */

static void work(void)
{
    int r = SYNC_SERVE_MORE;

    while (r == SYNC_SERVE_MORE && !agent_full) {
        const uint8_t *bytes;
        size_t len;

        r = sync_serve_step(serve);
        ck_assert_int_ge(r, 0);
        bytes = sync_serve_output(serve, &len);
        if (len > 0)
            agent_full = tr_h2_write(agent_st, bytes, len) == 0;
        sync_serve_taken(serve, len);
    }
    if (r == SYNC_SERVE_DONE)
        tr_h2_end(agent_st, NULL, 0);
}

static void agent_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    tr_h2_stream_consume(st, len);
    n_received += len;
    if (agent != HONEST)
        return;
    ck_assert_int_eq(sync_serve_input(serve, data, len), 0);
    work();
}

static void agent_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    (void)st;
    (void)trailers;
    (void)arg;
    agent_ended = true;
    if (agent != HONEST)
        return;
    sync_serve_input_end(serve);
    work();
}

static void agent_drain(struct tr_h2_stream *st, void *arg)
{
    (void)st;
    (void)arg;
    agent_full = false;
    if (agent == HONEST)
        work();
}

static void agent_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    (void)arg;
    agent_st = NULL;
}

static const struct tr_h2_stream_cbs agent_cbs = {
    .on_data = agent_data, .on_end = agent_end, .on_drain = agent_drain, .on_close = agent_close};

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    static const char *const paths[] = {"/v1/sync/list", "/v1/sync/hash", "/v1/sync/read",
                                        "/v1/sync/apply"};
    const uint8_t *bytes;
    size_t len;

    (void)h2;
    (void)end;
    (void)arg;
    ck_assert_str_eq(head->method, "POST");
    agent_st = st;
    tr_h2_stream_set(st, &agent_cbs, NULL);
    if (agent == SILENT)
        return;
    ck_assert_int_eq(tr_h2_respond(st, agent == REFUSER ? 429 : 200, NULL, 0, false), 0);
    if (agent == REFUSER) {
        ck_assert_int_ge(tr_h2_write(st, "too many\n", 9), 0);
        tr_h2_end(st, NULL, 0);
    } else if (agent == LIAR) {
        ck_assert_int_eq(sync_pack_flush(lies), 0);
        bytes = sync_pack_bytes(lies, &len);
        ck_assert_int_ge(tr_h2_write(st, bytes, len), 0);
    } else {
        for (int kind = SYNC_SERVE_LIST; kind <= SYNC_SERVE_APPLY; kind++) {
            if (strcmp(head->path, paths[kind]) == 0)
                ck_assert_int_eq(sync_serve_new((enum sync_serve_kind)kind, &fx_tree, &serve), 0);
        }
        ck_assert_ptr_nonnull(serve);
    }
}

/* ---- the test's side ---- */

static void setup(void)
{
    fx_setup();
    memset(&seen, 0, sizeof(seen));
    agent = HONEST;
    agent_full = agent_ended = hold_at_piece = false;
    n_received = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    pair.server.on_request = on_request;
    ck_assert_int_eq(pair_open(&pair, NULL, NULL), 0);
    ck_assert_int_eq(sync_pack_new(false, &lies), 0);
}

static void teardown(void)
{
    pair_close(&pair);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_uint_eq(seen.n_done, 1); /* of the last call */
    sync_serve_free(serve);
    serve = NULL;
    sync_pack_free(lies);
    fx_teardown();
}

static void start(enum sync_remote_kind kind)
{
    seen.n_done = 0;
    sync_serve_free(serve);
    serve = NULL;
    ck_assert_int_eq(sync_remote_start(&loop, pair.client.h2, kind, &cbs, NULL, &call), 0);
}

/* Until the call is over. */
static void finish(void)
{
    while (seen.n_done == 0) {
        pair_run(&pair);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void run_a_while(void)
{
    for (int i = 0; i < 10; i++) {
        pair_run(&pair);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

START_TEST(a_tree_is_listed)
{
    fx_write("a", "x");
    fx_mkdir("d");
    fx_write("d/b", "x");
    start(SYNC_REMOTE_LIST);
    ck_assert_int_eq(sync_remote_dir(call, "", 0), 1);
    ck_assert_int_eq(sync_remote_dir(call, "d", 1), 1);
    ck_assert_int_eq(sync_remote_dir(call, "none", 4), 1);
    ck_assert_int_eq(sync_remote_dir(call, "../x", 4), UV_EINVAL);
    ck_assert_int_eq(sync_remote_want(call, "a", 1, NULL), UV_EINVAL);
    sync_remote_flush(call);
    run_a_while();
    ck_assert_uint_eq(seen.n_listings, 3); /* before the end of the request */
    ck_assert_uint_eq(seen.n_entries, 3);
    ck_assert_uint_eq(seen.n_listed, 2);
    ck_assert_int_eq(seen.status[2], -ENOENT);
    ck_assert_int_eq(sync_remote_dir(call, "d", 1), 1);
    sync_remote_end(call);
    ck_assert_int_eq(sync_remote_dir(call, "d", 1), UV_EPIPE);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_uint_eq(seen.n_entries, 4);
    start(SYNC_REMOTE_LIST); /* one that asks for nothing */
    sync_remote_end(call);
    finish();
    ck_assert_int_eq(seen.done, 0);
}
END_TEST

START_TEST(files_are_hashed_and_read)
{
    struct sync_sig sig;
    struct sync_id id;

    fx_write("f", "content");
    fx_symlink("target", "l");
    sig = fx_sig("f");
    start(SYNC_REMOTE_HASH);
    ck_assert_int_eq(sync_remote_want(call, "f", 1, &sig), 1);
    sig.size++;
    ck_assert_int_eq(sync_remote_want(call, "f", 1, &sig), 1);
    sync_remote_end(call);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_uint_eq(seen.n_hashed, 2);
    ck_assert_int_eq(seen.status[0], 0);
    ck_assert_int_eq(seen.status[1], SYNC_CHANGED);
    start(SYNC_REMOTE_READ);
    ck_assert_int_eq(sync_remote_want(call, "f", 1, NULL), 1);
    ck_assert_int_eq(sync_remote_want(call, "l", 1, NULL), 1);
    sync_remote_end(call);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_uint_eq(seen.n_bytes, 13);
    sync_id_of("target", 6, &id);
    ck_assert(sync_id_equal(&id, &seen.id));
}
END_TEST

START_TEST(a_slow_reader_slows_the_agent)
{
    size_t n;
    FILE *file = fopen(fx_path("noise"), "we");
    uint32_t x = 1;

    for (size_t i = 0; i < 4 << 20; i++) {
        x = x * 1664525u + 1013904223u;
        fputc((int)(x >> 24), file);
    }
    fclose(file);
    hold_at_piece = true;
    start(SYNC_REMOTE_READ);
    ck_assert_int_eq(sync_remote_want(call, "noise", 5, NULL), 1);
    sync_remote_end(call);
    run_a_while();
    ck_assert_uint_eq(seen.n_pieces, 1);
    for (size_t i = 2; seen.n_read == 0; i++) {
        sync_remote_hold(call, false);
        while (seen.n_pieces < i && seen.n_read == 0) {
            pair_run(&pair);
            uv_run(&loop, UV_RUN_NOWAIT);
        }
        n = seen.n_pieces;
        run_a_while();
        ck_assert_uint_eq(seen.n_pieces, n); /* one at a time */
    }
    ck_assert_uint_eq(seen.n_bytes, 4 << 20);
    if (seen.n_done == 0)
        sync_remote_hold(call, false);
    finish();
    ck_assert_int_eq(seen.done, 0);
}
END_TEST

START_TEST(little_on_the_wire_does_not_hold_up_the_loop)
{
    fx_write("sparse", "");
    ck_assert_int_eq(truncate(fx_path("sparse"), 64 << 20), 0);
    start(SYNC_REMOTE_READ);
    ck_assert_int_eq(sync_remote_want(call, "sparse", 6, NULL), 1);
    sync_remote_end(call);
    pair_run(&pair); /* all of it is here: some 20 KB */
    ck_assert_uint_gt(seen.n_bytes, 0);
    ck_assert_uint_lt(seen.n_bytes, 8 << 20);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_uint_eq(seen.n_bytes, 64 << 20);
}
END_TEST

static void send_file(const char *path, const char *text, bool commit)
{
    struct sync_op op = {
        .kind = SYNC_OP_FILE, .path = path, .path_len = strlen(path), .absent = true};
    struct sync_id id;

    sync_id_of(text, strlen(text), &id);
    ck_assert_int_ge(sync_remote_op(call, &op, (int64_t)strlen(text)), 0);
    ck_assert_int_ge(sync_remote_content(call, text, strlen(text)), 0);
    ck_assert_int_ge(sync_remote_content_end(call, commit ? &id : NULL), 0);
}

START_TEST(changes_are_applied)
{
    struct sync_op op = {.kind = SYNC_OP_LINK,
                         .path = "l",
                         .path_len = 1,
                         .absent = true,
                         .target = "to",
                         .target_len = 2};
    struct sync_sig sig;

    fx_write("there", "mine");
    start(SYNC_REMOTE_APPLY);
    send_file("a/b", "content", true);
    ck_assert_int_eq(sync_remote_op(call, &op, 0), 1);
    send_file("there", "yours", true);
    send_file("dropped", "half", false);
    ck_assert_int_eq(sync_remote_content(call, "x", 1), UV_EINVAL);
    ck_assert_int_eq(sync_remote_content_end(call, NULL), UV_EINVAL);
    op = (struct sync_op){.kind = SYNC_OP_REMOVE, .path = "x", .path_len = 1};
    ck_assert_int_eq(sync_remote_op(call, &op, 0), 1);
    sync_remote_end(call);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_uint_eq(seen.n_applied, 5);
    ck_assert_int_eq(seen.status[0], 0);
    sig = fx_sig("a/b");
    ck_assert(sync_sig_equal(&sig, &seen.sig[0]));
    ck_assert_int_eq(seen.status[1], 0);
    ck_assert_int_eq(seen.status[2], SYNC_CHANGED);
    ck_assert_int_eq(seen.status[3], -ECANCELED);
    ck_assert_int_eq(seen.status[4], 0);
    ck_assert_str_eq(fx_read("a/b"), "content");
    ck_assert_str_eq(fx_read("there"), "mine");
}
END_TEST

START_TEST(a_large_content_waits_for_the_wire)
{
    static uint8_t noise[3 << 20];
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = "big", .path_len = 3, .absent = true};
    struct sync_id id;
    uint32_t x = 1;
    int r = 1;

    for (size_t i = 0; i < sizeof(noise); i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (uint8_t)(x >> 24);
    }
    sync_id_of(noise, sizeof(noise), &id);
    start(SYNC_REMOTE_APPLY);
    ck_assert_int_eq(sync_remote_op(call, &op, sizeof(noise)), 1);
    for (size_t at = 0; at < sizeof(noise); at += 100000) {
        size_t n = sizeof(noise) - at < 100000 ? sizeof(noise) - at : 100000;

        r = sync_remote_content(call, noise + at, n);
        ck_assert_int_ge(r, 0);
        if (r == 0) {
            size_t before = seen.n_drain;

            while (seen.n_drain == before)
                run_a_while();
        }
    }
    ck_assert_uint_gt(seen.n_drain, 0);
    ck_assert_int_eq(sync_remote_content_end(call, &id), 1);
    sync_remote_end(call);
    finish();
    ck_assert_int_eq(seen.done, 0);
    ck_assert_int_eq(seen.status[0], 0);
    ck_assert_int_eq(fx_sig("big").size, sizeof(noise));
}
END_TEST

START_TEST(it_ends_once_however_it_ends)
{
    start(SYNC_REMOTE_LIST);
    sync_remote_cancel(call);
    sync_remote_cancel(call);
    ck_assert_uint_eq(seen.n_done, 0); /* not from inside */
    ck_assert_int_eq(sync_remote_dir(call, "", 0), UV_EPIPE);
    finish();
    ck_assert_int_eq(seen.done, UV_ECANCELED);

    agent = REFUSER;
    start(SYNC_REMOTE_LIST);
    finish();
    ck_assert_int_eq(seen.done, -EREMOTEIO);
    ck_assert_str_eq(seen.why, "the agent answered 429: too many?");

    agent = SILENT;
    start(SYNC_REMOTE_WATCH);
    run_a_while();
    ck_assert_uint_eq(seen.n_done, 0);
    tr_h2_reset(agent_st, 2);
    finish();
    ck_assert_int_eq(seen.done, UV_ECONNRESET);

    start(SYNC_REMOTE_READ);
    ck_assert_int_eq(sync_remote_want(call, "f", 1, NULL), 1);
    sync_remote_end(call);
    run_a_while();
    ck_assert_int_eq(tr_h2_respond(agent_st, 200, NULL, 0, true), 0); /* and no answer */
    finish();
    ck_assert_int_eq(seen.done, UV_EPROTO);

    start(SYNC_REMOTE_APPLY);
    run_a_while();
    tr_h2_abort(pair.client.h2, UV_EOF, "gone"); /* the session */
    while (seen.n_done == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(seen.done, UV_ECONNRESET);
}
END_TEST

/* ---- lies ---- */

static void lie(const struct sync_msg *msg)
{
    ck_assert_int_eq(sync_pack_add(lies, msg), 0);
}

static void lie_result(enum sync_msg_type type, uint32_t index, int status)
{
    struct sync_msg msg = {.type = type, .index = index, .status = status};

    lie(&msg);
}

static void expect_found_out(enum sync_remote_kind kind)
{
    agent = LIAR;
    start(kind);
    if (kind == SYNC_REMOTE_LIST)
        ck_assert_int_eq(sync_remote_dir(call, "", 0), 1);
    else if (kind == SYNC_REMOTE_READ || kind == SYNC_REMOTE_HASH)
        ck_assert_int_eq(sync_remote_want(call, "f", 1, NULL), 1);
    sync_remote_flush(call);
    finish();
    ck_assert_int_eq(seen.done, UV_EPROTO);
}

START_TEST(an_answer_out_of_order)
{
    lie_result(SYNC_MSG_LISTED, 0, 0);
    expect_found_out(SYNC_REMOTE_LIST);
}
END_TEST

START_TEST(an_entry_of_no_listing)
{
    struct sync_msg msg = {.type = SYNC_MSG_ENTRY, .entry = {.name = "x", .name_len = 1}};

    lie(&msg);
    expect_found_out(SYNC_REMOTE_LIST);
}
END_TEST

START_TEST(an_answer_that_was_not_asked_for)
{
    lie_result(SYNC_MSG_LISTING, 0, -ENOENT);
    lie_result(SYNC_MSG_LISTING, 1, -ENOENT);
    expect_found_out(SYNC_REMOTE_LIST);
}
END_TEST

START_TEST(an_answer_of_another_call)
{
    lie_result(SYNC_MSG_APPLIED, 0, 0);
    expect_found_out(SYNC_REMOTE_HASH);
}
END_TEST

START_TEST(more_entries_than_a_folder_has)
{
    struct sync_msg msg = {.type = SYNC_MSG_ENTRY, .entry = {.name = "x", .name_len = 1}};

    lie_result(SYNC_MSG_LISTING, 0, 0);
    for (int i = 0; i <= SYNC_DIR_MAX; i++)
        lie(&msg);
    expect_found_out(SYNC_REMOTE_LIST);
    ck_assert_uint_eq(seen.n_entries, SYNC_DIR_MAX);
}
END_TEST

START_TEST(content_that_is_not_what_its_id_says)
{
    struct sync_msg msg = {.type = SYNC_MSG_READING, .sig = {.size = 4}};

    lie(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)"AAAB", .len = 4};
    lie(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_READ, .sig = {.size = 4}};
    sync_id_of("AAAA", 4, &msg.id);
    lie(&msg);
    expect_found_out(SYNC_REMOTE_READ);
    ck_assert_uint_eq(seen.n_read, 0);
}
END_TEST

START_TEST(more_content_than_was_said)
{
    struct sync_msg msg = {.type = SYNC_MSG_READING, .sig = {.size = 4}};

    lie(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)"AAAAA", .len = 5};
    lie(&msg);
    expect_found_out(SYNC_REMOTE_READ);
    ck_assert_uint_eq(seen.n_bytes, 0);
}
END_TEST

START_TEST(a_watch_tells_and_is_told)
{
    struct sync_msg msg = {.type = SYNC_MSG_DIRTY, .path = "a/b", .path_len = 3};

    lie(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_LOST, .path = "c", .path_len = 1, .status = UV_ENOSPC};
    lie(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_OVERFLOW};
    lie(&msg);
    agent = LIAR;
    start(SYNC_REMOTE_WATCH);
    ck_assert_int_eq(sync_remote_watch(call, "", 0), 1);
    ck_assert_int_eq(sync_remote_unwatch(call, "x", 1), 1);
    sync_remote_end(call); /* of a watch: only what waits leaves */
    run_a_while();
    ck_assert_uint_gt(n_received, 0);
    ck_assert(!agent_ended);
    ck_assert_uint_eq(seen.n_dirty, 1);
    ck_assert_str_eq(seen.last, "a/b");
    ck_assert_uint_eq(seen.n_lost, 1);
    ck_assert_int_eq(seen.lost, UV_ENOSPC);
    ck_assert_uint_eq(seen.n_overflow, 1);
    ck_assert_uint_eq(seen.n_done, 0);
    sync_remote_cancel(call);
    finish();
    ck_assert_int_eq(seen.done, UV_ECANCELED);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/remote");
    TCase *tc = tcase_create("remote");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, a_tree_is_listed);
    tcase_add_test(tc, files_are_hashed_and_read);
    tcase_add_test(tc, a_slow_reader_slows_the_agent);
    tcase_add_test(tc, little_on_the_wire_does_not_hold_up_the_loop);
    tcase_add_test(tc, changes_are_applied);
    tcase_add_test(tc, a_large_content_waits_for_the_wire);
    tcase_add_test(tc, it_ends_once_however_it_ends);
    tcase_add_test(tc, an_answer_out_of_order);
    tcase_add_test(tc, an_entry_of_no_listing);
    tcase_add_test(tc, an_answer_that_was_not_asked_for);
    tcase_add_test(tc, an_answer_of_another_call);
    tcase_add_test(tc, more_entries_than_a_folder_has);
    tcase_add_test(tc, content_that_is_not_what_its_id_says);
    tcase_add_test(tc, more_content_than_was_said);
    tcase_add_test(tc, a_watch_tells_and_is_told);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
