/* SPDX-License-Identifier: MIT */
/* Which folders change, for one listener at a time: a new one takes the old one's place, whose
 * channel may be gone without our knowing.
 *
 * Path: start -> (thread pool: open the home folder) -> watch -> messages both ways -> close. */
#include "vmm/agent/sync_api.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sync/watch.h"
#include "sync/wire.h"
#include "vmm/agent/files_request.h"

struct listener {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_work_t work;
    struct agent_files files;
    struct sync_tree tree;
    struct sync_watch *watch; /* NULL: the home folder is being opened */
    struct sync_pack *pack;
    struct sync_unpack *unpack;
    uint8_t *early; /* what came before there was a watch */
    size_t early_len;
    bool busy, full, over;
    int result;
};

static struct listener *current; /* one loop, one thread */

static void free_listener(struct listener *l)
{
    if (current == l)
        current = NULL;
    sync_tree_close(&l->tree);
    sync_pack_free(l->pack);
    sync_unpack_free(l->unpack);
    free(l->early);
    free(l);
}

static void end(struct listener *l)
{
    if (l->req != NULL)
        l->req->cbs = NULL;
    l->req = NULL;
    l->over = true;
    if (current == l)
        current = NULL;
    if (l->busy)
        return; /* its callback comes back here */
    if (l->watch != NULL)
        sync_watch_close(l->watch);
    else
        free_listener(l);
}

/* Once the head was sent, or the peer breaks the rules. */
static void drop(struct listener *l)
{
    tr_h2_reset(l->req->stream, 2); /* INTERNAL_ERROR */
    end(l);
}

/* ---- what is told ---- */

/* One message goes at once. */
static void say(struct listener *l, const struct sync_msg *msg)
{
    const uint8_t *bytes;
    size_t len;
    int r;

    if (l->over)
        return;
    if (sync_pack_add(l->pack, msg) != 0 || sync_pack_flush(l->pack) != 0) {
        drop(l);
        return;
    }
    bytes = sync_pack_bytes(l->pack, &len);
    r = agent_request_write(l->req, bytes, len);
    sync_pack_taken(l->pack, len);
    l->full = r == 0;
    if (r < 0)
        end(l);
}

static bool on_dirty(const char *dir, size_t len, void *arg)
{
    struct listener *l = arg;
    struct sync_msg msg = {.type = SYNC_MSG_DIRTY, .path = dir, .path_len = len};

    if (l->full)
        return false;
    say(l, &msg);
    return true;
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    struct sync_msg msg = {.type = SYNC_MSG_LOST, .path = dir, .path_len = len, .status = status};

    say(arg, &msg);
}

static void on_overflow(void *arg)
{
    struct sync_msg msg = {.type = SYNC_MSG_OVERFLOW};

    say(arg, &msg);
}

static int act_begin(void *arg)
{
    struct listener *l = arg;

    return agent_act_begin(&l->files.act);
}

static void act_end(void *arg)
{
    struct listener *l = arg;

    agent_act_end(&l->files.act);
}

static void on_watch_close(void *arg)
{
    free_listener(arg);
}

static const struct sync_watch_cbs watch_cbs = {.on_dirty = on_dirty,
                                                .on_lost = on_lost,
                                                .on_overflow = on_overflow,
                                                .begin = act_begin,
                                                .end = act_end,
                                                .on_close = on_watch_close};

/* ---- what is asked for ---- */

static void obey(struct listener *l, const struct sync_msg *msg)
{
    int r = UV_EPROTO;

    if (msg->type == SYNC_MSG_UNWATCH) {
        sync_watch_remove(l->watch, msg->path, msg->path_len);
        return;
    }
    if (msg->type == SYNC_MSG_WATCH)
        r = sync_watch_add(l->watch, msg->path, msg->path_len);
    if (r == UV_ENOSPC)
        on_lost(msg->path, msg->path_len, r, l);
    else if (r != 0)
        drop(l);
}

static void take(struct listener *l, const uint8_t *data, size_t len)
{
    struct sync_msg msg;
    size_t at = 0;
    int r = 0;

    assert(l->watch != NULL); /* so that l outlives whatever ends it here */
    while (!l->over) {
        r = sync_unpack_next(l->unpack, &msg);
        if (r == 1)
            obey(l, &msg);
        else if (r == 0 && at < len)
            at += sync_unpack_feed(l->unpack, data + at, len - at);
        else
            break;
    }
    if (!l->over && r < 0)
        drop(l);
}

static void on_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct listener *l = req->ctx;
    uint8_t *grown;

    if (l->watch != NULL) {
        agent_request_consume(req, len);
        take(l, data, len);
        return;
    }
    grown = realloc(l->early, l->early_len + len); /* a stream's window at most */
    if (grown == NULL) {
        drop(l);
        return;
    }
    memcpy(grown + l->early_len, data, len);
    l->early = grown;
    l->early_len += len;
}

/* ---- life ---- */

static void do_open(uv_work_t *work)
{
    struct listener *l = work->data;

    l->result = agent_act_begin(&l->files.act);
    if (l->result != 0)
        return;
    l->result = sync_tree_open(&l->tree, l->files.home);
    agent_act_end(&l->files.act);
}

static void on_open(uv_work_t *work, int status)
{
    struct listener *l = work->data;
    int r = l->result;

    (void)status;
    l->busy = false;
    if (l->over) {
        end(l);
        return;
    }
    if (r == 0)
        r = sync_watch_open(l->loop, l->tree.root, &watch_cbs, l, &l->watch);
    if (r != 0) {
        agent_request_fail(l->req, r, NULL);
        end(l);
        return;
    }
    agent_request_head(l->req, 200, "application/octet-stream", NULL, NULL);
    agent_request_consume(l->req, l->early_len);
    take(l, l->early, l->early_len);
}

static void on_drain(struct agent_request *req)
{
    struct listener *l = req->ctx;

    l->full = false;
    if (l->watch != NULL)
        sync_watch_resume(l->watch);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end(req->ctx);
}

static const struct agent_request_cbs cbs = {
    .on_data = on_data, .on_drain = on_drain, .on_close = on_close};

void agent_sync_handle_watch(struct agent_request *req)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    l->loop = req->agent->loop;
    l->tree.root = l->tree.stage = -1;
    l->work.data = l;
    if (!agent_files_for(req, NULL, NULL, &l->files) || !agent_request_may_act(req)) {
        free_listener(l);
        return;
    }
    if (sync_pack_new(false, &l->pack) != 0 || sync_unpack_new(&l->unpack) != 0) {
        agent_request_error(req, 500, NULL, "out of memory");
        free_listener(l);
        return;
    }
    if (current != NULL)
        drop(current);
    current = l;
    l->req = req;
    req->ctx = l;
    req->cbs = &cbs;
    l->busy = true;
    if (uv_queue_work(l->loop, &l->work, do_open, on_open) != 0)
        abort(); /* it fails without a callback only */
}
