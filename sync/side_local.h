/* SPDX-License-Identifier: MIT */
/* A folder of this host as one side of a sync, watched: sync/side_tree.h for the engine's thread,
 * sync/watch.h on the loop's. */
#ifndef SYNC_SIDE_LOCAL_H
#define SYNC_SIDE_LOCAL_H

#include <uv.h>
#include "sync/side.h"

struct sync_side_local;

/* On the loop's thread; none after sync_side_local_close(). As in sync/watch.h. */
struct sync_side_local_cbs {
    void (*on_dirty)(const char *dir, size_t len, void *arg);
    void (*on_lost)(const char *dir, size_t len, int status, void *arg);
    void (*on_overflow)(void *arg);
};

/* tree: copied; its descriptors must outlive the side. cbs is borrowed. Without watches to be had
 * it works all the same, and every folder is told as lost. Returns 0 with *out, or UV_ENOMEM. */
TR_MUST_CHECK int sync_side_local_open(uv_loop_t *loop, const struct sync_tree *tree,
                                       const struct sync_side_local_cbs *cbs, void *arg,
                                       struct sync_side_local **out);
/* Once the engine's thread asks nothing more. cb runs later, when all is closed and freed. */
void sync_side_local_close(struct sync_side_local *side, void (*cb)(void *arg), void *arg);
/* For this side; borrowed. */
const struct sync_side_ops *sync_side_local_get_ops(const struct sync_side_local *side);

#endif
