/* SPDX-License-Identifier: MIT */
/* One conversation about the home folder. Its work is done in the loop's thread pool, one slice at
 * a time: what came since goes in, what is ready comes out. While the reader does not take what
 * there is, no slice is begun, and what comes is not given back: so both directions are slowed.
 *
 * Path: start -> slice -> send -> slice ... -> end; close (removes what was being staged). */
#include "vmm/agent/sync_api.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sync/serve.h"
#include "vmm/agent/files_request.h"

#define MAX_TALKS   16
#define SWEEP_AGE_S 2

struct talk {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_work_t work;
    struct agent_files files;
    struct sync_tree tree; /* root -1: not opened yet */
    struct sync_serve *serve;
    uint8_t *in; /* received, not handed to serve */
    size_t in_len;
    bool in_end;  /* the body is complete, and serve was told or will be */
    bool sweep;   /* the first to write: what an earlier agent left may go */
    bool greeted; /* the answer's head was sent */
    bool busy, full, over;
    int result;
};

static size_t n_talks; /* one loop, one thread */
static bool swept;

static void next_slice(struct talk *t);

static void free_talk(struct talk *t)
{
    free(t->in);
    free(t);
    n_talks--;
}

/* An agent that died moments ago did so before that. */
static int64_t before_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return ((int64_t)now.tv_sec - SWEEP_AGE_S) * 1000000000 + now.tv_nsec;
}

/* With the user's rights, as everything that is done in his folder. */
static void do_close(uv_work_t *work)
{
    struct talk *t = work->data;
    bool acting = agent_act_begin(&t->files.act) == 0;

    sync_serve_free(t->serve);
    sync_tree_close(&t->tree);
    if (acting)
        agent_act_end(&t->files.act);
}

static void on_close_done(uv_work_t *work, int status)
{
    (void)status;
    free_talk(work->data);
}

static void end(struct talk *t)
{
    if (t->req != NULL)
        t->req->cbs = NULL;
    t->req = NULL;
    t->over = true;
    if (t->busy)
        return; /* its callback comes back here */
    t->busy = true;
    if (uv_queue_work(t->loop, &t->work, do_close, on_close_done) != 0)
        abort(); /* it fails without a callback only */
}

static void fail(struct talk *t, int code)
{
    struct err err = {0};

    tr_err_set(&err, code, "%s",
               code == UV_EPROTO ? "the body is not of the sync protocol" : uv_strerror(code));
    if (t->greeted)
        tr_h2_reset(t->req->stream, 2); /* INTERNAL_ERROR */
    else
        agent_request_fail(t->req, code == UV_EPROTO ? UV_EINVAL : code, &err);
    end(t);
}

/* ---- slices ---- */

static void do_slice(uv_work_t *work)
{
    struct talk *t = work->data;

    t->result = agent_act_begin(&t->files.act);
    if (t->result != 0)
        return;
    if (t->tree.root < 0) {
        t->result = sync_tree_open(&t->tree, t->files.home);
        if (t->result == 0 && t->sweep)
            sync_tree_sweep(&t->tree, before_ns());
    }
    if (t->result == 0)
        t->result = sync_serve_step(t->serve);
    agent_act_end(&t->files.act);
}

/* What is ready goes out. False: the stream is gone. */
static bool send_ready(struct talk *t)
{
    size_t len;
    const uint8_t *bytes = sync_serve_output(t->serve, &len);
    int r = 1;

    if (len > 0)
        r = agent_request_write(t->req, bytes, len);
    sync_serve_taken(t->serve, len);
    t->full = r == 0;
    return r >= 0;
}

static void on_slice(uv_work_t *work, int status)
{
    struct talk *t = work->data;
    size_t eaten = sync_serve_eaten(t->serve);

    (void)status;
    t->busy = false;
    if (t->over) {
        end(t);
        return;
    }
    if (eaten > 0)
        agent_request_consume(t->req, eaten);
    if (t->result < 0) {
        fail(t, t->result);
        return;
    }
    if (!t->greeted)
        agent_request_head(t->req, 200, "application/octet-stream", NULL, NULL);
    t->greeted = true;
    if (!send_ready(t)) {
        end(t);
    } else if (t->result == SYNC_SERVE_DONE) {
        agent_request_finish(t->req);
        end(t);
    } else if (t->result == SYNC_SERVE_MORE || t->in_len > 0 || t->in_end) {
        next_slice(t);
    }
}

/* Hand over what came, and work on. */
static void next_slice(struct talk *t)
{
    if (t->busy || t->full || t->over)
        return;
    if (sync_serve_input(t->serve, t->in, t->in_len) != 0) {
        fail(t, UV_ENOMEM);
        return;
    }
    free(t->in);
    t->in = NULL;
    t->in_len = 0;
    if (t->in_end) {
        sync_serve_input_end(t->serve);
        t->in_end = false;
    }
    t->busy = true;
    if (uv_queue_work(t->loop, &t->work, do_slice, on_slice) != 0)
        abort();
}

/* ---- the stream ---- */

static void on_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct talk *t = req->ctx;
    uint8_t *grown = realloc(t->in, t->in_len + len);

    if (grown == NULL) {
        fail(t, UV_ENOMEM);
        return;
    }
    memcpy(grown + t->in_len, data, len);
    t->in = grown;
    t->in_len += len;
    next_slice(t);
}

static void on_end(struct agent_request *req)
{
    struct talk *t = req->ctx;

    t->in_end = true;
    next_slice(t);
}

static void on_drain(struct agent_request *req)
{
    struct talk *t = req->ctx;

    t->full = false;
    next_slice(t);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end(req->ctx);
}

static const struct agent_request_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_close = on_close};

static void start(struct agent_request *req, enum sync_serve_kind kind)
{
    struct talk *t;

    if (n_talks >= MAX_TALKS) {
        agent_request_error(req, 429, "too_many", "%d conversations are open", MAX_TALKS);
        return;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    n_talks++;
    t->loop = req->agent->loop;
    t->tree.root = t->tree.stage = -1;
    t->work.data = t;
    if (!agent_files_for(req, NULL, NULL, &t->files) || !agent_request_may_act(req)) {
        free_talk(t);
        return;
    }
    if (sync_serve_new(kind, &t->tree, &t->serve) != 0) {
        agent_request_error(req, 500, NULL, "out of memory");
        free_talk(t);
        return;
    }
    t->sweep = kind == SYNC_SERVE_APPLY && !swept;
    swept = swept || t->sweep;
    t->req = req;
    req->ctx = t;
    req->cbs = &cbs;
    t->in_end = req->body_ended;
    next_slice(t);
}

void agent_sync_handle_list(struct agent_request *req)
{
    start(req, SYNC_SERVE_LIST);
}

void agent_sync_handle_hash(struct agent_request *req)
{
    start(req, SYNC_SERVE_HASH);
}

void agent_sync_handle_read(struct agent_request *req)
{
    start(req, SYNC_SERVE_READ);
}

void agent_sync_handle_apply(struct agent_request *req)
{
    start(req, SYNC_SERVE_APPLY);
}
