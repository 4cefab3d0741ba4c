/* SPDX-License-Identifier: MIT */
/* A round: scan, rule out, reconcile, hold back, keep, tell conflicts, apply, settle, save. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "sync/ancestor.h"
#include "sync/engine_internal.h"

/* ---- faults: a node per path; value.why: the side, sig.mtime_ns: the status, sig.size: the delay
 * in ms, seq: when it is tried again ---- */

void sync_engine_fault(struct sync_engine *e, size_t i, enum sync_side side, int status)
{
    const struct sync_step *step = &e->plan.steps[i];
    const int64_t first = status > 0 ? 50 : SYNC_ENGINE_RETRY_MS;
    struct sync_node *node;

    if (status > 0 || status == -ENOTEMPTY || status == -EEXIST || status == -ENOENT ||
        status == -ENOTDIR || status == -EISDIR || status == -ELOOP) { /* not what it was */
        sync_scan_dirty_parent(e->scans[side], step->path, step->len);
        sync_scan_dirty(e->scans[side], step->path, step->len);
    }
    if (sync_state_put(e->faults, step->path, step->len, &node) != 0)
        return; /* it is tried again all the sooner */
    if (node->seq > (uint64_t)e->now_ms && node->sig.size > 0)
        return; /* the second fault of one round */
    node->sig.size = node->sig.size > 0 ? node->sig.size * 2 : first;
    if (node->sig.size > SYNC_ENGINE_RETRY_MAX_MS)
        node->sig.size = SYNC_ENGINE_RETRY_MAX_MS;
    if (status < 0 && node->sig.size < first)
        node->sig.size = first;
    node->value.why = (uint8_t)side;
    node->sig.mtime_ns = status;
    node->seq = (uint64_t)(e->now_ms + node->sig.size);
}

void sync_engine_reject(struct sync_engine *e, size_t i, enum sync_why why)
{
    const struct sync_step *step = &e->plan.steps[i];

    sync_scan_reject(e->scans[SYNC_GUEST], step->path, step->len, why);
    e->progress[i].is_blocked = e->progress[i].is_rejected = true;
}

/* The file may have changed since in a way that its signature does not show, and removing it,
 * unlike replacing it, does not compare contents: only after it was read once more. */
static bool is_too_fresh(const struct sync_step *step)
{
    for (int side = 0; side < SYNC_N_SIDES; side++)
        if (step->change[side] && step->from[side].what == SYNC_IS_FILE && step->sig[side].fresh &&
            step->to.what != SYNC_IS_FILE)
            return true;
    return false;
}

static void hold_back(struct sync_engine *e)
{
    for (size_t i = 0; i < e->plan.n_steps; i++) {
        const struct sync_step *step = &e->plan.steps[i];
        const struct sync_node *node = sync_state_get(e->faults, step->path, step->len);

        e->progress[i].is_blocked =
            (node != NULL && node->seq > (uint64_t)e->now_ms) || is_too_fresh(step);
    }
}

static bool is_undone(const struct sync_engine *e, size_t i)
{
    const struct sync_step *step = &e->plan.steps[i];

    for (int side = 0; side < SYNC_N_SIDES; side++)
        if (step->change[side] && !e->progress[i].is_done[side])
            return true;
    return false;
}

/* Forget faults of paths that are as they should be. Both are in tree order. */
static void forget_faults(struct sync_engine *e)
{
    struct sync_cursor c;
    struct sync_node *node;
    size_t i = 0, n_gone = 0;

    for (sync_cursor_start(&c, e->faults, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        int order = 1;

        for (; i < e->plan.n_steps; i++) {
            order =
                sync_path_order(e->plan.steps[i].path, e->plan.steps[i].len, node->path, node->len);
            if (order >= 0)
                break;
        }
        node->value.is_there = i < e->plan.n_steps && order == 0 && is_undone(e, i);
        n_gone += !node->value.is_there;
    }
    for (; n_gone > 0; n_gone--) {
        for (sync_cursor_start(&c, e->faults, "", 0); sync_cursor_get(&c)->value.is_there;
             sync_cursor_next(&c))
            ;
        node = sync_cursor_get(&c);
        sync_state_remove(e->faults, node->path, node->len);
    }
}

void sync_engine_faults(const struct sync_engine *e, sync_fault_cb cb, void *arg)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, e->faults, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c))
        if (node->sig.mtime_ns < 0 && !cb((enum sync_side)node->value.why, node->path, node->len,
                                          (int)node->sig.mtime_ns, arg))
            return;
}

