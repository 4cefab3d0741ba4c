/* SPDX-License-Identifier: MIT */
/* What a host may send to an agent. The tree cannot be reached (its root is no descriptor), so
 * nothing is changed; content is staged for real. Whatever comes out must be well-formed, and in
 * the order that sync/serve.h promises. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "sync/serve.h"
#include "sync_blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char stage[] = "/tmp/transom-fuzz-XXXXXX";
static struct sync_tree tree = {.root = -1, .stage = -1};

static void remove_stage(void)
{
    rmdir(stage);
}

static void check(enum sync_serve_kind kind, const struct sync_msg *msg, uint32_t *next)
{
    static const enum sync_msg_type refusals[] = {SYNC_MSG_LISTING, SYNC_MSG_HASHED,
                                                  SYNC_MSG_READING, SYNC_MSG_APPLIED};

    assert(msg->type == refusals[kind]); /* all of it fails */
    assert(msg->index == *next);
    assert(msg->status < 0 || kind == SYNC_SERVE_APPLY || msg->status == SYNC_CHANGED);
    (*next)++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum sync_serve_kind kind;
    struct sync_unpack *reply;
    struct sync_serve *serve;
    struct sync_msg msg;
    uint32_t next = 0;
    size_t len, at = 0;
    uint8_t *bytes;
    int r;

    if (size == 0)
        return 0;
    if (tree.stage < 0) {
        if (mkdtemp(stage) == NULL)
            abort();
        atexit(remove_stage);
        tree.stage = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    kind = (enum sync_serve_kind)(data[0] & 3);
    if (sync_serve_new(kind, &tree, &serve) != 0 || sync_unpack_new(&reply) != 0)
        abort();
    bytes = sync_blocks(data, size, &len);
    do {
        size_t n = len - at < 1000 ? len - at : 1000, out_len, out_at = 0;
        const uint8_t *out;

        if (sync_serve_input(serve, bytes + at, n) != 0)
            abort();
        at += n;
        if (at == len)
            sync_serve_input_end(serve);
        do {
            r = sync_serve_step(serve);
            out = sync_serve_output(serve, &out_len);
            for (out_at = 0; out_at < out_len;) {
                out_at += sync_unpack_feed(reply, out + out_at, out_len - out_at);
                while (sync_unpack_next(reply, &msg) == 1)
                    check(kind, &msg, &next);
            }
            sync_serve_taken(serve, out_len);
        } while (r == SYNC_SERVE_MORE);
    } while (r == SYNC_SERVE_HUNGRY);
    assert(r == SYNC_SERVE_DONE || r < 0);
    assert(sync_unpack_at_end(reply) || next == 0);
    sync_serve_free(serve);
    sync_unpack_free(reply);
    free(bytes);
    return 0;
}
