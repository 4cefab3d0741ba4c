/* SPDX-License-Identifier: MIT */
/* Path of a job: submit -> queue -> run in the pool -> done on the loop -> the next one. A store
 * that ends takes no new jobs but its holders', and goes when the last holder and job are over. */
#include "vmm/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/bind.h"
#include "vmm/file.h"
#include "vmm/proc/child.h"

#define IDLE_MS         60000 /* after which an unused store is closed */
#define REPACK_MAX_MS   1800000
#define REPACK_PAUSE_MS 600000 /* after one that failed */

struct vmm_store {
    struct vmm_stores *stores;
    struct vmm_store *prev, *next;
    char session[VMM_ID_LEN + 1];
    char dir[VMM_PATH_SIZE];
    struct sync_store *sync; /* NULL: not open; the running job's alone */
    uv_work_t work;
    struct vmm_store_job *running; /* in the pool */
    struct vmm_store_job *first, *last;
    struct vmm_store_hold *holds;
    size_t n_loose;                /* Git objects that are files of their own, after the last job */
    uint64_t repack_ms;            /* no repack before; 0: none failed */
    struct vmm_store_job repacked; /* after a repack */
    bool is_repacked;              /* that job is in the queue */
    uint64_t used_ms;              /* when it was last used, by the loop's clock */
    unsigned n_calls;              /* callbacks under way: whoever called them goes on afterwards */
    bool ending;
    void (*on_ended)(void *arg);
    void *on_ended_arg;
};

struct vmm_stores {
    struct vmm *vmm;
    struct vmm_store *all;
    int64_t quota;
    uv_work_t sweep;
    bool sweeping, sweep_again;
    atomic_bool stop_sweep;
    struct child *repack;           /* one at a time; NULL: none */
    char repacking[VMM_ID_LEN + 1]; /* whose */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
    vmm_store_changed_cb changed;
    void *changed_arg;
};

static void maybe_closed(struct vmm_stores *stores)
{
    if (!stores->closing || stores->all != NULL || stores->sweeping || stores->repack != NULL)
        return;
    sync_store_fini();
    stores->vmm->stores = NULL;
    stores->on_closed(stores->on_closed_arg);
    free(stores);
}

static void close_store(struct vmm_store *s)
{
    struct vmm_stores *stores = s->stores;

    sync_store_close(s->sync);
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        stores->all = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->on_ended != NULL)
        s->on_ended(s->on_ended_arg);
    free(s);
    maybe_closed(stores);
}

static bool is_quiet(const struct vmm_store *s)
{
    return s->running == NULL && s->first == NULL && s->holds == NULL && s->n_calls == 0;
}

/* ---- jobs ---- */

static void on_work(uv_work_t *work)
{
    struct vmm_store *s = work->data;
    struct vmm_store_job *job = s->running;

    if (s->sync == NULL && sync_store_open(s->dir, s->stores->quota, &s->sync, &job->err) != 0)
        return;
    job->run(job, s->sync);
    s->n_loose = sync_store_loose(s->sync);
}

static void start_next(struct vmm_store *s);
static void consider_repack(struct vmm_store *s);

static void on_done(uv_work_t *work, int status)
{
    struct vmm_store *s = work->data;
    struct vmm_store_job *job = s->running;

    (void)status; /* never cancelled */
    s->running = NULL;
    s->used_ms = uv_now(s->stores->vmm->loop);
    s->n_calls++;
    job->done(job);
    s->n_calls--;
    consider_repack(s);
    start_next(s);
}

static void start_next(struct vmm_store *s)
{
    if (s->n_calls > 0)
        return;
    if (s->running == NULL && s->first != NULL) {
        s->running = s->first;
        s->first = s->running->next;
        if (s->first == NULL)
            s->last = NULL;
        s->running->next = NULL;
        if (uv_queue_work(s->stores->vmm->loop, &s->work, on_work, on_done) != 0)
            abort(); /* its only fault is a missing function */
        return;
    }
    if (s->ending && is_quiet(s))
        close_store(s);
}

static void enqueue(struct vmm_store *s, struct vmm_store_job *job)
{
    tr_err_clear(&job->err);
    job->next = NULL;
    if (s->last != NULL)
        s->last->next = job;
    else
        s->first = job;
    s->last = job;
    start_next(s);
}

static struct vmm_store *find(const struct vmm_stores *stores, const char *session)
{
    for (struct vmm_store *s = stores->all; s != NULL; s = s->next) {
        if (strcmp(s->session, session) == 0)
            return s;
    }
    return NULL;
}

/* NULL after saying why. */
static struct vmm_store *get(struct vmm *vmm, struct vmm_session *session, struct err *err)
{
    struct vmm_stores *stores = vmm->stores;
    struct vmm_store *s;

