/* SPDX-License-Identifier: MIT */
/* GET and HEAD of /v1/sessions/{s}/files/{path}; GET of /v1/sessions/{s}/git/{path} and of
 * /v1/sessions/{s}/contents/{id}.
 *
 * Path: open (in the pool) -> head -> piece, written -> [drain] -> piece ... -> end. The file that
 * was opened is read to its end, whatever takes its path meanwhile. Client gone: after the job
 * under way. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/kinds.h"
#include "sync/path.h"
#include "vmm/agent/range.h"
#include "vmm/api.h"
#include "vmm/store_api.h"

#define PIECE         (128 * 1024)
#define SNIFF         8192
#define CODE_INTERNAL 2

struct download {
    struct vmm_store_job job;
    struct vmm_request *req; /* with a reference */
    char *path;
    bool is_git;  /* of the repository */
    int fd;       /* -1: none */
    char *target; /* of a link */
    struct sync_stat st;
    const char *type;
    int64_t at, end; /* of the part that is sent */
    char *piece;
    size_t piece_len;
    bool busy;    /* a job is under way */
    bool is_over; /* nothing is sent any more */
};

static void finish(struct download *d)
{
    d->req->arg = NULL;
    d->req->cbs = NULL;
    if (d->fd >= 0)
        close(d->fd);
    vmm_request_unref(d->req);
    free(d->target);
    free(d->piece);
    free(d->path);
    free(d);
}

/* ---- in the pool ---- */

static void read_piece(struct download *d, struct err *err)
{
    size_t want = d->end - d->at < PIECE ? (size_t)(d->end - d->at) : PIECE;

    d->piece_len = 0;
    while (d->piece_len < want) {
        ssize_t n = pread(d->fd, d->piece + d->piece_len, want - d->piece_len,
                          d->at + (int64_t)d->piece_len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            (void)tr_err_set(err, n < 0 ? -errno : -EIO, "the file is shorter than it was");
            return;
        }
        d->piece_len += (size_t)n;
    }
}

static void run_piece(struct vmm_store_job *job, struct sync_store *store)
{
    (void)store;
    read_piece((struct download *)job, &job->err);
}

/* What a browser may make of it: text and pictures as such, all else is bytes. */
static const char *media_type(const struct download *d)
{
    struct sync_kind_scan scan;
    size_t len = strlen(d->path), base = sync_path_base(d->path, len);
    char head[SNIFF];
    ssize_t n = pread(d->fd, head, sizeof(head), 0);
    enum sync_kind kind;

    if (n < 0)
        return "application/octet-stream";
    /* A character that is cut by the end of the sample says nothing. */
    if (n < d->st.size) {
        int cut = 0;

        while (n > 0 && cut < 3 && (head[n - 1] & 0xc0) == 0x80) {
            n--;
            cut++;
        }
        if (n > 0 && (head[n - 1] & 0xc0) == 0xc0)
            n--;
    }
    sync_kind_start(&scan, d->path + base, len - base);
    (void)sync_kind_feed(&scan, head, (size_t)n);
    kind = sync_kind_end(&scan);
    if (kind != SYNC_KIND_TEXT)
        return sync_kind_media_type(kind);
    return n >= 2 && (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0)
               ? "text/plain; charset=utf-16"
               : "text/plain; charset=utf-8";
}

static void run_open_blob(struct vmm_store_job *job, struct sync_store *store)
{
    struct download *d = (struct download *)job;
    struct stat st;

    d->fd = sync_store_open_blob(store, d->path, &job->err);
    if (d->fd < 0)
        return;
    if (fstat(d->fd, &st) != 0)
        (void)tr_err_set(&job->err, -errno, "%s: %s", d->path, strerror(errno));
    d->st = (struct sync_stat){.type = SYNC_TYPE_FILE, .size = st.st_size};
    d->type = media_type(d);
}

