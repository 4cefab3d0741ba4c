/* SPDX-License-Identifier: MIT */
/* The keeper: the small process that a service manager sees. It keeps the listening sockets (and
 * whatever else is to outlive a serving process), starts the process that serves, and another one
 * for an upgrade. It reads nothing that comes from the network or from Redis.
 *
 *   keeper ──fork, exec──► serving process      (transom-gateway again, with GW_CONTROL_ENV)
 *      ◄── control socket ──►
 *
 * The control socket is SOCK_SEQPACKET; a message is one line of text without its end, at most
 * GW_CONTROL_MAX bytes, with at most one descriptor:
 *   keeper:  have ID NAME +fd    a descriptor kept from before; all of them come first
 *            go                  that was all; start
 *            reload              read configuration and certificates again
 *            drain               another process serves now: end when the last connection has
 *            stop                end when idle, or at gateway.drain_ms
 *   serving: keep NAME +fd       keep a copy of this
 *            forget ID           close the copy
 *            ready               serving
 *            reloaded | refused  the answer to reload
 *
 * Signals of the keeper: HUP reload, USR2 upgrade (exec the program's file anew), TERM and INT
 * stop. A serving process that ends unasked ends the keeper, too: the service manager is to know.
 */
#ifndef GATEWAY_KEEPER_H
#define GATEWAY_KEEPER_H

#include "transom/config.h"

#define GW_CONTROL_ENV  "TRANSOM_GATEWAY_CONTROL"
#define GW_CONTROL_MAX  256
/* A serving process whose start fails. */
#define GW_START_MAX_MS 60000

/* Run until told to stop. argv is the command line, used for each serving process, too. Returns the
 * exit status; everything was said. */
int gw_keeper_run(char **argv, const struct tr_config *config);

#endif
