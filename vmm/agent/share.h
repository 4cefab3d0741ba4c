/* SPDX-License-Identifier: MIT */
/* How much each of many may take at its turn of the loop, so that whoever takes little waits for a
 * bounded time: a sum is divided among those that took something lately. */
#ifndef VMM_AGENT_SHARE_H
#define VMM_AGENT_SHARE_H

#include <stdint.h>

struct agent_share {
    unsigned sum;         /* pieces; set by the owner */
    uint64_t at;          /* the latest tick in which somebody took */
    unsigned n, n_before; /* how many did then, and in the tick before */
};

/* At now (any number that changes at least once in a while, never 0), how many pieces may one take?
 * At least 1. mine: 0 at first, then kept by that one. */
unsigned agent_share_take(struct agent_share *s, uint64_t *mine, uint64_t now);

#endif
