/* SPDX-License-Identifier: MIT */
/* Path rules against a simple reference: write the path in its normal form first, then compare
 * strings. Input: prefixes, one a line, an empty line, the target. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/path_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define UNRESERVED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

/* RFC 3986 section 6.2.2: unreserved characters decoded, other escapes in capitals. */
static char *normal(const char *p, size_t len)
{
    char *out = calloc(1, len + 1), *q = out;

    assert(out != NULL);
    for (size_t i = 0; i < len; i++) {
        char hex[3] = "";
        unsigned c;

        if (p[i] == '%' && i + 2 < len)
            memcpy(hex, p + i + 1, 2);
        if (strspn(hex, "0123456789abcdefABCDEF") != 2) {
            *q++ = p[i] == '%' ? '\x01' : p[i]; /* never to be taken for an escape later */
            continue;
        }
        c = (unsigned)strtoul(hex, NULL, 16);
        if (c != 0 && strchr(UNRESERVED, (int)c) != NULL)
            *q++ = (char)c;
        else
            q += sprintf(q, "%%%02X", c);
        i += 2;
    }
    return out;
}

/* Would anybody leave the path that is written? */
static bool has_dots(const char *path)
{
    char *text = strdup(path), *from, *to, *segment;
    bool found = strchr(path, '\\') != NULL;

    assert(text != NULL);
    for (from = to = text; *from != '\0'; to++) {
        if (strncmp(from, "%2F", 3) == 0 || strncmp(from, "%5C", 3) == 0) {
            *to = '/';
            from += 3;
        } else if (strncmp(from, "%3B", 3) == 0) {
            *to = ';';
            from += 3;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    for (segment = text; segment != NULL;) {
        char *next = strchr(segment, '/');
        size_t n = next != NULL ? (size_t)(next - segment) : strlen(segment);
        size_t name = strcspn(segment, ";");

        if (name > n)
            name = n;
        found |= (name == 1 && *segment == '.') || (name == 2 && memcmp(segment, "..", 2) == 0);
        segment = next != NULL ? next + 1 : NULL;
    }
    free(text);
    return found;
}

static void check(const struct tr_route_rule *rules, size_t n, const char *target, size_t len)
{
    const char *question = memchr(target, '?', len);
    size_t path_len = question != NULL ? (size_t)(question - target) : len;
    char *path = normal(target, path_len);
    const struct tr_route_rule *expect = NULL, *rule = NULL;
    enum gw_path_verdict verdict = gw_path_match(rules, n, (struct gw_str){target, len}, &rule);

    for (size_t i = 0; i < n; i++) {
        size_t k = rules[i].prefix_len;

        if (strncmp(path, rules[i].prefix, k) == 0 && (path[k] == '\0' || path[k] == '/') &&
            (expect == NULL || k > expect->prefix_len))
            expect = &rules[i];
    }
    if (n == 0) {
        assert(verdict == GW_PATH_NONE);
    } else if (has_dots(path)) {
        assert(verdict == GW_PATH_BAD);
    } else if (expect == NULL) {
        assert(verdict == GW_PATH_NONE);
    } else {
        bool slash;
        struct gw_str rest;
        char *stripped, *begin;

        assert(verdict == GW_PATH_RULE && rule == expect);
        rest = gw_path_strip(rule, (struct gw_str){target, len}, &slash);
        assert(rest.p + rest.len == target + len); /* what is left is the end, as it was */
        assert(slash ? rest.len == 0 || rest.p[0] == '?' : rest.p[0] == '/');
        assert(slash || rest.len < 2 || rest.p[1] != '/');
        stripped = normal(rest.p, rest.len - (len - path_len));
        begin = path + rule->prefix_len;
        while (begin[0] == '/' && begin[1] == '/')
            begin++;
        assert(strcmp(stripped, begin) == 0);
        free(stripped);
    }
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_route_rule rules[TR_ROUTE_RULES_MAX];
    char *text = malloc(size + 1), *p = text, *end;
    size_t n = 0;

    assert(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    end = text + size;
    while (p < end && *p != '\n' && n < TR_ROUTE_RULES_MAX) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = stop != NULL ? (size_t)(stop - p) : (size_t)(end - p);
        bool known = !tr_route_prefix_valid(p, len, NULL);

        for (size_t i = 0; i < n; i++)
            known |= rules[i].prefix_len == len && memcmp(rules[i].prefix, p, len) == 0;
        if (!known) {
            rules[n] = (struct tr_route_rule){
                .prefix = p, .prefix_len = (uint16_t)len, .port = (uint16_t)(1 + n), .strip = true};
            n++;
        }
        p = stop != NULL ? stop + 1 : end;
    }
    if (p < end && *p == '\n')
        p++;
    /* As targets come from the head parser. */
    if (memchr(p, '\0', (size_t)(end - p)) == NULL && (p == end || *p == '/' || *p == '*'))
        check(rules, n, p, (size_t)(end - p));
    free(text);
    return 0;
}
