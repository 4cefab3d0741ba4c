/* SPDX-License-Identifier: MIT */
/* Content of a file, or a part of it (RFC 9110 section 14). It moves through the loop's thread
 * pool, one block at a time and no faster than the other side takes it, so that a slow disk holds
 * up nobody else.
 *
 * Path: open (as the user) -> head -> blocks -> end. */
#include "vmm/agent/files_api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/agent/files.h"
#include "vmm/agent/files_request.h"
#include "vmm/agent/range.h"

#define BLOCK 65536

struct download {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_work_t work;
    uv_fs_t fs;
    struct agent_files files;
    struct err err;
    struct stat st;
    char *path, *range, *if_range;
    int fd;       /* negative: not open, why */
    int64_t at;   /* next byte to read */
    int64_t left; /* to be sent; -1: to the end of the file, whose size says nothing (/proc) */
    bool busy, full, over;
    char buf[BLOCK];
};

static void read_next(struct download *d);

static void end(struct download *d)
{
    if (d->req != NULL)
        d->req->cbs = NULL;
    d->req = NULL;
    d->over = true;
    if (d->busy)
        return; /* its callback comes back here */
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    free(d->range);
    free(d->if_range);
    free(d);
}

static void on_block(uv_fs_t *fs)
{
    struct download *d = fs->data;
    ssize_t n = fs->result;
    int r;

    uv_fs_req_cleanup(fs);
    d->busy = false;
    if (d->over) {
        end(d);
        return;
    }
    if (n < 0 || (n == 0 && d->left > 0)) { /* it became shorter: the reader must not take it */
        tr_h2_reset(d->req->stream, 2);     /* for whole */
        end(d);
        return;
    }
    if (n == 0) {
        agent_request_finish(d->req);
        end(d);
        return;
    }
    d->at += n;
    if (d->left > 0)
        d->left -= n;
    r = agent_request_write(d->req, d->buf, (size_t)n);
    if (r < 0) {
        end(d);
        return;
    }
    d->full = r == 0;
    read_next(d);
}

static void read_next(struct download *d)
{
    size_t n = d->left >= 0 && d->left < BLOCK ? (size_t)d->left : BLOCK;
    uv_buf_t buf = uv_buf_init(d->buf, (unsigned)n);

    if (d->busy)
        return;
    if (d->left == 0) {
        agent_request_finish(d->req);
        end(d);
        return;
    }
    if (d->full)
        return;
    d->fs.data = d;
    d->busy = true;
    if (uv_fs_read(d->loop, &d->fs, d->fd, &buf, 1, d->at, on_block) != 0) {
        d->busy = false;
        tr_h2_reset(d->req->stream, 2);
        end(d);
    }
}

/* A validator of this state of the file (RFC 9110 section 8.8.3). */
static void make_etag(const struct stat *st, char *out, size_t size)
{
    snprintf(out, size, "\"%jx-%jx-%jx\"", (uintmax_t)st->st_ino, (uintmax_t)st->st_size,
             (uintmax_t)st->st_mtim.tv_sec * 1000000000 + (uintmax_t)st->st_mtim.tv_nsec);
}

/* Which part is wanted. A validator that no longer fits asks for all (section 13.1.5). */
static enum agent_range choose(struct download *d, const char *etag, int64_t *first, int64_t *last)
{
    if (d->st.st_size == 0 && d->range != NULL) /* it may have content all the same: /proc */
        return AGENT_RANGE_ALL;
    if (d->if_range != NULL && strcmp(d->if_range, etag) != 0)
        return AGENT_RANGE_ALL;
    return agent_range_parse(d->range, d->st.st_size, first, last);
}

static void send_head(struct download *d)
{
    char mode[16], etag[80], length[24], content_range[80], not_range[40];
    int64_t first = 0, last = d->st.st_size - 1;
    struct tr_h2_field fields[6];
    enum agent_range kind;
    size_t n = 0;

    make_etag(&d->st, etag, sizeof(etag));
    kind = choose(d, etag, &first, &last);
    if (kind == AGENT_RANGE_NOT) {
        snprintf(not_range, sizeof(not_range), "bytes */%jd", (intmax_t)d->st.st_size);
        fields[n++] = TR_H2_FIELD("content-range", not_range);
        agent_request_fields(d->req, 416, fields, n, true);
        end(d);
        return;
    }
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(d->st.st_mode & 07777));
    snprintf(length, sizeof(length), "%jd", (intmax_t)(last - first + 1));
    snprintf(content_range, sizeof(content_range), "bytes %jd-%jd/%jd", (intmax_t)first,
             (intmax_t)last, (intmax_t)d->st.st_size);
    fields[n++] = TR_H2_FIELD("content-type", "application/octet-stream");
    fields[n++] = TR_H2_FIELD("transom-mode", mode);
    fields[n++] = TR_H2_FIELD("etag", etag);
    fields[n++] = TR_H2_FIELD("accept-ranges", "bytes");
    d->left = d->st.st_size > 0 ? last - first + 1 : -1;
    d->at = first;
    if (d->left >= 0)
        fields[n++] = TR_H2_FIELD("content-length", length);
    if (kind == AGENT_RANGE_PART)
        fields[n++] = TR_H2_FIELD("content-range", content_range);
    agent_request_fields(d->req, kind == AGENT_RANGE_PART ? 206 : 200, fields, n, false);
    if (d->req->head_only)
        end(d);
    else
        read_next(d);
}

static void open_file(uv_work_t *work)
{
    struct download *d = work->data;

    d->fd = agent_act_begin(&d->files.act);
    if (d->fd != 0)
        return;
    d->fd = agent_files_open(&d->files, d->path, &d->st, &d->err);
    agent_act_end(&d->files.act);
}

static void on_open(uv_work_t *work, int status)
{
    struct download *d = work->data;

    (void)status;
    d->busy = false;
    if (d->over) {
        end(d);
    } else if (d->fd < 0) {
        agent_request_fail(d->req, d->fd, &d->err);
        end(d);
    } else {
        send_head(d);
    }
}

static void on_drain(struct agent_request *req)
{
    struct download *d = req->ctx;

    d->full = false;
    if (d->fd >= 0)
        read_next(d);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end(req->ctx);
}

static const struct agent_request_cbs cbs = {.on_drain = on_drain, .on_close = on_close};

void agent_files_handle_get(struct agent_request *req)
{
    const char *path = agent_files_query_path(req, false);
    const char *range = tr_h2_head_get(req->head, "range");
    const char *if_range = tr_h2_head_get(req->head, "if-range");
    struct download *d;

    if (path == NULL)
        return;
    d = calloc(1, sizeof(*d));
    if (d == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    d->fd = -1;
    d->loop = req->agent->loop;
    if (!agent_files_for_query(req, &d->files) || !agent_request_may_act(req)) {
        end(d);
        return;
    }
    d->path = strdup(path);
    d->range = range != NULL && !req->head_only ? strdup(range) : NULL;
    d->if_range = if_range != NULL ? strdup(if_range) : NULL;
    d->work.data = d;
    d->busy = true;
    if (d->path == NULL || (range != NULL && !req->head_only && d->range == NULL) ||
        (if_range != NULL && d->if_range == NULL) ||
        uv_queue_work(d->loop, &d->work, open_file, on_open) != 0) {
        d->busy = false;
        agent_request_error(req, 500, NULL, "out of memory");
        end(d);
        return;
    }
    d->req = req;
    req->ctx = d;
    req->cbs = &cbs;
}
