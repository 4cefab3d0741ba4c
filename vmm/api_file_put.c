/* SPDX-License-Identifier: MIT */
/* PUT of /v1/sessions/{s}/files/{path}: a file, a folder or a link.
 *
 * Path: hold the store -> stage -> [bytes -> written, given back] ... -> the body's end -> put ->
 * answer. What arrives waits in the stream's window until it is written. Client gone or any fault:
 * what was staged is dropped; the tree has the old file. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/api.h"
#include "vmm/store_api.h"

enum kind { KIND_FILE, KIND_DIRECTORY, KIND_LINK };

struct upload {
    struct vmm_store_job job;
    struct vmm_store_hold hold;
    struct vmm_request *req; /* with a reference */
    char session[VMM_ID_LEN + 1];
    char *path;
    enum kind kind;
    enum sync_exec exec;
    struct sync_condition condition;
    char etag[SYNC_ETAG_SIZE];
    int64_t announced; /* bytes that the head promised; 0: not told */
    /* the job's while one is under way */
    struct sync_staged staged;
    uint8_t *out;
    size_t out_len;
    int64_t n_written, n_replaced; /* bytes; of what is there now */
    struct sync_stat st;
    char *target;
    bool created;
    /* the loop's */
    uint8_t *in; /* what arrived and is not written; at most one window */
    size_t in_len, in_size;
    bool busy, ended, failed, is_put;
};

static void finish(struct upload *u)
{
    u->req->arg = NULL;
    u->req->cbs = NULL;
    vmm_store_release(&u->hold);
    vmm_request_unref(u->req);
    free(u->path);
    free(u->in);
    free(u->out);
    free(u->target);
    free(u);
}

/* ---- in the pool ---- */

static void run_stage(struct vmm_store_job *job, struct sync_store *store)
{
    struct upload *u = (struct upload *)job;
    struct sync_stat st;
    struct err nothing = {0};

    if (sync_store_stat(store, u->path, strlen(u->path), &st, &nothing) == 0 &&
        st.type == SYNC_TYPE_FILE)
        u->n_replaced = st.size;
    if (sync_store_room(store, u->announced - u->n_replaced, &job->err) == 0 &&
        sync_store_stage(store, &u->staged, &job->err) != 0)
        u->staged.fd = -1;
}

static void run_write(struct vmm_store_job *job, struct sync_store *store)
{
    struct upload *u = (struct upload *)job;
    size_t n = 0;

    if (sync_store_room(store, u->n_written + (int64_t)u->out_len - u->n_replaced, &job->err) != 0)
        return;
    while (n < u->out_len) {
        ssize_t got = write(u->staged.fd, u->out + n, u->out_len - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            (void)tr_err_set(&job->err, errno == EDQUOT ? -ENOSPC : -errno, "cannot keep it: %s",
                             strerror(errno));
            return;
        }
        n += (size_t)got;
    }
    u->n_written += (int64_t)n;
}

static int put_link(struct upload *u, struct sync_store *store, struct err *err)
{
    size_t len = strlen(u->path);
    ssize_t n;
    int r;

    if (u->n_written < 1 || u->n_written > SYNC_PATH_MAX)
        return tr_err_set(err, -EINVAL, "a link's target has 1 to %d bytes", SYNC_PATH_MAX);
    u->target = calloc(1, (size_t)u->n_written + 1);
    n = u->target == NULL ? -1 : pread(u->staged.fd, u->target, (size_t)u->n_written, 0);
    if (n != u->n_written)
        return tr_err_set(err, -EIO, "the link's target was lost");
    if (strlen(u->target) != (size_t)n)
        return tr_err_set(err, -EINVAL, "a link's target holds no NUL");
    r = sync_store_link(store, u->path, len, u->target, &u->condition, &u->created, err);
    return r == 0 ? sync_store_stat(store, u->path, len, &u->st, err) : r;
}

static void run_put(struct vmm_store_job *job, struct sync_store *store)
{
    struct upload *u = (struct upload *)job;
    size_t len = strlen(u->path);
    int r;

    switch (u->kind) {
    case KIND_FILE:
        r = sync_store_put(store, u->path, len, &u->staged, u->exec, &u->condition, &u->st,
                           &u->created, &job->err);
        break;
    case KIND_LINK:
        r = put_link(u, store, &job->err);
        break;
    default:
        r = sync_store_mkdir(store, u->path, len, &u->created, &job->err);
        if (r == 0)
            r = sync_store_stat(store, u->path, len, &u->st, &job->err);
        break;
    }
    sync_store_unstage(store, &u->staged);
    (void)r; /* job->err tells */
}

static void run_drop(struct vmm_store_job *job, struct sync_store *store)
{
    sync_store_unstage(store, &((struct upload *)job)->staged);
}

/* ---- on the loop ---- */

static void step(struct upload *u);

/* What waits is not wanted any more. */
static void drop_in(struct upload *u)
{
    if (u->req->st != NULL && u->in_len > 0)
        vmm_request_drop(u->req, u->in_len);
    u->in_len = 0;
}

