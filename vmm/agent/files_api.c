/* SPDX-License-Identifier: MIT */
/* Requests that are one call each: it runs in the loop's thread pool, with the rights of whom it is
 * for, and its outcome is the answer. */
#include "vmm/agent/files_api.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/agent/files.h"
#include "vmm/agent/files_request.h"
#include "vmm/agent/upload.h"

struct job {
    uv_work_t work;
    struct agent_request *req; /* NULL once the stream is gone */
    void (*run)(struct job *job);
    struct agent_files files;
    char *path, *to;
    mode_t mode;
    bool flag; /* recursive, follow, replace */
    char *upload;
    int status;     /* of success; 204 has no answer */
    json_t *answer; /* new */
    int result;
    struct err err;
};

static void free_job(struct job *job)
{
    json_decref(job->answer);
    free(job->path);
    free(job->to);
    free(job->upload);
    free(job);
}

static void run_list(struct job *job)
{
    job->result = agent_files_list(&job->files, job->path, &job->answer, &job->err);
}

static void run_stat(struct job *job)
{
    job->result = agent_files_stat(&job->files, job->path, job->flag, &job->answer, &job->err);
}

static void run_remove(struct job *job)
{
    job->result = agent_files_remove(&job->files, job->path, job->flag, &job->err);
}

static void run_discard(struct job *job)
{
    job->result = agent_upload_discard(&job->files, job->path, job->upload, &job->err);
}

static void run_move(struct job *job)
{
    job->result = agent_files_move(&job->files, job->path, job->to, job->flag, &job->err);
    if (job->result == 0)
        job->result = agent_files_stat(&job->files, job->to, false, &job->answer, &job->err);
}

static void run_mkdir(struct job *job)
{
    bool made;

    job->result = agent_files_mkdir(&job->files, job->path, job->mode, &made, &job->err);
    if (job->result != 0)
        return;
    job->status = made ? 201 : 200;
    job->result = agent_files_stat(&job->files, job->path, true, &job->answer, &job->err);
}

static void on_work(uv_work_t *work)
{
    struct job *job = work->data;

    job->result = agent_act_begin(&job->files.act);
    if (job->result != 0)
        return;
    job->run(job);
    agent_act_end(&job->files.act);
}

static void on_done(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct agent_request *req = job->req;

    (void)status;
    if (req != NULL) {
        req->cbs = NULL;
        if (job->result != 0)
            agent_request_fail(req, job->result, &job->err);
        else if (job->status == 204)
            agent_request_empty(req, 204);
        else
            agent_request_answer(req, job->status, json_incref(job->answer));
    }
    free_job(job);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    struct job *job = req->ctx;

    (void)code;
    job->req = NULL;
}

static const struct agent_request_cbs job_cbs = {.on_close = on_close};

/* path and to are copied; to may be NULL. Returns NULL after answering. */
static struct job *new_job(struct agent_request *req, void (*run)(struct job *job), int status,
                           const char *path, const char *to)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job != NULL) {
        job->run = run;
        job->status = status;
        job->path = strdup(path);
        job->to = to != NULL ? strdup(to) : NULL;
    }
    if (job == NULL || job->path == NULL || (to != NULL && job->to == NULL)) {
        if (job != NULL)
            free_job(job);
        agent_request_error(req, 500, NULL, "out of memory");
        return NULL;
    }
    return job;
}

/* job is taken. */
static void start_job(struct agent_request *req, struct job *job)
{
    if (!agent_request_may_act(req)) {
        free_job(job);
        return;
    }
    job->req = req;
    job->work.data = job;
    req->ctx = job;
    req->cbs = &job_cbs;
    if (uv_queue_work(req->agent->loop, &job->work, on_work, on_done) != 0) {
        req->cbs = NULL;
        free_job(job);
        agent_request_error(req, 500, NULL, "out of memory");
    }
}

static bool query_flag(struct agent_request *req, const char *name)
{
    const struct agent_text *text = agent_target_query(&req->target, name);

    return text != NULL && strcmp(text->at, "1") == 0;
}

/* One that is all in the query. flag: the name of its flag, or NULL. */
static void start_query(struct agent_request *req, void (*run)(struct job *job), int status,
                        bool optional, const char *flag)
{
    const char *path = agent_files_query_path(req, optional);
    struct job *job = path != NULL ? new_job(req, run, status, path, NULL) : NULL;

    if (job == NULL)
        return;
    job->flag = flag != NULL && query_flag(req, flag);
    if (agent_files_for_query(req, &job->files))
        start_job(req, job);
    else
        free_job(job);
}

void agent_files_handle_list(struct agent_request *req)
{
    start_query(req, run_list, 200, true, NULL);
}

void agent_files_handle_stat(struct agent_request *req)
{
    start_query(req, run_stat, 200, false, "follow");
}

void agent_files_handle_delete(struct agent_request *req)
{
    const struct agent_text *id = agent_target_query(&req->target, "upload");
    const char *path;
    struct job *job;

    if (id == NULL) {
        start_query(req, run_remove, 204, false, "recursive");
        return;
    }
    path = agent_files_query_path(req, false);
    if (path == NULL)
        return;
    if (!agent_upload_id_valid(id->at, id->len)) {
        agent_request_error(req, 400, NULL, "upload must be 1 to %d letters, digits, - and _",
                            AGENT_UPLOAD_ID_MAX);
        return;
    }
    job = new_job(req, run_discard, 204, path, NULL);
    if (job == NULL)
        return;
    job->upload = strdup(id->at);
    if (job->upload == NULL)
        agent_request_error(req, 500, NULL, "out of memory");
    if (job->upload != NULL && agent_files_for_query(req, &job->files))
        start_job(req, job);
    else
        free_job(job);
}

/* A path of the body: false, and answered, when it is none. */
static bool get_path(struct agent_request *req, json_t *body, const char *name, const char **out)
{
    *out = NULL;
    return agent_json_string(req, body, name, out) &&
           agent_files_path_valid(req, *out, json_string_length(json_object_get(body, name)));
}

static void move(struct agent_request *req, json_t *body)
{
    const char *from, *to, *user = NULL;
    bool replace = false;
    struct job *job;

    if (!get_path(req, body, "from", &from) || !get_path(req, body, "to", &to) ||
        !agent_json_string(req, body, "user", &user) ||
        !agent_json_bool(req, body, "replace", &replace))
        return;
    job = new_job(req, run_move, 200, from, to);
    if (job == NULL)
        return;
    job->flag = replace;
    if (agent_files_for(req, user, NULL, &job->files))
        start_job(req, job);
    else
        free_job(job);
}

static void make_folder(struct agent_request *req, json_t *body)
{
    const char *path, *mode_text = NULL, *user = NULL, *owner = NULL;
    struct job *job;
    mode_t mode;

    if (!get_path(req, body, "path", &path) || !agent_json_string(req, body, "mode", &mode_text) ||
        !agent_json_string(req, body, "user", &user) ||
        !agent_json_string(req, body, "owner", &owner) || !agent_files_mode(req, mode_text, &mode))
        return;
    job = new_job(req, run_mkdir, 201, path, NULL);
    if (job == NULL)
        return;
    job->mode = mode;
    if (agent_files_for(req, user, owner, &job->files))
        start_job(req, job);
    else
        free_job(job);
}

void agent_files_handle_move(struct agent_request *req)
{
    json_t *body = agent_request_json(req);

    if (body != NULL)
        move(req, body);
    json_decref(body);
}

void agent_files_handle_mkdir(struct agent_request *req)
{
    json_t *body = agent_request_json(req);

    if (body != NULL)
        make_folder(req, body);
    json_decref(body);
}
