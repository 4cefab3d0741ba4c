/* SPDX-License-Identifier: MIT */
/* The route table: label -> route, in memory, shared by all workers. One writer (the feed), many
 * readers. A change costs the same with ten routes or a million: shards grow by a few buckets at a
 * time. */
#ifndef GATEWAY_TABLE_H
#define GATEWAY_TABLE_H

#include <netinet/in.h>
#include "transom/state.h"

/* What a request needs to know of a route, copied out of the table. */
struct gw_route {
    char label[TR_LABEL_LEN + 1];
    uint8_t state; /* enum tr_sandbox_state */
    bool wake;     /* a request to it, asleep, wakes it */
    /* Of the app. A copy of a request's own says where that one goes. */
    uint16_t port;
    uint8_t protocol;    /* enum tr_protocol */
    uint16_t agent_port; /* leads to the machine's loopback (dial.h); 0: there is none */
    uint8_t family;      /* AF_INET, AF_INET6; 0: no address */
    union {
        struct in_addr v4;
        struct in6_addr v6;
        unsigned char bytes[16];
    } address;
    uint64_t instance;
    uint64_t since_ms; /* when this instance came to this state, on the clock given to put */
    char reason[128];  /* state failed: why */
    struct tr_route_extra *extra; /* rules, ports, key; NULL: none of them. Owned */
};

struct gw_table;

TR_MUST_CHECK int gw_table_new(struct gw_table **out);
void gw_table_free(struct gw_table *table);

/* Any thread. False: no such label, and *out is untouched; else give its extra back with
 * tr_route_extra_unref(). */
bool gw_table_get(struct gw_table *table, const char *label, struct gw_route *out);
size_t gw_table_count(const struct gw_table *table);

/* The feed's thread only. generation marks entries for gw_table_sweep(). Returns GW_TABLE_SAME when
 * instance, state and address are what they were; GW_TABLE_CLOSED when, besides, a port is not open
 * any more; GW_TABLE_REVOKED when whoever was let in before may no longer be (it became private, or
 * its key changed); or UV_ENOMEM. Takes its own reference to route->extra. */
enum { GW_TABLE_SAME, GW_TABLE_NEW, GW_TABLE_CHANGED, GW_TABLE_CLOSED, GW_TABLE_REVOKED };
TR_MUST_CHECK int gw_table_put(struct gw_table *table, const struct tr_route *route,
                               uint32_t generation, uint64_t now_ms);
/* Returns whether it was there. */
bool gw_table_remove(struct gw_table *table, const char *label);
/* Remove entries of other generations; removed is told each label. */
void gw_table_sweep(struct gw_table *table, uint32_t generation,
                    void (*removed)(const char *label, void *arg), void *arg);

#endif
