/* SPDX-License-Identifier: MIT */
#include "vmm/rate.h"

#define ONE 1000

uint64_t vmm_rate_take(struct vmm_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_ms)
{
    uint64_t full = burst * ONE, passed = now_ms > rate->at_ms ? now_ms - rate->at_ms : 0;

    /* A millisecond brings per_s thousandths. A long pause fills it, and cannot overflow. */
    if (!rate->used || passed >= full / per_s + 1 || rate->budget + passed * per_s > full)
        rate->budget = full;
    else
        rate->budget += passed * per_s;
    rate->used = true;
    rate->at_ms = now_ms;
    if (rate->budget < ONE)
        return (ONE - rate->budget + per_s - 1) / per_s;
    rate->budget -= ONE;
    return 0;
}
