/* SPDX-License-Identifier: MIT */
#include "vmm/agent/marker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 18

void agent_marker_init(struct agent_marker *m, const char *nonce)
{
    memset(m, 0, sizeof(*m));
    m->prefix_len = (size_t)snprintf(m->prefix, sizeof(m->prefix), "\033_transom;%.*s;",
                                     AGENT_NONCE_LEN, nonce);
}

enum verdict { NO, MAYBE, YES };

/* Is text a mark, or the beginning of one? YES: *len is its length. */
static enum verdict judge(const struct agent_marker *m, const uint8_t *text, size_t *len)
{
    size_t n = *len, i = m->prefix_len, digits = 0;

    if (memcmp(text, m->prefix, n < i ? n : i) != 0)
        return NO;
    if (n <= i)
        return MAYBE;
    if (text[i] != 'S' && text[i] != 'E')
        return NO;
    for (i++; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        digits++;
    if (digits > MAX_DIGITS)
        return NO;
    if (i == n)
        return MAYBE;
    if (digits == 0 || text[i] != '\033')
        return NO;
    if (i + 1 == n)
        return MAYBE;
    *len = i + 2;
    return text[i + 1] == '\\' ? YES : NO;
}

static void report(const struct agent_marker *m, const uint8_t *text,
                   const struct agent_marker_cbs *cbs, void *arg)
{
    /* The escape character behind the digits ends the number. */
    cbs->on_mark((char)text[m->prefix_len],
                 strtoull((const char *)text + m->prefix_len + 1, NULL, 10), arg);
}

/* Finish what was held with the new bytes. Returns how many of them were used. */
static size_t continue_held(struct agent_marker *m, const uint8_t *data, size_t len,
                            const struct agent_marker_cbs *cbs, void *arg)
{
    for (size_t used = 0; used < len; used++) {
        size_t n;

        m->held[m->n_held++] = data[used];
        n = m->n_held;
        switch (judge(m, m->held, &n)) {
        case YES:
            report(m, m->held, cbs, arg);
            m->n_held = 0;
            return used + 1;
        case NO:
            /* The byte that ended it is looked at again, and so is an escape character before it:
             * a mark holds one only at its beginning and before its end. */
            n = m->n_held - 1;
            m->n_held = 0;
            if (n > 1 && m->held[n - 1] == '\033') {
                cbs->on_bytes(m->held, n - 1, arg);
                m->held[0] = '\033';
                m->n_held = 1;
            } else {
                cbs->on_bytes(m->held, n, arg);
            }
            return used;
        case MAYBE:
            break;
        }
    }
    return len;
}

void agent_marker_feed(struct agent_marker *m, const uint8_t *data, size_t len,
                       const struct agent_marker_cbs *cbs, void *arg)
{
    size_t plain = 0; /* bytes before at that are no mark */

    while (m->n_held > 0 && len > 0) {
        size_t used = continue_held(m, data, len, cbs, arg);

        data += used;
        len -= used;
    }
    while (plain < len) {
        const uint8_t *esc = memchr(data + plain, '\033', len - plain);
        size_t n;

        if (esc == NULL)
            break;
        plain = (size_t)(esc - data);
        n = len - plain;
        switch (judge(m, esc, &n)) {
        case NO:
            plain++;
            break;
        case MAYBE:
            if (plain > 0)
                cbs->on_bytes(data, plain, arg);
            memcpy(m->held, esc, n); /* shorter than a mark */
            m->n_held = n;
            return;
        case YES:
            if (plain > 0)
                cbs->on_bytes(data, plain, arg);
            report(m, esc, cbs, arg);
            data = esc + n;
            len -= plain + n;
            plain = 0;
            break;
        }
    }
    if (len > 0)
        cbs->on_bytes(data, len, arg);
}

bool agent_marker_holds(const struct agent_marker *m)
{
    return m->n_held > 0;
}

void agent_marker_flush(struct agent_marker *m, const struct agent_marker_cbs *cbs, void *arg)
{
    size_t n = m->n_held;

    m->n_held = 0;
    if (n > 0)
        cbs->on_bytes(m->held, n, arg);
}
