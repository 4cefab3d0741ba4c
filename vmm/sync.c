/* SPDX-License-Identifier: MIT */
/* Path: open -> the store's folders (job) -> run -> first round -> .git folders are put back ->
 * on_files -> rounds, now and then a count, or the .git folders and a checkpoint (jobs) -> finish
 * -> the run ends -> .git folders -> checkpoint (job) -> cb. Close, at any time: run and
 * conversation are stopped; once the run has ended and no job is under way, the conversation is
 * closed, then all is freed. */
#include "vmm/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/run.h"
#include "sync/scan.h"
#include "sync/side_local.h"
#include "sync/secrets.h"
#include "sync/side_remote.h"
#include "sync/vault_git.h"
#include "transom/log.h"
#include "vmm/active.h"
#include "vmm/file.h"
#include "vmm/gits.h"

#define QUIET_MS      10000  /* without a change: a checkpoint is due */
#define RUN_MS        2000   /* the same after a run has ended */
#define UNQUIET_MS    300000 /* it is due then, quiet or not */
#define GITS_MS       120000 /* for all .git folders of a machine */
#define GITS_LAST_MS  2000   /* for them at least, before a reset */
#define GITS_STUCK_MS 8000   /* and after a last sync that did not end in step */
#define COUNT_MS      2000   /* between two counts of the store's bytes */
#define GRACE_MS      500    /* of a last sync, after its time */
#define CONFLICT_MAX  100    /* that are shown */

#define LABEL_SIZE 64

enum task { OPEN, COUNT, CHECKPOINT };

struct vmm_sync {
    struct vmm *vmm;
    char label[LABEL_SIZE];
    const char *side;
    char ancestor[VMM_PATH_SIZE], gits_dir[VMM_PATH_SIZE];
    uint64_t instance;
    const struct vmm_sync_cbs *cbs;
    void *arg;
    struct vmm_store_hold hold;
    struct sync_tree store;
    struct sync_side_local *local; /* NULL: not open */
    struct sync_vault_git *vault;
    struct sync_side_remote *remote; /* NULL: not open */
    struct sync_run *run;            /* NULL: not begun, or ended */
    struct vmm_gits *gits;           /* NULL: none, or closed */
    struct sync_secrets secrets;
    struct tr_mask *mask; /* the same ones, for what we show of paths */
    uv_timer_t timer;     /* for the first files, then for the last */
    bool told_files, is_finishing, was_kept, is_closing, is_remote_closing, is_local_closing;
    bool has_files; /* the first round is over */
    bool has_gits;  /* after the last sync: the .git folders were taken */
    bool is_gits_closing;
    bool is_stuck;      /* the run ended with a fault: not much is to be had of the machine */
    uint64_t finish_ms; /* by when a last sync ought to be over */
    /* The job; what is under `task` is the pool's while is_busy. */
    struct vmm_store_job job;
    bool is_busy, has_opened;
    bool is_last; /* the checkpoint after the last sync */
    enum task task;
    int result;
    char dir[VMM_PATH_SIZE];
    struct sync_usage usage;
    enum sync_cause cause;
    /* The store's state as far as it concerns us. */
    uint64_t n_changes; /* in the store, at the last news */
    bool is_uncounted, is_unkept, is_in_step;
    uint64_t changed_ms, counted_ms;
    uint64_t unkept_ms; /* since when something is not kept */
    bool has_run;       /* a run has ended since the last checkpoint */
    uint64_t run_ms;    /* when the last one did */
    json_t *status, *conflicts;
    void (*on_finished)(void *arg);
    void *on_finished_arg;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void step(struct vmm_sync *s);

/* ---- jobs of the store ---- */

static int open_side(struct vmm_sync *s, struct sync_store *store)
{
    s->store.sync = true;
    s->store.root = fcntl(sync_store_files(store), F_DUPFD_CLOEXEC, 0);
    if (s->store.root < 0)
        return tr_err_set(&s->job.err, -errno, "the store: %s", strerror(errno));
    s->store.stage = fcntl(sync_store_staging(store), F_DUPFD_CLOEXEC, 0);
    if (s->store.stage < 0)
        return tr_err_set(&s->job.err, -errno, "the store: %s", strerror(errno));
    return sync_vault_git_open(s->dir, &s->vault, &s->job.err);
}

static void on_job(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_sync *s = (struct vmm_sync *)((char *)job - offsetof(struct vmm_sync, job));
    struct sync_checkpoint made;

    s->result = 0;
    if (s->task == OPEN)
        s->result = open_side(s, store);
    else
        s->result = sync_store_recount(store, &job->err);
    if (s->task == CHECKPOINT && s->result == 0)
        s->result = sync_store_checkpoint(store, "", s->cause, "transom", &made, NULL, &job->err);
    sync_store_usage(store, &s->usage);
}

static void set_room(struct vmm_sync *s)
{
    int64_t left = s->usage.quota - s->usage.files - s->usage.history;

    if (s->vault != NULL)
        sync_vault_git_set_room(s->vault, s->usage.quota == 0 ? -1 : left > 0 ? left : 0);
}

static void begin(struct vmm_sync *s);
static void tell_files(struct vmm_sync *s, int status, const char *why);

static void on_job_done(struct vmm_store_job *job)
{
    struct vmm_sync *s = (struct vmm_sync *)((char *)job - offsetof(struct vmm_sync, job));

    s->is_busy = false;
    if (job->err.code != 0) {
        log_warn("%s: sync: %s", s->label, job->err.msg);
        if (s->task == OPEN)
            tell_files(s, job->err.code, job->err.msg);
    } else {
        set_room(s);
        if (s->task == OPEN) {
            s->has_opened = true;
            begin(s);
        }
    }
    if (s->is_last && !s->is_closing) {
        s->is_last = false;
        s->on_finished(s->on_finished_arg); /* may close */
        return;
    }
    step(s);
}

static void submit(struct vmm_sync *s, enum task task)
{
    s->is_busy = true;
    s->task = task;
    s->job.run = on_job;
    s->job.done = on_job_done;
    vmm_store_submit_held(&s->hold, &s->job);
}

/* ---- the run ---- */

static struct tr_h2 *session(void *arg)
{
    const struct vmm_sync *s = arg;

