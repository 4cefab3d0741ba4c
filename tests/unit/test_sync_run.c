/* SPDX-License-Identifier: MIT */
/* The engine's thread against an agent over HTTP/2 in memory, with real folders and watches on both
 * ends. */
#include "sync/run.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "h2_pair.h"
#include "sync/serve.h"
#include "sync/side_local.h"
#include "sync/side_remote.h"
#include "sync/watch.h"

static uv_loop_t loop;
static struct h2_pair pair;
static bool is_connected, is_silent;
static char dir[] = "/tmp/test-run-XXXXXX", guest_dir[64], store_dir[64], ancestor[64];
static struct sync_tree guest_tree;
static struct sync_tree store_tree;
static struct sync_side_local *local;
static struct sync_side_remote *remote;
static struct sync_run *run;
static bool has_ended, is_remote_closed, is_local_closed;
static int end_status, n_conflicts, last_round;
static struct sync_engine_status status;
static unsigned n_news;

/* ---- the agent ---- */

struct conversation {
    struct tr_h2_stream *st;
    struct sync_serve *serve; /* NULL: a watch */
    struct sync_unpack *unpack;
    struct sync_pack *pack;
    struct sync_watch *watch;
    bool is_full;
};

static void send_packed(struct conversation *c)
{
    const uint8_t *bytes;
    size_t len;

    ck_assert_int_eq(sync_pack_flush(c->pack), 0);
    bytes = sync_pack_bytes(c->pack, &len);
    if (c->st != NULL && len > 0)
        (void)!tr_h2_write(c->st, bytes, len);
    sync_pack_taken(c->pack, len);
}

static void tell(struct conversation *c, enum sync_msg_type type, const char *path, size_t len,
                 int of)
{
    const struct sync_msg msg = {.type = type, .path = path, .path_len = len, .status = of};

    ck_assert_int_eq(sync_pack_add(c->pack, &msg), 0);
    send_packed(c);
}

static bool on_dirty(const char *path, size_t len, void *arg)
{
    tell(arg, SYNC_MSG_DIRTY, path, len, 0);
    return true;
}

static void on_lost(const char *path, size_t len, int why, void *arg)
{
    tell(arg, SYNC_MSG_LOST, path, len, why);
}

static void on_overflow(void *arg)
{
    tell(arg, SYNC_MSG_OVERFLOW, NULL, 0, 0);
}

static void free_conversation(void *arg)
{
    struct conversation *c = arg;

    sync_serve_free(c->serve);
    sync_pack_free(c->pack);
    sync_unpack_free(c->unpack);
    free(c);
}

static const struct sync_watch_cbs watch_cbs = {.on_dirty = on_dirty,
                                                .on_lost = on_lost,
                                                .on_overflow = on_overflow,
                                                .on_close = free_conversation};

static void work(struct conversation *c)
{
    int r = SYNC_SERVE_MORE;

    while (r == SYNC_SERVE_MORE && !c->is_full) {
        const uint8_t *bytes;
        size_t len;

        r = sync_serve_step(c->serve);
        ck_assert_int_ge(r, 0);
        bytes = sync_serve_output(c->serve, &len);
        if (len > 0)
            c->is_full = tr_h2_write(c->st, bytes, len) == 0;
        sync_serve_taken(c->serve, len);
    }
    if (r == SYNC_SERVE_DONE)
        tr_h2_end(c->st, NULL, 0);
}

static void take_watches(struct conversation *c, const uint8_t *data, size_t len)
{
    while (len > 0) {
        size_t n = sync_unpack_feed(c->unpack, data, len);
        struct sync_msg msg;

        data += n;
        len -= n;
        while (sync_unpack_next(c->unpack, &msg) == 1) {
            if (msg.type == SYNC_MSG_WATCH)
                ck_assert_int_eq(sync_watch_add(c->watch, msg.path, msg.path_len), 0);
            else
                sync_watch_remove(c->watch, msg.path, msg.path_len);
        }
    }
}

static void agent_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct conversation *c = arg;

    tr_h2_stream_consume(st, len);
    if (is_silent)
        return;
    if (c->serve == NULL) {
        take_watches(c, data, len);
        return;
    }
    ck_assert_int_eq(sync_serve_input(c->serve, data, len), 0);
    work(c);
}

static void agent_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct conversation *c = arg;

    (void)st;
    (void)trailers;
    if (is_silent || c->serve == NULL)
        return;
    sync_serve_input_end(c->serve);
    work(c);
}

static void agent_drain(struct tr_h2_stream *st, void *arg)
{
    struct conversation *c = arg;

    (void)st;
    c->is_full = false;
    if (c->serve != NULL && !is_silent)
        work(c);
}

