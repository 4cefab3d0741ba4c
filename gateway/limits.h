/* SPDX-License-Identifier: MIT */
/* How much one client, and one sandbox, may have at a time. Counted in tables of fixed size, by a
 * hash with a secret seed: nothing is allocated or locked, and nobody can make others collide. Two
 * that do share a limit (one pair in 65,535 or 16,383).
 *
 * Clients (an address; of IPv6 the /64) hold connections, tunnels included; counted for all workers
 * at once, when a connection begins and ends. Sandboxes have requests under way and tunnels; each
 * worker writes counters of its own, and looks at the others' only when it has an eighth of its
 * share itself, so that a limit may be passed by at most an eighth. */
#ifndef GATEWAY_LIMITS_H
#define GATEWAY_LIMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct gw_worker;

#define GW_CLIENT_SLOTS  65536
#define GW_SANDBOX_SLOTS 16384

/* Of the gateway. */
struct gw_limits {
    uint64_t seed;
    _Atomic uint32_t clients[GW_CLIENT_SLOTS]; /* connections; slot 0 is not used */
};

/* Of a worker, GW_SANDBOX_SLOTS of them; written by it alone. */
struct gw_use {
    _Atomic uint32_t requests, tunnels;
};

void gw_limits_init(struct gw_limits *limits);

/* Count a connection. 0: there are max already. Else its slot, for gw_limits_leave(). */
uint16_t gw_limits_enter(struct gw_limits *limits, const struct sockaddr *peer, uint32_t max);
/* slot 0 is allowed: it was not counted. */
void gw_limits_leave(struct gw_limits *limits, uint16_t slot);

enum gw_use_verdict { GW_USE_OK, GW_USE_REQUESTS, GW_USE_TUNNELS };

/* Count a request, unless the sandbox has as many as it may, or, when it is to become a tunnel, as
 * many tunnels. *slot is set when GW_USE_OK is returned, and is never 0. */
enum gw_use_verdict gw_use_begin(struct gw_worker *w, const char *label, bool tunnel,
                                 uint16_t *slot);
/* The request is over (slot 0 is allowed), or became a tunnel; the tunnel is over. */
void gw_use_end(struct gw_worker *w, uint16_t slot);
void gw_use_becomes_tunnel(struct gw_worker *w, uint16_t slot);
void gw_use_tunnel_end(struct gw_worker *w, uint16_t slot);

#endif
