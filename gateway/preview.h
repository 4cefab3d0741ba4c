/* SPDX-License-Identifier: MIT */
/* A request for a preview: who may see it, which port it is for, and what is said when there is no
 * answer. */
#ifndef GATEWAY_PREVIEW_H
#define GATEWAY_PREVIEW_H

#include "gateway/exchange.h"
#include "gateway/host.h"

/* Answer x or give it to a back. In this order: is the label known, is the visitor let in, is the
 * port opened and the path plain, does the machine run. A visitor who is not let in learns nothing
 * of what comes later, and wakes nobody. host->kind is GW_HOST_PREVIEW. */
void gw_preview_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer,
                      const struct gw_host *host);

#endif