static void agent_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct conversation *c = arg;

    (void)st;
    (void)code;
    c->st = NULL;
    if (c->watch != NULL)
        sync_watch_close(c->watch);
    else
        free_conversation(c);
}

static const struct tr_h2_stream_cbs agent_cbs = {
    .on_data = agent_data, .on_end = agent_end, .on_drain = agent_drain, .on_close = agent_close};

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    static const char *const paths[] = {"/v1/sync/list", "/v1/sync/hash", "/v1/sync/read",
                                        "/v1/sync/apply"};
    struct conversation *c = calloc(1, sizeof(*c));

    (void)h2;
    (void)end;
    (void)arg;
    ck_assert_ptr_nonnull(c);
    c->st = st;
    tr_h2_stream_set(st, &agent_cbs, c);
    ck_assert_int_eq(tr_h2_respond(st, 200, NULL, 0, false), 0);
    for (int kind = SYNC_SERVE_LIST; kind <= SYNC_SERVE_APPLY; kind++)
        if (strcmp(head->path, paths[kind]) == 0)
            ck_assert_int_eq(sync_serve_new((enum sync_serve_kind)kind, &guest_tree, &c->serve), 0);
    if (c->serve != NULL)
        return;
    ck_assert_str_eq(head->path, "/v1/sync/watch");
    ck_assert_int_eq(sync_unpack_new(&c->unpack), 0);
    ck_assert_int_eq(sync_pack_new(false, &c->pack), 0);
    ck_assert_int_eq(sync_watch_open(&loop, guest_tree.root, &watch_cbs, c, &c->watch), 0);
}

/* ---- the host ---- */

static struct tr_h2 *session(void *arg)
{
    (void)arg;
    return is_connected ? pair.client.h2 : NULL;
}

static void on_guest_dirty(const char *path, size_t len, void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_dirty(run, SYNC_GUEST, path, len);
}

static void on_guest_lost(const char *path, size_t len, int why, void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_lost(run, SYNC_GUEST, path, len, why);
}

static void on_guest_overflow(void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_overflow(run, SYNC_GUEST);
}

static const struct sync_side_remote_cbs remote_cbs = {.session = session,
                                                       .on_dirty = on_guest_dirty,
                                                       .on_lost = on_guest_lost,
                                                       .on_overflow = on_guest_overflow};

static void on_news(const struct sync_run_news *news, void *arg)
{
    (void)arg;
    status = news->status;
    last_round = news->round;
    n_news++;
}

static void on_conflict(const char *path, size_t len, enum sync_conflict_kind kind,
                        enum sync_side winner, void *arg)
{
    (void)path;
    (void)len;
    (void)kind;
    (void)winner;
    (void)arg;
    n_conflicts++;
}

static void on_remote_closed(void *arg)
{
    (void)arg;
    is_remote_closed = true;
}

static void on_local_closed(void *arg)
{
    (void)arg;
    is_local_closed = true;
}

static void on_store_dirty(const char *path, size_t len, void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_dirty(run, SYNC_STORE, path, len);
}

static void on_store_lost(const char *path, size_t len, int why, void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_lost(run, SYNC_STORE, path, len, why);
}

static void on_store_overflow(void *arg)
{
    (void)arg;
    if (run != NULL)
        sync_run_overflow(run, SYNC_STORE);
}

static const struct sync_side_local_cbs local_cbs = {
    .on_dirty = on_store_dirty, .on_lost = on_store_lost, .on_overflow = on_store_overflow};

static void on_end(int how, void *arg)
{
    (void)arg;
    has_ended = true;
    end_status = how;
    run = NULL;
    sync_side_remote_stop(remote);
    sync_side_remote_close(remote, on_remote_closed, NULL);
    sync_side_local_close(local, on_local_closed, NULL);
}

static const struct sync_run_cbs run_cbs = {
    .on_news = on_news, .on_conflict = on_conflict, .on_end = on_end};

/* A vault that has nothing and takes everything. */
static bool vault_has(void *vault, const struct sync_id *id)
{
    (void)vault;
    (void)id;
    return false;
}

static int vault_open(void *vault, const struct sync_id *id, struct err *err)
{
    (void)vault;
    (void)id;
    (void)err;
    return -ENOENT;
}

static int put_start(void *vault, int64_t size, struct err *err)
{
    (void)vault;
    (void)size;
    (void)err;
    return 0;
}

static int put_piece(void *vault, const uint8_t *bytes, size_t len, struct err *err)
{
    (void)vault;
    (void)bytes;
    (void)len;
    (void)err;
    return 0;
}

static int put_end(void *vault, const struct sync_id *id, struct err *err)
{
    (void)vault;
    (void)id;
    (void)err;
    return 0;
}

static int keep(void *vault, const struct sync_kept *kept, struct err *err)
{
    (void)vault;
    (void)kept;
    (void)err;
    return 0;
}