static void run_open_git(struct vmm_store_job *job, struct sync_store *store)
{
    struct download *d = (struct download *)job;
    struct stat st;

    d->fd = sync_store_open_git(store, d->path, &job->err);
    if (d->fd < 0)
        return;
    if (fstat(d->fd, &st) != 0)
        (void)tr_err_set(&job->err, -errno, "%s: %s", d->path, strerror(errno));
    d->st = (struct sync_stat){.type = SYNC_TYPE_FILE,
                               .size = st.st_size,
                               .ino = st.st_ino,
                               .mtime_ns =
                                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    /* git itself tells by the type that there is no cleverer server than this. */
    d->type = strncmp(d->path, "objects/", 8) == 0 && strcmp(d->path, "objects/info/packs") != 0
                  ? "application/octet-stream"
                  : "text/plain; charset=utf-8";
}

static void run_open(struct vmm_store_job *job, struct sync_store *store)
{
    struct download *d = (struct download *)job;
    size_t len = strlen(d->path);
    int r = sync_store_stat(store, d->path, len, &d->st, &job->err);

    if (r != 0)
        return;
    if (d->st.type == SYNC_TYPE_LINK) {
        d->type = "inode/symlink";
        if (sync_store_read_link(store, d->path, len, &d->target, &job->err) != 0)
            d->target = NULL;
        return;
    }
    d->fd = sync_store_open_file(store, d->path, len, &d->st, &job->err);
    if (d->fd >= 0)
        d->type = media_type(d);
}

/* ---- on the loop ---- */

static void on_piece(struct vmm_store_job *job);

static void submit(struct download *d, void (*run)(struct vmm_store_job *, struct sync_store *),
                   void (*done)(struct vmm_store_job *))
{
    struct err err = {0};

    d->job.run = run;
    d->job.done = done;
    d->busy = true;
    if (vmm_store_submit(d->req->vmm, d->req->session, &d->job, &err) == 0)
        return;
    d->busy = false;
    d->is_over = true;
    if (!d->req->answered)
        vmm_store_reply_err(d->req, &err);
    else if (d->req->st != NULL)
        tr_h2_reset(d->req->st, CODE_INTERNAL);
    if (d->req->st == NULL)
        finish(d);
}

static void next_piece(struct download *d)
{
    struct vmm_request *req = d->req;
    struct vmm_session *session = vmm_session_find(&req->vmm->sessions, req->params[0]);

    if (session == NULL) { /* it went while we sent */
        d->is_over = true;
        tr_h2_reset(req->st, CODE_INTERNAL);
        return;
    }
    req->session = session;
    submit(d, run_piece, on_piece);
}

static void on_piece(struct vmm_store_job *job)
{
    struct download *d = (struct download *)job;
    struct vmm_request *req = d->req;
    int r;

    d->busy = false;
    if (req->st == NULL) {
        finish(d);
        return;
    }
    r = job->err.code != 0 ? -1 : tr_h2_write(req->st, d->piece, d->piece_len);
    if (r < 0) {
        d->is_over = true;
        tr_h2_reset(req->st, CODE_INTERNAL); /* on_gone() ends it */
        return;
    }
    d->at += (int64_t)d->piece_len;
    if (d->at == d->end) {
        d->is_over = true;
        tr_h2_end(req->st, NULL, 0);
    } else if (r > 0) {
        next_piece(d);
    } /* else on_drain() goes on */
}

static void on_drain(struct vmm_request *req)
{
    struct download *d = req->arg;

    if (!d->busy && !d->is_over)
        next_piece(d);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct download *d = req->arg;

    (void)code;
    if (!d->busy)
        finish(d);
}

static const struct vmm_request_cbs cbs = {.on_drain = on_drain, .on_gone = on_gone};

/* Which part is asked for? Returns the status. */
static int choose_part(struct download *d, const char *etag)
{
    const struct tr_h2_head *head = d->req->head;
    const char *if_range = tr_h2_head_get(head, "if-range");
    const char *range = tr_h2_head_get(head, "range");
    const char *known = tr_h2_head_get(head, "if-none-match");
    int64_t first, last;

    d->at = 0;
    d->end = d->st.size;
    /* A list of etags; the quotes keep one from being a part of another (RFC 9110 section 13.1.2).
     */
    if (known != NULL && (strcmp(known, "*") == 0 || strstr(known, etag) != NULL))
        return 304;
    if (range == NULL || (if_range != NULL && strcmp(if_range, etag) != 0))
        return 200;
    switch (agent_range_parse(range, d->st.size, &first, &last)) {
    case AGENT_RANGE_PART:
        d->at = first;
        d->end = last + 1;
        return 206;
    case AGENT_RANGE_NOT:
        return 416;
    default:
        return 200;
    }
}

static void send_head(struct download *d)
{
    struct vmm_request *req = d->req;
    char etag[SYNC_ETAG_SIZE], length[24], part[80];
    bool is_head = strcmp(req->head->method, "HEAD") == 0, end;
    struct tr_h2_field fields[10];
    size_t n = 0;
    int status;

    sync_store_etag(&d->st, etag);
    status = choose_part(d, etag);
    if (status == 416) {
        d->is_over = true;
        vmm_reply_error(req, 416, "the file has %lld bytes", (long long)d->st.size);
        return;
    }
    snprintf(length, sizeof(length), "%lld", (long long)(d->end - d->at));
    if (status != 304) {
        fields[n++] = TR_H2_FIELD("content-type", d->type);
        fields[n++] = TR_H2_FIELD("content-length", length);
    }
    fields[n++] = TR_H2_FIELD("etag", etag);
    fields[n++] = TR_H2_FIELD("accept-ranges", "bytes");
    fields[n++] = TR_H2_FIELD("cache-control", "no-cache");
    fields[n++] = TR_H2_FIELD("x-content-type-options", "nosniff");
    fields[n++] = TR_H2_FIELD("content-security-policy", "sandbox; default-src 'none'");
    if (d->target == NULL && !d->is_git)
        fields[n++] = TR_H2_FIELD("transom-mode", d->st.is_exec ? "0755" : "0644");
    if (status == 206) {
        snprintf(part, sizeof(part), "bytes %lld-%lld/%lld", (long long)d->at,
                 (long long)d->end - 1, (long long)d->st.size);
        fields[n++] = TR_H2_FIELD("content-range", part);
    }
    vmm_request_answered(req, status);
    end = is_head || status == 304 || d->at == d->end;
    d->is_over = end;
    if (tr_h2_respond(req->st, status, fields, n, end) != 0) {
        d->is_over = true;
        tr_h2_reset(req->st, CODE_INTERNAL);
    } else if (!end && d->target != NULL) {
        d->is_over = true;
        if (tr_h2_write(req->st, d->target + d->at, (size_t)(d->end - d->at)) < 0)
            tr_h2_reset(req->st, CODE_INTERNAL);
        else
            tr_h2_end(req->st, NULL, 0);
    } else if (!end) {
        d->piece = malloc(PIECE);
        if (d->piece != NULL) {
            next_piece(d);
            return;
        }
        d->is_over = true;
        tr_h2_reset(req->st, CODE_INTERNAL);
    }
}

static void on_open(struct vmm_store_job *job)
{
    struct download *d = (struct download *)job;

    d->busy = false;
    if (d->req->st == NULL) {
        finish(d);
        return;
    }
    if (job->err.code != 0) {
        d->is_over = true;
        vmm_store_reply_err(d->req, &job->err); /* on_gone() ends it */
        return;
    }
    if (d->target != NULL)
        d->st.size = (int64_t)strlen(d->target);
    send_head(d);
}

static void start(struct vmm_request *req, bool is_git,
                  void (*open)(struct vmm_store_job *, struct sync_store *))
{
    const char *path = req->params[1];
    struct download *d;
    struct err err = {0};

    if (!is_git && sync_store_check_path(path, strlen(path), &err) != 0) {
        vmm_store_reply_err(req, &err);
        return;
    }
    d = calloc(1, sizeof(*d));
    if (d == NULL || (d->path = strdup(path)) == NULL) {
        free(d);
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    d->fd = -1;
    d->is_git = is_git;
    d->req = vmm_request_ref(req);
    req->cbs = &cbs;
    req->arg = d;
    submit(d, open, on_open);
}

void vmm_api_store_get(struct vmm_request *req)
{
    start(req, false, run_open);
}

void vmm_api_store_git(struct vmm_request *req)
{
    start(req, true, run_open_git);
}

void vmm_api_content_get(struct vmm_request *req)
{
    start(req, true, run_open_blob);
}
