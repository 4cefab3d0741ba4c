/* SPDX-License-Identifier: MIT */
/* What the parts of the engine share: engine.c runs the rounds, engine_keep.c puts into the vault
 * what is about to be lost, engine_apply.c carries steps out. */
#ifndef SYNC_ENGINE_INTERNAL_H
#define SYNC_ENGINE_INTERNAL_H

#include "sync/engine.h"
#include "sync/scan.h"

struct sync_progress {             /* of one step */
    bool is_blocked;               /* not in this round */
    bool is_rejected;              /* the guest's content is left out, now that it was seen */
    bool is_known_loss;            /* what a new machine brought along, and the vault had before */
    bool is_removed[SYNC_N_SIDES]; /* what stood in the way; the new thing comes after */
    bool is_done[SYNC_N_SIDES];
};

struct sync_engine {
    struct sync_engine_options o;
    char *ancestor_path;
    struct sync_scan *scans[SYNC_N_SIDES];
    struct sync_state *ancestor;
    struct sync_state *faults; /* see sync_engine_fault() */
    struct sync_state *told;   /* conflicts that stay, and have been told */
    uint64_t clock;            /* the last sequence number */
    bool is_fresh, has_synced, is_unsaved;
    int64_t saved_ms, synced_ms;
    size_t n_due;
    uint64_t n_rounds, n_conflicts, n_changes[SYNC_N_SIDES];
    int64_t bytes_sent[SYNC_N_SIDES];
    /* The round. */
    int64_t now_ms;
    struct sync_plan plan;
    struct sync_progress *progress; /* as many as plan.n_steps */
};

static inline enum sync_side sync_other(enum sync_side side)
{
    return side == SYNC_GUEST ? SYNC_STORE : SYNC_GUEST;
}

static inline bool sync_is_content(const struct sync_value *v)
{
    return v->what == SYNC_IS_FILE || v->what == SYNC_IS_LINK;
}

/* Step i did not work out on this side. status: as in sync/node.h. It is held back for a while;
 * what has changed is also looked at again. */
void sync_engine_fault(struct sync_engine *e, size_t i, enum sync_side side, int status);
/* The conflict that step i decides against that side, or NULL. */
const struct sync_conflict *sync_engine_loss(const struct sync_engine *e, size_t i,
                                             enum sync_side side);

/* The guest's content of step i, seen as a whole, is not to be taken. */
void sync_engine_reject(struct sync_engine *e, size_t i, enum sync_why why);

/* Put into the vault what the steps overwrite or remove; a step for which that fails is blocked.
 * Returns 0, or the fault of a side. */
TR_MUST_CHECK int sync_engine_keep(struct sync_engine *e, struct err *err);
/* Carry out what this side is to do. Returns 0, or the fault of a side. */
TR_MUST_CHECK int sync_engine_apply(struct sync_engine *e, enum sync_side side, struct err *err);

#endif
