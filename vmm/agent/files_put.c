/* SPDX-License-Identifier: MIT */
/* A file's content as it comes, written through the loop's thread pool with the rights of whom it
 * is for. With an upload id and Content-Range (RFC 9110 section 14.5) a part of it, which goes on
 * where the last one ended, however that ended.
 *
 * Path: begin -> blocks -> commit -> answer; a part that is not the last one: begin -> blocks ->
 * answer. */
#include "vmm/agent/files_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/files_request.h"
#include "vmm/agent/range.h"
#include "vmm/agent/upload.h"

struct put {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_fs_t fs;
    uv_work_t work;
    struct agent_files files;
    struct agent_upload upload;
    char *path, *id; /* id: NULL when it is not resumable */
    mode_t mode;
    bool partial; /* part is valid */
    struct agent_part part;
    int64_t expected; /* bytes still to come; -1: as many as there are */
    struct err err;
    int result;
    int64_t size; /* written, earlier requests included */
    char *queue;  /* received, not written */
    size_t queue_len;
    char *writing; /* the block under way */
    size_t writing_len, written;
    bool busy, begun, ended, over;
};

static void write_next(struct put *p);

/* Nothing is left to do once it is committed. */
static void abort_upload(struct put *p)
{
    if (agent_act_begin(&p->files.act) != 0)
        return; /* a part is left behind; nothing else can be done as that user either */
    agent_upload_abort(&p->upload);
    agent_act_end(&p->files.act);
}

static void end_put(struct put *p)
{
    if (p->req != NULL)
        p->req->cbs = NULL;
    p->req = NULL;
    p->over = true;
    if (p->busy)
        return; /* its callback comes back here */
    if (p->begun)
        abort_upload(p);
    free(p->queue);
    free(p->writing);
    free(p->path);
    free(p->id);
    free(p);
}

static void fail_put(struct put *p, int code)
{
    struct err err = {0};

    agent_files_fail(&err, code, p->path);
    if (p->req != NULL)
        agent_request_fail(p->req, code, &err);
    end_put(p);
}

static json_t *outcome(const struct put *p)
{
    char mode[16];

    snprintf(mode, sizeof(mode), "%04o", (unsigned)p->upload.mode);
    return json_pack("{s:o,s:I,s:s}", "path", agent_files_text(p->path, strlen(p->path)), "size",
                     (json_int_t)p->size, "mode", mode);
}

static json_t *progress(const struct put *p)
{
    json_t *obj = json_pack("{s:o,s:I}", "path", agent_files_text(p->path, strlen(p->path)),
                            "received", (json_int_t)p->size);

    if (p->part.total >= 0)
        json_object_set_new(obj, "total", json_integer(p->part.total));
    return obj;
}

static void on_committed(uv_work_t *work, int status)
{
    struct put *p = work->data;

    (void)status;
    p->busy = false;
    if (!p->over && p->result != 0)
        agent_request_fail(p->req, p->result, &p->err);
    else if (!p->over)
        agent_request_answer(p->req, p->upload.existed ? 200 : 201, outcome(p));
    end_put(p);
}

static void commit(uv_work_t *work)
{
    struct put *p = work->data;

    p->result = agent_act_begin(&p->files.act);
    if (p->result != 0)
        return;
    p->result = agent_upload_commit(&p->upload, &p->err);
    agent_act_end(&p->files.act);
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

/* Is there more to come in other requests? */
static bool is_partial(const struct put *p)
{
    return p->partial && (p->part.total < 0 || p->size < p->part.total);
}

/* Write what is queued; once all is there, put the file in its place. */
static void write_next(struct put *p)
{
    uv_buf_t buf;

    if (p->busy || p->over)
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
    } else if (p->ended && is_partial(p)) {
        p->busy = false;
        agent_request_answer(p->req, 202, progress(p));
        end_put(p);
        return;
    } else if (p->ended) {
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
    char *grown;

    if (p->expected >= 0 && (int64_t)len > p->expected) {
        agent_request_consume(req, len);
        agent_request_error(req, 400, NULL, "the body is longer than Content-Range says");
        end_put(p);
        return;
    }
    if (p->expected >= 0)
        p->expected -= (int64_t)len;
    grown = realloc(p->queue, p->queue_len + len);
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

static const struct agent_request_cbs cbs = {
    .on_data = on_put_data, .on_end = on_put_end, .on_close = on_put_close};

static void begin(uv_work_t *work)
{
    struct put *p = work->data;

    p->result = agent_act_begin(&p->files.act);
    if (p->result != 0)
        return;
    p->result = agent_upload_begin(&p->files, p->path, p->mode, p->id, &p->upload, &p->err);
    agent_act_end(&p->files.act);
}

/* Does the part go on where the last one ended? False: answered. */
static bool part_fits(struct put *p)
{
    json_t *answer;

    p->size = p->upload.size;
    if (!p->partial || ((p->part.first < 0 || p->part.first == p->size) &&
                        (p->part.total < 0 || p->size <= p->part.total)))
        return true;
    answer = progress(p);
    json_object_set_new(answer, "code", json_string("conflict"));
    json_object_set_new(answer, "message",
                        json_string("the part does not begin where the last one ended"));
    agent_request_answer(p->req, 409, answer);
    return false;
}

static void on_begun(uv_work_t *work, int status)
{
    struct put *p = work->data;

    (void)status;
    p->busy = false;
    p->begun = p->result == 0;
    if (p->over) {
        end_put(p);
    } else if (!p->begun) {
        agent_request_fail(p->req, p->result, &p->err);
        end_put(p);
    } else if (part_fits(p)) {
        write_next(p);
    } else {
        end_put(p);
    }
}

/* upload and Content-Range. False: answered. */
static bool parse_part(struct agent_request *req, struct put *p)
{
    const struct agent_text *id = agent_target_query(&req->target, "upload");
    const char *range = tr_h2_head_get(req->head, "content-range");

    p->expected = -1;
    if (id == NULL && range == NULL)
        return true;
    if (id == NULL || range == NULL || !agent_upload_id_valid(id->at, id->len)) {
        agent_request_error(req, 400, NULL,
                            "a part needs Content-Range and upload, 1 to %d letters, digits, - "
                            "and _",
                            AGENT_UPLOAD_ID_MAX);
        return false;
    }
    if (agent_part_parse(range, &p->part) != 0) {
        agent_request_error(req, 400, NULL,
                            "Content-Range must be \"bytes FIRST-LAST/TOTAL\" or \"bytes "
                            "*/TOTAL\"");
        return false;
    }
    p->partial = true;
    p->expected = p->part.first >= 0 ? p->part.last - p->part.first + 1 : 0;
    p->id = strdup(id->at);
    return true;
}

void agent_files_handle_put(struct agent_request *req)
{
    const char *path = agent_files_query_path(req, false);
    struct put *p;

    if (path == NULL)
        return;
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    if (!agent_files_query_mode(req, &p->mode) || !parse_part(req, p) ||
        !agent_files_for_query(req, &p->files) || !agent_request_may_act(req)) {
        end_put(p);
        return;
    }
    p->loop = req->agent->loop;
    p->path = strdup(path);
    p->work.data = p;
    p->busy = true;
    if (p->path == NULL || (p->partial && p->id == NULL) ||
        uv_queue_work(p->loop, &p->work, begin, on_begun) != 0) {
        p->busy = false;
        agent_request_error(req, 500, NULL, "out of memory");
        end_put(p);
        return;
    }
    p->req = req;
    req->ctx = p;
    req->cbs = &cbs;
    p->ended = req->body_ended;
}
