/* SPDX-License-Identifier: MIT */
/* Input for the sync targets: with the first byte's top bit the rest is messages, which are put
 * into plain blocks here, so that not every change breaks the framing; else it is the wire. */
#ifndef TESTS_FUZZ_SYNC_BLOCKS_H
#define TESTS_FUZZ_SYNC_BLOCKS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "sync/wire.h"

/* Heap bytes of exactly *len. */
static inline uint8_t *sync_blocks(const uint8_t *data, size_t size, size_t *len)
{
    bool wrap = (data[0] & 0x80) != 0;
    uint8_t *out = malloc(size + 16 + size / 1024 * 8);
    size_t at = 0;

    if (out == NULL)
        abort();
    if (!wrap) {
        memcpy(out, data + 1, size - 1);
        *len = size - 1;
        return out;
    }
    out[at++] = SYNC_WIRE_VERSION;
    for (size_t i = 1; i < size;) {
        size_t n = size - i < 2000 ? size - i : 2000;

        for (int k = 0; k < 8; k++)
            out[at++] = (uint8_t)(n >> (8 * (k % 4)));
        memcpy(out + at, data + i, n);
        at += n;
        i += n;
    }
    *len = at;
    return out;
}

#endif
