/* SPDX-License-Identifier: MIT */
/* POST of /v1/sessions/{s}/files: a ZIP archive, unpacked into the session's files.
 *
 * Path: hold the store -> stage -> [bytes -> written, given back] ... -> the body's end -> a
 * process of its own unpacks beside it (vmm/unzip.h) -> import -> answer. Nothing is changed before
 * the import, which looks at all of it first. Any fault: what was staged is dropped. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "sync/store_import.h"
#include "vmm/api.h"
#include "vmm/file.h"
#include "vmm/proc/child.h"
#include "vmm/store_api.h"
#include "vmm/unzip.h"

#define UNZIP_MAX_MS 900000
#define BYTES_MAX    (INT64_C(1) << 40) /* without a quota */

struct unpack {
    struct vmm_store_job job;
    struct vmm_store_hold hold;
    struct vmm_request *req; /* with a reference */
    struct child *child;     /* NULL: none runs */
    char session[VMM_ID_LEN + 1], author[VMM_OWNER_MAX + 1];
    char staging[VMM_PATH_SIZE];
    char *dir;         /* below which it goes; "" : the root */
    int64_t announced; /* bytes that the head promised; 0: not told */
    /* the job's while one is under way */
    struct sync_staged staged;
    char folder[SYNC_IMPORT_NAME + 8]; /* in staging; "" : there is none */
    uint8_t *out;
    size_t out_len;
    int64_t n_written, room;
    struct sync_import import;
    /* the loop's */
    uint8_t *in; /* what arrived and is not written; at most one window */
    size_t in_len, in_size;
    unsigned long long n_passed;
    char *passed; /* the first path that was passed over */
    bool busy, ended, failed, is_unpacked, is_imported;
};

static void finish(struct unpack *u)
{
    u->req->arg = NULL;
    u->req->cbs = NULL;
    vmm_store_release(&u->hold);
    vmm_request_unref(u->req);
    free(u->dir);
    free(u->in);
    free(u->out);
    free(u->passed);
    free(u);
}

/* ---- in the pool ---- */

static void run_stage(struct vmm_store_job *job, struct sync_store *store)
{
    struct unpack *u = (struct unpack *)job;

    if (sync_store_room(store, u->announced, &job->err) == 0 &&
        sync_store_stage(store, &u->staged, &job->err) != 0)
        u->staged.fd = -1;
}

/* What the archive may become. */
static void find_room(struct unpack *u, const struct sync_store *store)
{
    struct sync_usage usage;

    sync_store_usage(store, &usage);
    u->room = usage.quota > 0 ? usage.quota - usage.files - usage.history : BYTES_MAX;
}

static void run_write(struct vmm_store_job *job, struct sync_store *store)
{
    struct unpack *u = (struct unpack *)job;
    size_t n = 0;

    if (sync_store_room(store, u->n_written + (int64_t)u->out_len, &job->err) != 0)
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
    find_room(u, store);
}

static void run_import(struct vmm_store_job *job, struct sync_store *store)
{
    struct unpack *u = (struct unpack *)job;

    (void)!sync_store_import(store, u->folder, u->dir, strlen(u->dir), false, u->author, &u->import,
                             &job->err);
}

static void run_drop(struct vmm_store_job *job, struct sync_store *store)
{
    struct unpack *u = (struct unpack *)job;

    sync_store_unstage(store, &u->staged);
    if (*u->folder)
        sync_store_import_drop(store, u->folder);
    *u->folder = '\0';
}

/* ---- on the loop ---- */

static void step(struct unpack *u);

/* What waits is not wanted any more. */
static void drop_in(struct unpack *u)
{
    if (u->req->st != NULL && u->in_len > 0)
        vmm_request_drop(u->req, u->in_len);
    u->in_len = 0;
}

static void answer(struct unpack *u)
{
    json_t *body = json_pack("{sI, sI, sI, sI}", "files", (json_int_t)u->import.n_files,
                             "directories", (json_int_t)u->import.n_dirs, "bytes",
                             (json_int_t)u->import.bytes, "passed_over", (json_int_t)u->n_passed);

    if (body != NULL && u->n_passed > 0 &&
        vmm_store_set_bytes(body, "passed_path", u->passed, strlen(u->passed)) != 0) {
        json_decref(body);
        body = NULL;
    }
    vmm_reply_json(u->req, 200, body);
}

static void on_done(struct vmm_store_job *job)
{
    struct unpack *u = (struct unpack *)job;

    u->busy = false;
    if (u->out_len > 0 && u->req->st != NULL)
        tr_h2_stream_consume(u->req->st, u->out_len);
    u->out_len = 0;
    if (u->is_imported) /* also when it came only half-way */
        vmm_store_changed(u->req->vmm, u->session);
    if (job->err.code != 0 && !u->failed) {
        u->failed = true;
        vmm_store_reply_err(u->req, &job->err);
        drop_in(u);
    } else if (u->is_imported && !u->failed) {
        u->failed = true; /* over, at any rate */
        answer(u);
    }
    u->is_imported = false;
    step(u);
}

