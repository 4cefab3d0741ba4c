/* SPDX-License-Identifier: MIT */
#include "gateway/limits.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#include "gateway/worker.h"

void gw_limits_init(struct gw_limits *limits)
{
    memset(limits, 0, sizeof(*limits));
    if (getrandom(&limits->seed, sizeof(limits->seed), 0) != (ssize_t)sizeof(limits->seed))
        limits->seed = uv_hrtime();
}

/* 1 .. n - 1; n is at most 65536. */
static uint16_t slot_of(uint64_t seed, uint64_t a, uint64_t b, uint32_t n)
{
    uint64_t h = (a ^ seed) * 0x9e3779b97f4a7c15ull;

    h = (h ^ (h >> 32) ^ b ^ (seed << 1)) * 0xd6e8feb86659fd93ull;
    h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15ull;
    return (uint16_t)(1 + (h >> 32) % (n - 1));
}

uint16_t gw_limits_enter(struct gw_limits *limits, const struct sockaddr *peer, uint32_t max)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)peer;
    uint64_t a = peer->sa_family, b = 0;
    uint32_t v4 = 0;
    uint16_t slot;

    if (peer->sa_family == AF_INET) {
        v4 = ((const struct sockaddr_in *)peer)->sin_addr.s_addr;
    } else if (peer->sa_family == AF_INET6) {
        if (memcmp(&in6->sin6_addr, mapped, 12) == 0) {
            a = AF_INET;
            memcpy(&v4, (const unsigned char *)&in6->sin6_addr + 12, 4);
        } else {
            memcpy(&b, &in6->sin6_addr, 8);
        }
    }
    slot = slot_of(limits->seed, a, b ^ v4, GW_CLIENT_SLOTS);
    if (atomic_fetch_add_explicit(&limits->clients[slot], 1, memory_order_relaxed) < max)
        return slot;
    gw_limits_leave(limits, slot);
    return 0;
}

void gw_limits_leave(struct gw_limits *limits, uint16_t slot)
{
    if (slot != 0)
        atomic_fetch_sub_explicit(&limits->clients[slot], 1, memory_order_relaxed);
}

static uint32_t get(const _Atomic uint32_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* One writer: no locked instruction needed. */
static void add(_Atomic uint32_t *counter, uint32_t n)
{
    atomic_store_explicit(counter, get(counter) + n, memory_order_relaxed);
}

/* Does the sandbox have max already? own: this worker's part. */
static bool is_full(const struct gw_gateway *gw, uint16_t slot, bool tunnels, uint32_t own,
                    uint32_t max)
{
    uint64_t sum = 0;

    if (own < max / (8 * gw->n_workers))
        return false; /* the others' counters are only read by who has some itself */
    for (unsigned i = 0; i < gw->n_workers; i++) {
        const struct gw_use *u = &gw->workers[i].use[slot];

        sum += get(tunnels ? &u->tunnels : &u->requests);
    }
    return sum >= max;
}

enum gw_use_verdict gw_use_begin(struct gw_worker *w, const char *label, bool tunnel,
                                 uint16_t *slot)
{
    struct gw_use *u;
    uint64_t a, b;
    uint16_t s;

    memcpy(&a, label, 8);
    memcpy(&b, label + 8, 8);
    s = slot_of(w->gw->limits.seed, a, b, GW_SANDBOX_SLOTS);
    u = &w->use[s];
    if (is_full(w->gw, s, false, get(&u->requests), w->opt->max_requests_per_sandbox))
        return GW_USE_REQUESTS;
    if (tunnel && is_full(w->gw, s, true, get(&u->tunnels), w->opt->max_tunnels_per_sandbox))
        return GW_USE_TUNNELS;
    add(&u->requests, 1);
    *slot = s;
    return GW_USE_OK;
}

void gw_use_end(struct gw_worker *w, uint16_t slot)
{
    if (slot != 0)
        add(&w->use[slot].requests, (uint32_t)-1);
}

void gw_use_becomes_tunnel(struct gw_worker *w, uint16_t slot)
{
    if (slot == 0)
        return;
    gw_use_end(w, slot);
    add(&w->use[slot].tunnels, 1);
}

void gw_use_tunnel_end(struct gw_worker *w, uint16_t slot)
{
    if (slot != 0)
        add(&w->use[slot].tunnels, (uint32_t)-1);
}
