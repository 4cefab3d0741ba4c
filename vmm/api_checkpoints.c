/* SPDX-License-Identifier: MIT */
/* /v1/sessions/{s}/checkpoints and /v1/sessions/{s}/kept */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/store_api.h"

#define LIST_MAX    1000 /* checkpoints of one answer */
#define CHANGES_MAX 1000 /* changes that are shown with a checkpoint */

static void no_memory(struct vmm_store_job *job)
{
    (void)tr_err_set(&job->err, -ENOMEM, "out of memory");
}

/* Tell the world of a new one. */
static void announce(struct vmm_store_call *call)
{
    struct vmm_session *session = vmm_session_find(&call->req->vmm->sessions, call->session);
    const json_t *c = json_object_get(call->answer, "checkpoint");

    if (session == NULL || call->status != 201)
        return;
    log_info("session=%s: checkpoint %.12s (%s)", session->id,
             json_string_value(json_object_get(c, "id")),
             json_string_value(json_object_get(c, "cause")));
    vmm_live_event(call->req->vmm, "session.checkpoint", session->owner,
                   json_pack("{ss, sO, sO}", "session", session->id, "checkpoint",
                             json_object_get(c, "id"), "cause", json_object_get(c, "cause")));
}

/* ---- list ---- */

struct history {
    json_t *list;
    int64_t limit;
    char last[SYNC_ID_SIZE];
};

enum { STOP_FULL = 1, STOP_MEMORY = 2 };

static int add_checkpoint(const struct sync_checkpoint *c, void *arg)
{
    struct history *h = arg;

    if ((int64_t)json_array_size(h->list) >= h->limit)
        return STOP_FULL;
    memcpy(h->last, c->id, sizeof(h->last));
    return json_array_append_new(h->list, vmm_store_view_checkpoint(c)) == 0 ? 0 : STOP_MEMORY;
}

static void run_list(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct history h = {.list = json_array(), .limit = call->limit};
    int r = sync_store_history(store, call->text, add_checkpoint, &h, &job->err);

    if (r >= 0 && r != STOP_MEMORY)
        call->answer = json_pack("{sO}", "checkpoints", h.list);
    if (r >= 0 &&
        (call->answer == NULL ||
         (r == STOP_FULL && json_object_set_new(call->answer, "next", json_string(h.last)) != 0)))
        no_memory(job);
    json_decref(h.list);
}

void vmm_api_checkpoint_list(struct vmm_request *req)
{
    int64_t limit = vmm_store_query_limit(req, LIST_MAX, 100);
    struct vmm_store_call *call = limit < 0 ? NULL : vmm_store_call_new(req, run_list);

    if (call == NULL)
        return;
    call->limit = limit;
    call->text = vmm_query_get(req->query, "before");
    vmm_store_call_start(call);
}

/* ---- make ---- */

static void run_new(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct sync_checkpoint *c = malloc(sizeof(*c));
    struct sync_left_out left;
    int r;

    if (c == NULL) {
        no_memory(job);
        return;
    }
    r = sync_store_checkpoint(store, call->text != NULL ? call->text : "", SYNC_CAUSE_API,
                              call->author, c, &left, &job->err);
    if (r >= 0) {
        call->status = r == 0 ? 201 : 200;
        call->answer =
            json_pack("{so, sb}", "checkpoint", vmm_store_view_checkpoint(c), "changed", r == 0);
        if (call->answer != NULL && left.n > 0 &&
            json_object_set_new(call->answer, "left_out",
                                json_pack("{sI, ss, ss}", "count", (json_int_t)left.n, "first",
                                          left.path, "reason", left.why)) != 0) {
            json_decref(call->answer);
            call->answer = NULL;
        }
        if (call->answer == NULL)
            no_memory(job);
    }
    free(c);
}

void vmm_api_checkpoint_new(struct vmm_request *req)
{
    const json_t *message = json_object_get(req->body, "message");
    struct vmm_store_call *call;

    if (json_is_string(message) &&
        (json_string_length(message) > SYNC_MESSAGE_MAX ||
         strlen(json_string_value(message)) != json_string_length(message))) {
        vmm_reply_error(req, 422, "member \"message\" must be at most %d bytes without U+0000",
                        SYNC_MESSAGE_MAX);
        return;
    }
    call = vmm_store_call_new(req, run_new);
    if (call == NULL)
        return;
    call->text = json_is_string(message) ? strdup(json_string_value(message)) : NULL;
    call->then = announce;
    vmm_store_call_start(call);
}

/* ---- show ---- */

static int add_changes(struct sync_store *store, const struct sync_checkpoint *c, json_t *answer,
                       struct err *err)
{
    json_t *list = json_array();
    struct sync_changes *changes;
    struct sync_change change;
    size_t n;
    int r = sync_changes_open(store, *c->parent ? c->parent : c->id, c->id, &changes, err);