/* ---- conflicts ---- */

const struct sync_conflict *sync_engine_loss(const struct sync_engine *e, size_t i,
                                             enum sync_side side)
{
    const struct sync_step *step = &e->plan.steps[i];
    size_t low = 0, high = e->plan.n_conflicts;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct sync_conflict *c = &e->plan.conflicts[mid];
        int order = sync_path_order(c->path, c->len, step->path, step->len);

        if (order == 0)
            return c->winner != side &&
                           (c->kind == SYNC_CONFLICT_EDITED || c->kind == SYNC_CONFLICT_REPLACED)
                       ? c
                       : NULL;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Conflicts that a step has decided: what is lost is in the vault. Those of a step that turned out
 * not to be taken stay undecided. A new machine's own files that the vault has known before are
 * none. */
static void tell_lost(struct sync_engine *e)
{
    for (size_t i = 0; i < e->plan.n_steps; i++) {
        for (int side = 0; side < SYNC_N_SIDES; side++) {
            const struct sync_conflict *c = sync_engine_loss(e, i, (enum sync_side)side);

            if (c == NULL || e->progress[i].is_blocked || e->progress[i].is_known_loss)
                continue;
            e->n_conflicts++;
            e->o.cbs->on_conflict(c, e->o.arg);
        }
    }
}

/* Conflicts that stay as they are: told once. */
static void tell_stuck(struct sync_engine *e)
{
    struct sync_state *told;

    if (sync_state_new(0, 0, &told) != 0)
        return;
    for (size_t i = 0; i < e->plan.n_conflicts; i++) {
        const struct sync_conflict *c = &e->plan.conflicts[i];
        struct sync_node *node;

        if (c->kind != SYNC_CONFLICT_BLOCKED && c->kind != SYNC_CONFLICT_LEFT_OUT)
            continue;
        if (sync_state_get(e->told, c->path, c->len) == NULL) {
            e->n_conflicts++;
            e->o.cbs->on_conflict(c, e->o.arg);
        }
        (void)!sync_state_put(told, c->path, c->len, &node);
    }
    sync_state_free(e->told);
    e->told = told;
}

/* ---- a round ---- */

static int scan(struct sync_engine *e, struct err *err)
{
    /* The guest second: what it has changed arrives after what the store has. */
    int r = sync_scan_run(e->scans[SYNC_STORE], e->now_ms, false, err);

    if (r == 0)
        r = sync_scan_run(e->scans[SYNC_GUEST], e->now_ms, e->is_fresh && !e->has_synced, err);
    if (r == 0) {
        r = sync_scan_rule_out(e->scans[SYNC_GUEST], e->ancestor,
                               sync_scan_state(e->scans[SYNC_STORE]));
        if (r != 0)
            r = tr_err_set(err, r, "out of memory");
    }
    return r;
}

/* The ancestor follows what is the same on both sides now. */
static int settle(struct sync_engine *e, struct err *err)
{
    e->n_due = 0;
    for (size_t i = 0; i < e->plan.n_steps; i++) {
        const struct sync_step *step = &e->plan.steps[i];
        struct sync_node *node;
        int r;

        if (is_undone(e, i)) {
            e->n_due += !e->progress[i].is_rejected;
            continue;
        }
        e->is_unsaved = true;
        if (step->to.what == SYNC_IS_ABSENT) {
            sync_state_remove(e->ancestor, step->path, step->len);
            continue;
        }
        r = sync_state_put(e->ancestor, step->path, step->len, &node);
        if (r != 0)
            return tr_err_set(err, r, "out of memory for the ancestor");
        node->value = step->to;
    }
    return 0;
}

static int carry_out(struct sync_engine *e, struct err *err)
{
    int r = sync_engine_keep(e, err), other;

    if (r == 0) {
        tell_stuck(e);
        r = sync_engine_apply(e, SYNC_STORE, err);
        if (r == 0)
            r = sync_engine_apply(e, SYNC_GUEST, err);
        tell_lost(e);
    }
    other = settle(e, r == 0 ? err : NULL); /* what was done is done */
    if (r == 0)
        r = other;
    if (r == 0)
        forget_faults(e);
    return r;
}

static int decide(struct sync_engine *e, struct err *err)
{
    int r = sync_reconcile(sync_scan_state(e->scans[SYNC_GUEST]),
                           sync_scan_state(e->scans[SYNC_STORE]), e->ancestor, &e->plan);

    if (r == 0 && e->plan.n_steps > 0) {
        e->progress = calloc(e->plan.n_steps, sizeof(*e->progress));
        r = e->progress == NULL ? -ENOMEM : 0;
    }
    return r == 0 ? 0 : tr_err_set(err, r, "out of memory");
}

int sync_engine_round(struct sync_engine *e, int64_t now_ms, struct err *err)
{
    int r;

    e->now_ms = now_ms;
    r = scan(e, err);
    if (r == 0)
        r = decide(e, err);
    if (r == 0) {
        hold_back(e);
        r = carry_out(e, err);
    }
    sync_plan_fini(&e->plan);
    free(e->progress);
    e->progress = NULL;
    if (r != 0) {
        for (int side = 0; side < SYNC_N_SIDES; side++)
            sync_scan_dirty_all(e->scans[side], false);
        return r;
    }
    e->n_rounds++;
    e->has_synced = true;
    e->synced_ms = now_ms;
    if (e->is_unsaved && now_ms - e->saved_ms >= SYNC_ENGINE_SAVE_MS) {
        e->saved_ms = now_ms;
        r = sync_engine_save(e, err);
    }
    return r;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

int64_t sync_engine_due(const struct sync_engine *e)
{
    struct sync_cursor c;
    int64_t due = e->is_unsaved ? e->saved_ms + SYNC_ENGINE_SAVE_MS : -1;

    if (!e->has_synced)
        return 0;
    for (int side = 0; side < SYNC_N_SIDES; side++)
        due = earlier(due, sync_scan_due(e->scans[side]));
    for (sync_cursor_start(&c, e->faults, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c))
        due = earlier(due, (int64_t)sync_cursor_get(&c)->seq);
    return due;
}

int sync_engine_save(struct sync_engine *e, struct err *err)
{
    uint8_t *bytes;
    size_t len;
    int r;

    if (!e->is_unsaved)
        return 0;
    r = sync_ancestor_encode(e->ancestor, e->o.instance, &bytes, &len);
    if (r != 0)
        return tr_err_set(err, r, "out of memory");
    r = sync_ancestor_write(e->ancestor_path, bytes, len, err);
    free(bytes);
    if (r == 0)
        e->is_unsaved = false;
    return r;
}

/* ---- the rest ---- */

void sync_engine_dirty(struct sync_engine *e, enum sync_side side, const char *dir, size_t len)
{
    sync_scan_dirty(e->scans[side], dir, len);
}

void sync_engine_lost(struct sync_engine *e, enum sync_side side, const char *dir, size_t len)
{
    sync_scan_lost(e->scans[side], dir, len);
}

void sync_engine_dirty_all(struct sync_engine *e, enum sync_side side, bool watches_are_lost)
{
    sync_scan_dirty_all(e->scans[side], watches_are_lost);
}

void sync_engine_unwatched(struct sync_engine *e, enum sync_side side, const char *dir, size_t len,
                           int64_t now_ms)
{
    sync_scan_unwatched(e->scans[side], dir, len, now_ms);
}

void sync_engine_left_out(const struct sync_engine *e, sync_left_out_cb cb, void *arg)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, sync_scan_state(e->scans[SYNC_GUEST]), "", 0);
         (node = sync_cursor_get(&c)) != NULL; sync_cursor_next(&c))
        if (node->value.what == SYNC_IS_LEFT_OUT && node->value.is_there &&
            !cb(node->path, node->len, node->value.why, arg))
            return;
}

