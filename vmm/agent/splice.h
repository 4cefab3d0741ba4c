/* SPDX-License-Identifier: MIT */
/* The way to programs that listen only on the machine's loopback: a TCP port for the edge alone.
 *
 * The peer sends a port number in decimal and a newline (at most 6 bytes, within 10 s).
 * "+" and a newline: it is connected to 127.0.0.1 or [::1] on that port, and every byte from there
 * on is passed both ways, each side's end by itself. "-" and a newline: nothing listens there; the
 * connection ends. Other addresses than the edge's are refused as soon as they connect. */
#ifndef VMM_AGENT_SPLICE_H
#define VMM_AGENT_SPLICE_H

#include <netinet/in.h>

#include "vmm/agent/agent.h"

#define AGENT_SPLICE_PORT 982 /* any free one when the agent does not have a machine of its own */
#define AGENT_SPLICES_MAX 512 /* at once; more wait until one has ended */

struct agent_splices;
TR_MUST_CHECK int agent_splices_new(struct agent *a, struct agent_splices **out);
/* Admit this address, and no other, from now on; listens if that has not begun. Returns the port,
 * or < 0 (the reason is logged). */
int agent_splices_listen(struct agent_splices *s, struct in_addr edge);
/* The port listened on, 0 for none. */
uint16_t agent_splices_port(const struct agent_splices *s);
/* End all. Memory stays until the loop has run and agent_splices_free() was called. */
void agent_splices_stop(struct agent_splices *s);
void agent_splices_free(struct agent_splices *s);

/* The port in a line without its newline; 0: it is none. */
uint16_t agent_splice_parse(const char *line, size_t len);

#endif