    return s->cbs->h2(s->arg);
}

static void on_dirty(const char *dir, size_t len, void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_dirty(s->run, SYNC_GUEST, dir, len);
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_lost(s->run, SYNC_GUEST, dir, len, status);
}

static void on_overflow(void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_overflow(s->run, SYNC_GUEST);
}

static const struct sync_side_remote_cbs remote_cbs = {
    .session = session, .on_dirty = on_dirty, .on_lost = on_lost, .on_overflow = on_overflow};

static void on_store_dirty(const char *dir, size_t len, void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_dirty(s->run, SYNC_STORE, dir, len);
}

static void on_store_lost(const char *dir, size_t len, int status, void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_lost(s->run, SYNC_STORE, dir, len, status);
}

static void on_store_overflow(void *arg)
{
    const struct vmm_sync *s = arg;

    if (s->run != NULL)
        sync_run_overflow(s->run, SYNC_STORE);
}

static const struct sync_side_local_cbs local_cbs = {
    .on_dirty = on_store_dirty, .on_lost = on_store_lost, .on_overflow = on_store_overflow};

static void tell_files(struct vmm_sync *s, int status, const char *why)
{
    if (s->told_files || s->is_closing)
        return;
    s->told_files = true;
    uv_timer_stop(&s->timer);
    s->cbs->on_files(status, why, s->arg);
}

/* A path as text: a secret in it is hidden, what is no printable ASCII is \xNN. New. */
static json_t *shown_path(const struct vmm_sync *s, const char *raw, size_t raw_len)
{
    size_t len = 0;
    char *path = tr_mask_text(s->mask, raw, raw_len, &len);
    char *text = path != NULL ? malloc(4 * len + 1) : NULL, *at = text;
    json_t *out;

    if (text == NULL) {
        free(path);
        return NULL;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)path[i];

        if (c < 0x20 || c > 0x7e || c == '\\')
            at += sprintf(at, "\\x%02x", c);
        else
            *at++ = (char)c;
    }
    *at = '\0';
    out = json_string(text);
    free(path);
    free(text);
    return out;
}

