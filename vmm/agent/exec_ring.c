/* SPDX-License-Identifier: MIT */
/* Output of a detached exec, and those who read it. The exec waits for none of them; one that is
 * too slow is told what it missed.
 *
 * Path of a reader: what is kept -> what comes -> (exit frame) -> stream end. */
#include "vmm/agent/exec_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exec_reader {
    struct exec_reader *next;
    struct exec *exec;
    struct agent_request *req;
    bool frames; /* of both streams; else the bytes of one: */
    int stream;
    uint64_t at[2]; /* next byte */
    bool follow, full;
};

static const char *const stream_names[] = {"stdout", "stderr"};

int exec_ring_init(struct exec *x)
{
    int r = agent_ring_init(&x->outs[0].ring, EXEC_RING_BYTES);

    return r != 0 ? r : agent_ring_init(&x->outs[1].ring, EXEC_RING_BYTES);
}

/* ---- readers ---- */

static void free_reader(struct exec_reader *r)
{
    struct exec_reader **p = &r->exec->readers;

    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    r->req->cbs = NULL;
    free(r);
}

static void finish_reader(struct exec_reader *r)
{
    agent_request_finish(r->req);
    free_reader(r);
}

/* What was overwritten before it could be sent. Returns false when the reader is done for. */
static bool skip_gap(struct exec_reader *r, int i)
{
    uint64_t begin = agent_ring_begin(&r->exec->outs[i].ring);

    if (r->at[i] >= begin)
        return true;
    if (!r->frames) { /* what comes next would not follow what was sent */
        finish_reader(r);
        return false;
    }
    exec_send_json(r->req, AGENT_FRAME_GAP,
                   json_pack("{s:s,s:I,s:I}", "stream", stream_names[i], "from",
                             (json_int_t)r->at[i], "to", (json_int_t)begin));
    r->at[i] = begin;
    return true;
}

/* Send what there is of one stream. Returns false when the reader is done for. */
static bool send_stream(struct exec_reader *r, int i)
{
    const struct exec_output *o = &r->exec->outs[i];
    uint8_t head[AGENT_FRAME_HEAD];
    const uint8_t *piece;

    if (!skip_gap(r, i))
        return false;
    while (!r->full && r->at[i] < o->ring.end) {
        size_t n = agent_ring_peek(&o->ring, r->at[i], &piece);
        int sent = 1;

        if (n > EXEC_READ_BYTES)
            n = EXEC_READ_BYTES;
        if (r->frames) {
            agent_exec_frame_head(head, o->type, (uint32_t)n);
            sent = agent_request_write(r->req, head, sizeof(head));
        }
        if (sent >= 0)
            sent = agent_request_write(r->req, piece, n);
        if (sent < 0) {
            free_reader(r);
            return false;
        }
        r->at[i] += n;
        r->full = sent == 0;
    }
    return true;
}

static bool is_served(const struct exec_reader *r, int i)
{
    return r->at[i] >= r->exec->outs[i].ring.end;
}

/* Send what there is; the last reader's end may come with it, and r is gone then. */
static void serve(struct exec_reader *r)
{
    if (r->full)
        return;
    for (int i = 0; i < 2; i++) {
        if ((r->frames || r->stream == i) && !send_stream(r, i))
            return;
    }
    if (r->follow && !r->exec->finished)
        return;
    if (r->frames ? !is_served(r, 0) || !is_served(r, 1) : !is_served(r, r->stream))
        return;
    if (r->frames)
        exec_send_json(r->req, AGENT_FRAME_EXIT, exec_exit_json(r->exec));
    finish_reader(r);
}

static void serve_all(struct exec *x)
{
    struct exec_reader *next;

    for (struct exec_reader *r = x->readers; r != NULL; r = next) {
        next = r->next;
        serve(r);
    }
}

static void on_drain(struct agent_request *req)
{
    struct exec_reader *r = req->ctx;

    r->full = false;
    serve(r);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    free_reader(req->ctx);
}

static const struct agent_request_cbs reader_cbs = {.on_drain = on_drain, .on_close = on_close};

/* ---- the exec's side ---- */

void exec_ring_write(struct exec_output *o, const uint8_t *data, size_t len)
{
    agent_ring_write(&o->ring, data, len);
    serve_all(o->exec);
}

