/* SPDX-License-Identifier: MIT */
/* An HTTP/1 connection to a machine: the back half of an exchange, or idle in the pool. */
#ifndef GATEWAY_UPSTREAM_H
#define GATEWAY_UPSTREAM_H

#include "gateway/exchange.h"

struct gw_upstream_set;

/* Send the request to x->route. Failures come as gw_exchange_back_failed(), which may run before
 * this returns. */
void gw_upstream_start(struct gw_exchange *x, const struct gw_request *req,
                       const struct sockaddr *peer);
/* Why nobody talks to a machine any more, for those who did. */
struct gw_gone {
    int status;
    const char *code, *message; /* to who waits for an answer */
    const char *tunnel;         /* in the log */
};
/* Everything that still talks to the machine ends. */
void gw_upstream_set_gone(struct gw_worker *w, struct gw_upstream_set *set,
                          const struct gw_gone *why);

/* What came by a port of its own that extra does not open ends. The set may be gone afterwards. */
void gw_upstream_end_ports(struct gw_worker *w, struct gw_upstream_set *set,
                           const struct tr_route_extra *extra);

/* At the worker's end. */
void gw_upstream_close_all(struct gw_worker *w);

/* Build the head that goes upstream: x->head, with x->host in it. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_upstream_head(struct gw_exchange *x, const struct gw_request *req,
                                   const struct sockaddr *peer);

#endif
