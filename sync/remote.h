/* SPDX-License-Identifier: MIT */
/* The host's half: a tree in a guest, over the agent's HTTP/2 session. Everything that comes from
 * there is hostile, and checked: its form (sync/wire.h), its order (sync/serve.h), its indices.
 *
 * One call is one request. Callbacks come from the loop, on its thread, never before the function
 * that starts the call returns; on_done is the last one, exactly once, also when the session ends.
 * Any sync_remote_* function may be used inside a callback. What callbacks are given is borrowed
 * until they return. */
#ifndef SYNC_REMOTE_H
#define SYNC_REMOTE_H

#include <uv.h>
#include "sync/wire.h"
#include "transom/h2.h"

#define SYNC_REMOTE_IDLE_MS 60000 /* a call but a watch ends when nothing moves for so long */

struct sync_remote; /* one call */

/* Any may be NULL. index: which of the call's requests, from 0. status: as in sync/node.h. */
struct sync_remote_cbs {
    /* list. */
    void (*on_listing)(uint32_t index, int status, const struct sync_sig *sig, void *arg);
    void (*on_entry)(uint32_t index, const struct sync_tree_entry *entry, void *arg);
    /* status != 0: not all entries were told. changed: nor may they be otherwise. Neither comes
     * after on_listing with a status. */
    void (*on_listed)(uint32_t index, int status, bool changed, void *arg);

    /* hash. head: the first SYNC_HEAD_MAX bytes or less. */
    void (*on_hashed)(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg);

    /* read. sig's size is what the guest says now: give up if it is more than is wanted. What came
     * counts only once on_read has said 0; its id was checked against it. */
    void (*on_reading)(uint32_t index, int status, const struct sync_sig *sig, void *arg);
    void (*on_piece)(uint32_t index, const uint8_t *bytes, size_t len, void *arg);
    void (*on_read)(uint32_t index, int status, const struct sync_tree_read *read, void *arg);

    /* apply. sig: of what is there now; ino 0: nothing. */
    void (*on_applied)(uint32_t index, int status, const struct sync_sig *sig, void *arg);

    /* watch: as in sync/watch.h. */
    void (*on_dirty)(const char *dir, size_t len, void *arg);
    void (*on_lost)(const char *dir, size_t len, int status, void *arg);
    void (*on_overflow)(void *arg);

    /* apply, and all that take requests one by one: a function said 0 ("stop"), and may go on. */
    void (*on_drain)(void *arg);
    /* Last. status 0: every request was answered. Else the reason, with the rest unanswered:
     * UV_ECANCELED, UV_ETIMEDOUT, UV_ECONNRESET (the session or the agent ended), UV_EPROTO (the
     * agent broke the rules), -EREMOTEIO (it refused: err says why), UV_ENOMEM. */
    void (*on_done)(struct sync_remote *call, int status, const struct err *err, void *arg);
};

enum sync_remote_kind {
    SYNC_REMOTE_LIST,
    SYNC_REMOTE_HASH,
    SYNC_REMOTE_READ,
    SYNC_REMOTE_APPLY,
    SYNC_REMOTE_WATCH,
};

/* Begin a call. cbs is borrowed until on_done. Returns 0 with *out (borrowed, until on_done), or
 * UV_ENOMEM, UV_EAGAIN (the session takes no more now): then nothing was begun. */
TR_MUST_CHECK int sync_remote_start(uv_loop_t *loop, struct tr_h2 *h2, enum sync_remote_kind kind,
                                    const struct sync_remote_cbs *cbs, void *arg,
                                    struct sync_remote **out);

/* Requests of a call. They leave together, when enough are there or on sync_remote_flush(). Each
 * returns 1: go on; 0: taken, but wait for on_drain before the next; UV_EINVAL: no such path, or
 * not in this call, nothing was taken; UV_ENOMEM, UV_EPIPE: the call is ending. */
TR_MUST_CHECK int sync_remote_dir(struct sync_remote *call, const char *dir, size_t len);
/* sig may be NULL: whatever it is. */
TR_MUST_CHECK int sync_remote_want(struct sync_remote *call, const char *path, size_t len,
                                   const struct sync_sig *sig);
/* size: bytes of content that follow a FILE. */
TR_MUST_CHECK int sync_remote_op(struct sync_remote *call, const struct sync_op *op, int64_t size);
/* Any length. */
TR_MUST_CHECK int sync_remote_content(struct sync_remote *call, const void *bytes, size_t len);
/* After the content: put it in place (id: what it must be), or give the file up (id NULL). */
TR_MUST_CHECK int sync_remote_content_end(struct sync_remote *call, const struct sync_id *id);
TR_MUST_CHECK int sync_remote_watch(struct sync_remote *call, const char *dir, size_t len);
TR_MUST_CHECK int sync_remote_unwatch(struct sync_remote *call, const char *dir, size_t len);

void sync_remote_flush(struct sync_remote *call);
/* No more requests; flushes. A watch goes on until it is cancelled. */
void sync_remote_end(struct sync_remote *call);
/* Give up; on_done follows with UV_ECANCELED. Again: nothing. */
void sync_remote_cancel(struct sync_remote *call);
/* hold: no callbacks but on_drain and on_done until it is let go, and the agent is slowed. */
void sync_remote_hold(struct sync_remote *call, bool hold);

#endif
