/* SPDX-License-Identifier: MIT */
/* GET /v1/sessions/{s}/changes: what changed since a checkpoint, as JSON, patch or ZIP, streamed.
 *
 * Path: hold the store -> compare -> head -> piece, written -> [drain] -> piece ... -> end. Pieces
 * are made one at a time, when the client has taken the last one. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/store_api.h"

#define JSON_PIECE    500 /* changes */
#define CODE_INTERNAL 2

enum format { FORMAT_JSON, FORMAT_PATCH, FORMAT_ZIP };

struct stream {
    struct vmm_store_job job;
    struct vmm_store_hold hold;
    struct vmm_request *req; /* with a reference */
    char *since, *to;        /* to NULL: the files as they are */
    enum format format;
    /* the job's while one is under way */
    struct sync_changes *changes;
    size_t at; /* JSON: the next change */
    char since_id[SYNC_ID_SIZE], to_id[SYNC_ID_SIZE];
    struct sync_buf buf;
    bool more;
    /* the loop's */
    bool busy, is_over;
};

static void finish(struct stream *s)
{
    s->req->arg = NULL;
    s->req->cbs = NULL;
    vmm_store_release(&s->hold);
    vmm_request_unref(s->req);
    sync_buf_free(&s->buf);
    free(s->since);
    free(s->to);
    free(s);
}

/* ---- in the pool ---- */

static int find_id(struct sync_store *store, const char *name, char id[SYNC_ID_SIZE],
                   struct err *err)
{
    struct sync_checkpoint *c = malloc(sizeof(*c));
    int r = c == NULL ? tr_err_set(err, -ENOMEM, "out of memory")
                      : sync_store_find(store, name, c, err);

    if (c != NULL && r == 0)
        memcpy(id, c->id, SYNC_ID_SIZE);
    free(c);
    return r;
}

static void run_open(struct vmm_store_job *job, struct sync_store *store)
{
    struct stream *s = (struct stream *)job;

    if (find_id(store, s->since, s->since_id, &job->err) != 0 ||
        (s->to != NULL && find_id(store, s->to, s->to_id, &job->err) != 0) ||
        sync_changes_open(store, s->since_id, s->to != NULL ? s->to_id : NULL, &s->changes,
                          &job->err) != 0)
        s->changes = NULL;
}

static int add_json(struct stream *s)
{
    size_t n = sync_changes_count(s->changes), end = s->at + JSON_PIECE;
    char head[160];
    int r = 0;

    if (s->at == 0) {
        snprintf(head, sizeof(head), "{\"since\":\"%s\",%s%s%s\"n_changes\":%zu,\"changes\":[",
                 s->since_id, s->to != NULL ? "\"to\":\"" : "", s->to_id,
                 s->to != NULL ? "\"," : "", n);
        r = sync_buf_add(&s->buf, head, strlen(head));
    }
    for (; r == 0 && s->at < n && s->at < end; s->at++) {
        struct sync_change change;
        json_t *view;
        char *text;

        sync_changes_get(s->changes, s->at, &change);
        view = vmm_store_view_change(&change);
        text = view != NULL ? json_dumps(view, JSON_COMPACT) : NULL;
        json_decref(view);
        if (text == NULL)
            return -ENOMEM;
        if (s->at > 0)
            r = sync_buf_add(&s->buf, ",", 1);
        if (r == 0)
            r = sync_buf_add(&s->buf, text, strlen(text));
        free(text);
    }
    if (r == 0 && s->at >= n)
        r = sync_buf_add(&s->buf, "]}", 2);
    return r != 0 ? r : s->at < n;
}

static void run_piece(struct vmm_store_job *job, struct sync_store *store)
{
    struct stream *s = (struct stream *)job;
    int r;

    (void)store;
    s->buf.len = 0;
    switch (s->format) {
    case FORMAT_JSON:
        r = add_json(s);
        if (r < 0)
            (void)tr_err_set(&job->err, r, "out of memory");
        break;
    case FORMAT_PATCH:
        r = sync_changes_patch(s->changes, &s->buf, &job->err);
        break;
    default:
        r = sync_changes_zip(s->changes, &s->buf, &job->err);
        break;
    }
    s->more = r == 1;
}

static void run_close(struct vmm_store_job *job, struct sync_store *store)
{
    struct stream *s = (struct stream *)job;

    (void)store;
    sync_changes_close(s->changes);
    s->changes = NULL;
}

/* ---- on the loop ---- */

static void submit(struct stream *s, void (*run)(struct vmm_store_job *, struct sync_store *),
                   void (*done)(struct vmm_store_job *))
{
    s->job.run = run;
    s->job.done = done;
    s->busy = true;
    vmm_store_submit_held(&s->hold, &s->job);
}