static void on_done(struct vmm_store_job *job)
{
    struct upload *u = (struct upload *)job;

    u->busy = false;
    if (u->out_len > 0 && u->req->st != NULL)
        tr_h2_stream_consume(u->req->st, u->out_len);
    u->out_len = 0;
    if (job->err.code != 0 && !u->failed) {
        u->failed = true;
        vmm_store_reply_err(u->req, &job->err);
        drop_in(u);
    }
    if (u->is_put && !u->failed) {
        json_t *entry = vmm_store_view_entry(u->path, strlen(u->path), &u->st, u->target);

        u->failed = true; /* over, at any rate */
        vmm_store_changed(u->req->vmm, u->session);
        vmm_reply_json(u->req, u->created ? 201 : 200, entry);
    }
    step(u);
}

static void submit(struct upload *u, void (*run)(struct vmm_store_job *, struct sync_store *))
{
    u->job.run = run;
    u->job.done = on_done;
    u->busy = true;
    vmm_store_submit_held(&u->hold, &u->job);
}

static void step(struct upload *u)
{
    bool gone = u->req->st == NULL;

    if (u->busy)
        return;
    if (u->failed || (gone && !u->is_put)) {
        u->failed = true;
        if (u->staged.fd >= 0) {
            submit(u, run_drop);
        } else {
            vmm_store_release(&u->hold);
            if (gone)
                finish(u);
        }
        return;
    }
    if (u->in_len > 0) {
        free(u->out);
        u->out = u->in;
        u->out_len = u->in_len;
        u->in = NULL;
        u->in_len = u->in_size = 0;
        submit(u, run_write);
    } else if (u->ended) {
        u->is_put = true;
        submit(u, run_put);
    }
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    struct upload *u = req->arg;
    size_t size = u->in_size ? u->in_size : 16384;
    uint8_t *grown = u->in;

    if (u->failed) {
        vmm_request_drop(req, len);
        return;
    }
    if (u->kind == KIND_DIRECTORY || u->in_len + len > 16 * 1024 * 1024) {
        u->failed = true; /* the second cannot be: a window is far smaller */
        vmm_reply_error(req, 400, "a folder has no content");
        vmm_request_drop(req, len);
        drop_in(u);
        step(u);
        return;
    }
    while (size < u->in_len + len)
        size *= 2;
    if (size != u->in_size)
        grown = realloc(u->in, size);
    if (grown == NULL) {
        u->failed = true;
        vmm_reply_error(req, 503, "out of memory");
        vmm_request_drop(req, len);
        drop_in(u);
        step(u);
        return;
    }
    u->in = grown;
    u->in_size = size;
    memcpy(u->in + u->in_len, data, len);
    u->in_len += len;
    step(u);
}

static void on_end(struct vmm_request *req, const struct tr_h2_head *trailers)
{
    struct upload *u = req->arg;

    (void)trailers;
    u->ended = true;
    step(u);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct upload *u = req->arg;

    (void)code;
    step(u);
}

/* The session is being deleted. */
static void on_hold_end(struct vmm_store_hold *hold)
{
    struct upload *u = (struct upload *)((char *)hold - offsetof(struct upload, hold));

    if (u->failed || u->is_put)
        return; /* it is over soon */
    u->failed = true;
    vmm_reply_error(u->req, 409, "the session is being deleted");
    drop_in(u);
    step(u);
}

static const struct vmm_request_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_gone = on_gone};

/* ---- the request ---- */

static int parse_query(struct upload *u, struct err *err)
{
    char *type = vmm_query_get(u->req->query, "type");
    char *exec = vmm_query_get(u->req->query, "executable");
    int r = 0;

    if (type == NULL || strcmp(type, "file") == 0)
        u->kind = KIND_FILE;
    else if (strcmp(type, "directory") == 0)
        u->kind = KIND_DIRECTORY;
    else if (strcmp(type, "symlink") == 0)
        u->kind = KIND_LINK;
    else
        r = tr_err_set(err, -EINVAL,
                       "the query's \"type\" must be \"file\", \"directory\" or \"symlink\"");
    if (exec == NULL)
        u->exec = SYNC_EXEC_KEEP;
    else if (strcmp(exec, "1") == 0 || strcmp(exec, "true") == 0)
        u->exec = SYNC_EXEC_ON;
    else if (strcmp(exec, "0") == 0 || strcmp(exec, "false") == 0)
        u->exec = SYNC_EXEC_OFF;
    else if (r == 0)
        r = tr_err_set(err, -EINVAL, "the query's \"executable\" must be 1 or 0");
    free(type);
    free(exec);
    return r;
}

void vmm_api_store_put(struct vmm_request *req)
{
    const char *path = req->params[1], *length = tr_h2_head_get(req->head, "content-length");
    struct upload *u = calloc(1, sizeof(*u));
    struct err err = {0};
    int r;

    if (u == NULL || (u->path = strdup(path)) == NULL) {
        free(u);
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    u->req = vmm_request_ref(req);
    u->staged.fd = -1;
    u->hold.end = on_hold_end;
    u->announced = length != NULL ? strtoll(length, NULL, 10) : 0;
    memcpy(u->session, req->session->id, sizeof(u->session));
    r = sync_store_check_path(path, strlen(path), &err);
    if (r == 0)
        r = parse_query(u, &err);
    if (r == 0)
        r = vmm_store_condition(req->head, &u->condition, u->etag, &err);
    if (r == 0)
        r = vmm_store_hold(req->vmm, req->session, &u->hold, &err);
    if (r != 0) {
        vmm_store_reply_err(req, &err);
        finish(u);
        return;
    }
    req->cbs = &cbs;
    req->arg = u;
    submit(u, run_stage);
}
