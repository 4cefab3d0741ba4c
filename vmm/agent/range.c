/* SPDX-License-Identifier: MIT */
#include "vmm/agent/range.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

/* Digits at *p, moved behind them. False: none, or more than fits. */
static bool number(const char **p, int64_t *out)
{
    int64_t v = 0;

    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        int digit = **p - '0';

        if (v > (INT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

enum agent_range agent_range_parse(const char *text, int64_t size, int64_t *first, int64_t *last)
{
    int64_t from, to = INT64_MAX;

    if (text == NULL || strncasecmp(text, "bytes=", 6) != 0)
        return AGENT_RANGE_ALL;
    text += 6;
    if (*text == '-') { /* the last so many */
        text++;
        if (!number(&text, &to) || *text != '\0')
            return AGENT_RANGE_ALL;
        if (to == 0 || size == 0)
            return AGENT_RANGE_NOT;
        *first = to < size ? size - to : 0;
        *last = size - 1;
        return AGENT_RANGE_PART;
    }
    if (!number(&text, &from) || *text++ != '-')
        return AGENT_RANGE_ALL;
    if (*text != '\0' && (!number(&text, &to) || *text != '\0' || to < from))
        return AGENT_RANGE_ALL;
    if (from >= size)
        return AGENT_RANGE_NOT;
    *first = from;
    *last = to < size ? to : size - 1;
    return AGENT_RANGE_PART;
}

int agent_part_parse(const char *text, struct agent_part *out)
{
    struct agent_part part = {-1, -1, -1};

    if (strncasecmp(text, "bytes ", 6) != 0)
        return UV_EINVAL;
    text += 6;
    if (*text == '*')
        text++;
    else if (!number(&text, &part.first) || *text++ != '-' || !number(&text, &part.last) ||
             part.last < part.first)
        return UV_EINVAL;
    if (*text++ != '/')
        return UV_EINVAL;
    if (part.first >= 0 && *text == '*')
        text++;
    else if (!number(&text, &part.total) || part.last >= part.total)
        return UV_EINVAL;
    if (*text != '\0')
        return UV_EINVAL;
    *out = part;
    return 0;
}
