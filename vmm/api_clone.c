/* SPDX-License-Identifier: MIT */
/* POST of /v1/sessions/{s}/clone: a session without files begins with those of a repository.
 *
 * Path: hold the store -> look, make room (job) -> git, in a process of its own (vmm/fetch.h) ->
 * files and .git into the store, a checkpoint (job) -> answer; then what is left of it goes. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/store_gits.h"
#include "sync/store_import.h"
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/fetch.h"
#include "vmm/file.h"
#include "vmm/machine.h"
#include "vmm/net/net.h"
#include "vmm/proc/child.h"
#include "vmm/store_api.h"

#define FETCH_MAX_MS 900000
#define FETCHES_MAX  4                   /* at a time */
#define BYTES_MAX    (INT64_C(64) << 30) /* without a quota */

struct fetch {
    struct vmm_store_job job;
    struct vmm_store_hold hold;
    struct vmm_request *req; /* with a reference */
    struct child *child;     /* NULL: none runs */
    char session[VMM_ID_LEN + 1], author[VMM_OWNER_MAX + 1];
    char staging[VMM_PATH_SIZE], netns[33], dns[16], depth[16];
    char *url, *ref;
    int64_t git_max; /* bytes that the .git folder may have */
    /* the job's while one is under way */
    char name[SYNC_IMPORT_NAME]; /* in staging; "" : there is none */
    int64_t room, git_bytes;
    struct sync_import import;
    struct sync_checkpoint made;
    /* the loop's */
    bool busy, failed, is_fetched, is_imported;
};

static unsigned n_fetches; /* one loop, one thread */

static void finish(struct fetch *f)
{
    n_fetches--;
    f->req->arg = NULL;
    f->req->cbs = NULL;
    vmm_store_release(&f->hold);
    vmm_request_unref(f->req);
    free(f->url);
    free(f->ref);
    free(f);
}

/* ---- in the pool ---- */

static void run_look(struct vmm_store_job *job, struct sync_store *store)
{
    struct fetch *f = (struct fetch *)job;
    struct sync_usage usage;

    if (sync_store_recount(store, &job->err) != 0)
        return;
    sync_store_usage(store, &usage);
    f->room = usage.quota > 0 ? usage.quota - usage.files - usage.history : BYTES_MAX;
    if (usage.n_files > 0)
        (void)tr_err_set(&job->err, -EEXIST, "the session has files already");
    else if (f->room <= 0)
        (void)!sync_store_room(store, 1, &job->err);
    else
        sync_store_import_name(store, f->name);
}

