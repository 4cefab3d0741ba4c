/* SPDX-License-Identifier: MIT */
/* The way to a sandbox's agent, for a request that needs it: the machine is started when it sleeps,
 * and the agent waited for. */
#ifndef VMM_REACH_H
#define VMM_REACH_H

#include "vmm/agent_client.h"
#include "vmm/request.h"

struct vmm_reach;

/* h2 is the agent's session. NULL: it is not to be had; the request was answered with the reason,
 * or its client is gone. */
typedef void (*vmm_reach_cb)(struct vmm_reach *r, struct tr_h2 *h2);

/* Embedded by the caller. */
struct vmm_reach {
    struct vmm_request *req; /* borrowed */
    vmm_reach_cb cb;
    struct vmm_agent_wait wait; /* while the agent is waited for */
    char label[VMM_ID_LEN + 1];
};

/* Go to req's sandbox. cb runs once, perhaps before this returns; req must live until then. */
void vmm_reach_start(struct vmm_reach *r, struct vmm_request *req, vmm_reach_cb cb);
/* The client is gone, and cb has not run yet. Returns true when it will not run any more; false
 * when it still will, with NULL: a start goes on for whoever comes next. */
bool vmm_reach_cancel(struct vmm_reach *r);

/* The sandbox and its agent now; NULL: there is none (any more). */
struct vmm_sandbox *vmm_reach_sandbox(const struct vmm_reach *r);
struct vmm_agent *vmm_reach_agent(const struct vmm_reach *r);

#endif
