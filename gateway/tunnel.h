/* SPDX-License-Identifier: MIT */
/* A tunnel: bytes both ways between a client and a machine after a 101, with backpressure and
 * half-close, and no memory while nothing moves. */
#ifndef GATEWAY_TUNNEL_H
#define GATEWAY_TUNNEL_H

#include "gateway/buf.h"
#include "gateway/exchange.h"
#include "gateway/pool.h"
#include "gateway/runtime.h"

/* What a half hands over when a connection becomes one end of a tunnel. */
struct gw_tunnel_end {
    struct gw_sock sock;
    struct gw_buf *unsent;   /* to go out to this end first, or NULL */
    struct gw_buf *received; /* came from this end already, for the other one, or NULL */
    bool eof;                /* this end will send no more */
};

/* Start; takes everything of both ends, and x. set: where it is counted already. Without memory
 * both ends are reset. */
void gw_tunnel_start(struct gw_worker *w, struct gw_tunnel_end *client, struct gw_tunnel_end *app,
                     struct gw_upstream_set *set, struct gw_exchange *x);
/* End at once. */
void gw_tunnel_close(struct gw_tunnel *t, const char *why);
size_t gw_tunnel_size(void); /* bytes of one, for the memory test */

#endif