    if (r != 0) {
        json_decref(list);
        return r;
    }
    n = sync_changes_count(changes);
    for (size_t i = 0; i < n && i < CHANGES_MAX && r == 0; i++) {
        sync_changes_get(changes, i, &change);
        r = json_array_append_new(list, vmm_store_view_change(&change));
    }
    sync_changes_close(changes);
    if (r != 0 || json_object_set_new(answer, "n_changes", json_integer((json_int_t)n)) != 0 ||
        json_object_set(answer, "changes", list) != 0)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    json_decref(list);
    return r;
}

static void run_show(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct sync_checkpoint *c = malloc(sizeof(*c));

    if (c == NULL) {
        no_memory(job);
        return;
    }
    if (sync_store_find(store, call->text, c, &job->err) == 0) {
        call->answer = vmm_store_view_checkpoint(c);
        if (call->answer == NULL)
            no_memory(job);
        else if (add_changes(store, c, call->answer, &job->err) != 0)
            call->status = 500; /* job->err goes before it */
    }
    free(c);
}

void vmm_api_checkpoint_get(struct vmm_request *req)
{
    struct vmm_store_call *call = vmm_store_call_new(req, run_show);

    if (call == NULL)
        return;
    call->text = strdup(req->params[1]);
    if (call->text == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        vmm_store_call_free(call);
        return;
    }
    vmm_store_call_start(call);
}

/* ---- restore ---- */

static void run_restore(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct sync_checkpoint *c = malloc(sizeof(*c));
    int r;

    if (c == NULL) {
        no_memory(job);
        return;
    }
    r = sync_store_restore(store, call->text, call->path != NULL ? call->path : "", call->path_len,
                           call->author, c, &job->err);
    if (r >= 0) {
        call->status = r == 0 ? 201 : 200;
        call->answer =
            json_pack("{so, sb}", "checkpoint", vmm_store_view_checkpoint(c), "changed", r == 0);
        if (call->answer == NULL)
            no_memory(job);
    }
    free(c);
}

void vmm_api_checkpoint_restore(struct vmm_request *req)
{
    struct vmm_store_call *call = vmm_store_call_new(req, run_restore);
    struct err err = {0};
    int r;

    if (call == NULL)
        return;
    r = vmm_store_get_bytes(req->body, "path", &call->path, &call->path_len, &err);
    if (r == -ENOENT)
        r = 0; /* all of it */
    else if (r == 0)
        r = sync_store_check_path(call->path, call->path_len, &err);
    call->text = strdup(req->params[1]);
    if (r == 0 && call->text == NULL)
        r = tr_err_set(&err, -ENOMEM, "out of memory");
    if (r != 0) {
        vmm_store_reply_err(req, &err);
        vmm_store_call_free(call);
        return;
    }
    call->changes_files = true;
    call->then = announce;
    vmm_store_call_start(call);
}

/* ---- kept ---- */

struct kept {
    json_t *list;
    int64_t limit;
    char last[sizeof(((struct sync_kept_version *)0)->at)];
};

static int add_kept(const struct sync_kept_version *v, void *arg)
{
    char time[VMM_TIME_SIZE];
    struct kept *k = arg;
    json_t *one;

    if ((int64_t)json_array_size(k->list) >= k->limit)
        return STOP_FULL;
    vmm_time_text(v->time_s * 1000, time);
    one = json_pack("{ss, ss, ss, ss, ss, sb}", "reason", v->why, "side", v->side, "id", v->id,
                    "time", time, "type", v->type == SYNC_TYPE_LINK ? "symlink" : "file",
                    "executable", v->is_exec);
    if (one == NULL || vmm_store_set_bytes(one, "path", v->path, v->len) != 0) {
        json_decref(one);
        return STOP_MEMORY;
    }
    memcpy(k->last, v->at, sizeof(k->last));
    return json_array_append_new(k->list, one) == 0 ? 0 : STOP_MEMORY;
}

static void run_kept(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct kept k = {.list = json_array(), .limit = call->limit};
    int r = sync_store_kept(store, call->text, add_kept, &k, &job->err);

    if (r >= 0 && r != STOP_MEMORY)
        call->answer = json_pack("{sO}", "kept", k.list);
    if (r >= 0 &&
        (call->answer == NULL ||
         (r == STOP_FULL && json_object_set_new(call->answer, "next", json_string(k.last)) != 0)))
        no_memory(job);
    json_decref(k.list);
}

void vmm_api_kept_list(struct vmm_request *req)
{
    int64_t limit = vmm_store_query_limit(req, LIST_MAX, 100);
    struct vmm_store_call *call = limit < 0 ? NULL : vmm_store_call_new(req, run_kept);

    if (call == NULL)
        return;
    call->limit = limit;
    call->text = vmm_query_get(req->query, "after");
    vmm_store_call_start(call);
}
