/* SPDX-License-Identifier: MIT */
/* A PROXY header: within its bounds, found the same whatever follows it, and never in its own
 * beginning. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/proxy_protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union gw_peer source, again;
    const char *why = NULL;
    uint8_t *exact;
    int r = gw_proxy_parse(data, size, &source, &why), s;

    assert(r <= (int)size && (r >= 0 || why != NULL));
    assert(r <= (int)GW_PROXY_HEADER_MAX);
    if (r == 0)
        assert(size < GW_PROXY_HEADER_MAX);
    if (r <= 0)
        return 0;
    exact = malloc((size_t)r);
    if (exact == NULL)
        return 0;
    memcpy(exact, data, (size_t)r);
    s = gw_proxy_parse(exact, (size_t)r, &again, &why);
    assert(s == r);
    /* Both were zeroed before. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    assert(memcmp(&source, &again, sizeof(source)) == 0);
    s = gw_proxy_parse(exact, (size_t)r - 1, &again, &why);
    assert(s == 0);
    free(exact);
    return 0;
}
