/* SPDX-License-Identifier: MIT */
#include "vmm/agent/base64.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *agent_base64_encode(const void *data, size_t len)
{
    const uint8_t *in = data;
    char *out = malloc((len + 2) / 3 * 4 + 1), *p = out;

    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16;

        if (i + 1 < len)
            v |= (uint32_t)in[i + 1] << 8;
        if (i + 2 < len)
            v |= in[i + 2];
        *p++ = alphabet[v >> 18];
        *p++ = alphabet[v >> 12 & 63];
        *p++ = alphabet[v >> 6 & 63];
        *p++ = alphabet[v & 63];
        if (i + 2 >= len)
            p[-1] = '=';
        if (i + 1 >= len)
            p[-2] = '=';
    }
    *p = '\0';
    return out;
}

int agent_base64_decode(const char *text, uint8_t **out, size_t *len)
{
    size_t text_len = strlen(text), n = 0, pad = 0;
    uint8_t *bytes;

    if (text_len % 4 != 0)
        return UV_EINVAL;
    while (pad < 2 && text_len > pad && text[text_len - 1 - pad] == '=')
        pad++;
    bytes = malloc(text_len / 4 * 3 + 1);
    if (bytes == NULL)
        return UV_ENOMEM;
    for (size_t i = 0; i < text_len; i += 4) {
        uint32_t v = 0;

        for (size_t k = i; k < i + 4; k++) {
            const char *at = k >= text_len - pad ? alphabet : strchr(alphabet, text[k]);

            if (at == NULL || (text[k] == '=' && k < text_len - pad)) {
                free(bytes);
                return UV_EINVAL;
            }
            v = v << 6 | (uint32_t)(at - alphabet);
        }
        bytes[n++] = (uint8_t)(v >> 16);
        bytes[n++] = (uint8_t)(v >> 8);
        bytes[n++] = (uint8_t)v;
    }
    n -= pad;
    bytes[n] = '\0';
    *out = bytes;
    *len = n;
    return 0;
}
