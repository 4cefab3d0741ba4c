/* SPDX-License-Identifier: MIT */
/* The gateway's traffic as samples, one every ten seconds, in a bounded stream of Redis
 * (TR_KEY_GATEWAY_STATS): where the dashboard finds it. Runs on the control thread's loop. */
#ifndef GATEWAY_FIGURES_H
#define GATEWAY_FIGURES_H

#include "gateway/feed.h"
#include "gateway/worker.h"

struct gw_figures;

/* Begin, over the feed's connection. gw and feed must outlive it. */
TR_MUST_CHECK int gw_figures_open(uv_loop_t *loop, struct gw_gateway *gw, struct gw_feed *feed,
                                  struct gw_figures **out);
/* Freed when the loop has run its close callback. */
void gw_figures_close(struct gw_figures *figures);

/* An upper bound of what this part (0 to 1) of the exchanges of each length took, in ms: 0 when
 * there were none; that of the last class but one when it was longer. For tests. */
unsigned gw_figures_quantile(const uint64_t counts[GW_DURATIONS + 1], double part);

#endif