static void on_closed(struct vmm_store_job *job)
{
    struct stream *s = (struct stream *)job;

    s->busy = false;
    vmm_store_release(&s->hold);
    if (s->req->st == NULL)
        finish(s);
}

/* Nothing is sent any more: give the store back. */
static void wind_up(struct stream *s)
{
    s->is_over = true;
    if (s->busy)
        return; /* what is under way comes here */
    if (s->hold.store != NULL)
        submit(s, run_close, on_closed);
    else if (s->req->st == NULL)
        finish(s);
}

static void on_piece(struct vmm_store_job *job)
{
    struct stream *s = (struct stream *)job;
    struct tr_h2_stream *st = s->req->st;
    int r;

    s->busy = false;
    if (st == NULL || s->is_over) {
        wind_up(s);
        return;
    }
    r = job->err.code != 0 ? -1 : s->buf.len == 0 ? 1 : tr_h2_write(st, s->buf.data, s->buf.len);
    if (r < 0) {
        tr_h2_reset(st, CODE_INTERNAL);
        wind_up(s);
    } else if (!s->more) {
        tr_h2_end(st, NULL, 0);
        wind_up(s);
    } else if (r > 0) {
        submit(s, run_piece, on_piece);
    } /* else on_drain() goes on */
}

static void on_drain(struct vmm_request *req)
{
    struct stream *s = req->arg;

    if (!s->busy && !s->is_over)
        submit(s, run_piece, on_piece);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    (void)code;
    wind_up(req->arg);
}

/* The session is being deleted. */
static void on_hold_end(struct vmm_store_hold *hold)
{
    struct stream *s = (struct stream *)((char *)hold - offsetof(struct stream, hold));

    if (s->is_over)
        return;
    if (s->req->st != NULL && s->req->answered)
        tr_h2_reset(s->req->st, CODE_INTERNAL);
    else
        vmm_reply_error(s->req, 409, "the session is being deleted");
    wind_up(s);
}

static const struct vmm_request_cbs cbs = {.on_drain = on_drain, .on_gone = on_gone};

static void on_open(struct vmm_store_job *job)
{
    static const char *const types[] = {"application/json", "text/x-diff", "application/zip"};
    struct stream *s = (struct stream *)job;
    struct vmm_request *req = s->req;
    struct tr_h2_field fields[] = {
        TR_H2_FIELD("content-type", types[s->format]),
        TR_H2_FIELD("cache-control", "no-store"),
        TR_H2_FIELD("x-content-type-options", "nosniff"),
        TR_H2_FIELD("content-disposition", "attachment; filename=\"changes.zip\""),
    };

    s->busy = false;
    if (job->err.code != 0)
        vmm_store_reply_err(req, &job->err);
    if (job->err.code != 0 || req->st == NULL || s->is_over) {
        wind_up(s);
        return;
    }
    vmm_request_answered(req, 200);
    if (tr_h2_respond(req->st, 200, fields, s->format == FORMAT_ZIP ? 4 : 3, false) != 0) {
        tr_h2_reset(req->st, CODE_INTERNAL);
        wind_up(s);
        return;
    }
    submit(s, run_piece, on_piece);
}

static int parse_format(struct vmm_request *req, enum format *out)
{
    char *format = vmm_query_get(req->query, "format");
    int r = 0;

    if (format == NULL || strcmp(format, "json") == 0)
        *out = FORMAT_JSON;
    else if (strcmp(format, "patch") == 0)
        *out = FORMAT_PATCH;
    else if (strcmp(format, "zip") == 0)
        *out = FORMAT_ZIP;
    else
        r = -1;
    free(format);
    if (r != 0)
        vmm_reply_error(req, 400, "the query's \"format\" must be json, patch or zip");
    return r;
}

void vmm_api_changes(struct vmm_request *req)
{
    struct err err = {0};
    enum format format;
    struct stream *s;

    if (parse_format(req, &format) != 0)
        return;
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    s->format = format;
    s->req = vmm_request_ref(req);
    s->hold.end = on_hold_end;
    s->since = vmm_query_get(req->query, "since");
    s->to = vmm_query_get(req->query, "to");
    if (s->since == NULL)
        (void)tr_err_set(&err, -ENOMEM, "out of memory");
    else if (vmm_store_hold(req->vmm, req->session, &s->hold, &err) == 0) {
        req->cbs = &cbs;
        req->arg = s;
        submit(s, run_open, on_open);
        return;
    }
    vmm_store_reply_err(req, &err);
    finish(s);
}
