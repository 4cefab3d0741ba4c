/* SPDX-License-Identifier: MIT */
/* What the manager counts, for /metrics. */
#ifndef VMM_FIGURES_H
#define VMM_FIGURES_H

#include <stdint.h>

#define VMM_START_TIMES 10

enum vmm_start_how { VMM_START_COLD, VMM_START_TEMPLATE, VMM_START_HOWS };

/* Upper bounds of the buckets of start times, in ms. */
extern const unsigned vmm_start_ms[VMM_START_TIMES];

struct vmm_figures {
    int64_t began_s;       /* Unix time of the manager's start */
    uint64_t requests;     /* of the API, begun */
    uint64_t responses[6]; /* by class of status; [0]: none */
    uint64_t limited;      /* answered 429 for their key's rate */
    uint64_t replayed;     /* creations answered with an earlier answer */
    uint64_t starts[VMM_START_HOWS][VMM_START_TIMES + 1];
    uint64_t starts_ms[VMM_START_HOWS];
    uint64_t failed;     /* sandboxes that became so */
    uint64_t redis_lost; /* connections to it */
};

/* A machine is up, ms after its start was asked for. */
void vmm_figures_started(struct vmm_figures *figures, enum vmm_start_how how, uint64_t ms);

#endif
