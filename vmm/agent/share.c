/* SPDX-License-Identifier: MIT */
#include "vmm/agent/share.h"

unsigned agent_share_take(struct agent_share *s, uint64_t *mine, uint64_t now)
{
    unsigned n;

    if (s->at != now) {
        s->at = now;
        s->n_before = s->n;
        s->n = 0;
    }
    if (*mine != now) {
        *mine = now;
        s->n++;
    }
    n = s->n > s->n_before ? s->n : s->n_before;
    return n < s->sum ? s->sum / n : 1;
}
