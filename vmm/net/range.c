/* SPDX-License-Identifier: MIT */
#include "vmm/net/range.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

int range_address(const char *text, uint32_t *out)
{
    struct in_addr in;

    if (inet_pton(AF_INET, text, &in) != 1)
        return UV_EINVAL;
    *out = ntohl(in.s_addr);
    return 0;
}

const char *range_text(uint32_t address, char *buf)
{
    (void)snprintf(buf, RANGE_TEXT, "%u.%u.%u.%u", address >> 24, address >> 16 & 255,
                   address >> 8 & 255, address & 255);
    return buf;
}

static uint32_t mask_of(unsigned prefix)
{
    return prefix == 0 ? 0 : 0xffffffffU << (32 - prefix);
}

/* Networks that cannot be routed as ours. */
static bool is_special(uint32_t base)
{
    unsigned a = base >> 24;

    return a == 0 || a == 127 || a >= 224 || base >> 16 == 0xa9fe;
}

int range_parse(const char *text, struct range *out, struct err *err)
{
    const char *slash = strchr(text, '/');
    char address[RANGE_TEXT];
    char *end;
    unsigned long prefix;

    memset(out, 0, sizeof(*out));
    if (slash == NULL || (size_t)(slash - text) >= sizeof(address) || slash[1] < '0' ||
        slash[1] > '9')
        return tr_err_set(err, UV_EINVAL, "net.range: \"%.60s\" is not of the form 100.64.0.0/10",
                          text);
    (void)snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
    prefix = strtoul(slash + 1, &end, 10);
    if (*end != '\0' || range_address(address, &out->base) != 0)
        return tr_err_set(err, UV_EINVAL, "net.range: \"%.60s\" is not of the form 100.64.0.0/10",
                          text);
    if (prefix < 8 || prefix > 28)
        return tr_err_set(err, UV_EINVAL, "net.range: %s: from /8 to /28 is possible", text);
    out->prefix = (unsigned)prefix;
    out->mask = mask_of(out->prefix);
    if ((out->base & ~out->mask) != 0)
        return tr_err_set(err, UV_EINVAL, "net.range: %s: address has bits beyond /%lu", text,
                          prefix);
    if (is_special(out->base))
        return tr_err_set(err, UV_EINVAL, "net.range: %s is reserved for other uses", text);
    out->host = out->base + 1;
    out->ns = out->base + 2;
    out->first = out->base + 4; /* the first four are the veth pair's /30 */
    out->last = (out->base | ~out->mask) - 1;
    out->cursor = out->first;
    return 0;
}

bool range_in_pool(const struct range *r, uint32_t address)
{
    return address >= r->first && address <= r->last;
}

bool range_overlaps(const struct range *r, uint32_t base, unsigned prefix)
{
    uint32_t mask = prefix < r->prefix ? mask_of(prefix) : r->mask;

    return (base & mask) == (r->base & mask);
}

int range_take(struct range *r, bool (*used)(uint32_t address, void *arg), void *arg, uint32_t *out)
{
    uint32_t start = r->cursor, a = start;

    do {
        r->cursor = a == r->last ? r->first : a + 1;
        if (!used(a, arg)) {
            *out = a;
            return 0;
        }
        a = r->cursor;
    } while (a != start);
    return UV_ENOSPC;
}