/* NAME/git into the store. */
static int take_git(struct fetch *f, struct sync_store *store, struct err *err)
{
    struct sync_git_writer *writer = NULL;
    char path[VMM_PATH_SIZE + 64];
    char *buf = malloc(262144);
    struct stat st = {0};
    ssize_t n = 0;
    int fd, r;

    snprintf(path, sizeof(path), "%s/%s/git", f->staging, f->name);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (buf == NULL || fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        r = tr_err_set(err, -EIO, "what was fetched is gone");
    else if (st.st_size > f->git_max)
        r = tr_err_set(err, -EFBIG,
                       "its history is larger than sessions.git_mb allows: ask for less of it "
                       "(depth)");
    else
        r = sync_git_writer_new(store, &writer, err);
    while (r == 0 && (n = read(fd, buf, 262144)) > 0)
        r = sync_git_writer_add(writer, buf, (size_t)n, err);
    if (r == 0 && n < 0)
        r = tr_err_set(err, -EIO, "what was fetched: %s", strerror(errno));
    if (r == 0)
        r = sync_git_writer_end(writer, "", 0, err);
    f->git_bytes = r == 0 ? st.st_size : 0;
    sync_git_writer_free(writer);
    if (fd >= 0)
        close(fd);
    free(buf);
    return r;
}

static void run_import(struct vmm_store_job *job, struct sync_store *store)
{
    struct fetch *f = (struct fetch *)job;
    char tree[SYNC_IMPORT_NAME + 8], message[2200];
    int r = f->git_max > 0 ? take_git(f, store, &job->err) : 0;

    snprintf(tree, sizeof(tree), "%s/tree", f->name);
    if (r == 0)
        r = sync_store_import(store, tree, "", 0, true, f->author, &f->import, &job->err);
    snprintf(message, sizeof(message), "Cloned from %s", f->url);
    if (r == 0)
        (void)!sync_store_checkpoint(store, message, SYNC_CAUSE_API, f->author, &f->made, NULL,
                                     &job->err);
    else if (f->git_bytes > 0)
        (void)!sync_store_git_drop(store, "", 0, &(struct err){0});
}

static void run_drop(struct vmm_store_job *job, struct sync_store *store)
{
    struct fetch *f = (struct fetch *)job;

    sync_store_import_drop(store, f->name);
    f->name[0] = '\0';
}

/* ---- on the loop ---- */

static void step(struct fetch *f);

static void answer(struct fetch *f)
{
    vmm_reply_json(f->req, 200,
                   json_pack("{sI, sI, sI, sI, sI, so}", "files", (json_int_t)f->import.n_files,
                             "directories", (json_int_t)f->import.n_dirs, "links",
                             (json_int_t)f->import.n_links, "bytes", (json_int_t)f->import.bytes,
                             "git_bytes", (json_int_t)f->git_bytes, "checkpoint",
                             vmm_store_view_checkpoint(&f->made)));
}

static void on_done(struct vmm_store_job *job)
{
    struct fetch *f = (struct fetch *)job;

    f->busy = false;
    if (f->is_imported) /* also when it came only half-way */
        vmm_store_changed(f->req->vmm, f->session);
    if (job->err.code != 0 && !f->failed) {
        f->failed = true;
        if (job->err.code == -EFBIG)
            vmm_reply_fault(f->req, 422, "git_too_big", "%s", job->err.msg);
        else
            vmm_store_reply_err(f->req, &job->err);
    } else if (f->is_imported && !f->failed) {
        f->failed = true; /* over, at any rate */
        answer(f);
    }
    f->is_imported = false;
    step(f);
}

static void submit(struct fetch *f, void (*run)(struct vmm_store_job *, struct sync_store *))
{
    f->job.run = run;
    f->job.done = on_done;
    f->busy = true;
    vmm_store_submit_held(&f->hold, &f->job);
}

/* What went wrong, to the one who asked. */
static void explain(struct fetch *f, const struct child_result *result)
{
    static const struct {
        int code, status;
        const char *name;
    } known[] = {
        {VMM_FETCH_UNREACHABLE, 422, "git_unreachable"},
        {VMM_FETCH_NOT_FOUND, 422, "git_not_found"},
        {VMM_FETCH_AUTH, 422, "git_auth"},
        {VMM_FETCH_NO_REF, 422, "git_no_ref"},
        {VMM_FETCH_TOO_BIG, 422, "git_too_big"},
    };
    struct err err = {0};

    for (size_t i = 0; result->status == UV_EIO && i < sizeof(known) / sizeof(known[0]); i++) {
        if (result->code == known[i].code) {
            vmm_reply_fault(f->req, known[i].status, known[i].name, "%s: %s", f->url,
                            result->errors);
            return;
        }
    }
    if (result->status == UV_ETIMEDOUT)
        vmm_reply_fault(f->req, 422, "git_timeout", "%s: it takes longer than %d minutes", f->url,
                        FETCH_MAX_MS / 60000);
    else if (child_explain(result, "git", &err) != 0)
        vmm_reply_fault(f->req, 502, "git_failed", "%s: %s", f->url,
                        *result->errors ? result->errors : err.msg);
}

static void on_fetched(const struct child_result *result, void *arg)
{
    struct fetch *f = arg;

    f->child = NULL;
    f->busy = false;
    f->is_fetched = result->status == 0;
    if (result->status != 0 && !f->failed) {
        f->failed = true;
        explain(f, result);
    }
    step(f);
}

static void fetch(struct fetch *f)
{
    char bytes[24], files[24];
    const char *argv[] = {"/proc/self/exe", "--fetch", f->staging, f->name,
                          f->netns,         f->dns,    bytes,      files,
                          f->depth,         f->url,    f->ref,     NULL};
    struct err err = {0};

    snprintf(bytes, sizeof(bytes), "%lld", (long long)f->room);
    snprintf(files, sizeof(files), "%d", SYNC_STORE_FILES_MAX / 2);
    f->busy = true;
    if (child_run(f->req->vmm->loop, argv, NULL, FETCH_MAX_MS, on_fetched, f, &f->child, &err) == 0)
        return;
    f->busy = false;
    f->failed = true;
    vmm_reply_error(f->req, 500, "%s", err.msg);
    step(f);
}

static void step(struct fetch *f)
{
    bool gone = f->req->st == NULL;

    if (f->busy) {
        if (f->child != NULL && (gone || f->failed))
            child_cancel(f->child);
        return;
    }
    if (f->failed || gone) {
        f->failed = true;
        if (*f->name) {
            submit(f, run_drop);
        } else {
            vmm_store_release(&f->hold);
            if (gone)
                finish(f);
        }
        return;
    }
    if (f->is_fetched) {
        f->is_imported = true;
        submit(f, run_import);
    } else {
        fetch(f);
    }
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    (void)code;
    step(req->arg);
}

/* The session is being deleted. */
static void on_hold_end(struct vmm_store_hold *hold)
{
    struct fetch *f = (struct fetch *)((char *)hold - offsetof(struct fetch, hold));

    if (f->failed || f->is_imported)
        return; /* it is over soon */
    f->failed = true;
    vmm_reply_error(f->req, 409, "the session is being deleted");
    step(f);
}

static const struct vmm_request_cbs cbs = {.on_gone = on_gone};

static int parse(struct fetch *f, const json_t *body, struct err *err)
{
    const char *url = json_string_value(json_object_get(body, "url"));
    const json_t *ref = json_object_get(body, "ref"), *depth = json_object_get(body, "depth");
    int r = vmm_fetch_check_url(url, err);

    if (r == 0 && ref != NULL)
        r = vmm_fetch_check_ref(json_string_value(ref), err);
    if (r == 0 && depth != NULL &&
        (json_integer_value(depth) < 0 || json_integer_value(depth) > 1000000))
        r = tr_err_set(err, -EINVAL, "depth must be 0 (all of the history) to 1000000");
    if (r != 0)
        return r;
    snprintf(f->depth, sizeof(f->depth), "%lld", (long long)json_integer_value(depth));
    f->url = strdup(url);
    f->ref = ref != NULL ? strdup(json_string_value(ref)) : NULL;
    return f->url == NULL || (ref != NULL && f->ref == NULL)
               ? tr_err_set(err, -ENOMEM, "out of memory")
               : 0;
}

void vmm_api_store_clone(struct vmm_request *req)
{
    struct fetch *f;
    struct err err = {0};
    int r;

    if (n_fetches >= FETCHES_MAX) {
        vmm_reply_error(req, 429, "%d repositories are being fetched", FETCHES_MAX);
        return;
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    n_fetches++;
    f->req = vmm_request_ref(req);
    f->hold.end = on_hold_end;
    f->git_max = req->vmm->options->git_mb * 1024 * 1024;
    memcpy(f->session, req->session->id, sizeof(f->session));
    snprintf(f->author, sizeof(f->author), "%s", req->who.owner);
    snprintf(f->staging, sizeof(f->staging), "%s/%s/staging", req->vmm->sessions.dir, f->session);
    r = parse(f, req->body, &err);
    if (r == 0 && !vmm_machines_network(req->vmm, f->netns, f->dns)) {
        vmm_reply_fault(req, 503, "network_off",
                        "this node's machines have no network (net.enabled), through which a "
                        "repository is fetched");
        finish(f);
        return;
    }
    if (r == 0)
        r = vmm_store_hold(req->vmm, req->session, &f->hold, &err);
    if (r != 0) {
        vmm_store_reply_err(req, &err);
        finish(f);
        return;
    }
    req->cbs = &cbs;
    req->arg = f;
    submit(f, run_look);
}
