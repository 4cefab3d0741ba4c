/* SPDX-License-Identifier: MIT */
/* What is to be done so that guest and store agree again: a pure decision from three states, in
 * time linear in the number of their paths.
 *
 * For one path, with g, s and a what guest, store and ancestor have there (a file with its content
 * and executable bit, a link with its target, a folder, or nothing):
 *
 *   g = s                        nothing is to be done; a becomes that
 *   g = a, s changed             the guest gets s
 *   s = a, g changed             the store gets g
 *   both changed:
 *     one deleted, other not     the edit wins over the deletion
 *     files, content changed on  content and executable bit are taken each from the side that
 *     one side, bit on the other changed it
 *     anything else              a conflict: the later to arrive at the host wins (seq; the store
 *                                if there is no difference). What the other side had is `lost`
 *
 * A folder has no content; of folders that are replaced or deleted, what is below them counts:
 *   deleted here, edits below it there          it stays, and so do the edits; the rest below it is
 *                                               deleted
 *   a file or link here, edits below it there   a conflict, as above: if the folder wins, all below
 *                                               it is as on its side; if the file wins, each edit
 *                                               below is `lost`
 *   deleted or replaced here, while there       what is left out is never removed: if deleted, the
 *   something below is left out                 folder stays there with just that; if replaced,
 *                                               nothing below it is done, and it is BLOCKED
 *
 * What is left out on a side does not travel and is deleted on neither side; its ancestor stays, so
 * that changes made meanwhile travel once it is left out no more. Two exceptions, since whatever is
 * in the store goes to the guest:
 *   nothing is there in the guest, and the ancestor has nothing either: the guest gets s
 *   the guest's content is known and as in the ancestor: the guest gets an edited s
 *
 * A fresh ancestor is empty, so nothing counts as deleted, and an empty guest gets all. The engine
 * gives what a new instance's guest had from the start the seq 0: the store wins.
 *
 * Nothing is lost: a file or link that a step overwrites or removes on a side equals the ancestor,
 * or what it is replaced by, or is in the list of conflicts as `lost`. */
#ifndef SYNC_RECONCILE_H
#define SYNC_RECONCILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/state.h"

enum sync_side { SYNC_GUEST, SYNC_STORE, SYNC_N_SIDES };

/* One path that is to change. Steps are in tree order; removals are to be made in the opposite
 * order, and before all else. */
struct sync_step {
    const char *path; /* NUL-terminated; the plan's */
    uint16_t len;
    bool change[SYNC_N_SIDES];            /* this side is to become `to` ... */
    struct sync_value from[SYNC_N_SIDES]; /* ... and is this now */
    struct sync_sig sig[SYNC_N_SIDES];    /* of what is there */
    struct sync_value to;                 /* both sides, and then the ancestor, are to be this */
};

enum sync_conflict_kind {
    SYNC_CONFLICT_EDITED,   /* both sides changed it */
    SYNC_CONFLICT_REPLACED, /* a file or link here, a folder there; also an edit below */
    SYNC_CONFLICT_BLOCKED,  /* a file cannot replace a folder that holds what is left out */
    SYNC_CONFLICT_LEFT_OUT, /* the store changed it, and the guest has something of its own there
                               that is left out */
};

struct sync_conflict {
    const char *path; /* NUL-terminated; the plan's */
    uint16_t len;
    enum sync_conflict_kind kind;
    enum sync_side winner; /* EDITED, REPLACED */
    /* EDITED, REPLACED: a file or link of the other side that a step overwrites or removes. */
    struct sync_value lost;
    struct sync_sig sig; /* of what is lost */
};

struct sync_plan {
    struct sync_step *steps;
    size_t n_steps;
    struct sync_conflict *conflicts; /* in tree order */
    size_t n_conflicts;
    size_t n_changes[SYNC_N_SIDES]; /* steps that change this side */
    /* private */
    size_t size_steps, size_conflicts;
    char *texts;
};

/* Decide. Returns 0 and fills *plan, in the caller's memory, to be given to sync_plan_fini(); the
 * states may change or go then. Returns UV_ENOMEM with an empty plan. */
TR_MUST_CHECK int sync_reconcile(const struct sync_state *guest, const struct sync_state *store,
                                 const struct sync_state *ancestor, struct sync_plan *plan);
void sync_plan_fini(struct sync_plan *plan); /* a zeroed one is fine */

#endif
