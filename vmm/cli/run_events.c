/* SPDX-License-Identifier: MIT */
#include "vmm/cli/run_events.h"

#include <stdlib.h>
#include <string.h>

static bool take_line(const char *text, size_t len, run_event_cb cb, void *arg)
{
    json_t *event = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    bool go_on = json_is_object(event) && cb(event, arg);

    json_decref(event);
    return go_on;
}

static bool keep(struct run_events *e, const uint8_t *data, size_t len)
{
    if (len > RUN_EVENT_MAX - e->len)
        return false;
    if (e->len + len > e->size) {
        e->size = (e->len + len) * 2;
        e->line = realloc(e->line, e->size);
        if (e->line == NULL)
            abort();
    }
    memcpy(e->line + e->len, data, len);
    e->len += len;
    return true;
}

bool run_events_feed(struct run_events *e, const uint8_t *data, size_t len, run_event_cb cb,
                     void *arg)
{
    while (len > 0) {
        const uint8_t *end = memchr(data, '\n', len);
        size_t n = end != NULL ? (size_t)(end - data) : len;
        bool ok = keep(e, data, n);

        if (!ok || end == NULL)
            return ok;
        n++;
        data += n;
        len -= n;
        n = e->len;
        e->len = 0;
        if (n > 0 && !take_line(e->line, n, cb, arg))
            return false;
    }
    return true;
}

void run_events_reset(struct run_events *e)
{
    free(e->line);
    *e = (struct run_events){0};
}

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

long run_base64_decode(char *text)
{
    size_t len = strlen(text), out = 0, pad = 0;

    if (len % 4 != 0)
        return -1;
    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    for (size_t i = 0; i < len; i += 4) {
        size_t n = i + 4 == len ? 4 - pad : 4; /* digits of this group */
        uint32_t bits = 0;

        for (size_t k = 0; k < 4; k++) {
            int value = k < n ? digit(text[i + k]) : 0;

            if (value < 0)
                return -1;
            bits = bits << 6 | (uint32_t)value;
        }
        for (size_t k = 0; k + 1 < n; k++)
            text[out++] = (char)(bits >> (16 - 8 * k));
    }
    return (long)out;
}