static bool count(const char *path, size_t len, unsigned why, void *arg)
{
    (void)path;
    (void)len;
    (void)why;
    ++*(size_t *)arg;
    return true;
}

static bool count_fault(enum sync_side side, const char *path, size_t len, int status, void *arg)
{
    (void)side;
    (void)status;
    return count(path, len, 0, arg);
}

void sync_engine_status(const struct sync_engine *e, struct sync_engine_status *out)
{
    memset(out, 0, sizeof(*out));
    out->has_synced = e->has_synced;
    out->synced_ms = e->synced_ms;
    out->n_due = e->n_due;
    out->n_rounds = e->n_rounds;
    out->n_conflicts = e->n_conflicts;
    out->is_in_step = e->has_synced && e->n_due == 0;
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        struct sync_scan_counters counters;

        sync_scan_count(e->scans[side], &counters);
        out->n_paths[side] = sync_state_count(sync_scan_state(e->scans[side]));
        out->n_changes[side] = e->n_changes[side];
        out->bytes_sent[side] = e->bytes_sent[side];
        out->n_listed[side] = counters.n_listed;
        out->n_hashed[side] = counters.n_hashed;
        if (sync_scan_due(e->scans[side]) == 0)
            out->is_in_step = false;
    }
    sync_engine_left_out(e, count, &out->n_left_out);
    sync_engine_faults(e, count_fault, &out->n_faults);
}

