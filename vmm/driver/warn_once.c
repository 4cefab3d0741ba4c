/* SPDX-License-Identifier: MIT */
#include "vmm/driver/warn_once.h"

#include <stdint.h>

#define N_TEXTS 32

/* FNV-1a; digits are left out, so that a path with a machine's label or a pid counts as the same.
 */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325U;

    for (; *text != '\0' && *text != '/'; text++)
        if (*text < '0' || *text > '9')
            hash = (hash ^ (unsigned char)*text) * 0x100000001b3U;
    return hash;
}

bool warn_once(const char *text)
{
    static uint64_t said[N_TEXTS];
    static unsigned next;
    uint64_t hash = hash_of(text);
    unsigned i;

    for (i = 0; i < N_TEXTS; i++)
        if (said[i] == hash)
            return false;
    said[next++ % N_TEXTS] = hash;
    return true;
}
