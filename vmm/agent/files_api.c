/* SPDX-License-Identifier: MIT */
/* Content moves through the loop's thread pool, one block at a time and no faster than the other
 * side takes it, so that a slow disk holds up nobody else. */
#include "vmm/agent/files_api.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/agent/child.h"
#include "vmm/agent/files.h"
#include "vmm/agent/utf8.h"

#define BLOCK 65536

/* ---- what all have in common ---- */

/* The path of the query, or NULL: answered. optional: "" when there is none. */
static const char *get_path(struct agent_request *req, bool optional)
{
    const struct agent_text *path = agent_target_query(&req->target, "path");

    if (path == NULL && optional)
        return "";
    if (path == NULL || (path->len == 0 && !optional) || strlen(path->at) != path->len ||
        path->len >= PATH_MAX) {
        agent_request_error(req, 400, NULL,
                            "path is needed: 1 to %d bytes without NUL, percent-encoded",
                            PATH_MAX - 1);
        return NULL;
    }
    return path->at;
}

/* home is the caller's memory. */
static bool get_files(struct agent_request *req, struct agent_files *f, char *home, size_t size)
{
    struct err err = {0};
    struct agent_child child;

    if (agent_child_init(&child, req->agent, AGENT_SANDBOX_USER, NULL, &err) != 0) {
        agent_request_error(req, 500, NULL, "%s", err.msg);
        return false;
    }
    snprintf(home, size, "%s", child.user.home);
    *f = (struct agent_files){
        .home = home, .give = child.change_user, .uid = child.user.uid, .gid = child.user.gid};
    agent_child_fini(&child);
    return true;
}

/* ---- get ---- */

struct download {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_fs_t fs;
    int fd;
    int64_t at;
    bool reading, full, over;
    char buf[BLOCK];
};

static void read_next(struct download *d);

static void end_download(struct download *d)
{
    if (d->req != NULL)
        d->req->cbs = NULL;
    d->req = NULL;
    d->over = true;
    if (d->reading)
        return; /* its callback frees */
    close(d->fd);
    free(d);
}

static void on_block_read(uv_fs_t *fs)
{
    struct download *d = fs->data;
    ssize_t n = fs->result;
    int r;

    uv_fs_req_cleanup(fs);
    d->reading = false;
    if (d->over) {
        end_download(d);
        return;
    }
    if (n <= 0) {
        if (n == 0)
            agent_request_finish(d->req);
        else
            tr_h2_reset(d->req->stream, 2);
        end_download(d);
        return;
    }
    d->at += n;
    r = agent_request_write(d->req, d->buf, (size_t)n);
    if (r < 0) {
        end_download(d);
        return;
    }
    d->full = r == 0;
    read_next(d);
}

static void read_next(struct download *d)
{
    uv_buf_t buf = uv_buf_init(d->buf, sizeof(d->buf));

    if (d->reading || d->full)
        return;
    d->fs.data = d;
    d->reading = true;
    if (uv_fs_read(d->loop, &d->fs, d->fd, &buf, 1, d->at, on_block_read) != 0) {
        d->reading = false;
        tr_h2_reset(d->req->stream, 2);
        end_download(d);
    }
}

static void on_download_drain(struct agent_request *req)
{
    struct download *d = req->ctx;

    d->full = false;
    read_next(d);
}

static void on_download_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end_download(req->ctx);
}

static const struct agent_request_cbs download_cbs = {.on_drain = on_download_drain,
                                                      .on_close = on_download_close};

void agent_files_handle_get(struct agent_request *req)
{
    const char *path = get_path(req, false);
    char home[PATH_MAX], mode[16];
    struct err err = {0};
    struct agent_files f;
    struct download *d;
    struct stat st;
    int fd;

    if (path == NULL || !agent_request_may_act(req) || !get_files(req, &f, home, sizeof(home)))
        return;
    fd = agent_files_open(&f, path, &st, &err);
    if (fd < 0) {
        agent_request_fail(req, fd, &err);
        return;
    }
    d = malloc(sizeof(*d));
    if (d == NULL) {
        close(fd);
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    d->req = req;
    d->loop = req->agent->loop;
    d->fd = fd;
    d->at = 0;
    d->reading = d->full = d->over = false;
    req->ctx = d;
    req->cbs = &download_cbs;
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(st.st_mode & 07777));
    agent_request_head(req, 200, "application/octet-stream", "transom-mode", mode);
    read_next(d);
}

