/* SPDX-License-Identifier: MIT */
/* A token bucket: so many requests a second on average, so many at once after a pause. */
#ifndef VMM_RATE_H
#define VMM_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed memory is a full bucket. */
struct vmm_rate {
    bool used;       /* once; else the rest counts for nothing */
    uint64_t at_ms;  /* when budget was right */
    uint64_t budget; /* thousandths of a request */
};

/* Take one. per_s and burst are 1 at least. now_ms: of a clock that does not go back. Returns 0, or
 * the milliseconds until there will be one; nothing is taken then. */
uint64_t vmm_rate_take(struct vmm_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_ms);

#endif