static int settle(void *vault, struct err *err)
{
    (void)vault;
    (void)err;
    return 0;
}

static int room(void *vault, int64_t more, struct err *err)
{
    (void)vault;
    (void)more;
    (void)err;
    return 0;
}

static const struct sync_vault_ops vault_ops = {vault_has, vault_open, put_start, put_piece,
                                                put_end,   keep,       settle,    room};

static void connect_agent(void)
{
    memset(&pair, 0, sizeof(pair));
    pair.server.on_request = on_request;
    ck_assert_int_eq(pair_open(&pair, NULL, NULL), 0);
    is_connected = true;
}

static void start(void)
{
    struct sync_engine_options options = {
        .vault_ops = &vault_ops, .ancestor = ancestor, .instance = 1};

    has_ended = is_remote_closed = is_local_closed = false;
    ck_assert_int_eq(sync_side_local_open(&loop, &store_tree, &local_cbs, NULL, &local), 0);
    ck_assert_int_eq(sync_side_remote_open(&loop, &remote_cbs, NULL, &remote), 0);
    options.sides[SYNC_GUEST] = remote;
    options.ops[SYNC_GUEST] = &sync_side_remote_ops;
    options.sides[SYNC_STORE] = local;
    options.ops[SYNC_STORE] = sync_side_local_get_ops(local);
    ck_assert_int_eq(sync_run_start(&loop, &options, &run_cbs, NULL, &run), 0);
}

static void turn(void)
{
    if (is_connected)
        pair_run(&pair);
    uv_run(&loop, UV_RUN_NOWAIT);
    if (is_connected)
        pair_run(&pair);
}

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        uint64_t end = uv_hrtime() + UINT64_C(60000000000);                                        \
        while (!(condition)) {                                                                     \
            turn();                                                                                \
            ck_assert_msg(uv_hrtime() < end, "in vain: %s", #condition);                           \
        }                                                                                          \
    } while (0)

