/* SPDX-License-Identifier: MIT */
/* A request to the manager's /metrics, also as it comes in pieces: what was judged stays so. */
#include <stdint.h>
#include <stdlib.h>
#include "vmm/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int status = vmm_metrics_judge((const char *)data, size);

    if (status != 0 && status != 200 && status != 400 && status != 404 && status != 405 &&
        status != 421)
        abort();
    for (size_t i = 0; i < size && i < 200; i++) {
        if (vmm_metrics_judge((const char *)data, i) == 200 && status != 200 && status != 400)
            abort(); /* only a NUL behind it makes it another */
    }
    return 0;
}
