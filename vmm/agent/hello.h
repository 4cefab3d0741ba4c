/* SPDX-License-Identifier: MIT */
/* hello: the machine learns who and when it is. Also status and shutdown. */
#ifndef VMM_AGENT_HELLO_H
#define VMM_AGENT_HELLO_H

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

void agent_hello_handle(struct agent_request *req);    /* POST /v1/hello */
void agent_status_handle(struct agent_request *req);   /* GET /v1/status */
void agent_shutdown_handle(struct agent_request *req); /* POST /v1/shutdown */

void agent_identity_fini(struct agent_identity *id);

/* A host name: labels of letters, digits and hyphens, joined by dots, 253 bytes at most. */
bool agent_hostname_ok(const char *name);

#endif
