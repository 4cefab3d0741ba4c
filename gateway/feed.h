/* SPDX-License-Identifier: MIT */
/* Keeps the route table in step with Redis. Runs on the control thread's libuv loop. */
#ifndef GATEWAY_FEED_H
#define GATEWAY_FEED_H

#include <uv.h>
#include "gateway/table.h"

struct gw_feed;

/* Of a label's machines only the instance keep_instance (0: none) is to be talked to any more, and
 * only by the ports that the table says. */
typedef void (*gw_feed_gone_cb)(const char *label, uint64_t keep_instance, void *arg);

struct gw_feed_figures {
    _Atomic uint64_t changes, loads, bad_records;
    _Atomic bool up;
    _Atomic uint64_t answered_ms; /* when Redis last said something, by uv_hrtime(); 0: never */
    _Atomic int64_t lag_ms;       /* of the last change: from Redis' clock to its effect here */
};

/* Start; keeps trying while Redis is not there. Returns 0, or a fault of the URL. */
TR_MUST_CHECK int gw_feed_open(uv_loop_t *loop, const char *url, struct gw_table *table,
                               gw_feed_gone_cb gone, void *arg, struct gw_feed **out,
                               struct err *err);
/* Freed when the loop has run its close callbacks. */
void gw_feed_close(struct gw_feed *feed);
/* Write something by the same connection; behind a read that waits, so within seconds. Whether it
 * was taken is not told. 0, UV_ENOTCONN or UV_ENOMEM. argc: at most 48. */
TR_MUST_CHECK int gw_feed_write(struct gw_feed *feed, int argc, const char **argv);
const struct gw_feed_figures *gw_feed_figures(const struct gw_feed *feed);

#endif
