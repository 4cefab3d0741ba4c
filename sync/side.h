/* SPDX-License-Identifier: MIT */
/* One side of a sync as the engine sees it: somewhere to list, hash, read, change and watch. The
 * guest is the agent by way of sync/remote.h; the store is a folder (sync/side_tree.h), and in
 * tests the guest is one, too.
 *
 * Every call blocks until all its answers are there and belongs on the engine's thread; callbacks
 * run in it, before the call returns, in the order of the requests. A call returns 0 when every
 * request was answered, each with a status of its own (sync/node.h). It returns a negative errno
 * with the reason in err when the side is gone or broken: nothing is known of what was unanswered.
 */
#ifndef SYNC_SIDE_H
#define SYNC_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/tree.h"
#include "transom/err.h"

struct sync_name {
    const char *path;
    size_t len;
};

struct sync_want {
    const char *path;
    size_t len;
    struct sync_sig sig; /* what it must be */
};

/* index: of the request, from 0 in each call. What is pointed to is borrowed for the callback. */
struct sync_side_cbs {
    /* list: per folder on_listing; if its status is 0, on_entry for each entry and on_listed. */
    void (*on_listing)(uint32_t index, int status, const struct sync_sig *sig, void *arg);
    void (*on_entry)(uint32_t index, const struct sync_tree_entry *entry, void *arg);
    /* status 0: that was all; changed: the folder was changed meanwhile. */
    void (*on_listed)(uint32_t index, int status, bool changed, void *arg);
    /* hash: head has the first SYNC_HEAD_MAX bytes or less. */
    void (*on_hashed)(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg);
    /* read: per file on_reading; if its status is 0, its pieces, and on_read, which alone says that
     * they were good. */
    void (*on_reading)(uint32_t index, int status, const struct sync_sig *sig, void *arg);
    void (*on_piece)(uint32_t index, const uint8_t *bytes, size_t len, void *arg);
    void (*on_read)(uint32_t index, int status, const struct sync_tree_read *read, void *arg);
    /* apply: sig is of what is there now; ino 0: nothing. */
    void (*on_applied)(uint32_t index, int status, const struct sync_sig *sig, void *arg);
};

struct sync_side_ops {
    int (*list)(void *side, const struct sync_name *dirs, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err);
    int (*hash)(void *side, const struct sync_want *wants, size_t n,
                const struct sync_side_cbs *cbs, void *arg, struct err *err);
    int (*read)(void *side, const struct sync_want *wants, size_t n,
                const struct sync_side_cbs *cbs, void *arg, struct err *err);

    /* Changes, one after the other: start, then ops, each FILE followed by its content (size bytes
     * in pieces of any size) and commit; then end, which waits for what is not yet answered.
     * on_applied may come during any of them. */
    int (*apply_start)(void *side, const struct sync_side_cbs *cbs, void *arg, struct err *err);
    int (*apply_op)(void *side, const struct sync_op *op, int64_t size, struct err *err);
    int (*apply_content)(void *side, const uint8_t *bytes, size_t len, struct err *err);
    /* id: what the content must be; NULL: give it up, it is answered with UV_ECANCELED. */
    int (*apply_commit)(void *side, const struct sync_id *id, struct err *err);
    int (*apply_end)(void *side, struct err *err); /* also after a failure of the others */

    /* Watch a folder, or no more. Does not wait; NULL where there is no watching. */
    void (*watch)(void *side, const char *dir, size_t len, bool on);
};

#endif
