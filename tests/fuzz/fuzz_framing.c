/* SPDX-License-Identifier: MIT */
/* A Content-Security-Policy: never longer than it was, and nothing left to cut the second time. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/framing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *in = malloc(size + 1), *out = malloc(size + 1), *again = malloc(size + 1);
    size_t n;

    if (in != NULL && out != NULL && again != NULL) {
        memcpy(in, data, size);
        n = gw_framing_policy((struct gw_str){in, size}, out);
        assert(n <= size);
        assert(gw_framing_policy((struct gw_str){out, n}, again) == n);
        assert(memcmp(out, again, n) == 0);
    }
    free(in);
    free(out);
    free(again);
    return 0;
}
