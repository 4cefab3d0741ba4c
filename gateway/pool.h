/* SPDX-License-Identifier: MIT */
/* A worker's connections to machines, by label and instance. Idle ones are reused last in, first
 * out: the warmest connection serves, and surplus ones age out. */
#ifndef GATEWAY_POOL_H
#define GATEWAY_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"
#include "transom/state.h"

struct gw_upstream;
struct gw_tunnel;
struct gw_h2_app;

/* A port of a machine that was found on its loopback only; port 0: none. */
#define GW_LOOPBACK_PORTS 4
struct gw_loopback {
    uint16_t port;
    uint64_t until_ms; /* of the loop's clock: forgotten then */
};

/* The connections to one machine. Exists while there are any. */
struct gw_upstream_set {
    struct gw_upstream_set *hash_next;
    char label[TR_LABEL_LEN + 1];
    uint64_t instance;
    struct gw_upstream *idle, *busy; /* idle: newest first */
    struct gw_tunnel *tunnels;
    struct gw_h2_app *apps; /* upstream_h2.h */
    unsigned n_idle, n;     /* n: all members, tunnels included */
    struct gw_loopback loopback[GW_LOOPBACK_PORTS];
};

struct gw_pool {
    struct gw_upstream_set **buckets;
    size_t n_buckets, n_sets;
    unsigned n_idle;
};

TR_MUST_CHECK int gw_pool_init(struct gw_pool *pool);
void gw_pool_fini(struct gw_pool *pool);
/* NULL when there is none. */
struct gw_upstream_set *gw_pool_find(struct gw_pool *pool, const char *label, uint64_t instance);
/* Find or create; NULL when there is no memory. A fresh set has no members: add one, or drop it. */
struct gw_upstream_set *gw_pool_get(struct gw_pool *pool, const char *label, uint64_t instance);
/* Frees the set if it has no members. */
void gw_pool_drop(struct gw_pool *pool, struct gw_upstream_set *set);
/* Any set of the label with another instance than keep (0: any); NULL when there is none. */
struct gw_upstream_set *gw_pool_other(struct gw_pool *pool, const char *label, uint64_t keep);

#endif
