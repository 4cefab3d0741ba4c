/* SPDX-License-Identifier: MIT */
/* A process of ours that works on what others made gives up its rights first: from then on it
 * reaches the files below one folder, and nothing else. */
#ifndef VMM_CONFINE_H
#define VMM_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include "transom/err.h"

struct vmm_confine {
    const char *dir; /* files below it alone can be opened, by name */
    uint64_t memory; /* bytes of address space */
    uint64_t cpu_s;
};

/* Not of a process that has threads. What is open stays open. A kernel without Landlock is no
 * fault: the other bounds remain. */
TR_MUST_CHECK int vmm_confine(const struct vmm_confine *confine, struct err *err);

#endif
