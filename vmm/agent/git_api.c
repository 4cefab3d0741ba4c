/* SPDX-License-Identifier: MIT */
/* Work is done in the loop's thread pool, one slice at a time.
 *
 * Paths: look: one slice, answer. get: slice (open, read a block) -> send -> slice ... -> end.
 * put: what came since -> slice (open, write) -> ... -> last slice (rename) -> answer. */
#include "vmm/agent/git_api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sync/gitdir.h"
#include "sync/tree.h"
#include "vmm/agent/files_request.h"

#define BLOCK 131072

struct talk {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_work_t work;
    void (*slice)(struct talk *t); /* in the pool, as the user */
    void (*then)(struct talk *t);  /* on the loop, after a slice that went well */
    struct agent_files files;
    char *path; /* get, put: the folder; look: all of them, path_len bytes */
    size_t path_len;
    int dir, stage; /* put: both; get: dir. -1: not open */
    struct sync_gitdir_pack *pack;
    struct sync_gitdir_unpack *unpack;
    json_t *answer; /* look */
    char *in;       /* put: received, not written */
    size_t in_len;
    char *writing; /* put: the slice's */
    size_t writing_len;
    char *block; /* get */
    int64_t block_len;
    bool in_end, greeted, is_last, busy, full, over;
    int result;
};

static void start_slice(struct talk *t);

static void free_talk(struct talk *t)
{
    json_decref(t->answer);
    free(t->path);
    free(t->in);
    free(t->writing);
    free(t->block);
    free(t);
}

static void do_close(uv_work_t *work)
{
    struct talk *t = work->data;
    bool acting = agent_act_begin(&t->files.act) == 0;

    sync_gitdir_pack_free(t->pack);
    sync_gitdir_unpack_free(t->unpack);
    if (t->dir >= 0)
        close(t->dir);
    if (t->stage >= 0)
        close(t->stage);
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
               code == -ESTALE    ? "it was changed while it was read"
               : code == -EBADMSG ? "the body is no stream of a .git folder"
               : code == -EEXIST  ? "there is a .git already"
                                  : uv_strerror(code));
    if (t->greeted)
        tr_h2_reset(t->req->stream, 2); /* INTERNAL_ERROR */
    else
        agent_request_fail(t->req, code == -EBADMSG ? UV_EINVAL : code, &err);
    end(t);
}

static void do_slice(uv_work_t *work)
{
    struct talk *t = work->data;

    t->result = agent_act_begin(&t->files.act);
    if (t->result != 0)
        return;
    t->slice(t);
    agent_act_end(&t->files.act);
}

static void on_slice(uv_work_t *work, int status)
{
    struct talk *t = work->data;

    (void)status;
    t->busy = false;
    if (t->over)
        end(t);
    else if (t->result < 0)
        fail(t, t->result);
    else
        t->then(t);
}

static void start_slice(struct talk *t)
{
    if (t->busy || t->over)
        return;
    t->busy = true;
    if (uv_queue_work(t->loop, &t->work, do_slice, on_slice) != 0)
        abort();
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end(req->ctx);
}

/* NULL after answering. */
static struct talk *new_talk(struct agent_request *req, const char *path, size_t len)
{
    struct talk *t = calloc(1, sizeof(*t));

    if (t == NULL || (t->path = malloc(len + 1)) == NULL) {
        free(t);
        agent_request_error(req, 500, NULL, "out of memory");
        return NULL;
    }
    if (len > 0)
        memcpy(t->path, path, len);
    t->path[len] = '\0';
    t->path_len = len;
    t->loop = req->agent->loop;
    t->dir = t->stage = -1;
    t->work.data = t;
    if (agent_files_for(req, NULL, NULL, &t->files) && agent_request_may_act(req))
        return t;
    free_talk(t);
    return NULL;
}

static void begin(struct talk *t, struct agent_request *req, const struct agent_request_cbs *cbs,
                  void (*slice)(struct talk *t), void (*then)(struct talk *t))
{
    t->slice = slice;
    t->then = then;
    t->req = req;
    req->ctx = t;
    req->cbs = cbs;
    start_slice(t);
}

static int open_folder(const struct talk *t, const char *path)
{
    return *path == '/' ? -EINVAL : agent_files_open_path(&t->files, path, O_RDONLY | O_DIRECTORY);
}

/* ---- look ---- */

static int tell(json_t *found, size_t index, const struct sync_gitdir_look *look, int status)
{
    char print[2 * SYNC_ID_LEN + 1];
    json_t *item;

    sync_id_hex(&look->print, print);
    item = status == 0
               ? json_pack("{sI, sI, ss}", "index", (json_int_t)index, "bytes",
                           (json_int_t)look->bytes, "print", print)
               : json_pack("{sI, ss}", "index", (json_int_t)index, "error", uv_strerror(status));
    return json_array_append_new(found, item);
}

