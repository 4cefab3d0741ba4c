/* SPDX-License-Identifier: MIT */
/* Path rules, opened ports and the access key of a route: checked, sorted and copied into one
 * block. */
#include "transom/route.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static const char *const protocol_names[] = {
    [TR_PROTOCOL_HTTP1] = "http1",
    [TR_PROTOCOL_H2C] = "h2c",
};
#define N_PROTOCOLS (sizeof(protocol_names) / sizeof(protocol_names[0]))

const char *tr_protocol_name(enum tr_protocol protocol)
{
    return (size_t)protocol < N_PROTOCOLS ? protocol_names[protocol] : "unknown";
}

int tr_protocol_parse(const char *name, enum tr_protocol *protocol)
{
    for (size_t i = 0; i < N_PROTOCOLS; i++) {
        if (strcmp(name, protocol_names[i]) == 0) {
            *protocol = (enum tr_protocol)i;
            return 0;
        }
    }
    return UV_EINVAL;
}

/* ---- prefixes ---- */

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static bool is_path_char(unsigned char c)
{
    return is_unreserved(c) || c == '/' || (c != '\0' && strchr("!$&'()*+,;=:@", c) != NULL);
}

static int hex_digit(unsigned char c) /* capital letters only */
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The two characters after a "%". NULL, or what is wrong with them. */
static const char *encoded_fault(const char *digits, size_t len)
{
    int hi, lo, c;

    hi = len >= 2 ? hex_digit((unsigned char)digits[0]) : -1;
    lo = len >= 2 ? hex_digit((unsigned char)digits[1]) : -1;
    if (hi < 0 || lo < 0)
        return "a \"%\" is not followed by two hexadecimal digits, in capital letters";
    c = hi * 16 + lo;
    if (c == '/' || c == '\\' || c < 0x20 || c == 0x7f)
        return "an encoded \"/\", \"\\\" or control character";
    if (is_unreserved((unsigned char)c))
        return "a character is percent-encoded that need not be";
    return NULL;
}

static const char *prefix_fault(const char *p, size_t len)
{
    size_t segment = 1; /* where the present one begins */

    if (len == 0 || p[0] != '/')
        return "does not begin with \"/\"";
    if (len == 1)
        return "\"/\" is the sandbox's own port, not a rule";
    if (len > TR_ROUTE_PREFIX_MAX)
        return "longer than 255 bytes";
    if (p[len - 1] == '/')
        return "ends with \"/\" (a rule covers what is below it)";
    for (size_t i = 1; i <= len; i++) {
        const char *fault = NULL;

        if (i == len || p[i] == '/') {
            if (i == segment)
                return "an empty segment (\"//\")";
            if ((i - segment == 1 && p[segment] == '.') ||
                (i - segment == 2 && memcmp(p + segment, "..", 2) == 0))
                return "a dot segment";
            segment = i + 1;
        } else if (p[i] == '%') {
            fault = encoded_fault(p + i + 1, len - i - 1);
        } else if (!is_path_char((unsigned char)p[i])) {
            fault = "a character that has no place in a path, or must be percent-encoded there";
        }
        if (fault != NULL)
            return fault;
    }
    return NULL;
}

bool tr_route_prefix_valid(const char *prefix, size_t len, const char **why)
{
    const char *fault = prefix_fault(prefix, len);

    if (fault != NULL && why != NULL)
        *why = fault;
    return fault == NULL;
}

/* ---- the block ---- */

static int compare_rules(const void *left, const void *right)
{
    const struct tr_route_rule *a = left, *b = right;

    if (a->prefix_len != b->prefix_len)
        return a->prefix_len > b->prefix_len ? -1 : 1;
    return memcmp(a->prefix, b->prefix, a->prefix_len);
}

static int compare_ports(const void *left, const void *right)
{
    const struct tr_route_port *a = left, *b = right;

    return a->port < b->port ? -1 : a->port > b->port;
}