/* Why something is left out. Of .git folders somebody takes care, or nobody does. */
static const char *why_text(const struct vmm_sync *s, const char *name, const char *text)
{
    return s->gits == NULL && strcmp(name, sync_scan_why_name(SYNC_WHY_GIT)) == 0
               ? "a Git repository's own data: stays where it is"
               : text;
}

/* side: what the other side is called; NULL: no sides are told. */
static json_t *list_json(const struct vmm_sync *s, const struct sync_shown *list, size_t n,
                         const char *side)
{
    json_t *out = json_array();

    for (size_t i = 0; i < n && out != NULL; i++) {
        json_t *item =
            json_pack("{so, ss, ss}", "path", shown_path(s, list[i].path, list[i].len), "code",
                      list[i].name, "why", why_text(s, list[i].name, list[i].text));

        if (side != NULL && item != NULL)
            json_object_set_new(item, "side",
                                json_string(list[i].side == SYNC_GUEST ? side : "store"));
        json_array_append_new(out, item);
    }
    return out;
}

/* ---- .git folders ---- */

/* Of the boot that got them: a later manager must not put back what was removed since. */
static json_t *gits_record(const struct vmm_sync *s)
{
    return json_pack("{sI}", "epoch", (json_int_t)s->instance);
}

static void on_restored(int status, void *arg)
{
    struct vmm_sync *s = arg;
    json_t *record = status == 0 ? gits_record(s) : NULL;
    struct err err = {0};

    if (status != 0 && status != UV_ECANCELED)
        log_warn("%s: not all .git folders were put back: %s", s->label, uv_strerror(status));
    if (record != NULL && vmm_file_write_json(s->gits_dir, "gits.json", record, &err) != 0)
        log_warn("%s: %s", s->label, err.msg);
    json_decref(record);
    tell_files(s, 0, "");
    step(s);
}

/* The files are there; nothing runs yet. */
static void restore_gits(struct vmm_sync *s)
{
    json_t *record = NULL, *ours = gits_record(s);
    char path[VMM_PATH_SIZE];
    struct err err = {0};

    snprintf(path, sizeof(path), "%s/gits.json", s->gits_dir);
    if (vmm_file_read_json(path, 4096, &record, &err) == 0 && json_equal(record, ours)) {
        vmm_gits_restored(s->gits);
        tell_files(s, 0, "");
    } else {
        vmm_gits_restore(s->gits, GITS_MS, on_restored, s);
    }
    json_decref(record);
    json_decref(ours);
}

static void on_taken(int status, void *arg)
{
    struct vmm_sync *s = arg;

    if (status != 0 && status != UV_ECANCELED)
        log_warn("%s: the .git folders as they are now are not kept: %s", s->label,
                 uv_strerror(status));
    if (!s->is_closing && !s->is_finishing && !s->is_busy &&
        (s->is_unkept || vmm_gits_has_changed(s->gits))) {
        s->is_unkept = s->is_uncounted = false;
        submit(s, CHECKPOINT);
    }
    step(s);
}

static json_t *whys_json(const struct vmm_sync *s, const struct sync_run_news *news)
{
    json_t *out = json_array();

    for (unsigned why = 0; why < SYNC_RUN_WHYS; why++) {
        const char *name = news->n_why[why] > 0 ? sync_scan_why_name(why) : NULL;

        if (name != NULL)
            json_array_append_new(out, json_pack("{ss, ss, sI}", "code", name, "why",
                                                 why_text(s, name, sync_scan_why_text(why)),
                                                 "paths", (json_int_t)news->n_why[why]));
    }
    return out;
}

static void set_number(json_t *object, const char *prefix, const char *name, json_int_t number)
{
    char key[48];

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    json_object_set_new(object, key, json_integer(number));
}

