/* SPDX-License-Identifier: MIT */
/* A map from text to pointer. Keys are copied; values are borrowed. */
#ifndef VMM_TABLE_H
#define VMM_TABLE_H

#include <stddef.h>
#include "transom/err.h"

struct vmm_table_entry;

/* Zeroed memory is an empty table. */
struct vmm_table {
    struct vmm_table_entry **slots;
    size_t n_slots, n_entries;
};

void vmm_table_fini(struct vmm_table *t);
/* Add or replace. Returns 0 or -ENOMEM. */
TR_MUST_CHECK int vmm_table_set(struct vmm_table *t, const char *key, void *value);
void *vmm_table_get(const struct vmm_table *t, const char *key);
/* Returns the value that was removed, or NULL. */
void *vmm_table_take(struct vmm_table *t, const char *key);

#endif
