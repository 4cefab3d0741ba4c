/* SPDX-License-Identifier: MIT */
/* The channel the host reaches us by: opened again whenever it ends; each conversation is one
 * HTTP/2 session. What requests do belongs to the other parts and survives conversations. */
#ifndef VMM_AGENT_SERVER_H
#define VMM_AGENT_SERVER_H

#include "vmm/agent/agent.h"

struct agent_server;

/* Serve what the options name. a->loop runs dry once a channel that cannot come back (--stdio)
 * ends. */
TR_MUST_CHECK int agent_server_start(struct agent *a, struct agent_server **out, struct err *err);
void agent_server_stop(struct agent_server *s);
void agent_server_free(struct agent_server *s);

#endif