static void keep_status(struct vmm_sync *s, const struct sync_run_news *news)
{
    const struct sync_engine_status *st = &news->status;

    json_decref(s->status);
    s->status = json_pack(
        "{sb, sb, sI, sI, sI, sI, sI, sI, sI, sI, sI, so, so, so, ss}", "in_step", st->is_in_step,
        "synced", st->has_synced, "paths", (json_int_t)st->n_paths[SYNC_STORE], "pending",
        (json_int_t)st->n_due, "to_store", (json_int_t)st->n_changes[SYNC_STORE], "bytes_to_store",
        (json_int_t)st->bytes_sent[SYNC_STORE], "folders_listed",
        (json_int_t)st->n_listed[SYNC_GUEST], "files_hashed", (json_int_t)st->n_hashed[SYNC_GUEST],
        "n_left_out", (json_int_t)st->n_left_out, "n_faults", (json_int_t)st->n_faults,
        "n_conflicts", (json_int_t)st->n_conflicts, "left_out",
        list_json(s, news->left_out, news->n_left_out, NULL), "left_out_by", whys_json(s, news),
        "faults", list_json(s, news->faults, news->n_faults, s->side), "error",
        news->round != 0 ? news->err.msg : "");
    set_number(s->status, "to_", s->side, (json_int_t)st->n_changes[SYNC_GUEST]);
    set_number(s->status, "bytes_to_", s->side, (json_int_t)st->bytes_sent[SYNC_GUEST]);
}

static void files_are_there(struct vmm_sync *s)
{
    s->has_files = true;
    if (s->gits != NULL)
        restore_gits(s);
    else
        tell_files(s, 0, "");
}

static void on_news(const struct sync_run_news *news, void *arg)
{
    struct vmm_sync *s = arg;

    keep_status(s, news);
    s->is_in_step = news->round == 0 && news->status.is_in_step;
    if (news->status.n_changes[SYNC_STORE] != s->n_changes) {
        s->n_changes = news->status.n_changes[SYNC_STORE];
        s->changed_ms = uv_now(s->vmm->loop);
        if (!s->is_unkept && !s->has_run)
            s->unkept_ms = s->changed_ms;
        s->is_uncounted = s->is_unkept = true;
    }
    if (news->round != 0)
        tr_log(TR_LOG_DEBUG, "", "%s: sync: %s", s->label, news->err.msg);
    else if (!s->has_files && !s->is_closing && !s->is_finishing)
        files_are_there(s);
    if (s->cbs->on_news != NULL && !s->is_closing)
        s->cbs->on_news(s->arg);
}

static void on_conflict(const char *path, size_t len, enum sync_conflict_kind kind,
                        enum sync_side winner, void *arg)
{
    static const char *const kinds[] = {[SYNC_CONFLICT_EDITED] = "edited",
                                        [SYNC_CONFLICT_REPLACED] = "replaced",
                                        [SYNC_CONFLICT_BLOCKED] = "blocked",
                                        [SYNC_CONFLICT_LEFT_OUT] = "left-out"};
    struct vmm_sync *s = arg;
    json_t *text = shown_path(s, path, len), *told;

    told = json_pack("{sO, ss, ss}", "path", text, "kind", kinds[kind], "winner",
                     winner == SYNC_GUEST ? s->side : "store");
    log_info("%s: sync: conflict: %s: %s", s->label, json_string_value(text), kinds[kind]);
    if (json_array_size(s->conflicts) >= CONFLICT_MAX)
        json_array_remove(s->conflicts, 0);
    json_array_append(s->conflicts, told);
    s->cbs->on_conflict(told, s->arg);
    json_decref(told);
    json_decref(text);
}

static void on_run_end(int status, void *arg)
{
    struct vmm_sync *s = arg;

    s->run = NULL;
    s->is_stuck = status != 0;
    if (s->is_finishing && status != 0 && !s->is_closing)
        log_warn("%s: the last sync did not end in step: %s", s->label, uv_strerror(status));
    if (!s->is_finishing && status != -ECANCELED)
        log_error("%s: sync has ended: %s", s->label, uv_strerror(status));
    step(s);
}

