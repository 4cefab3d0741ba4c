/* SPDX-License-Identifier: MIT */
/* Files somewhere else kept in step with a session's store: the engine (sync/run.h) put together
 * with the store and with whoever serves the other side: a machine's agent, or a folder that is
 * bound from afar (vmm/bind.h). All on the loop's thread. */
#ifndef VMM_SYNC_H
#define VMM_SYNC_H

#include <jansson.h>
#include "transom/mask.h"
#include "vmm/store.h"
#include "vmm/vmm.h"

struct vmm_sync;
struct tr_h2;

/* A machine waits no longer for its files. */
#define VMM_SYNC_FILES_MS 600000

struct vmm_sync_cbs {
    /* The HTTP/2 session to the other side (borrowed for the call), or NULL: there is none now. */
    struct tr_h2 *(*h2)(void *arg);
    /* Once: the session's files are there (status 0), or UV_ETIMEDOUT, or the sync could not begin.
     */
    void (*on_files)(int status, const char *why, void *arg);
    /* A conflict: path, kind, winner (borrowed). */
    void (*on_conflict)(json_t *told, void *arg);
    /* vmm_sync_json() is another. May be NULL. */
    void (*on_news)(void *arg);
    /* The session is being deleted, or the manager ends: close it soon. May be NULL. */
    void (*on_store_end)(void *arg);
};

struct vmm_sync_options {
    struct vmm *vmm;
    struct vmm_session *session; /* borrowed for the call */
    const char *label;           /* of the other side, for the log: "vm=..."; copied */
    const char *side;            /* what it is, in what is told: "sandbox"; static */
    const char *ancestor;        /* path of its ancestor's file; copied */
    uint64_t instance;           /* whose ancestor it is (sync/ancestor.h) */
    const char *gits_dir; /* the .git folders are kept, too (vmm/gits.h), and here is a record of
                             that; copied. NULL: they are not */
};

/* Begin, once the other side can be reached. cbs are borrowed and run later. Returns 0 with *out;
 * else nothing was begun, and err says why. */
TR_MUST_CHECK int vmm_sync_open(const struct vmm_sync_options *options,
                                const struct vmm_sync_cbs *cbs, void *arg, struct vmm_sync **out,
                                struct err *err);
/* The other side can be reached (again). */
void vmm_sync_ready(struct vmm_sync *sync);
/* The last sync, of at most timeout_ms, then the .git folders and a checkpoint, then cb, later,
 * once; unless it is closed before. */
void vmm_sync_finish(struct vmm_sync *sync, uint64_t timeout_ms, enum sync_cause cause,
                     void (*cb)(void *arg), void *arg);
/* Rounds are run: it has begun, and has not ended. */
bool vmm_sync_is_running(const struct vmm_sync *sync);
/* While it finishes: what is left cannot be done, so it need not be waited for. */
void vmm_sync_hurry(struct vmm_sync *sync);
/* End at once. cb runs later, when all is closed and freed. */
void vmm_sync_close(struct vmm_sync *sync, void (*cb)(void *arg), void *arg);
/* For the .git folders, after a last sync that is no reset's. */
#define VMM_SYNC_GITS_MS 60000
/* A run has ended in the machine: once things are quiet, a checkpoint is made of what it changed.
 */
void vmm_sync_run_ended(struct vmm_sync *sync);
/* About once a second. */
void vmm_sync_tick(struct vmm_sync *sync, uint64_t now_ms);
/* What is active in the session now, before any machine is told: a reference is taken; NULL: none.
 */
void vmm_sync_secrets(struct vmm_sync *sync, struct tr_mask *mask);
/* Somebody changed the session's files. */
void vmm_sync_look(struct vmm_sync *sync);
/* Counters, conflicts, what is left out and what cannot be done (new). */
json_t *vmm_sync_json(const struct vmm_sync *sync);
/* Counters alone (borrowed until the next news; NULL: none yet). */
const json_t *vmm_sync_counters(const struct vmm_sync *sync);

#endif
