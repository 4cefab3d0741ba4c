/* SPDX-License-Identifier: MIT */
/* A guest as one side of a sync: the engine's thread asks and waits, the loop's thread carries the
 * conversation (sync/remote.h). Answers wait for the engine in a bounded queue, which holds the
 * agent back when it is full; so does the loop with what the engine has to say. */
#ifndef SYNC_SIDE_REMOTE_H
#define SYNC_SIDE_REMOTE_H

#include <uv.h>
#include "sync/side.h"
#include "transom/h2.h"

struct sync_side_remote;

/* All on the loop's thread; none after sync_side_remote_stop() but on_close. */
struct sync_side_remote_cbs {
    /* The session to the agent (borrowed for the call), or NULL: there is none now. */
    struct tr_h2 *(*session)(void *arg);
    /* As in sync/watch.h. */
    void (*on_dirty)(const char *dir, size_t len, void *arg);
    void (*on_lost)(const char *dir, size_t len, int status, void *arg);
    /* Nothing is watched any more: events were lost, or the conversation ended. */
    void (*on_overflow)(void *arg);
};

/* cbs is borrowed. Returns 0 with *out, or UV_ENOMEM. */
TR_MUST_CHECK int sync_side_remote_open(uv_loop_t *loop, const struct sync_side_remote_cbs *cbs,
                                        void *arg, struct sync_side_remote **out);
/* The loop's thread: what is under way ends, and everything asked from now on, with UV_ECANCELED.
 */
void sync_side_remote_stop(struct sync_side_remote *side);
/* The loop's thread, after stop, once the engine's thread asks nothing more. cb runs later, when
 * all is closed and freed. */
void sync_side_remote_close(struct sync_side_remote *side, void (*cb)(void *arg), void *arg);

/* For a struct sync_side_remote. */
extern const struct sync_side_ops sync_side_remote_ops;

#endif
