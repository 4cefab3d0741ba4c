/* SPDX-License-Identifier: MIT */
/* The last bytes of an endless stream, addressed by their offset from its beginning. */
#ifndef VMM_AGENT_RING_H
#define VMM_AGENT_RING_H

#include <stddef.h>
#include <stdint.h>

#include "transom/err.h"

struct agent_ring {
    uint8_t *bytes;
    size_t size;
    uint64_t end; /* offset behind the newest byte */
};

TR_MUST_CHECK int agent_ring_init(struct agent_ring *r, size_t size);
void agent_ring_fini(struct agent_ring *r);

void agent_ring_write(struct agent_ring *r, const void *data, size_t len);
/* Offset of the oldest byte still kept. */
uint64_t agent_ring_begin(const struct agent_ring *r);
/* Bytes from offset at (which must be kept) that lie in one piece; 0 at the end. *data is valid
 * until the next write. */
size_t agent_ring_peek(const struct agent_ring *r, uint64_t at, const uint8_t **data);
/* Copy [from, to), which must be kept. */
void agent_ring_copy(const struct agent_ring *r, uint64_t from, uint64_t to, uint8_t *out);

#endif