static void look_slice(struct talk *t)
{
    json_t *found = json_array();
    size_t index = 0;

    t->answer = json_pack("{so}", "found", found);
    t->result = t->answer == NULL ? UV_ENOMEM : 0;
    for (char *path = t->path, *last = path + t->path_len; path < last && t->result == 0; index++) {
        struct sync_gitdir_look look = {0};
        int fd = open_folder(t, path), r = 0;

        if (fd >= 0) {
            r = sync_gitdir_look(fd, &look);
            close(fd);
        }
        if (json_array_size(found) == AGENT_GIT_FOUND_MAX) {
            t->result = json_object_set_new(t->answer, "truncated", json_true());
            break;
        }
        if ((r != 0 || look.found) && tell(found, index, &look, r) != 0)
            t->result = UV_ENOMEM;
        path += strlen(path) + 1;
    }
}

static void look_done(struct talk *t)
{
    agent_request_answer(t->req, 200, json_incref(t->answer));
    end(t);
}

void agent_git_handle_look(struct agent_request *req)
{
    static const struct agent_request_cbs cbs = {.on_close = on_close};
    struct talk *t = new_talk(req, req->body, req->body_len);

    if (t != NULL)
        begin(t, req, &cbs, look_slice, look_done);
}

/* ---- get ---- */

static void get_slice(struct talk *t)
{
    if (t->dir < 0) {
        t->dir = open_folder(t, t->path);
        t->block = malloc(BLOCK);
        t->result = t->dir < 0 ? t->dir : t->block == NULL ? UV_ENOMEM : 0;
        if (t->result == 0)
            t->result = sync_gitdir_pack_new(t->dir, &t->pack);
    }
    if (t->result != 0)
        return;
    t->block_len = sync_gitdir_pack_next(t->pack, t->block, BLOCK);
    if (t->block_len < 0)
        t->result = (int)t->block_len;
}

static void get_done(struct talk *t)
{
    int r;

    if (!t->greeted)
        agent_request_head(t->req, 200, "application/octet-stream", NULL, NULL);
    t->greeted = true;
    if (t->block_len == 0) {
        agent_request_finish(t->req);
        end(t);
        return;
    }
    r = agent_request_write(t->req, t->block, (size_t)t->block_len);
    t->full = r == 0;
    if (r < 0)
        end(t);
    else if (!t->full)
        start_slice(t);
}

static void get_drain(struct agent_request *req)
{
    struct talk *t = req->ctx;

    if (t->full)
        start_slice(t);
    t->full = false;
}

void agent_git_handle_get(struct agent_request *req)
{
    static const struct agent_request_cbs cbs = {.on_drain = get_drain, .on_close = on_close};
    const char *path = agent_files_query_path(req, true);
    struct talk *t = path != NULL ? new_talk(req, path, strlen(path)) : NULL;

    if (t != NULL)
        begin(t, req, &cbs, get_slice, get_done);
}

/* ---- put ---- */

static int open_put(struct talk *t)
{
    struct sync_tree home = {.root = -1, .stage = -1};
    int r;

    t->dir = open_folder(t, t->path);
    if (t->dir < 0)
        return t->dir;
    r = sync_tree_open(&home, t->files.home);
    if (r != 0)
        return r;
    t->stage = sync_tree_own_stage(&home);
    sync_tree_close(&home);
    return t->stage < 0 ? t->stage : sync_gitdir_unpack_new(t->dir, t->stage, &t->unpack);
}

static void put_slice(struct talk *t)
{
    if (t->dir < 0)
        t->result = open_put(t);
    if (t->result == 0 && t->writing_len > 0)
        t->result = sync_gitdir_unpack_feed(t->unpack, t->writing, t->writing_len);
    if (t->result == 0 && t->is_last)
        t->result = sync_gitdir_unpack_end(t->unpack);
}

static void put_next(struct talk *t)
{
    if (t->busy || t->over || (t->in_len == 0 && !t->in_end && t->dir >= 0))
        return;
    t->writing = t->in;
    t->writing_len = t->in_len;
    t->in = NULL;
    t->in_len = 0;
    t->is_last = t->in_end;
    start_slice(t);
}

static void put_done(struct talk *t)
{
    if (t->writing_len > 0)
        agent_request_consume(t->req, t->writing_len);
    free(t->writing);
    t->writing = NULL;
    t->writing_len = 0;
    if (!t->is_last) {
        put_next(t);
        return;
    }
    agent_request_empty(t->req, 201);
    end(t);
}

static void put_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct talk *t = req->ctx;
    char *grown = realloc(t->in, t->in_len + len); /* bounded by the stream's window */

    if (grown == NULL) {
        fail(t, UV_ENOMEM);
        return;
    }
    memcpy(grown + t->in_len, data, len);
    t->in = grown;
    t->in_len += len;
    put_next(t);
}

static void put_end(struct agent_request *req)
{
    struct talk *t = req->ctx;

    t->in_end = true;
    put_next(t);
}

void agent_git_handle_put(struct agent_request *req)
{
    static const struct agent_request_cbs cbs = {
        .on_data = put_data, .on_end = put_end, .on_close = on_close};
    const char *path = agent_files_query_path(req, true);
    struct talk *t = path != NULL ? new_talk(req, path, strlen(path)) : NULL;

    if (t == NULL)
        return;
    t->in_end = t->is_last = req->body_ended;
    begin(t, req, &cbs, put_slice, put_done);
}
