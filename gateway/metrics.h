/* SPDX-License-Identifier: MIT */
/* GET /metrics on a private listener, in Prometheus' text format. Runs on the control thread. */
#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

#include <uv.h>
#include "gateway/feed.h"
#include "gateway/worker.h"

struct gw_kept;
struct gw_metrics;

/* Listen on ADDRESS:PORT, with the socket kept from an earlier process if there is one. bound gets
 * the address with the real port (64 bytes). */
TR_MUST_CHECK int gw_metrics_open(uv_loop_t *loop, const char *address, struct gw_kept *kept,
                                  struct gw_gateway *gw, const struct gw_feed *feed, char *bound,
                                  struct gw_metrics **out, struct err *err);
/* NULL is allowed. Freed when the loop has run its close callbacks. */
void gw_metrics_close(struct gw_metrics *m);

/* The text itself, allocated; NULL: no memory. feed may be NULL. */
char *gw_metrics_text(const struct gw_gateway *gw, const struct gw_feed *feed);

#endif
