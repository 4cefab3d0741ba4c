/* SPDX-License-Identifier: MIT */
/* /v1/sessions/{s}/files: what is one job. Reading and writing a file are in api_file_get.c and
 * api_file_put.c. All of it works while the session's sandboxes are asleep. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/store_api.h"

#define LIST_MAX 10000 /* entries of one answer */

/* ---- list ---- */

struct listing {
    json_t *entries;
    int64_t limit;
    char *last; /* path of the last entry, new */
    size_t last_len;
};

enum { STOP_FULL = 1, STOP_MEMORY = 2 };

static int add_entry(const char *path, size_t len, const struct sync_stat *st, const char *target,
                     void *arg)
{
    struct listing *l = arg;

    if ((int64_t)json_array_size(l->entries) >= l->limit)
        return STOP_FULL;
    if (json_array_append_new(l->entries, vmm_store_view_entry(path, len, st, target)) != 0)
        return STOP_MEMORY;
    free(l->last);
    l->last = strndup(path, len);
    l->last_len = len;
    return l->last == NULL ? STOP_MEMORY : 0;
}

static json_t *view_usage(const struct sync_store *store)
{
    struct sync_usage u;

    sync_store_usage(store, &u);
    return json_pack("{sI, sI, sI, sI}", "entries", (json_int_t)u.n_files, "files_bytes",
                     (json_int_t)u.files, "checkpoints_bytes", (json_int_t)u.history, "quota_bytes",
                     (json_int_t)u.quota);
}

static void run_list(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    struct listing l = {.entries = json_array(), .limit = call->limit};
    const char *dir = call->path != NULL ? call->path : "";
    json_t *answer = json_object();
    char *next;
    int r;

    r = sync_store_list(store, dir, strlen(dir), call->flag, call->to, add_entry, &l, &job->err);
    if (r < 0)
        goto out;
    if (r == STOP_FULL && l.last != NULL) {
        next = vmm_store_encode(l.last, l.last_len);
        if (next == NULL || json_object_set_new(answer, "next", json_string(next)) != 0)
            r = STOP_MEMORY;
        free(next);
    }
    if (r == STOP_MEMORY || vmm_store_set_bytes(answer, "dir", dir, strlen(dir)) != 0 ||
        json_object_set(answer, "entries", l.entries) != 0 ||
        json_object_set_new(answer, "usage", view_usage(store)) != 0) {
        (void)tr_err_set(&job->err, -ENOMEM, "out of memory");
        goto out;
    }
    call->answer = json_incref(answer);
out:
    json_decref(answer);
    json_decref(l.entries);
    free(l.last);
}

void vmm_api_store_list(struct vmm_request *req)
{
    int64_t limit = vmm_store_query_limit(req, LIST_MAX, LIST_MAX);
    int recursive = limit < 0 ? -1 : vmm_store_query_flag(req, "recursive");
    struct vmm_store_call *call = recursive < 0 ? NULL : vmm_store_call_new(req, run_list);

    if (call == NULL)
        return;
    call->path = vmm_query_get(req->query, "dir");
    call->to = vmm_query_get(req->query, "after");
    call->flag = recursive == 1;
    call->limit = limit;
    vmm_store_call_start(call);
}

/* ---- delete ---- */

static void run_delete(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;

    if (sync_store_remove(store, call->path, call->path_len, call->flag, &call->condition,
                          &job->err) == 0)
        call->status = 204;
}

void vmm_api_store_delete(struct vmm_request *req)
{
    int recursive = vmm_store_query_flag(req, "recursive");
    struct vmm_store_call *call = recursive < 0 ? NULL : vmm_store_call_new(req, run_delete);
    struct err err = {0};

    if (call == NULL)
        return;
    call->path = strdup(req->params[1]);
    call->flag = recursive == 1;
    call->changes_files = true;
    if (call->path == NULL) {
        (void)tr_err_set(&err, -ENOMEM, "out of memory");
    } else {
        call->path_len = strlen(call->path);
        if (sync_store_check_path(call->path, call->path_len, &err) == 0 &&
            vmm_store_condition(req->head, &call->condition, call->etag, &err) == 0) {
            vmm_store_call_start(call);
            return;
        }
    }
    vmm_store_reply_err(req, &err);
    vmm_store_call_free(call);
}

/* ---- move ---- */

static void run_move(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    char *target = NULL;
    struct sync_stat st;
    int r = sync_store_move(store, call->path, call->path_len, call->to, call->to_len, call->flag,
                            &job->err);

    if (r == 0)
        r = sync_store_stat(store, call->to, call->to_len, &st, &job->err);
    if (r == 0 && st.type == SYNC_TYPE_LINK)
        r = sync_store_read_link(store, call->to, call->to_len, &target, &job->err);
    if (r == 0) {
        call->answer = vmm_store_view_entry(call->to, call->to_len, &st, target);
        if (call->answer == NULL)
            (void)tr_err_set(&job->err, -ENOMEM, "out of memory");
    }
    free(target);
}

void vmm_api_store_move(struct vmm_request *req)
{
    struct vmm_store_call *call = vmm_store_call_new(req, run_move);
    struct err err = {0};
    int r;

    if (call == NULL)
        return;
    call->flag = json_is_true(json_object_get(req->body, "replace"));
    call->changes_files = true;
    r = vmm_store_get_bytes(req->body, "from", &call->path, &call->path_len, &err);
    if (r == 0)
        r = vmm_store_get_bytes(req->body, "to", &call->to, &call->to_len, &err);
    if (r == -ENOENT)
        err.code = -EINVAL;
    if (r == 0)
        r = sync_store_check_path(call->path, call->path_len, &err);
    if (r == 0)
        r = sync_store_check_path(call->to, call->to_len, &err);
    if (r == 0) {
        vmm_store_call_start(call);
        return;
    }
    vmm_store_reply_err(req, &err);
    vmm_store_call_free(call);
}