static int make_scans(struct sync_engine *e)
{
    /* The store first: the guest's filter asks what it holds. */
    for (int side = SYNC_STORE; side >= 0; side--) {
        const struct sync_scan_options options = {
            .ops = e->o.ops[side],
            .side = e->o.sides[side],
            .is_filtered = side == SYNC_GUEST,
            .size_limit = e->o.size_limit,
            .n_max = e->o.n_max,
            .secrets = side == SYNC_GUEST ? e->o.secrets : NULL,
            .held = side == SYNC_GUEST ? sync_scan_state(e->scans[SYNC_STORE]) : NULL,
            .clock = &e->clock};
        int r = sync_scan_new(&options, &e->scans[side]);

        if (r != 0)
            return r;
    }
    return 0;
}

int sync_engine_new(const struct sync_engine_options *options, struct sync_engine **out,
                    struct err *why)
{
    struct sync_engine *e = calloc(1, sizeof(*e));
    size_t n_max = options->n_max > 0 ? options->n_max : SYNC_STATE_NODES_MAX;

    if (e == NULL)
        return -ENOMEM;
    e->o = *options;
    e->ancestor_path = strdup(options->ancestor);
    if (e->ancestor_path == NULL || sync_state_new(2 * n_max, 0, &e->ancestor) != 0 ||
        sync_state_new(0, 0, &e->faults) != 0 || sync_state_new(0, 0, &e->told) != 0 ||
        make_scans(e) != 0 ||
        sync_ancestor_read(e->ancestor_path, options->instance, e->ancestor, &e->is_fresh, why) !=
            0) {
        sync_engine_free(e);
        return -ENOMEM;
    }
    *out = e;
    return 0;
}

void sync_engine_free(struct sync_engine *e)
{
    if (e == NULL)
        return;
    for (int side = 0; side < SYNC_N_SIDES; side++)
        sync_scan_free(e->scans[side]);
    sync_state_free(e->ancestor);
    sync_state_free(e->faults);
    sync_state_free(e->told);
    free(e->ancestor_path);
    free(e);
}
