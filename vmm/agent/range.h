/* SPDX-License-Identifier: MIT */
/* Byte ranges: Range of a request for a part (RFC 9110 section 14.2) and Content-Range of a part
 * that is sent (section 14.4; with PUT as in section 14.5). */
#ifndef VMM_AGENT_RANGE_H
#define VMM_AGENT_RANGE_H

#include <stdint.h>

#include "transom/err.h"

enum agent_range {
    AGENT_RANGE_ALL,  /* none, or one that is to be ignored: malformed, other units, several */
    AGENT_RANGE_PART, /* *first and *last are set: first <= last < size */
    AGENT_RANGE_NOT,  /* nothing of it exists: 416 */
};

/* text may be NULL. size >= 0: bytes of the whole. */
enum agent_range agent_range_parse(const char *text, int64_t size, int64_t *first, int64_t *last);

/* What a part that is sent says about itself. */
struct agent_part {
    int64_t first, last; /* -1 and -1: the unsatisfied form, which asks how far it got */
    int64_t total;       /* -1: not known yet, "*" */
};

/* Returns 0 or UV_EINVAL; first <= last < total holds for what is known. */
TR_MUST_CHECK int agent_part_parse(const char *text, struct agent_part *out);

#endif
