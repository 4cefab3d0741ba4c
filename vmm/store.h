/* SPDX-License-Identifier: MIT */
/* The sessions' stores (sync/store.h) as the manager uses them: each is opened when it is first
 * asked for something and closed when nobody has for a while. Jobs run in the loop's thread pool,
 * one at a time for one store, in the order in which they came. */
#ifndef VMM_STORE_H
#define VMM_STORE_H

#include "sync/store.h"
#include "vmm/vmm.h"

struct vmm_store;
struct vmm_stores;

/* One piece of work; embedded by the caller, who fills in run and done. */
struct vmm_store_job {
    /* In the pool. Not called when the store cannot be opened: err says why. */
    void (*run)(struct vmm_store_job *job, struct sync_store *store);
    void (*done)(struct vmm_store_job *job); /* on the loop, last; may submit the job again */
    struct err err;                          /* 0 before run() */
    struct vmm_store_job *next;              /* the queue's */
};

/* A stay of several jobs that keep something of the store between them. While there is one, the
 * store is not closed. end() asks for the stay to be over soon: the session is being deleted. It
 * may release, and may not be followed by another call. */
struct vmm_store_hold {
    void (*end)(struct vmm_store_hold *hold);
    struct vmm_store *store; /* NULL: not held */
    struct vmm_store_hold *prev, *next;
};

TR_MUST_CHECK int vmm_stores_open(struct vmm *vmm, struct vmm_stores **out, struct err *err);
/* All jobs end, all stores close, then cb; what is left. */
void vmm_stores_close(struct vmm_stores *stores, void (*cb)(void *arg), void *arg);
/* About once a second. */
void vmm_stores_tick(struct vmm_stores *stores, uint64_t now_ms);

/* Returns 0: done() runs once, after this returns. -ESHUTDOWN: the session is being deleted or the
 * manager ends (not told to who holds the store); -ENOMEM. */
TR_MUST_CHECK int vmm_store_submit(struct vmm *vmm, struct vmm_session *session,
                                   struct vmm_store_job *job, struct err *err);
/* The same for a holder. */
void vmm_store_submit_held(struct vmm_store_hold *hold, struct vmm_store_job *job);
TR_MUST_CHECK int vmm_store_hold(struct vmm *vmm, struct vmm_session *session,
                                 struct vmm_store_hold *hold, struct err *err);
void vmm_store_release(struct vmm_store_hold *hold); /* twice is fine */

/* The session's files go: no more jobs; once the last one is over, cb. Returns false when there is
 * nothing to wait for (cb never runs). */
bool vmm_store_end(struct vmm *vmm, struct vmm_session *session, void (*cb)(void *arg), void *arg);
/* Remove what is left of deleted sessions, in the pool. */
void vmm_stores_sweep(struct vmm *vmm);

/* Somebody changed a session's files through the API; whoever keeps machines in step wants to know.
 * cb runs on the loop; NULL: nobody. */
typedef void (*vmm_store_changed_cb)(struct vmm *vmm, struct vmm_session *session, void *arg);
void vmm_stores_watch(struct vmm *vmm, vmm_store_changed_cb cb, void *arg);
void vmm_store_changed(struct vmm *vmm, const char *session_id);

#endif