/* ---- put ---- */

struct put {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_fs_t fs;
    uv_work_t work;
    struct agent_upload upload;
    struct err err;
    int result;
    int64_t size; /* written */
    char *queue;  /* received, not written */
    size_t queue_len;
    char *writing; /* the block under way */
    size_t writing_len, written;
    bool busy, ended, over;
};

static void write_next(struct put *p);

static void end_put(struct put *p)
{
    if (p->req != NULL)
        p->req->cbs = NULL;
    p->req = NULL;
    p->over = true;
    if (p->busy)
        return;                     /* its callback comes back here */
    agent_upload_abort(&p->upload); /* nothing, once committed */
    free(p->queue);
    free(p->writing);
    free(p);
}

static void fail_put(struct put *p, int code)
{
    struct err err = {0};

    tr_err_set(&err, code, "%s: %s", p->upload.name, uv_strerror(code));
    if (p->req != NULL)
        agent_request_fail(p->req, code, &err);
    end_put(p);
}

static void on_committed(uv_work_t *work, int status)
{
    struct put *p = work->data;
    const struct agent_text *path;
    char mode[16], *shown;

    (void)status;
    p->busy = false;
    if (p->over || p->req == NULL) {
        end_put(p);
        return;
    }
    if (p->result != 0) {
        agent_request_fail(p->req, p->result, &p->err);
    } else {
        path = agent_target_query(&p->req->target, "path");
        shown = agent_utf8_repair(path->at, path->len, NULL);
        snprintf(mode, sizeof(mode), "%04o", (unsigned)p->upload.mode);
        agent_request_answer(p->req, p->upload.existed ? 200 : 201,
                             json_pack("{s:s,s:I,s:s}", "path", shown != NULL ? shown : "", "size",
                                       (json_int_t)p->size, "mode", mode));
        free(shown);
    }
    end_put(p);
}

static void commit(uv_work_t *work)
{
    struct put *p = work->data;

    p->result = agent_upload_commit(&p->upload, &p->err);
}

static void on_block_written(uv_fs_t *fs)
{
    struct put *p = fs->data;
    ssize_t n = fs->result;

    uv_fs_req_cleanup(fs);
    p->busy = false;
    if (p->over) {
        end_put(p);
        return;
    }
    if (n < 0) {
        fail_put(p, (int)n);
        return;
    }
    p->size += n;
    p->written += (size_t)n;
    if (p->written == p->writing_len) {
        agent_request_consume(p->req, p->writing_len);
        free(p->writing);
        p->writing = NULL;
    }
    write_next(p);
}

/* Write what is queued; once all is there, put the file in its place. */
static void write_next(struct put *p)
{
    uv_buf_t buf;

    if (p->busy)
        return;
    if (p->writing == NULL) {
        p->writing = p->queue;
        p->writing_len = p->queue_len;
        p->written = 0;
        p->queue = NULL;
        p->queue_len = 0;
    }
    p->busy = true;
    if (p->writing != NULL) {
        buf = uv_buf_init(p->writing + p->written, (unsigned)(p->writing_len - p->written));
        p->fs.data = p;
        if (uv_fs_write(p->loop, &p->fs, p->upload.fd, &buf, 1, -1, on_block_written) == 0)
            return;
    } else if (p->ended) {
        p->work.data = p;
        if (uv_queue_work(p->loop, &p->work, commit, on_committed) == 0)
            return;
    } else {
        p->busy = false;
        return;
    }
    p->busy = false;
    fail_put(p, UV_ENOMEM);
}

static void on_put_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct put *p = req->ctx;
    char *grown = realloc(p->queue, p->queue_len + len);

    if (grown == NULL) {
        fail_put(p, UV_ENOMEM);
        return;
    }
    memcpy(grown + p->queue_len, data, len);
    p->queue = grown;
    p->queue_len += len; /* bounded by the stream's window */
    write_next(p);
}

