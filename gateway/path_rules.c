/* SPDX-License-Identifier: MIT */
#include "gateway/path_rules.h"

#include "transom/hex.h"

static bool is_unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

/* The byte that p[0..2] encodes, or -1. */
static int encoded(const char *p, const char *end)
{
    int hi, lo;

    if (end - p < 3 || *p != '%')
        return -1;
    hi = tr_hex_digit(p[1]);
    lo = tr_hex_digit(p[2]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Where the path ends and the query begins. */
static const char *end_of_path(struct gw_str target)
{
    const char *p = target.p, *end = p + target.len;

    while (p < end && *p != '?')
        p++;
    return p;
}

/* A segment of one or two dots, or a backslash? Encoded slashes and backslashes end a segment here,
 * and so does ";": some servers decode or cut before they resolve. */
static bool is_ambiguous(const char *p, const char *end)
{
    unsigned n_dots = 0, n_other = 0;

    while (p < end) {
        int c = encoded(p, end);

        p += c >= 0 ? 3 : 1;
        if (c < 0) {
            c = (unsigned char)p[-1];
            if (c == '\\')
                return true;
        }
        if (c == '/' || c == '\\' || c == ';') {
            if (n_other == 0 && (n_dots == 1 || n_dots == 2))
                return true;
            n_dots = 0;
            n_other = c == ';'; /* what follows it is no segment of its own */
        } else if (c == '.') {
            n_dots++;
        } else {
            n_other++;
        }
    }
    return n_other == 0 && (n_dots == 1 || n_dots == 2);
}

/* How many bytes at p stand for the prefix; 0: it does not cover this path. */
static size_t covered(const struct tr_route_rule *rule, const char *p, const char *end)
{
    const char *start = p, *q = rule->prefix, *q_end = q + rule->prefix_len;

    while (q < q_end) {
        int c = encoded(p, end), d = encoded(q, q_end);

        if (c >= 0 && d >= 0) { /* a reserved one: equal whatever the digits' case */
            if (c != d)
                return 0;
            p += 3;
            q += 3;
        } else if (d < 0 && c >= 0 && is_unreserved(c) && c == *q) {
            p += 3;
            q++;
        } else if (d < 0 && p < end && *p == *q && *p != '%') {
            p++;
            q++;
        } else {
            return 0;
        }
    }
    return p == end || *p == '/' ? (size_t)(p - start) : 0;
}

enum gw_path_verdict gw_path_match(const struct tr_route_rule *rules, size_t n_rules,
                                   struct gw_str target, const struct tr_route_rule **rule)
{
    const char *end = end_of_path(target);

    if (n_rules == 0)
        return GW_PATH_NONE;
    if (is_ambiguous(target.p, end))
        return GW_PATH_BAD;
    *rule = NULL;
    for (size_t i = 0; i < n_rules; i++) {
        if (*rule != NULL && rules[i].prefix_len <= (*rule)->prefix_len)
            continue;
        if (covered(&rules[i], target.p, end) > 0)
            *rule = &rules[i];
    }
    return *rule != NULL ? GW_PATH_RULE : GW_PATH_NONE;
}

struct gw_str gw_path_strip(const struct tr_route_rule *rule, struct gw_str target, bool *slash)
{
    const char *end = end_of_path(target), *p = target.p + covered(rule, target.p, end);

    while (end - p > 1 && p[0] == '/' && p[1] == '/')
        p++;
    *slash = p == end; /* only the query is left, or nothing */
    return (struct gw_str){p, target.len - (size_t)(p - target.p)};
}
