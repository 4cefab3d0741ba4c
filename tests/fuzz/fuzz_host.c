/* SPDX-License-Identifier: MIT */
/* The Host field: a label comes out only when the value names it, whatever stands around. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gateway/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preview[] = "preview.test";
    char *value = malloc(size + 1);
    struct gw_host host;

    if (value == NULL)
        return 0;
    memcpy(value, data, size);
    gw_host_parse((struct gw_str){value, size}, "test", preview, &host);
    if (host.kind == GW_HOST_PREVIEW) {
        assert(tr_label_valid(host.label, TR_LABEL_LEN));
        char name[80];
        int n = host.port != 0
                    ? snprintf(name, sizeof(name), "%u-%s.%s", host.port, host.label, preview)
                    : snprintf(name, sizeof(name), "%s.%s", host.label, preview);

        assert(size >= (size_t)n && strncasecmp(value, name, (size_t)n) == 0);
    }
    if (host.kind == GW_HOST_API)
        assert(size >= 8 && strncasecmp(value, "api.test", 8) == 0);
    if (host.kind != GW_HOST_INVALID)
        for (size_t i = 0; i < size; i++)
            assert(value[i] > ' ' && value[i] != '/' && value[i] != '@');
    free(value);
    return 0;
}
