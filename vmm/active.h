/* SPDX-License-Identifier: MIT */
/* Which secrets are active in a session, and how its machines get them: the whole set, before
 * anything runs there and again at each change. Names are kept with the session; a value is opened
 * only to be sent. */
#ifndef VMM_ACTIVE_H
#define VMM_ACTIVE_H

#include "transom/mask.h"
#include "vmm/vmm.h"

#define VMM_ACTIVE_MAX 256 /* secrets of one session; as many as the agent takes */

bool vmm_active_has(const struct vmm_session *session, const char *name);
/* Would the session's machines take this value of that secret beside the others that are active
 * there? A machine that refuses the set would never be ready again. -EDQUOT: no. */
TR_MUST_CHECK int vmm_active_check(struct vmm *vmm, const struct vmm_session *session,
                                   const char *name, const void *value, size_t len,
                                   struct err *err);
/* Make a secret of the session's owner active, or not; durable when this returns 0. -EDQUOT: too
 * many, or too long together. */
TR_MUST_CHECK int vmm_active_set(struct vmm *vmm, struct vmm_session *session, const char *name,
                                 bool active, struct err *err);
/* What hides them, or keeps them out (new; *out NULL: nothing to hide). One that does not open is
 * left out: it is sent to no machine either. UV_ENOMEM. */
TR_MUST_CHECK int vmm_active_mask(struct vmm *vmm, const struct vmm_session *session,
                                  struct tr_mask **out);
/* The body of the agent's PUT /v1/secrets (new), or NULL: no memory. One that does not open is left
 * out, and logged. */
json_t *vmm_active_body(struct vmm *vmm, const struct vmm_session *session);

/* Tell the sync of the session's files, then send the set to its machines that run. cb runs once,
 * later or before this returns, when all have it, cannot be reached or did not take it: those get
 * it before they are ready again. */
typedef void (*vmm_active_cb)(void *arg);
void vmm_active_push(struct vmm *vmm, struct vmm_session *session, vmm_active_cb cb, void *arg);

/* What is active anywhere is hidden in our log from now on, and nothing else. */
void vmm_active_hide(struct vmm *vmm);
/* At the end: forget and wipe. */
void vmm_active_fini(struct vmm *vmm);

#endif
