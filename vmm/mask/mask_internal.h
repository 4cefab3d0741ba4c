/* SPDX-License-Identifier: MIT */
#ifndef VMM_MASK_MASK_INTERNAL_H
#define VMM_MASK_MASK_INTERNAL_H

#include <stdatomic.h>
#include "vmm/mask/automaton.h"

struct tr_mask {
    atomic_uint n_refs;
    struct mask_automaton exact;   /* over every byte */
    struct mask_automaton wrapped; /* over every byte but line breaks */
};

#endif
