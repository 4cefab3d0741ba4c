/* SPDX-License-Identifier: MIT */
/* Any bytes as the stream of an exec: fed whole and byte by byte, they give the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
    uint64_t hash, n;
};

static int on_frame(uint8_t type, const uint8_t *data, size_t len, void *arg)
{
    struct sum *sum = arg;

    if (len > 0 && type != FRAME_STDOUT && type != FRAME_STDERR && data[len] != '\0')
        abort();
    for (size_t i = 0; i < len; i++)
        sum->hash = (sum->hash ^ type ^ (uint64_t)data[i] << 8) * 1099511628211u;
    sum->n += len;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frames *whole = malloc(sizeof(*whole)), *single = malloc(sizeof(*single));
    struct sum a = {0}, b = {0};
    int ra, rb = 0;

    if (whole == NULL || single == NULL)
        abort();
    frames_init(whole);
    frames_init(single);
    ra = frames_feed(whole, data, size, on_frame, &a);
    for (size_t i = 0; rb == 0 && i < size; i++)
        rb = frames_feed(single, data + i, 1, on_frame, &b);
    if (ra != rb || a.hash != b.hash || a.n != b.n)
        abort();
    free(whole);
    free(single);
    return 0;
}