static void setup(void)
{
    snprintf(dir + sizeof(dir) - 7, 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(guest_dir, sizeof(guest_dir), "%s/guest", dir);
    snprintf(store_dir, sizeof(store_dir), "%s/store", dir);
    snprintf(ancestor, sizeof(ancestor), "%s/ancestor", dir);
    ck_assert_int_eq(mkdir(guest_dir, 0700), 0);
    ck_assert_int_eq(mkdir(store_dir, 0700), 0);
    ck_assert_int_eq(sync_tree_open(&guest_tree, guest_dir), 0);
    ck_assert_int_eq(sync_tree_open(&store_tree, store_dir), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    is_silent = false;
    n_conflicts = 0;
    n_news = 0;
    memset(&status, 0, sizeof(status));
    connect_agent();
    start();
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void teardown(void)
{
    if (run != NULL)
        sync_run_stop(run);
    if (!has_ended)
        sync_side_remote_stop(remote);
    WAIT_FOR(has_ended && is_remote_closed && is_local_closed);
    if (is_connected)
        pair_close(&pair);
    is_connected = false;
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    sync_tree_close(&guest_tree);
    sync_tree_close(&store_tree);
    ck_assert_int_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void write_file(const char *where, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", where, name);
    f = fopen(path, "we");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    fputs(text, f);
    fclose(f);
}

static bool holds(const char *where, const char *name, const char *text)
{
    char path[256], is[256];
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", where, name);
    f = fopen(path, "re");
    if (f == NULL)
        return false;
    n = fread(is, 1, sizeof(is) - 1, f);
    fclose(f);
    is[n] = '\0';
    return strcmp(is, text) == 0;
}

static bool is_there(const char *where, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", where, name);
    return access(path, F_OK) == 0;
}

static void make_dir(const char *where, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", where, name);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

START_TEST(an_edit_in_the_guest_is_seen_and_comes_to_the_store)
{
    char name[64];

    write_file(store_dir, "from-store", "1");
    write_file(guest_dir, "from-guest", "2");
    WAIT_FOR(status.is_in_step && holds(guest_dir, "from-store", "1") &&
             holds(store_dir, "from-guest", "2"));
    write_file(guest_dir, "from-guest", "3"); /* nobody says so but the watch */
    WAIT_FOR(holds(store_dir, "from-guest", "3"));
    for (int i = 0; i < 50; i++) { /* folders that fill before they are watched */
        snprintf(name, sizeof(name), "r%d", i);
        make_dir(guest_dir, name);
        snprintf(name, sizeof(name), "r%d/a", i);
        make_dir(guest_dir, name);
        snprintf(name, sizeof(name), "r%d/a/x.py", i);
        write_file(guest_dir, name, "x");
    }
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof(name), "r%d/a/x.py", i);
        WAIT_FOR(holds(store_dir, name, "x"));
    }
    write_file(store_dir, "r7/a/x.py", "y");
    WAIT_FOR(holds(guest_dir, "r7/a/x.py", "y"));
    write_file(guest_dir, "r7/a/x.py", "z"); /* in a folder that was there from the start */
    WAIT_FOR(holds(store_dir, "r7/a/x.py", "z"));
    WAIT_FOR(status.is_in_step);
    ck_assert_int_eq(n_conflicts, 0);
}
END_TEST

START_TEST(a_moved_folder_is_watched_by_its_new_name)
{
    char from[256], to[256];

    make_dir(guest_dir, "d");
    write_file(guest_dir, "d/x", "1");
    WAIT_FOR(holds(store_dir, "d/x", "1"));
    snprintf(from, sizeof(from), "%s/d", guest_dir);
    snprintf(to, sizeof(to), "%s/e", guest_dir);
    ck_assert_int_eq(rename(from, to), 0);
    WAIT_FOR(holds(store_dir, "e/x", "1") && !is_there(store_dir, "d"));
    write_file(guest_dir, "e/x", "2");
    WAIT_FOR(holds(store_dir, "e/x", "2"));
    ck_assert_int_eq(rename(to, from), 0);
    WAIT_FOR(holds(store_dir, "d/x", "2") && !is_there(store_dir, "e"));
    write_file(guest_dir, "d/x", "3");
    WAIT_FOR(holds(store_dir, "d/x", "3"));
}
END_TEST

START_TEST(a_lost_connection_deletes_nothing_and_is_made_up_for)
{
    write_file(guest_dir, "f", "1");
    WAIT_FOR(holds(store_dir, "f", "1"));
    is_connected = false;
    pair_close(&pair);
    write_file(guest_dir, "f", "2");
    write_file(store_dir, "g", "3");
    WAIT_FOR(last_round == -ENOTCONN);
    ck_assert(holds(store_dir, "f", "1"));
    connect_agent();
    sync_run_kick(run);
    WAIT_FOR(holds(store_dir, "f", "2") && holds(guest_dir, "g", "3"));
    write_file(guest_dir, "f", "4"); /* the watches are there again */
    WAIT_FOR(holds(store_dir, "f", "4"));
}
END_TEST

START_TEST(the_last_sync_takes_what_nobody_has_told)
{
    WAIT_FOR(status.is_in_step);
    write_file(guest_dir, "f", "1");
    write_file(store_dir, "g", "2");
    sync_run_finish(run, 60000);
    WAIT_FOR(has_ended);
    ck_assert_int_eq(end_status, 0);
    ck_assert(holds(store_dir, "f", "1"));
    ck_assert(holds(guest_dir, "g", "2"));
    ck_assert(is_there(dir, "ancestor"));
}
END_TEST

START_TEST(a_silent_agent_holds_nobody_up)
{
    WAIT_FOR(status.is_in_step);
    is_silent = true;
    sync_run_look(run, SYNC_GUEST);
    for (int i = 0; i < 100; i++)
        turn();
    sync_side_remote_stop(remote);
    sync_run_stop(run);
    WAIT_FOR(has_ended);
    ck_assert_int_eq(end_status, -ECANCELED);
}
END_TEST

START_TEST(much_content_both_ways)
{
    enum { SIZE = 9 * 1024 * 1024 };
    char *text = malloc(SIZE + 1), name[32];
    char path[256];
    struct stat st;

    for (size_t i = 0; i < SIZE; i++)
        text[i] = (char)('a' + (i * 2654435761u >> 13) % 26);
    text[SIZE] = '\0';
    write_file(guest_dir, "big-guest", text);
    write_file(store_dir, "big-store", text);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        write_file(i % 2 == 0 ? guest_dir : store_dir, name, name);
    }
    WAIT_FOR(is_there(store_dir, "n1998") && is_there(guest_dir, "n1999") &&
             is_there(store_dir, "big-guest") && is_there(guest_dir, "big-store") &&
             status.is_in_step);
    snprintf(path, sizeof(path), "%s/big-guest", store_dir);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);
    snprintf(path, sizeof(path), "%s/big-store", guest_dir);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);
    ck_assert_uint_eq(status.n_faults, 0);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/run");
    TCase *tc = tcase_create("a thread and an agent");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, an_edit_in_the_guest_is_seen_and_comes_to_the_store);
    tcase_add_test(tc, a_moved_folder_is_watched_by_its_new_name);
    tcase_add_test(tc, a_lost_connection_deletes_nothing_and_is_made_up_for);
    tcase_add_test(tc, the_last_sync_takes_what_nobody_has_told);
    tcase_add_test(tc, a_silent_agent_holds_nobody_up);
    tcase_add_test(tc, much_content_both_ways);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
