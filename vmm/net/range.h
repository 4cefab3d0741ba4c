/* SPDX-License-Identifier: MIT */
/* Addresses of one node: the two ends of the veth pair and a pool for machines. Pure. */
#ifndef VMM_RANGE_H
#define VMM_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define RANGE_TEXT 20 /* "255.255.255.255/32" */

/* Addresses in host byte order. */
struct range {
    uint32_t base, mask;
    unsigned prefix;
    uint32_t host, ns;    /* ends of the veth pair: first and second address */
    uint32_t first, last; /* pool for machines */
    uint32_t cursor;      /* next one to try: an address is reused as late as possible */
};

/* Parse "100.64.0.0/10" (/8 to /28, no bits beyond the prefix, not 0/8, 127/8, 169.254/16 or
 * multicast). Returns 0, or UV_EINVAL with a reason. */
TR_MUST_CHECK int range_parse(const char *text, struct range *out, struct err *err);

/* Dotted text into buf (RANGE_TEXT bytes); returns buf. */
const char *range_text(uint32_t address, char *buf);
/* Parse one address. Returns 0 or UV_EINVAL. */
TR_MUST_CHECK int range_address(const char *text, uint32_t *out);

bool range_in_pool(const struct range *range, uint32_t address);
bool range_overlaps(const struct range *range, uint32_t base, unsigned prefix);

/* Take the next address for which used() says no. Returns 0 or UV_ENOSPC. */
TR_MUST_CHECK int range_take(struct range *range, bool (*used)(uint32_t address, void *arg),
                             void *arg, uint32_t *out);

#endif
