/* SPDX-License-Identifier: MIT */
/* What an HTTP/2 peer may make us do for nothing. Two leaky buckets per connection:
 *
 *   resets  streams that came to nothing: reset by the client (rapid reset), or by us through its
 *           fault (made-you-reset). Each may have cost a machine a request. A browser that leaves a
 *           page resets what was under way, a hundred streams at most.
 *   noise   frames that bring nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown
 *           ones. They are cheap, and some belong to moving bodies: those are forgiven for bytes
 *           moved, so that neither an updated window per frame nor a PING per round trip counts. */
#include "gateway/h2_internal.h"

#define RESET_BURST    500
#define RESET_PER_S    50
#define NOISE_BURST    2000
#define NOISE_PER_S    200
#define NOISE_PER_BODY 4096 /* bytes that forgive one frame */

static uint32_t leak(uint32_t level, uint64_t amount)
{
    return amount < level ? level - (uint32_t)amount : 0;
}

static void bring_up_to_date(struct gw_h2_client *c)
{
    struct gw_h2_limits *l = &c->limits;
    uint64_t now = gw_loop_now(c->w->loop), ms = now - l->at;

    if (ms < 100)
        return;
    l->at = now;
    l->resets = leak(l->resets, ms * RESET_PER_S / 1000);
    l->noise = leak(l->noise, ms * NOISE_PER_S / 1000);
}

bool gw_h2_count_reset(struct gw_h2_client *c)
{
    bring_up_to_date(c);
    gw_count(&c->w->stats.h2_resets, 1);
    return ++c->limits.resets <= RESET_BURST;
}

bool gw_h2_count_noise(struct gw_h2_client *c)
{
    struct gw_h2_limits *l = &c->limits;

    bring_up_to_date(c);
    l->noise = leak(l->noise, l->progress / NOISE_PER_BODY);
    l->progress %= NOISE_PER_BODY;
    return ++l->noise <= NOISE_BURST;
}

void gw_h2_count_progress(struct gw_h2_client *c, size_t bytes, bool freely)
{
    uint32_t n = bytes < UINT32_MAX / 4 ? (uint32_t)bytes : UINT32_MAX / 4;

    if (freely) /* two updated windows for each message are no abuse, however short it is */
        n += 2 * NOISE_PER_BODY;
    if (c->limits.progress < UINT32_MAX / 2)
        c->limits.progress += n;
}
