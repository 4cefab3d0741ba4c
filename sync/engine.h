/* SPDX-License-Identifier: MIT */
/* The engine: keeps guest and store in step. One round scans what is dirty on both sides, decides
 * (sync/reconcile.h), puts what would be overwritten into the vault, carries the steps out, and
 * notes in the ancestor what both have in common now.
 *
 * A step that cannot be done (disk full, permission denied, quota) is a fault of its path: it is
 * tried again later, at longer and longer intervals, and all others go on. What has changed under a
 * step's hands is looked at again and decided anew. What the engine itself has written is known by
 * its signature when it is seen again, so nothing is sent back.
 *
 * Everything blocks and belongs to one thread. Times are milliseconds of the caller's clock, which
 * never goes back. */
#ifndef SYNC_ENGINE_H
#define SYNC_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/reconcile.h"
#include "sync/secrets.h"
#include "sync/side.h"
#include "sync/vault.h"
#include "transom/err.h"

enum {
    SYNC_ENGINE_RETRY_MS = 1000, /* after a fault; doubles each time up to ... */
    SYNC_ENGINE_RETRY_MAX_MS = 60000,
    SYNC_ENGINE_SAVE_MS = 1000, /* the ancestor is saved no more often than that */
};

struct sync_engine;

struct sync_engine_cbs {
    /* Both sides had changed a path, or something stands in the way (BLOCKED, LEFT_OUT: told once).
     * What is lost is in the vault. */
    void (*on_conflict)(const struct sync_conflict *conflict, void *arg);
    /* A path was made what it is on this side, or removed (to absent). May be NULL. */
    void (*on_change)(enum sync_side side, const char *path, size_t len,
                      const struct sync_value *to, void *arg);
};

struct sync_engine_options {
    const struct sync_side_ops *ops[SYNC_N_SIDES]; /* borrowed, like the sides */
    void *sides[SYNC_N_SIDES];
    const struct sync_vault_ops *vault_ops; /* borrowed, like the vault */
    void *vault;
    const char *ancestor;              /* path of its file; copied */
    uint64_t instance;                 /* whose ancestor it is */
    int64_t size_limit;                /* bytes a guest's new file may have; 0: SYNC_SIZE_LIMIT */
    size_t n_max;                      /* paths of a side; 0: SYNC_STATE_NODES_MAX */
    struct sync_secrets *secrets;      /* borrowed; NULL: there are none */
    const struct sync_engine_cbs *cbs; /* borrowed */
    void *arg;
};

/* Reads the ancestor; *why says why it is a fresh one if it should not be (else ""). Returns 0 with
 * *out, or UV_ENOMEM. */
TR_MUST_CHECK int sync_engine_new(const struct sync_engine_options *options,
                                  struct sync_engine **out, struct err *why);
/* Does not save. NULL is fine. */
void sync_engine_free(struct sync_engine *e);

/* News from a side's watch: as in sync/watch.h. */
void sync_engine_dirty(struct sync_engine *e, enum sync_side side, const char *dir, size_t len);
/* It is watched no more, since it is gone or was moved; what is there now is watched anew. */
void sync_engine_lost(struct sync_engine *e, enum sync_side side, const char *dir, size_t len);
/* It cannot be watched. */
void sync_engine_unwatched(struct sync_engine *e, enum sync_side side, const char *dir, size_t len,
                           int64_t now_ms);
void sync_engine_dirty_all(struct sync_engine *e, enum sync_side side, bool watches_are_lost);

/* One round. Returns 0, also with faults of single paths; else a side is gone or memory is out:
 * nothing is lost, and the next round looks at everything. */
TR_MUST_CHECK int sync_engine_round(struct sync_engine *e, int64_t now_ms, struct err *err);
/* When a round is due: 0 now, else a time; -1: when there is news. */
int64_t sync_engine_due(const struct sync_engine *e);
/* Save the ancestor if it has changed. */
TR_MUST_CHECK int sync_engine_save(struct sync_engine *e, struct err *err);

struct sync_engine_status {
    bool has_synced;   /* a round was completed */
    bool is_in_step;   /* the last round left nothing to do, but for faults and what is left out */
    int64_t synced_ms; /* end of the last round that was completed */
    size_t n_paths[SYNC_N_SIDES];
    size_t n_left_out; /* paths of the guest; a folder counts once */
    size_t n_faults;
    size_t n_due; /* steps of the last decision that are not done */
    /* Since the engine was made. */
    uint64_t n_rounds, n_conflicts;
    uint64_t n_changes[SYNC_N_SIDES]; /* made on that side */
    int64_t bytes_sent[SYNC_N_SIDES]; /* content written to that side */
    uint64_t n_listed[SYNC_N_SIDES], n_hashed[SYNC_N_SIDES];
};
void sync_engine_status(const struct sync_engine *e, struct sync_engine_status *out);

/* What of the guest is left out, in tree order: path and reason (sync_scan_why_text()). cb returns
 * false to end it. The engine must not be changed meanwhile. */
typedef bool (*sync_left_out_cb)(const char *path, size_t len, unsigned why, void *arg);
void sync_engine_left_out(const struct sync_engine *e, sync_left_out_cb cb, void *arg);
/* Paths that cannot be made what they should be, on which side, and why (a negative errno). */
typedef bool (*sync_fault_cb)(enum sync_side side, const char *path, size_t len, int status,
                              void *arg);
void sync_engine_faults(const struct sync_engine *e, sync_fault_cb cb, void *arg);

#endif
