/* SPDX-License-Identifier: MIT */
/* A folder of this host as one side of a sync. */
#ifndef SYNC_SIDE_TREE_H
#define SYNC_SIDE_TREE_H

#include "sync/side.h"

/* In the caller's memory; zeroed but for tree. One thread at a time. */
struct sync_side_tree {
    struct sync_tree tree; /* the caller opens and closes it */
    /* private: a change under way */
    const struct sync_side_cbs *cbs;
    void *arg;
    uint32_t n_ops;
    struct sync_op op; /* a FILE whose content is on its way */
    struct sync_stage *stage;
    int status; /* how it goes so far */
};

/* For a struct sync_side_tree. watch is NULL. */
extern const struct sync_side_ops sync_side_tree_ops;

#endif
