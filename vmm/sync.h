/* SPDX-License-Identifier: MIT */
/* One machine's files kept in step with its session's store: the engine (sync/run.h) put together
 * with the agent, the store and the machine's life. All on the loop's thread. */
#ifndef VMM_SYNC_H
#define VMM_SYNC_H

#include "vmm/store.h"
#include "vmm/vmm.h"

struct vmm_machine;
struct vmm_sync;

/* A machine waits no longer for its files. */
#define VMM_SYNC_FILES_MS 600000

struct vmm_sync_cbs {
    /* Once: the session's files are in the machine (status 0), or UV_ETIMEDOUT, or the sync could
     * not begin. */
    void (*on_files)(int status, const char *why, void *arg);
};

/* Begin, once the agent is ready and m->boot_id known: what an earlier boot had is nothing to this
 * one. cbs are borrowed and run later. Returns 0 with *out; else nothing
 * was begun, and err says why. */
TR_MUST_CHECK int vmm_sync_open(struct vmm_machine *m, const struct vmm_sync_cbs *cbs, void *arg,
                                struct vmm_sync **out, struct err *err);
/* The agent can be reached (again). */
void vmm_sync_ready(struct vmm_sync *sync);
/* The last sync, of at most timeout_ms, then the .git folders and a checkpoint, then cb, later,
 * once; unless it is closed before. */
void vmm_sync_finish(struct vmm_sync *sync, uint64_t timeout_ms, enum sync_cause cause,
                     void (*cb)(void *arg), void *arg);
/* End at once. cb runs later, when all is closed and freed. */
void vmm_sync_close(struct vmm_sync *sync, void (*cb)(void *arg), void *arg);
/* For the .git folders, after a last sync that is no reset's. */
#define VMM_SYNC_GITS_MS 60000
/* A run has ended in the machine: once things are quiet, a checkpoint is made of what it changed. */
void vmm_sync_run_ended(struct vmm_sync *sync);
/* About once a second. */
void vmm_sync_tick(struct vmm_sync *sync, uint64_t now_ms);
/* Somebody changed the session's files. */
void vmm_sync_look(struct vmm_sync *sync);
/* Counters, conflicts, what is left out and what cannot be done (new). */
json_t *vmm_sync_json(const struct vmm_sync *sync);

#endif