static void begin(struct vmm_sync *s)
{
    static const struct sync_run_cbs run_cbs = {
        .on_news = on_news, .on_conflict = on_conflict, .on_end = on_run_end};
    struct sync_engine_options options = {.vault_ops = &sync_vault_git_ops,
                                          .vault = s->vault,
                                          .instance = s->instance,
                                          .secrets = &s->secrets};
    int r;

    if (s->is_closing || s->is_finishing)
        return;
    r = sync_side_remote_open(s->vmm->loop, &remote_cbs, s, &s->remote);
    if (r == 0)
        r = sync_side_local_open(s->vmm->loop, &s->store, &local_cbs, s, &s->local);
    if (r == 0) {
        options.ancestor = s->ancestor;
        options.sides[SYNC_GUEST] = s->remote;
        options.ops[SYNC_GUEST] = &sync_side_remote_ops;
        options.sides[SYNC_STORE] = s->local;
        options.ops[SYNC_STORE] = sync_side_local_get_ops(s->local);
        r = sync_run_start(s->vmm->loop, &options, &run_cbs, s, &s->run);
    }
    if (r != 0)
        tell_files(s, r, "out of memory for the sync");
}

/* ---- the end ---- */

static void on_timer(uv_timer_t *timer)
{
    struct vmm_sync *s = timer->data;

    if (!s->is_finishing) {
        tell_files(s, -ETIMEDOUT, "they are not all there after ten minutes");
        return;
    }
    if (s->remote != NULL)
        sync_side_remote_stop(s->remote);
    if (s->run != NULL)
        sync_run_stop(s->run);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct vmm_sync *s = handle->data;

    if (s->store.root >= 0)
        close(s->store.root);
    if (s->store.stage >= 0)
        close(s->store.stage);
    sync_vault_git_close(s->vault);
    vmm_store_release(&s->hold);
    json_decref(s->status);
    json_decref(s->conflicts);
    sync_secrets_fini(&s->secrets);
    tr_mask_unref(s->mask);
    s->on_closed(s->on_closed_arg);
    free(s);
}

static void on_remote_closed(void *arg)
{
    struct vmm_sync *s = arg;

    s->remote = NULL;
    step(s);
}

static void on_gits_closed(void *arg)
{
    struct vmm_sync *s = arg;

    s->gits = NULL;
    step(s);
}

static void on_local_closed(void *arg)
{
    struct vmm_sync *s = arg;

    s->local = NULL;
    step(s);
}

/* After the last sync; once. */
static void keep_last(struct vmm_sync *s)
{
    uint64_t now = uv_now(s->vmm->loop), left = s->finish_ms > now ? s->finish_ms - now : 0;

    if (s->was_kept)
        return;
    if (!s->has_gits && s->gits != NULL) {
        s->has_gits = true;
        uv_timer_stop(&s->timer);
        vmm_gits_take(s->gits,
                      s->is_stuck                    ? GITS_STUCK_MS
                      : s->cause != SYNC_CAUSE_RESET ? VMM_SYNC_GITS_MS
                      : left > GITS_LAST_MS          ? left
                                                     : GITS_LAST_MS,
                      on_taken, s);
        return;
    }
    s->was_kept = s->is_last = true;
    uv_timer_stop(&s->timer);
    submit(s, CHECKPOINT);
}