static void on_put_end(struct agent_request *req)
{
    struct put *p = req->ctx;

    p->ended = true;
    write_next(p);
}

static void on_put_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end_put(req->ctx);
}

static const struct agent_request_cbs put_cbs = {
    .on_data = on_put_data, .on_end = on_put_end, .on_close = on_put_close};

static bool parse_mode(struct agent_request *req, mode_t *out)
{
    const struct agent_text *text = agent_target_query(&req->target, "mode");
    unsigned long v;
    char *end;

    *out = (mode_t)-1;
    if (text == NULL)
        return true;
    v = strtoul(text->at, &end, 8);
    if (text->len == 0 || *end != '\0' || text->at[0] < '0' || text->at[0] > '7' || v > 07777) {
        agent_request_error(req, 400, NULL, "mode must be octal, such as 0644");
        return false;
    }
    *out = (mode_t)v;
    return true;
}

void agent_files_handle_put(struct agent_request *req)
{
    const char *path = get_path(req, false);
    struct err err = {0};
    char home[PATH_MAX];
    struct agent_files f;
    struct put *p;
    mode_t mode;
    int r;

    if (path == NULL || !parse_mode(req, &mode) || !agent_request_may_act(req) ||
        !get_files(req, &f, home, sizeof(home)))
        return;
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    r = agent_upload_begin(&f, path, mode, &p->upload, &err);
    if (r != 0) {
        free(p);
        agent_request_fail(req, r, &err);
        return;
    }
    p->req = req;
    p->loop = req->agent->loop;
    req->ctx = p;
    req->cbs = &put_cbs;
    if (req->body_ended)
        on_put_end(req);
}

/* ---- list, delete ---- */

struct job {
    uv_work_t work;
    struct agent_request *req; /* NULL once the stream is gone */
    struct agent_files files;
    char home[PATH_MAX];
    char path[PATH_MAX];
    bool remove, recursive;
    json_t *answer;
    int result;
    struct err err;
};

static void do_job(uv_work_t *work)
{
    struct job *job = work->data;

    if (job->remove)
        job->result = agent_files_remove(&job->files, job->path, job->recursive, &job->err);
    else
        job->result = agent_files_list(&job->files, job->path, &job->answer, &job->err);
}

static void on_job_done(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct agent_request *req = job->req;

    (void)status;
    if (req != NULL) {
        req->cbs = NULL;
        if (job->result != 0)
            agent_request_fail(req, job->result, &job->err);
        else if (job->remove)
            agent_request_empty(req, 204);
        else
            agent_request_answer(req, 200, json_incref(job->answer));
    }
    json_decref(job->answer);
    free(job);
}

static void on_job_close(struct agent_request *req, uint32_t code)
{
    struct job *job = req->ctx;

    (void)code;
    job->req = NULL;
}

static const struct agent_request_cbs job_cbs = {.on_close = on_job_close};

static void start_job(struct agent_request *req, bool removal)
{
    const char *path = get_path(req, !removal);
    const struct agent_text *recursive = agent_target_query(&req->target, "recursive");
    struct job *job;

    if (path == NULL || !agent_request_may_act(req))
        return;
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    if (!get_files(req, &job->files, job->home, sizeof(job->home))) {
        free(job);
        return;
    }
    snprintf(job->path, sizeof(job->path), "%s", path);
    job->remove = removal;
    job->recursive = recursive != NULL && strcmp(recursive->at, "1") == 0;
    job->req = req;
    job->work.data = job;
    req->ctx = job;
    req->cbs = &job_cbs;
    if (uv_queue_work(req->agent->loop, &job->work, do_job, on_job_done) != 0) {
        req->cbs = NULL;
        free(job);
        agent_request_error(req, 500, NULL, "out of memory");
    }
}

void agent_files_handle_list(struct agent_request *req)
{
    start_job(req, false);
}

void agent_files_handle_delete(struct agent_request *req)
{
    start_job(req, true);
}