    if (stores == NULL || stores->closing || session->deleting) {
        (void)tr_err_set(err, -ESHUTDOWN, "%s",
                         session->deleting ? "the session is being deleted"
                                           : "the manager is ending");
        return NULL;
    }
    s = find(stores, session->id);
    if (s == NULL) {
        s = calloc(1, sizeof(*s));
        if (s == NULL) {
            (void)tr_err_set(err, -ENOMEM, "out of memory");
            return NULL;
        }
        s->stores = stores;
        s->work.data = s;
        memcpy(s->session, session->id, sizeof(s->session));
        snprintf(s->dir, sizeof(s->dir), "%s/%s", vmm->sessions.dir, session->id);
        s->next = stores->all;
        if (s->next != NULL)
            s->next->prev = s;
        stores->all = s;
    }
    s->used_ms = uv_now(vmm->loop);
    return s;
}

int vmm_store_submit(struct vmm *vmm, struct vmm_session *session, struct vmm_store_job *job,
                     struct err *err)
{
    struct vmm_store *s = get(vmm, session, err);

    if (s == NULL)
        return err->code;
    enqueue(s, job);
    return 0;
}

void vmm_store_submit_held(struct vmm_store_hold *hold, struct vmm_store_job *job)
{
    enqueue(hold->store, job);
}

int vmm_store_hold(struct vmm *vmm, struct vmm_session *session, struct vmm_store_hold *hold,
                   struct err *err)
{
    struct vmm_store *s = get(vmm, session, err);

    if (s == NULL)
        return err->code;
    hold->store = s;
    hold->prev = NULL;
    hold->next = s->holds;
    if (hold->next != NULL)
        hold->next->prev = hold;
    s->holds = hold;
    return 0;
}

void vmm_store_release(struct vmm_store_hold *hold)
{
    struct vmm_store *s = hold->store;

    if (s == NULL)
        return;
    hold->store = NULL;
    if (hold->prev != NULL)
        hold->prev->next = hold->next;
    else
        s->holds = hold->next;
    if (hold->next != NULL)
        hold->next->prev = hold->prev;
    start_next(s); /* it may have been the last thing to wait for */
}

/* ---- packing ---- */

static void run_repacked(struct vmm_store_job *job, struct sync_store *sync)
{
    if (sync_store_repacked(sync, &job->err) != 0)
        log_warn("%s", job->err.msg);
}

static void on_repacked(struct vmm_store_job *job)
{
    struct vmm_store *s = (struct vmm_store *)((char *)job - offsetof(struct vmm_store, repacked));

    s->is_repacked = false;
}

static void on_repack(const struct child_result *result, void *arg)
{
    struct vmm_stores *stores = arg;
    struct vmm_store *s = find(stores, stores->repacking);
    struct err err = {0};

    stores->repack = NULL;
    if (result->status == 0)
        log_info("session=%s: %.*s objects of its checkpoints are packed", stores->repacking,
                 (int)strcspn(result->out, "\n"), result->out);
    else if (result->status != UV_ECANCELED && child_explain(result, "repack", &err) != 0)
        log_warn("session=%s: %s", stores->repacking, err.msg);
    if (s != NULL && !s->ending) {
        s->repack_ms = result->status == 0 ? 0 : uv_now(stores->vmm->loop) + REPACK_PAUSE_MS;
        if (!s->is_repacked) {
            s->is_repacked = true;
            s->repacked.run = run_repacked;
            s->repacked.done = on_repacked;
            enqueue(s, &s->repacked);
        }
    }
    maybe_closed(stores);
}

/* Many small files: pack them, unless another store is being packed; it is asked again after the
 * next job. */
static void consider_repack(struct vmm_store *s)
{
    struct vmm_stores *stores = s->stores;
    const char *argv[] = {"/proc/self/exe", "--repack", s->dir, NULL};
    struct err err = {0};

    if (s->n_loose < (size_t)stores->vmm->options->repack_objects || s->ending || stores->closing ||
        stores->repack != NULL || s->is_repacked || uv_now(stores->vmm->loop) < s->repack_ms)
        return;
    memcpy(stores->repacking, s->session, sizeof(stores->repacking));
    if (child_run(stores->vmm->loop, argv, NULL, REPACK_MAX_MS, on_repack, stores, &stores->repack,
                  &err) == 0)
        return;
    log_warn("session=%s: repack: %s", s->session, err.msg);
    s->repack_ms = uv_now(stores->vmm->loop) + REPACK_PAUSE_MS;
}

/* Its folder goes, or we do. */
static void cancel_repack(struct vmm_stores *stores, const char *session)
{
    if (stores->repack != NULL && (session == NULL || strcmp(stores->repacking, session) == 0))
        child_cancel(stores->repack);
}

