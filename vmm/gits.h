/* SPDX-License-Identifier: MIT */
/* The .git folders of one machine: fetched from its agent into the session's store when they have
 * changed, and put back into a new machine before anything runs there. The host keeps them as they
 * come (sync/store_gits.h), and looks inside only for secrets: one that holds an active one is not
 * taken. In a session with secrets each is fetched twice, first only to be looked through. All on
 * the loop's thread; one operation at a time. */
#ifndef VMM_GITS_H
#define VMM_GITS_H

#include <jansson.h>
#include "sync/secrets.h"
#include "transom/h2.h"
#include "vmm/store.h"

struct vmm_gits;

struct vmm_gits_options {
    const char *label;                   /* for the log: "vm=..."; borrowed */
    struct vmm_store_hold *hold;         /* borrowed; held until close */
    struct tr_h2 *(*session)(void *arg); /* to the agent, or NULL */
    void *arg;
    int64_t max_bytes;            /* of one; larger ones are left out. 0: none is taken */
    struct sync_secrets *secrets; /* that none may hold (sync/git_screen.h); borrowed; NULL: none */
};

TR_MUST_CHECK int vmm_gits_open(uv_loop_t *loop, const struct vmm_gits_options *options,
                                struct vmm_gits **out);
/* What is under way ends first, its callback runs. Then cb, later, once all is freed. */
void vmm_gits_close(struct vmm_gits *gits, void (*cb)(void *arg), void *arg);
bool vmm_gits_is_busy(const struct vmm_gits *gits);
/* The operation ends soon, with UV_ECANCELED. Nothing when there is none. */
void vmm_gits_stop(struct vmm_gits *gits);

/* Runs once, not before the call that began the operation has returned. 0; UV_ETIMEDOUT;
 * UV_ECANCELED; UV_ENOTCONN: the agent was lost on the way; another fault. */
typedef void (*vmm_gits_cb)(int status, void *arg);

/* Put those that the store has into the machine, where there are folders for them that have none
 * yet. */
void vmm_gits_restore(struct vmm_gits *gits, uint64_t timeout_ms, vmm_gits_cb cb, void *arg);
/* This boot has them already: an earlier manager put them there. */
void vmm_gits_restored(struct vmm_gits *gits);
/* Fetch what has changed; what the machine no longer has goes from the next checkpoint (but not
 * before a restore has been through). */
void vmm_gits_take(struct vmm_gits *gits, uint64_t timeout_ms, vmm_gits_cb cb, void *arg);

/* Did the last one bring something new for a checkpoint? */
bool vmm_gits_has_changed(const struct vmm_gits *gits);

/* Those that are not in the store as the machine has them: [{"path","code","why"}], borrowed. path
 * is text as in the sync's lists. */
const json_t *vmm_gits_left_out(const struct vmm_gits *gits);

#endif
