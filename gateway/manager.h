/* SPDX-License-Identifier: MIT */
/* The way to the manager: requests for api.<domain> become streams of one HTTP/2 connection per
 * worker to its edge socket. The manager itself checks who may do what. */
#ifndef GATEWAY_MANAGER_H
#define GATEWAY_MANAGER_H

#include "gateway/exchange.h"

/* As gw_upstream_start(). */
void gw_manager_start(struct gw_exchange *x, const struct gw_request *req,
                      const struct sockaddr *peer);
/* Ask the manager to wake a sandbox: POST /v1/edge/wake. What comes of it is told to
 * gw_wake_done(), perhaps before this returns. */
void gw_manager_wake(struct gw_worker *w, const char *label);
/* At the worker's end. */
void gw_manager_close(struct gw_worker *w);

#endif