/* ---- ending ---- */

static void end_store(struct vmm_store *s)
{
    struct vmm_store_hold *next;

    s->ending = true;
    s->n_calls++;
    for (struct vmm_store_hold *hold = s->holds; hold != NULL; hold = next) {
        next = hold->next; /* end() may release its own hold, no other */
        hold->end(hold);
    }
    s->n_calls--;
    start_next(s);
}

bool vmm_store_end(struct vmm *vmm, struct vmm_session *session, void (*cb)(void *arg), void *arg)
{
    struct vmm_store *s = vmm->stores != NULL ? find(vmm->stores, session->id) : NULL;

    if (vmm->stores != NULL)
        cancel_repack(vmm->stores, session->id);
    if (s == NULL)
        return false;
    if (is_quiet(s)) {
        s->on_ended = NULL;
        s->ending = true;
        close_store(s);
        return false;
    }
    s->on_ended = cb;
    s->on_ended_arg = arg;
    if (!s->ending)
        end_store(s);
    return true;
}

void vmm_stores_tick(struct vmm_stores *stores, uint64_t now_ms)
{
    struct vmm_store *next;

    for (struct vmm_store *s = stores->all; s != NULL; s = next) {
        next = s->next;
        if (is_quiet(s) && now_ms - s->used_ms >= IDLE_MS)
            close_store(s);
    }
}

int vmm_stores_open(struct vmm *vmm, struct vmm_stores **out, struct err *err)
{
    struct vmm_stores *stores = calloc(1, sizeof(*stores));
    int r;

    if (stores == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = sync_store_init(err);
    if (r != 0) {
        free(stores);
        return r;
    }
    stores->vmm = vmm;
    stores->quota = vmm->options->quota_mb * 1024 * 1024;
    atomic_init(&stores->stop_sweep, false);
    *out = stores;
    return 0;
}

void vmm_stores_close(struct vmm_stores *stores, void (*cb)(void *arg), void *arg)
{
    struct vmm_store *next;

    stores->closing = true;
    stores->on_closed = cb;
    stores->on_closed_arg = arg;
    atomic_store(&stores->stop_sweep, true);
    cancel_repack(stores, NULL);
    if (stores->all == NULL) {
        maybe_closed(stores);
        return;
    }
    for (struct vmm_store *s = stores->all; s != NULL; s = next) {
        next = s->next;
        end_store(s); /* the last one may free stores */
    }
}

/* ---- deleted sessions ---- */

static void on_sweep(uv_work_t *work)
{
    struct vmm_stores *stores = work->data;
    const char *dir = stores->vmm->sessions.dir;
    char path[VMM_PATH_SIZE];
    struct err err = {0};
    struct dirent *entry;
    DIR *d = opendir(dir);

    while (d != NULL && !atomic_load(&stores->stop_sweep) && (entry = readdir(d)) != NULL) {
        if (strncmp(entry->d_name, VMM_SESSION_GONE, strlen(VMM_SESSION_GONE)) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= (int)sizeof(path))
            continue;
        if (vmm_file_remove_tree(path, &err) != 0)
            log_warn("%s", err.msg); /* the next start tries again */
    }
    if (d != NULL)
        closedir(d);
}

static void on_swept(uv_work_t *work, int status)
{
    struct vmm_stores *stores = work->data;

    (void)status;
    stores->sweeping = false;
    if (stores->sweep_again && !stores->closing)
        vmm_stores_sweep(stores->vmm);
    else
        maybe_closed(stores);
}

void vmm_stores_sweep(struct vmm *vmm)
{
    struct vmm_stores *stores = vmm->stores;

    if (stores == NULL || stores->closing)
        return; /* the next start does it */
    stores->sweep_again = stores->sweeping;
    if (stores->sweeping)
        return;
    stores->sweeping = true;
    stores->sweep.data = stores;
    if (uv_queue_work(vmm->loop, &stores->sweep, on_sweep, on_swept) != 0)
        abort(); /* its only fault is a missing function */
}

/* ---- who wants to know ---- */

void vmm_stores_watch(struct vmm *vmm, vmm_store_changed_cb cb, void *arg)
{
    vmm->stores->changed = cb;
    vmm->stores->changed_arg = arg;
}

void vmm_store_changed(struct vmm *vmm, const char *session_id)
{
    struct vmm_session *session = vmm_session_find(&vmm->sessions, session_id);

    if (session != NULL && vmm->stores != NULL && vmm->stores->changed != NULL)
        vmm->stores->changed(vmm, session, vmm->stores->changed_arg);
    vmm_binds_look(vmm, session_id);
}
