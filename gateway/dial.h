/* SPDX-License-Identifier: MIT */
/* Connecting to an app: to its port of the machine, or, where it listens only on the machine's
 * loopback, by way of the agent's port: the port number and a newline are sent, "+" and a newline
 * mean that the connection is the app's from there on. */
#ifndef GATEWAY_DIAL_H
#define GATEWAY_DIAL_H

#include "gateway/pool.h"
#include "gateway/runtime.h"
#include "gateway/table.h"

struct gw_dial;
struct gw_worker;

/* status 0: sock is the connection, to be moved (gw_sock_move) to a place of the caller's before
 * this returns. UV_ECONNREFUSED: nothing listens. Else another error of the kernel's. */
typedef void (*gw_dial_cb)(struct gw_sock *sock, int status, void *arg);

/* Connect to route->address and route->port. set remembers which ports are on loopback; it, too,
 * must outlive the dial. There is no deadline: the caller has one. Returns 0: *out is valid until
 * cb ran (once, after this returned) or gw_dial_cancel(). < 0: cb never runs. */
TR_MUST_CHECK int gw_dial_start(struct gw_worker *w, struct gw_upstream_set *set,
                                const struct gw_route *route, gw_dial_cb cb, void *arg,
                                struct gw_dial **out);
/* cb does not run any more. NULL is allowed. */
void gw_dial_cancel(struct gw_dial *d);

#endif