static int check_rules(const struct tr_route_rule *rules, size_t n, struct err *err)
{
    const char *why = "";

    if (n > TR_ROUTE_RULES_MAX)
        return tr_err_set(err, UV_EINVAL, "rules: more than %d", TR_ROUTE_RULES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!tr_route_prefix_valid(rules[i].prefix, rules[i].prefix_len, &why))
            return tr_err_set(err, UV_EINVAL, "rules[%zu].prefix: %s", i, why);
        if (rules[i].port == 0)
            return tr_err_set(err, UV_EINVAL, "rules[%zu].port: out of range", i);
        for (size_t j = 0; j < i; j++) {
            if (compare_rules(&rules[i], &rules[j]) == 0)
                return tr_err_set(err, UV_EINVAL, "rules[%zu].prefix: the same as rules[%zu]", i,
                                  j);
        }
    }
    return 0;
}

static int check_ports(const struct tr_route_port *ports, size_t n, struct err *err)
{
    if (n > TR_ROUTE_PORTS_MAX)
        return tr_err_set(err, UV_EINVAL, "ports: more than %d", TR_ROUTE_PORTS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (ports[i].port == 0)
            return tr_err_set(err, UV_EINVAL, "ports[%zu].port: out of range", i);
        for (size_t j = 0; j < i; j++) {
            if (ports[i].port == ports[j].port)
                return tr_err_set(err, UV_EINVAL, "ports[%zu].port: the same as ports[%zu]", i, j);
        }
    }
    return 0;
}

int tr_route_extra_new(const struct tr_route_rule *rules, size_t n_rules,
                       const struct tr_route_port *ports, size_t n_ports, const uint8_t *key,
                       bool embed, struct tr_route_extra **out, struct err *err)
{
    /* The header, then rules, ports (of smaller alignment), text. */
    struct block {
        struct tr_route_extra extra;
        struct tr_route_rule rules[];
    } * b;
    struct tr_route_port *port;
    size_t text_len = 0;
    char *text;
    int r;

    *out = NULL;
    r = check_rules(rules, n_rules, err);
    if (r == 0)
        r = check_ports(ports, n_ports, err);
    if (r != 0 || (n_rules == 0 && n_ports == 0 && key == NULL))
        return r;
    for (size_t i = 0; i < n_rules; i++)
        text_len += (size_t)rules[i].prefix_len + 1;
    b = malloc(sizeof(*b) + n_rules * sizeof(*rules) + n_ports * sizeof(*ports) + text_len);
    if (b == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    port = (struct tr_route_port *)(b->rules + n_rules);
    text = (char *)(port + n_ports);
    b->extra = (struct tr_route_extra){
        .n_refs = 1,
        .n_rules = (uint16_t)n_rules,
        .n_ports = (uint16_t)n_ports,
        .is_private = key != NULL,
        .embed = key != NULL && embed,
        .rules = b->rules,
        .ports = port,
    };
    if (key != NULL)
        memcpy(b->extra.key, key, TR_ROUTE_KEY_SIZE);
    for (size_t i = 0; i < n_rules; i++) {
        b->rules[i] = rules[i];
        b->rules[i].prefix = memcpy(text, rules[i].prefix, rules[i].prefix_len);
        text += rules[i].prefix_len;
        *text++ = '\0';
    }
    if (n_rules > 1)
        qsort(b->rules, n_rules, sizeof(*rules), compare_rules);
    if (n_ports > 0) {
        memcpy(port, ports, n_ports * sizeof(*ports));
        qsort(port, n_ports, sizeof(*ports), compare_ports);
    }
    *out = &b->extra;
    return 0;
}

const struct tr_route_port *tr_route_port_find(const struct tr_route_extra *extra, uint16_t port)
{
    for (size_t i = 0; extra != NULL && i < extra->n_ports; i++)
        if (extra->ports[i].port == port)
            return &extra->ports[i];
    return NULL;
}

struct tr_route_extra *tr_route_extra_ref(struct tr_route_extra *extra)
{
    if (extra != NULL)
        __atomic_add_fetch(&extra->n_refs, 1, __ATOMIC_RELAXED);
    return extra;
}

void tr_route_extra_unref(struct tr_route_extra *extra)
{
    if (extra == NULL || __atomic_sub_fetch(&extra->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    explicit_bzero(extra->key, sizeof(extra->key));
    free(extra);
}
