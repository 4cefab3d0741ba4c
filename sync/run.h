/* SPDX-License-Identifier: MIT */
/* An engine on a thread of its own, driven from a loop: news go in, rounds are run when they are
 * due, and what came of them comes out. All functions and callbacks are of the loop's thread. */
#ifndef SYNC_RUN_H
#define SYNC_RUN_H

#include <uv.h>
#include "sync/engine.h"

enum {
    SYNC_RUN_SHOWN = 500,       /* paths of each list that is shown */
    SYNC_RUN_WHYS = 32,         /* reasons that are counted: all there are */
    SYNC_RUN_INBOX_MAX = 20000, /* folders that wait to be looked at; more: all are */
    SYNC_RUN_RETRY_MS = 2000,   /* after a round that failed, unless kicked */
};

struct sync_run;

struct sync_shown { /* one path of a list */
    char *path;     /* NUL-terminated bytes */
    size_t len;
    const char *name, *text; /* why; static */
    enum sync_side side;     /* of a fault */
};

/* What came of the rounds so far; borrowed until the next callback. */
struct sync_run_news {
    struct sync_engine_status status;
    int round;      /* how the last round ended: 0, or why it did not */
    struct err err; /* then */
    struct sync_shown *left_out, *faults;
    size_t n_left_out, n_faults; /* of these lists; status has the whole numbers */
    size_t n_why[SYNC_RUN_WHYS]; /* paths left out for each reason (sync/scan.h) */
};

struct sync_run_cbs {
    /* A round is over. Several may be told at once. */
    void (*on_news)(const struct sync_run_news *news, void *arg);
    /* A conflict, once. */
    void (*on_conflict)(const char *path, size_t len, enum sync_conflict_kind kind,
                        enum sync_side winner, void *arg);
    /* Last. status 0: asked to finish, and both sides were in step; UV_ETIMEDOUT: not in time;
     * UV_ECANCELED: stopped. The run is freed when this returns. */
    void (*on_end)(int status, void *arg);
};

/* options: copied but for what it borrows; its cbs and arg are not used. Returns 0 with *out, or
 * UV_ENOMEM and the like: nothing was begun. */
TR_MUST_CHECK int sync_run_start(uv_loop_t *loop, const struct sync_engine_options *options,
                                 const struct sync_run_cbs *cbs, void *arg, struct sync_run **out);

/* News of a side's watch, as in sync/watch.h. */
void sync_run_dirty(struct sync_run *run, enum sync_side side, const char *dir, size_t len);
void sync_run_lost(struct sync_run *run, enum sync_side side, const char *dir, size_t len,
                   int status);
void sync_run_overflow(struct sync_run *run, enum sync_side side);
/* Look at all of a side, whose watches are as they were. */
void sync_run_look(struct sync_run *run, enum sync_side side);
/* The guest can be reached again: nothing of it is watched, and there is nothing to wait for. */
void sync_run_kick(struct sync_run *run);

/* Bring both sides in step once more, with a look at everything, then end; within timeout_ms. */
void sync_run_finish(struct sync_run *run, uint64_t timeout_ms);
/* End as soon as the call under way returns; the caller ends that, too. */
void sync_run_stop(struct sync_run *run);

#endif