static void submit(struct unpack *u, void (*run)(struct vmm_store_job *, struct sync_store *))
{
    u->job.run = run;
    u->job.done = on_done;
    u->busy = true;
    vmm_store_submit_held(&u->hold, &u->job);
}

static void on_unzipped(const struct child_result *result, void *arg)
{
    struct unpack *u = arg;
    struct err err = {0};
    char *end;

    u->child = NULL;
    u->busy = false;
    u->is_unpacked = true;
    if (result->status == 0) {
        u->n_passed = strtoull(result->out, &end, 10);
        u->passed = strndup(end + (*end == ' '), strcspn(end + (*end == ' '), "\n"));
    } else if (!u->failed) {
        u->failed = true;
        if (result->status == UV_EIO && result->code == VMM_UNZIP_REFUSED)
            vmm_reply_error(u->req, 422, "%s", result->errors);
        else if (result->status == UV_EIO && result->code == VMM_UNZIP_TOO_BIG)
            vmm_reply_fault(u->req, 507, "quota_exceeded", "%s", result->errors);
        else if (result->status == UV_ETIMEDOUT)
            vmm_reply_error(u->req, 422, "the archive takes too long to unpack");
        else if (child_explain(result, "unzip", &err) != 0)
            vmm_reply_error(u->req, 500, "%s", err.msg);
    }
    step(u);
}

static void unzip(struct unpack *u)
{
    char room[24], files[24];
    const char *argv[] = {
        "/proc/self/exe", "--unzip", u->staging, u->staged.name, room, files, NULL};
    struct err err = {0};

    snprintf(room, sizeof(room), "%lld", (long long)(u->room > 0 ? u->room : 0));
    snprintf(files, sizeof(files), "%d", SYNC_STORE_FILES_MAX);
    snprintf(u->folder, sizeof(u->folder), "%s.d", u->staged.name);
    u->busy = true;
    if (child_run(u->req->vmm->loop, argv, NULL, UNZIP_MAX_MS, on_unzipped, u, &u->child, &err) ==
        0)
        return;
    u->busy = false;
    u->failed = true;
    vmm_reply_error(u->req, 500, "%s", err.msg);
    step(u);
}

static void step(struct unpack *u)
{
    bool gone = u->req->st == NULL;

    if (u->busy) {
        if (u->child != NULL && (gone || u->failed))
            child_cancel(u->child);
        return;
    }
    if (u->failed || gone) {
        u->failed = true;
        if (u->staged.fd >= 0 || *u->folder) {
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
    } else if (u->is_unpacked) {
        u->is_imported = true;
        submit(u, run_import);
    } else if (u->ended) {
        unzip(u);
    }
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    struct unpack *u = req->arg;
    size_t size = u->in_size ? u->in_size : 16384;
    uint8_t *grown = u->in;

    if (u->failed) {
        vmm_request_drop(req, len);
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
    memcpy(u->in + u->in_len, data, len); /* bounded by the stream's window */
    u->in_len += len;
    step(u);
}

static void on_end(struct vmm_request *req, const struct tr_h2_head *trailers)
{
    struct unpack *u = req->arg;

    (void)trailers;
    u->ended = true;
    step(u);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    (void)code;
    step(req->arg);
}

/* The session is being deleted. */
static void on_hold_end(struct vmm_store_hold *hold)
{
    struct unpack *u = (struct unpack *)((char *)hold - offsetof(struct unpack, hold));

    if (u->failed || u->is_imported)
        return; /* it is over soon */
    u->failed = true;
    vmm_reply_error(u->req, 409, "the session is being deleted");
    drop_in(u);
    step(u);
}

static const struct vmm_request_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_gone = on_gone};

void vmm_api_store_unpack(struct vmm_request *req)
{
    const char *type = tr_h2_head_get(req->head, "content-type");
    const char *length = tr_h2_head_get(req->head, "content-length");
    struct unpack *u;
    struct err err = {0};
    int r = 0;

    if (type == NULL || strncasecmp(type, "application/zip", 15) != 0 ||
        (type[15] != '\0' && type[15] != ';' && type[15] != ' ')) {
        vmm_reply_error(req, 415, "the body must be a ZIP archive: content-type application/zip");
        return;
    }
    u = calloc(1, sizeof(*u));
    if (u == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    u->req = vmm_request_ref(req);
    u->staged.fd = -1;
    u->hold.end = on_hold_end;
    u->announced = length != NULL ? strtoll(length, NULL, 10) : 0;
    memcpy(u->session, req->session->id, sizeof(u->session));
    snprintf(u->author, sizeof(u->author), "%s", req->who.owner);
    snprintf(u->staging, sizeof(u->staging), "%s/%s/staging", req->vmm->sessions.dir, u->session);
    u->dir = vmm_query_get(req->query, "dir");
    if (u->dir == NULL)
        u->dir = strdup("");
    if (u->dir == NULL)
        r = tr_err_set(&err, -ENOMEM, "out of memory");
    else if (*u->dir)
        r = sync_store_check_path(u->dir, strlen(u->dir), &err);
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