size_t exec_ring_bytes(const struct exec *x)
{
    return x->outs[0].ring.size + x->outs[1].ring.size;
}

/* Keep no more memory than there are bytes. */
static void shrink(struct agent_ring *ring)
{
    const uint8_t *bytes;
    struct agent_ring small;
    size_t n;

    if (ring->end >= ring->size || agent_ring_init(&small, ring->end > 0 ? ring->end : 1) != 0)
        return;
    n = agent_ring_peek(ring, 0, &bytes); /* it never was full: all in one piece */
    agent_ring_write(&small, bytes, n);
    agent_ring_fini(ring);
    *ring = small;
}

void exec_ring_end(struct exec *x)
{
    for (int i = 0; i < 2; i++)
        shrink(&x->outs[i].ring);
    serve_all(x);
}

void exec_ring_fini(struct exec *x)
{
    while (x->readers != NULL)
        finish_reader(x->readers);
    agent_ring_fini(&x->outs[0].ring);
    agent_ring_fini(&x->outs[1].ring);
}

/* ---- requests ---- */

static bool parse_offset(struct agent_request *req, const char *name, uint64_t *out)
{
    const struct agent_text *text = agent_target_query(&req->target, name);
    char *end;

    if (text == NULL)
        return true;
    *out = strtoull(text->at, &end, 10);
    if (text->len > 0 && *end == '\0' && text->at[0] >= '0' && text->at[0] <= '9')
        return true;
    agent_request_error(req, 400, NULL, "%s must be a number", name);
    return false;
}

/* The detached exec of the path, or NULL: answered. */
static struct exec *find(struct agent_request *req)
{
    struct exec *x = exec_find(req, false);

    if (x == NULL || x->detached)
        return x;
    agent_request_error(req, 409, NULL, "it is attached to the request that started it");
    return NULL;
}

/* An offset to read from. False: answered. */
static bool get_from(struct agent_request *req, const struct exec *x, const char *name, int i,
                     uint64_t *at)
{
    *at = 0;
    if (!parse_offset(req, name, at))
        return false;
    if (*at <= x->outs[i].ring.end)
        return true;
    agent_request_error(req, 416, "out_of_range", "%s ends at %" PRIu64, stream_names[i],
                        x->outs[i].ring.end);
    return false;
}

static void add_reader(struct agent_request *req, struct exec *x, const struct exec_reader *like)
{
    struct exec_reader *r = malloc(sizeof(*r));

    if (r == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    *r = *like;
    r->exec = x;
    r->req = req;
    r->next = x->readers;
    x->readers = r;
    req->ctx = r;
    req->cbs = &reader_cbs;
    if (r->frames) {
        agent_request_head(req, 200, "application/vnd.transom.exec", NULL, NULL);
        exec_send_json(req, AGENT_FRAME_STARTED,
                       json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    } else {
        uint64_t begin = agent_ring_begin(&x->outs[r->stream].ring);
        char from[24];

        if (r->at[r->stream] < begin)
            r->at[r->stream] = begin;
        snprintf(from, sizeof(from), "%" PRIu64, r->at[r->stream]);
        agent_request_head(req, 200, "application/octet-stream", "transom-from", from);
    }
    serve(r);
}

void agent_exec_handle_output(struct agent_request *req)
{
    const struct agent_text *stream = agent_target_query(&req->target, "stream");
    struct exec_reader r = {.stream = 0};
    struct exec *x = find(req);
    uint64_t follow = 0;

    if (x == NULL)
        return;
    if (stream != NULL && strcmp(stream->at, stream_names[1]) == 0) {
        r.stream = 1;
    } else if (stream != NULL && strcmp(stream->at, stream_names[0]) != 0) {
        agent_request_error(req, 400, NULL, "stream must be stdout or stderr");
        return;
    }
    if (!parse_offset(req, "follow", &follow) ||
        !get_from(req, x, "from", r.stream, &r.at[r.stream]))
        return;
    r.follow = follow != 0;
    add_reader(req, x, &r);
}

void agent_exec_handle_attach(struct agent_request *req)
{
    struct exec_reader r = {.frames = true, .follow = true};
    struct exec *x = find(req);

    if (x != NULL && get_from(req, x, "stdout_from", 0, &r.at[0]) &&
        get_from(req, x, "stderr_from", 1, &r.at[1]))
        add_reader(req, x, &r);
}
