/* SPDX-License-Identifier: MIT */
/* Host = uri-host [ ":" port ]. Names are compared without case, without the port and without the
 * dot that makes them absolute. */
#include "gateway/host.h"

#include <string.h>

#define NAME_MAX_LEN 253

static bool is_alnum(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* unreserved / sub-delims / the start of an escape (RFC 3986 section 3.2.2) */
static bool is_name_char(unsigned char c)
{
    return is_alnum(c) || (c != '\0' && strchr("-._~!$&'()*+,;=%", c) != NULL);
}

static bool is_literal_char(unsigned char c)
{
    return is_alnum(c) || (c != '\0' && strchr(":.%-_~", c) != NULL);
}

/* ":" digits, up to 65535; the port may be empty. */
static bool valid_port(const char *p, const char *end)
{
    unsigned long port = 0;

    if (p == end)
        return true;
    if (*p != ':' || end - p > 6)
        return false;
    for (p++; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        port = port * 10 + (unsigned long)(*p - '0');
    }
    return port <= 65535;
}

/* Where the host ends; NULL when it is malformed. */
static const char *end_of_host(const char *p, const char *end)
{
    if (p < end && *p == '[') {
        for (p++; p < end && *p != ']'; p++)
            if (!is_literal_char((unsigned char)*p))
                return NULL;
        return p < end ? p + 1 : NULL;
    }
    while (p < end && is_name_char((unsigned char)*p))
        p++;
    return p;
}

/* Does name end in "." suffix? The rest's length, else 0. */
static size_t below(const char *name, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);

    if (len <= n + 1 || name[len - n - 1] != '.' || memcmp(name + len - n, suffix, n) != 0)
        return 0;
    return len - n - 1;
}

/* "LABEL" or "PORT-LABEL". */
static bool parse_label(const char *name, size_t len, struct gw_host *out)
{
    unsigned port = 0;
    size_t n = 0;

    if (len > TR_LABEL_LEN) {
        while (n < 5 && name[n] >= '0' && name[n] <= '9')
            port = port * 10 + (unsigned)(name[n++] - '0');
        if (n == 0 || name[0] == '0' || port > UINT16_MAX || name[n] != '-')
            return false;
        n++;
    }
    if (!tr_label_valid(name + n, len - n))
        return false;
    memcpy(out->label, name + n, TR_LABEL_LEN);
    out->label[TR_LABEL_LEN] = '\0';
    out->port = (uint16_t)port;
    return true;
}

void gw_host_parse(struct gw_str value, const char *domain, const char *preview_domain,
                   struct gw_host *out)
{
    const char *end = value.p + value.len, *stop;
    char name[NAME_MAX_LEN + 2];
    size_t len, rest;

    out->kind = GW_HOST_INVALID;
    out->label[0] = '\0';
    out->port = 0;
    if (value.len == 0) {
        out->kind = GW_HOST_OTHER;
        return;
    }
    stop = end_of_host(value.p, end);
    if (stop == NULL || !valid_port(stop, end))
        return;
    out->kind = GW_HOST_OTHER;
    len = (size_t)(stop - value.p);
    if (len == 0 || len > NAME_MAX_LEN + 1 || *value.p == '[')
        return;
    for (size_t i = 0; i < len; i++) {
        char c = value.p[i];

        name[i] = c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
    }
    if (name[len - 1] == '.')
        len--;
    rest = below(name, len, preview_domain);
    if (rest > 0) {
        if (parse_label(name, rest, out))
            out->kind = GW_HOST_PREVIEW;
        return;
    }
    rest = below(name, len, domain);
    if (rest == 3 && memcmp(name, "api", 3) == 0)
        out->kind = GW_HOST_API;
    else if (rest == 5 && memcmp(name, "admin", 5) == 0)
        out->kind = GW_HOST_ADMIN;
}
