/* SPDX-License-Identifier: MIT */
#include "vmm/agent/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WINDOW_NAME 128

/* How many bytes at text belong to one sequence, as far as they go: *whole says whether it is
 * complete. An ill-formed start counts 1. (Unicode's "maximal subpart".) */
static size_t scan(const uint8_t *text, size_t len, bool *whole)
{
    uint8_t lead = text[0], low = 0x80, high = 0xbf;
    size_t need, i;

    *whole = lead < 0x80;
    if (lead < 0xc2 || lead > 0xf4)
        return 1;
    need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f; /* surrogates */
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    for (i = 1; i < need; i++) {
        if (i == len || text[i] < low || text[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *whole = true;
    return need;
}

size_t agent_utf8_sequence(const char *text, size_t len)
{
    bool whole;
    size_t n = len > 0 ? scan((const uint8_t *)text, len, &whole) : 0;

    return n > 0 && whole ? n : 0;
}

bool agent_utf8_valid(const char *text, size_t len)
{
    while (len > 0) {
        size_t n = agent_utf8_sequence(text, len);

        if (n == 0)
            return false;
        text += n;
        len -= n;
    }
    return true;
}

char *agent_utf8_repair(const char *text, size_t len, size_t *out_len)
{
    char *out = malloc(len * 3 + 1); /* each bad byte may become three */
    size_t n = 0;

    if (out == NULL)
        return NULL;
    while (len > 0) {
        bool whole;
        size_t part = scan((const uint8_t *)text, len, &whole);

        memcpy(out + n, whole ? text : "\xef\xbf\xbd", whole ? part : 3);
        n += whole ? part : 3;
        text += part;
        len -= part;
    }
    out[n] = '\0';
    if (out_len != NULL)
        *out_len = n;
    return out;
}

bool agent_window_name_ok(const char *name, size_t len)
{
    if (len == 0 || len > MAX_WINDOW_NAME || !agent_utf8_valid(name, len))
        return false;
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)name[i];

        if (c < 0x20 || c == 0x7f || (c == 0xc2 && (uint8_t)name[i + 1] < 0xa0))
            return false;
    }
    return true;
}
