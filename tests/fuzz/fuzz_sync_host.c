/* SPDX-License-Identifier: MIT */
/* What an agent may answer to a host, through HTTP/2 in memory. What the host's callbacks are given
 * must be what sync/remote.h promises, and the end must come once. */
#include <assert.h>
#include "h2_pair.h"
#include "sync/remote.h"
#include "sync_blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_ASKED 3

static struct h2_pair pair;
static struct sync_remote *call;
static uint8_t *answer;
static size_t answer_len;
static bool hold_often;

static struct {
    uint32_t next; /* the answer that is due */
    bool inside;   /* of a listing, or a file */
    int64_t size, n_bytes;
    int n_done;
} seen;

static void due(uint32_t index)
{
    assert(seen.n_done == 0 && index == seen.next && index < N_ASKED);
    if (hold_often)
        sync_remote_hold(call, true);
}

static void on_listing(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)sig;
    (void)arg;
    due(index);
    assert(!seen.inside);
    seen.inside = status == 0;
    seen.next += !seen.inside;
}

static void on_entry(uint32_t index, const struct sync_tree_entry *entry, void *arg)
{
    (void)arg;
    due(index);
    assert(seen.inside && entry->name_len > 0 && entry->name_len <= SYNC_NAME_MAX);
    assert(memchr(entry->name, '/', entry->name_len) == NULL);
    assert((sync_sig_type(&entry->sig) == SYNC_TYPE_LINK) == (entry->target != NULL));
}

static void on_listed(uint32_t index, int status, bool changed, void *arg)
{
    (void)arg;
    (void)status;
    (void)changed;
    due(index);
    assert(seen.inside);
    seen.inside = false;
    seen.next++;
}

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    (void)arg;
    (void)head;
    due(index);
    assert(head_len <= SYNC_HEAD_MAX && (status == 0 || head_len == 0));
    assert((int64_t)head_len <= read->sig.size);
    seen.next++;
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)arg;
    due(index);
    assert(!seen.inside);
    seen.inside = status == 0;
    seen.next += !seen.inside;
    seen.size = sig->size;
    seen.n_bytes = 0;
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    (void)arg;
    (void)bytes;
    due(index);
    seen.n_bytes += (int64_t)len;
    assert(seen.inside && len > 0 && seen.n_bytes <= seen.size);
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    (void)arg;
    due(index);
    assert(seen.inside);
    assert(status != 0 || (seen.n_bytes == seen.size && read->sig.size == seen.size));
    seen.inside = false;
    seen.next++;
}

static void on_applied(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    (void)arg;
    (void)sig;
    due(index);
    assert(status == 0 || status == SYNC_CHANGED || status == SYNC_BUSY || status < 0);
    seen.next++;
}

static void on_dirty(const char *dir, size_t len, void *arg)
{
    (void)arg;
    assert(len == 0 || sync_path_check(dir, len) == SYNC_PATH_OK);
    if (len % 5 == 4)
        sync_remote_cancel(call);
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    (void)arg;
    assert(status < 0 && (len == 0 || sync_path_check(dir, len) == SYNC_PATH_OK));
}

static void on_overflow(void *arg)
{
    (void)arg;
}

static void on_done(struct sync_remote *c, int status, const struct err *err, void *arg)
{
    (void)arg;
    (void)err;
    assert(c == call);
    assert(status < 0 || (seen.next == N_ASKED && !seen.inside));
    seen.n_done++;
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
                                           .on_done = on_done};

static void agent_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)arg;
    tr_h2_stream_consume(st, len);
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    static const struct tr_h2_stream_cbs agent = {.on_data = agent_data};

    (void)h2;
    (void)head;
    (void)end;
    (void)arg;
    tr_h2_stream_set(st, &agent, NULL);
    if (tr_h2_respond(st, 200, NULL, 0, false) != 0)
        abort();
    if (answer_len > 0 && tr_h2_write(st, answer, answer_len) < 0)
        abort();
    tr_h2_end(st, NULL, 0);
}

static void ask(enum sync_remote_kind kind)
{
    struct sync_op op = {.kind = SYNC_OP_DIR, .path = "d", .path_len = 1};
    int r = 1;

    for (int i = 0; i < N_ASKED && r >= 0; i++) {
        if (kind == SYNC_REMOTE_LIST)
            r = sync_remote_dir(call, "", 0);
        else if (kind == SYNC_REMOTE_APPLY)
            r = sync_remote_op(call, &op, 0);
        else if (kind == SYNC_REMOTE_WATCH)
            r = sync_remote_watch(call, "", 0);
        else
            r = sync_remote_want(call, "f", 1, NULL);
    }
    if (r < 0)
        abort();
    sync_remote_end(call);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum sync_remote_kind kind;
    uv_loop_t loop;

    if (size == 0)
        return 0;
    memset(&seen, 0, sizeof(seen));
    kind = (enum sync_remote_kind)((data[0] & 0x3f) % 5);
    hold_often = (data[0] & 0x40) != 0;
    answer = sync_blocks(data, size, &answer_len);
    pair.server.on_request = on_request;
    if (uv_loop_init(&loop) != 0 || pair_open(&pair, NULL, NULL) != 0 ||
        sync_remote_start(&loop, pair.client.h2, kind, &cbs, NULL, &call) != 0)
        abort();
    ask(kind);
    while (seen.n_done == 0) {
        pair_run(&pair);
        if (hold_often && seen.n_done == 0)
            sync_remote_hold(call, false);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    pair_close(&pair);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(seen.n_done == 1);
    assert(uv_loop_close(&loop) == 0);
    free(answer);
    return 0;
}
