/* SPDX-License-Identifier: MIT */
/* TCP ports that something in the machine listens on: looked up twice a second, changes are events.
 */
#ifndef VMM_AGENT_PORT_H
#define VMM_AGENT_PORT_H

#include <jansson.h>

#include "vmm/agent/agent.h"

struct agent_listener {
    uint16_t port;
    char address[48]; /* as text */
    uint64_t inode;
    pid_t pid;     /* 0: not known (yet) */
    json_t *owner; /* {"comm","window","run_id","exec_id"}, as far as known; or NULL */
};

/* Parse /proc/net/tcp or tcp6 text: sockets in state LISTEN. Returns how many were put into out (at
 * most max). */
size_t agent_port_parse(const char *text, bool v6, struct agent_listener *out, size_t max);

struct agent_ports;
TR_MUST_CHECK int agent_ports_new(struct agent *a, struct agent_ports **out);
void agent_ports_start(struct agent_ports *p);
void agent_ports_stop(struct agent_ports *p);
void agent_ports_free(struct agent_ports *p);

/* [{"port","address","pid","comm","window","run_id","exec_id"}], new; what is not known is left out
 * (pid: 0). */
json_t *agent_ports_json(const struct agent_ports *p);

#endif
