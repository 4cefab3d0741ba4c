/* SPDX-License-Identifier: MIT */
/* Keeps the state of one side (sync/state.h) in step with its tree: lists the folders that are
 * dirty, lets the filter decide where to descend and what to take, and has new contents hashed.
 *
 * What is not known for sure is left out for the moment, never taken for deleted:
 *   BUSY        a program has the file open for writing, or it changed while it was read; tried
 *               again, and taken all the same once it has not changed for SYNC_SCAN_BUSY_MS
 *   GONE        it has just vanished; many programs replace files by removing them first, so this
 *               counts as deleted only after SYNC_SCAN_GONE_MS (filtered side only)
 *   UNREADABLE  permission denied and the like; tried again
 *   TOO_MANY    the folder holds more than can be kept in mind; as a whole
 * Blocks; one thread at a time. */
#ifndef SYNC_SCAN_H
#define SYNC_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/filter.h"
#include "sync/secrets.h"
#include "sync/side.h"
#include "sync/state.h"
#include "transom/err.h"

enum {
    SYNC_SCAN_GONE_MS = 250,
    SYNC_SCAN_BUSY_MS = 3000,
    SYNC_SCAN_RETRY_MS = 30000,
    SYNC_SCAN_POLL_MS = 5000, /* folders that cannot be watched */
};

/* Reasons besides those of the filter, in sync_value.why. */
enum {
    SYNC_WHY_BUSY = SYNC_N_WHY,
    SYNC_WHY_GONE,
    SYNC_WHY_UNREADABLE,
    SYNC_WHY_TOO_MANY,
};
/* For any reason: "too-many", and for people; static. */
const char *sync_scan_why_name(unsigned why);
const char *sync_scan_why_text(unsigned why);

struct sync_scan_options {
    const struct sync_side_ops *ops; /* borrowed */
    void *side;                      /* borrowed */
    bool is_filtered;                /* the guest: filter and ignore rules decide */
    int64_t size_limit;              /* of the filter; 0: its default */
    size_t n_max;                    /* paths; 0: SYNC_STATE_NODES_MAX */
    const struct sync_state *held;   /* what the store has, for the filter; borrowed; may be NULL */
    struct sync_secrets *secrets;    /* that no name or link may hold; borrowed; may be NULL */
    uint64_t *clock;                 /* gives sequence numbers; borrowed */
};

struct sync_scan;

/* Everything is dirty. Returns 0 with *out, or UV_ENOMEM. */
TR_MUST_CHECK int sync_scan_new(const struct sync_scan_options *options, struct sync_scan **out);
void sync_scan_free(struct sync_scan *scan); /* NULL is fine; closes no watch */

/* The folder is, or may be, different. One that is not known is none of ours. */
void sync_scan_dirty(struct sync_scan *scan, const char *dir, size_t len);
/* The folder that this path is in. */
void sync_scan_dirty_parent(struct sync_scan *scan, const char *path, size_t len);
/* Look at it at this time, by the caller's clock, or before. */
void sync_scan_later(struct sync_scan *scan, const char *dir, size_t len, int64_t due_ms);
/* All folders; with their watches made anew if they were lost. */
void sync_scan_dirty_all(struct sync_scan *scan, bool watches_are_lost);
/* Its watch is lost, since it is gone or was moved: look at it, and watch what is there now. */
void sync_scan_lost(struct sync_scan *scan, const char *dir, size_t len);
/* A folder cannot be watched: it is looked at from time to time. */
void sync_scan_unwatched(struct sync_scan *scan, const char *dir, size_t len, int64_t now_ms);

/* Look at all that is dirty. as_old: what is found was there before anything else (seq 0).
 * Returns 0; or the fault of the side, or UV_ENOMEM: the state is then not to be used, and the next
 * run looks at everything. */
TR_MUST_CHECK int sync_scan_run(struct sync_scan *scan, int64_t now_ms, bool as_old,
                                struct err *err);

/* What the filter would not take is not deleted when it is absent: note it as left out. For all
 * paths that either state has. To be called between a run and the decision. */
TR_MUST_CHECK int sync_scan_rule_out(struct sync_scan *scan, const struct sync_state *ancestor,
                                     const struct sync_state *store);

/* Borrowed. */
const struct sync_state *sync_scan_state(const struct sync_scan *scan);
/* The engine itself has made a path what `to` says, with this signature (of nothing: ignored): no
 * news, when it is seen in the tree. */
void sync_scan_applied(struct sync_scan *scan, const char *path, size_t len,
                       const struct sync_value *to, const struct sync_sig *sig);
/* When there is something to look at: 0 now, else a time of the caller's clock; -1 never. */
int64_t sync_scan_due(const struct sync_scan *scan);
/* A file that turned out, when read as a whole, not to be wanted. */
void sync_scan_reject(struct sync_scan *scan, const char *path, size_t len, enum sync_why why);

/* For status: since it was made. */
struct sync_scan_counters {
    uint64_t n_listed, n_hashed;
    int64_t bytes_hashed;
};
void sync_scan_count(const struct sync_scan *scan, struct sync_scan_counters *out);

#endif
