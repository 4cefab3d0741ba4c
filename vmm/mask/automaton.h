/* SPDX-License-Identifier: MIT */
/* Finds all of many patterns in one pass over a text (Aho and Corasick, 1975). */
#ifndef VMM_MASK_AUTOMATON_H
#define VMM_MASK_AUTOMATON_H

#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define MASK_ROOT      0
#define MASK_NODES_MAX (1u << 20)

struct mask_node {
    uint32_t child, sibling; /* 0: none */
    uint32_t fail;           /* the longest other suffix that begins a pattern */
    uint32_t depth;          /* how many bytes of a pattern have been seen */
    uint32_t found;          /* length of the longest pattern that ends here; 0: none */
    uint8_t byte;
};

struct mask_automaton {
    struct mask_node *nodes;
    uint32_t n, cap;
    uint32_t first[256]; /* the root's children: most bytes of a text begin nothing */
};

void mask_automaton_init(struct mask_automaton *a);
/* Wipes the patterns. */
void mask_automaton_fini(struct mask_automaton *a);
/* Returns 0, UV_ENOMEM or UV_E2BIG. */
TR_MUST_CHECK int mask_automaton_add(struct mask_automaton *a, const uint8_t *text, size_t len);
/* After the last pattern, before the first step. */
TR_MUST_CHECK int mask_automaton_finish(struct mask_automaton *a);
/* The state after one more byte. */
uint32_t mask_automaton_step(const struct mask_automaton *a, uint32_t state, uint8_t byte);

#endif