/* The next thing on the way to the end, if it is time for it. */
static void step(struct vmm_sync *s)
{
    if (s->run != NULL || s->is_busy || (s->gits != NULL && vmm_gits_is_busy(s->gits)))
        return;
    if (!s->is_closing) {
        if (s->is_finishing)
            keep_last(s);
        return;
    }
    if (s->gits != NULL) {
        if (!s->is_gits_closing)
            vmm_gits_close(s->gits, on_gits_closed, s);
        s->is_gits_closing = true;
        return;
    }
    if (s->remote != NULL) {
        if (!s->is_remote_closing)
            sync_side_remote_close(s->remote, on_remote_closed, s);
        s->is_remote_closing = true;
        return;
    }
    if (s->local != NULL) {
        if (!s->is_local_closing)
            sync_side_local_close(s->local, on_local_closed, s);
        s->is_local_closing = true;
        return;
    }
    if (!uv_is_closing((uv_handle_t *)&s->timer))
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

static void stop(struct vmm_sync *s)
{
    if (s->gits != NULL)
        vmm_gits_stop(s->gits);
    if (s->remote != NULL && !s->is_remote_closing)
        sync_side_remote_stop(s->remote);
    if (s->run != NULL)
        sync_run_stop(s->run);
}

/* The session is being deleted; a machine will close us by itself. */
static void on_hold_end(struct vmm_store_hold *hold)
{
    struct vmm_sync *s = (struct vmm_sync *)((char *)hold - offsetof(struct vmm_sync, hold));

    stop(s);
    if (s->cbs->on_store_end != NULL && !s->is_closing)
        s->cbs->on_store_end(s->arg);
}

void vmm_sync_finish(struct vmm_sync *s, uint64_t timeout_ms, enum sync_cause cause,
                     void (*cb)(void *arg), void *arg)
{
    s->is_finishing = true;
    s->told_files = true;
    s->cause = cause;
    s->on_finished = cb;
    s->on_finished_arg = arg;
    s->finish_ms = uv_now(s->vmm->loop) + timeout_ms;
    if (s->gits != NULL)
        vmm_gits_stop(s->gits);
    if (s->run != NULL)
        sync_run_finish(s->run, timeout_ms);
    (void)uv_timer_start(&s->timer, on_timer, timeout_ms + GRACE_MS, 0);
    step(s);
}

bool vmm_sync_is_running(const struct vmm_sync *s)
{
    return s->run != NULL;
}

void vmm_sync_hurry(struct vmm_sync *s)
{
    if (s->is_finishing && s->run != NULL)
        sync_run_stop(s->run);
}

void vmm_sync_close(struct vmm_sync *s, void (*cb)(void *arg), void *arg)
{
    s->is_closing = true;
    s->on_closed = cb;
    s->on_closed_arg = arg;
    uv_timer_stop(&s->timer);
    stop(s);
    step(s);
}

/* ---- in between ---- */

static int open_gits(struct vmm_sync *s, struct err *err)
{
    const struct vmm_gits_options options = {.label = s->label,
                                             .hold = &s->hold,
                                             .session = session,
                                             .arg = s,
                                             .max_bytes = s->vmm->options->git_mb * 1024 * 1024,
                                             .secrets = &s->secrets};

    return vmm_gits_open(s->vmm->loop, &options, &s->gits) == 0
               ? 0
               : tr_err_set(err, -ENOMEM, "out of memory");
}

int vmm_sync_open(const struct vmm_sync_options *options, const struct vmm_sync_cbs *cbs, void *arg,
                  struct vmm_sync **out, struct err *err)
{
    struct vmm *vmm = options->vmm;
    struct vmm_sync *s = calloc(1, sizeof(*s));
    int r;

    if (s == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    s->vmm = vmm;
    snprintf(s->label, sizeof(s->label), "%s", options->label);
    s->side = options->side;
    snprintf(s->ancestor, sizeof(s->ancestor), "%s", options->ancestor);
    s->instance = options->instance;
    s->cbs = cbs;
    s->arg = arg;
    s->store.root = s->store.stage = -1;
    s->hold.end = on_hold_end;
    s->conflicts = json_array();
    sync_secrets_init(&s->secrets);
    snprintf(s->dir, sizeof(s->dir), "%s/%s", vmm->sessions.dir, options->session->id);
    r = vmm_active_mask(vmm, options->session, &s->mask);
    if (r != 0)
        (void)tr_err_set(err, r, "secrets: %s", uv_strerror(r));
    else
        r = vmm_store_hold(vmm, options->session, &s->hold, err);
    if (r == 0 && options->gits_dir != NULL) {
        snprintf(s->gits_dir, sizeof(s->gits_dir), "%s", options->gits_dir);
        r = open_gits(s, err);
        if (r != 0)
            vmm_store_release(&s->hold);
    }
    if (r != 0) {
        json_decref(s->conflicts);
        sync_secrets_fini(&s->secrets);
        tr_mask_unref(s->mask);
        free(s);
        return r;
    }
    sync_secrets_set(&s->secrets, s->mask);
    if (uv_timer_init(vmm->loop, &s->timer) != 0)
        abort(); /* cannot fail on Unix */
    s->timer.data = s;
    (void)uv_timer_start(&s->timer, on_timer, VMM_SYNC_FILES_MS, 0);
    *out = s;
    submit(s, OPEN);
    return 0;
}

void vmm_sync_ready(struct vmm_sync *s)
{
    vmm_sync_run_ended(s); /* one may have, meanwhile */
    if (s->run != NULL)
        sync_run_kick(s->run);
}

void vmm_sync_secrets(struct vmm_sync *s, struct tr_mask *mask)
{
    tr_mask_ref(mask);
    tr_mask_unref(s->mask);
    s->mask = mask;
    sync_secrets_set(&s->secrets, mask);
    vmm_sync_run_ended(s); /* the .git folders are judged anew, too */
    if (s->run != NULL)
        sync_run_look(s->run, SYNC_GUEST);
}

void vmm_sync_look(struct vmm_sync *s)
{
    s->is_uncounted = true; /* there may be more room now, or less */
    if (s->run != NULL)
        sync_run_look(s->run, SYNC_STORE);
}

void vmm_sync_run_ended(struct vmm_sync *s)
{
    s->run_ms = uv_now(s->vmm->loop);
    if (!s->is_unkept && !s->has_run)
        s->unkept_ms = s->run_ms;
    s->has_run = true;
}

/* Is a checkpoint due? Once things are quiet, sooner when a run has ended, and in the end also
 * when they never are. */
static bool is_due(const struct vmm_sync *s, uint64_t now_ms)
{
    uint64_t run_ms = s->run_ms > s->changed_ms ? s->run_ms : s->changed_ms;

    if (!s->is_unkept && !s->has_run)
        return false;
    return (s->is_unkept && now_ms >= s->changed_ms + QUIET_MS) ||
           (s->has_run && s->is_in_step && now_ms >= run_ms + RUN_MS) ||
           now_ms >= s->unkept_ms + UNQUIET_MS;
}

void vmm_sync_tick(struct vmm_sync *s, uint64_t now_ms)
{
    if (s->is_busy || s->is_closing || s->is_finishing || !s->told_files || !s->has_opened ||
        (s->gits != NULL && vmm_gits_is_busy(s->gits)))
        return;
    if (is_due(s, now_ms)) {
        s->cause = s->has_run ? SYNC_CAUSE_RUN : SYNC_CAUSE_TIMER;
        s->has_run = false;
        if (s->gits != NULL) {
            vmm_gits_take(s->gits, GITS_MS, on_taken, s);
        } else {
            s->is_unkept = s->is_uncounted = false;
            submit(s, CHECKPOINT);
        }
    } else if (s->is_uncounted && now_ms >= s->counted_ms + COUNT_MS) {
        s->is_uncounted = false;
        s->counted_ms = now_ms;
        submit(s, COUNT);
    }
}

/* The .git folders that are not kept as they are take the place of "kept in another way". */
static json_t *all_left_out(const struct vmm_sync *s, const json_t *list)
{
    const json_t *gits = vmm_gits_left_out(s->gits), *item, *git;
    json_t *out = json_array();
    size_t i, k;

    json_array_foreach(gits, k, git)
    {
        json_array_append(out, (json_t *)git);
    }
    json_array_foreach(list, i, item)
    {
        bool is_told = false;

        json_array_foreach(gits, k, git)
        {
            is_told =
                is_told || json_equal(json_object_get(git, "path"), json_object_get(item, "path"));
        }
        if (!is_told)
            json_array_append(out, (json_t *)item);
    }
    return out;
}

json_t *vmm_sync_json(const struct vmm_sync *s)
{
    json_t *out = s->status != NULL ? json_copy(s->status) : json_object();

    if (out != NULL)
        json_object_set(out, "conflicts", s->conflicts);
    if (out != NULL && s->gits != NULL && json_array_size(vmm_gits_left_out(s->gits)) > 0)
        json_object_set_new(out, "left_out", all_left_out(s, json_object_get(out, "left_out")));
    return out;
}

const json_t *vmm_sync_counters(const struct vmm_sync *s)
{
    return s->status;
}
