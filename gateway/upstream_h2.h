/* SPDX-License-Identifier: MIT */
/* Apps that speak HTTP/2 without TLS (h2c, by prior knowledge: RFC 9113 section 3.3), gRPC servers
 * above all. Requests to one port of a machine share a few connections. */
#ifndef GATEWAY_UPSTREAM_H2_H
#define GATEWAY_UPSTREAM_H2_H

#include "gateway/exchange.h"
#include "gateway/pool.h"

/* As gw_upstream_start(). A WebSocket is not for here. */
void gw_upstream_h2_start(struct gw_exchange *x, const struct gw_request *req,
                          const struct sockaddr *peer);
/* As gw_upstream_set_gone(), which calls it and holds the set. */
struct gw_gone;
void gw_upstream_h2_set_gone(struct gw_worker *w, struct gw_upstream_set *set,
                             const struct gw_gone *why);

#endif
