/* SPDX-License-Identifier: MIT */
#include "vmm/agent/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

int agent_ring_init(struct agent_ring *r, size_t size)
{
    r->bytes = calloc(1, size); /* large: pages cost nothing until they are written */
    r->size = size;
    r->end = 0;
    return r->bytes != NULL ? 0 : UV_ENOMEM;
}

void agent_ring_fini(struct agent_ring *r)
{
    free(r->bytes);
    r->bytes = NULL;
}

void agent_ring_write(struct agent_ring *r, const void *data, size_t len)
{
    const uint8_t *from = data;

    if (len > r->size) {
        r->end += len - r->size;
        from += len - r->size;
        len = r->size;
    }
    while (len > 0) {
        size_t at = r->end % r->size, room = r->size - at, n = len < room ? len : room;

        memcpy(r->bytes + at, from, n);
        r->end += n;
        from += n;
        len -= n;
    }
}

uint64_t agent_ring_begin(const struct agent_ring *r)
{
    return r->end > r->size ? r->end - r->size : 0;
}

size_t agent_ring_peek(const struct agent_ring *r, uint64_t at, const uint8_t **data)
{
    size_t place = at % r->size, piece = r->size - place;

    assert(at >= agent_ring_begin(r) && at <= r->end);
    *data = r->bytes + place;
    return r->end - at < piece ? (size_t)(r->end - at) : piece;
}

void agent_ring_copy(const struct agent_ring *r, uint64_t from, uint64_t to, uint8_t *out)
{
    const uint8_t *piece;

    assert(from <= to && to <= r->end);
    while (from < to) {
        size_t n = agent_ring_peek(r, from, &piece);

        if (n > to - from)
            n = (size_t)(to - from);
        memcpy(out, piece, n);
        out += n;
        from += n;
    }
}
