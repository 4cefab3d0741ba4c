/* SPDX-License-Identifier: MIT */
/* A tunnel: bytes both ways between a client and a machine after a 101, with backpressure and
 * half-close, and no memory while nothing moves. */
#ifndef GATEWAY_TUNNEL_H
#define GATEWAY_TUNNEL_H

#include "gateway/buf.h"
#include "gateway/exchange.h"
#include "gateway/pool.h"
#include "gateway/runtime.h"

/* An end that is no socket but a stream beside others on one. Embedded in its owner, who has set
 * ops; t is the tunnel's to set. */
struct gw_tunnel_peer {
    const struct gw_tunnel_peer_ops *ops;
    struct gw_tunnel *t; /* NULL: none (any more) */
};

struct gw_tunnel_peer_ops {
    /* Towards this end: how many bytes were taken, or an error. When less than all were, the peer
     * calls gw_tunnel_peer_writable() once it has room. */
    ssize_t (*write)(struct gw_tunnel_peer *peer, const char *data, size_t len);
    /* No more will be written. */
    void (*shutdown)(struct gw_tunnel_peer *peer);
    /* What gw_tunnel_peer_data() left may be shown again. */
    void (*resume)(struct gw_tunnel_peer *peer);
    /* The tunnel is over; reset: not in order. */
    void (*gone)(struct gw_tunnel_peer *peer, bool reset);
};

/* What a half hands over when a connection becomes one end of a tunnel. */
struct gw_tunnel_end {
    struct gw_sock sock;
    struct gw_tunnel_peer *peer; /* instead of sock, or NULL */
    struct gw_buf *unsent;       /* to go out to this end first, or NULL */
    struct gw_buf *received;     /* came from this end already, for the other one, or NULL */
    uint16_t client_slot;        /* of the client, as in struct gw_client */
    bool eof;                    /* this end will send no more */
};

/* Start; takes everything of both ends, and x. set: where it is counted already; NULL when the app
 * is no machine's. Without memory both ends are reset. */
void gw_tunnel_start(struct gw_worker *w, struct gw_tunnel_end *client, struct gw_tunnel_end *app,
                     struct gw_upstream_set *set, struct gw_exchange *x);
/* From a peer that has a tunnel, which may be gone after each of these. It sent data: returns how
 * many bytes were taken. */
size_t gw_tunnel_peer_data(struct gw_tunnel_peer *peer, const char *data, size_t len);
/* It will send no more. */
void gw_tunnel_peer_eof(struct gw_tunnel_peer *peer);
void gw_tunnel_peer_writable(struct gw_tunnel_peer *peer);
/* It broke. The tunnel is gone afterwards; gone() does not run. */
void gw_tunnel_peer_gone(struct gw_tunnel_peer *peer);
/* End at once, with a WebSocket close frame (1001) to the client where one can stand. */
void gw_tunnel_go_away(struct gw_tunnel *t, const char *why);
/* End at once. */
void gw_tunnel_close(struct gw_tunnel *t, const char *why);
/* End those whose visitor was let in until now (Unix seconds) or before, in the same way. */
void gw_tunnel_end_void(struct gw_worker *w, uint64_t now);
/* End those of the set that came by a port of their own which extra does not open, in the same way.
 * The caller holds the set. */
void gw_tunnel_end_ports(struct gw_upstream_set *set, const struct tr_route_extra *extra);
size_t gw_tunnel_size(void); /* bytes of one, for the memory test */

#endif
