/* SPDX-License-Identifier: MIT */
/* CONNECT to a loopback port of the machine: bytes both ways, each side's end passed on by itself.
 */
#ifndef VMM_AGENT_TUNNEL_H
#define VMM_AGENT_TUNNEL_H

#include "vmm/agent/request.h"

void agent_tunnel_handle(struct agent_request *req);

/* Port of "127.0.0.1:PORT", "localhost:PORT" or "[::1]:PORT"; *v6 for the last. 0: anything else.
 */
uint16_t agent_tunnel_port(const char *authority, bool *v6);

#endif
