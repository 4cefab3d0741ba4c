/* SPDX-License-Identifier: MIT */
#include "conf/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPT(name, type, def, unit, min, max, allowed, help)                                        \
    {name, OPT_##type, def, unit, min, max, allowed, help, false},
#define SECTION(name, help) {name, OPT_STRING, "", "", 0, 0, "", help, true},
const struct opt opt_table[] = {
#include "conf/options.def"
};
#undef OPT
#undef SECTION

const size_t opt_count = sizeof(opt_table) / sizeof(opt_table[0]);

#define PATH_MAX_LEN 1000
#define NAME_MAX_LEN 63 /* longest name worth comparing for a hint */

int opt_find(const char *name)
{
    for (size_t i = 0; i < opt_count; i++) {
        if (!opt_table[i].section && strcmp(opt_table[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

bool opt_is_section(const char *name)
{
    for (size_t i = 0; i < opt_count; i++) {
        if (opt_table[i].section && strcmp(opt_table[i].name, name) == 0)
            return true;
    }
    return false;
}

bool opt_is_list(const struct opt *opt)
{
    return opt->type >= OPT_LIST_ENDPOINT;
}

const char *opt_leaf(const struct opt *opt)
{
    const char *dot = strrchr(opt->name, '.');

    return dot != NULL ? dot + 1 : opt->name;
}

/* "a|b|c" as "a, b or c". */
static void print_choices(const char *allowed, char *buf, size_t size)
{
    size_t len = 0;

    buf[0] = '\0';
    while (*allowed != '\0' && len + 1 < size) {
        size_t n = strcspn(allowed, "|");
        const char *rest = allowed + n;
        const char *join = *rest == '\0' ? "" : strchr(rest + 1, '|') != NULL ? ", " : " or ";

        len += (size_t)snprintf(buf + len, size - len, "%.*s%s", (int)n, allowed, join);
        allowed = *rest == '|' ? rest + 1 : rest;
    }
}

void opt_describe(const struct opt *opt, char *buf, size_t size)
{
    static const char *const texts[] = {
        [OPT_STRING] = "text",
        [OPT_WORD] = "a word of letters, digits, \"_\", \"-\" and \".\"",
        [OPT_USER] = "a user's name or number",
        [OPT_NAME] = "a domain name",
        [OPT_PATH] = "an absolute path",
        [OPT_ENDPOINT] = "ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
        [OPT_CIDR4] = "a range of IPv4 addresses, such as 100.64.0.0/10",
        [OPT_BOOL] = "true or false",
        [OPT_LIST_ENDPOINT] =
            "a list of ADDRESS:PORT, such as [\"127.0.0.1:8080\", \"[::1]:8080\"]",
        [OPT_LIST_CIDR] = "a list of ADDRESS or ADDRESS/BITS, such as [10.0.0.0/8]",
        [OPT_LIST_ADDRESS] = "a list of IP addresses, such as [192.0.2.53]",
        [OPT_LIST_PATH] = "a list of absolute paths",
    };
    char choices[200];

    switch (opt->type) {
    case OPT_INT:
        snprintf(buf, size, "a whole number from %" PRId64 " to %" PRId64 " (%s)", opt->min,
                 opt->max, opt->unit);
        break;
    case OPT_ENUM:
        print_choices(opt->allowed, choices, sizeof(choices));
        snprintf(buf, size, "%s", choices);
        break;
    case OPT_URL:
        print_choices(opt->allowed, choices, sizeof(choices));
        snprintf(buf, size, "a URL that begins with %s", choices);
        break;
    default:
        snprintf(buf, size, "%s", texts[opt->type]);
    }
}

static int check_int(const struct opt *opt, const char *text, int64_t *number)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end;
    long long v;

    /* No leading zero: YAML 1.1 would read it as octal. */
    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits[1] != '\0'))
        return -EINVAL;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || v < opt->min || v > opt->max)
        return -EINVAL;
    *number = v;
    return 0;
}

static int check_bool(const char *text, int64_t *number)
{
    if (strcmp(text, "true") == 0)
        *number = 1;
    else if (strcmp(text, "false") == 0)
        *number = 0;
    else
        return -EINVAL;
    return 0;
}

/* Is text one of the words of allowed ("a|b"), or does it begin with one and go on? */
static bool one_of(const char *allowed, const char *text, bool begins)
{
    while (*allowed != '\0') {
        size_t n = strcspn(allowed, "|");

        if (strncmp(text, allowed, n) == 0 && (begins ? text[n] != '\0' : text[n] == '\0'))
            return true;
        allowed += n + (allowed[n] == '|');
    }
    return false;
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_word(const char *text)
{
    if (!is_alnum(text[0]) && text[0] != '_')
        return false;
    for (; *text != '\0'; text++) {
        if (!is_alnum(*text) && strchr("_-.", *text) == NULL)
            return false;
    }
    return true;
}

/* Labels of 1 to 63 letters, digits and inner hyphens, joined by single dots. */
static bool is_dns_name(const char *text)
{
    for (;;) {
        size_t n = strcspn(text, ".");

        if (n == 0 || n > 63 || text[0] == '-' || text[n - 1] == '-')
            return false;
        for (size_t i = 0; i < n; i++) {
            if (!is_alnum(text[i]) && text[i] != '-')
                return false;
        }
        if (text[n] == '\0')
            return true;
        text += n + 1;
    }
}

static bool is_number_upto(const char *text, unsigned long max)
{
    size_t n = strspn(text, "0123456789");

    return n > 0 && n <= 5 && text[n] == '\0' && (n == 1 || text[0] != '0') &&
           strtoul(text, NULL, 10) <= max;
}

/* Copy an address of n bytes and parse it. Returns its family, or 0. */
static int parse_address(const char *text, size_t n, unsigned char out[16])
{
    char buf[INET6_ADDRSTRLEN];

    if (n == 0 || n >= sizeof(buf))
        return 0;
    memcpy(buf, text, n);
    buf[n] = '\0';
    if (inet_pton(AF_INET, buf, out) == 1)
        return AF_INET;
    return inet_pton(AF_INET6, buf, out) == 1 ? AF_INET6 : 0;
}

static bool is_endpoint(const char *text)
{
    const char *colon = strrchr(text, ':');
    unsigned char addr[16];

    if (colon == NULL || !is_number_upto(colon + 1, 65535))
        return false;
    if (text[0] == '[')
        return colon[-1] == ']' &&
               parse_address(text + 1, (size_t)(colon - text) - 2, addr) == AF_INET6;
    return parse_address(text, (size_t)(colon - text), addr) == AF_INET;
}

static bool is_cidr(const char *text, bool v4_range)
{
    size_t n = strcspn(text, "/");
    unsigned char addr[16] = {0};
    int family = parse_address(text, n, addr);
    unsigned int bits, total = family == AF_INET ? 32 : 128;

    if (family == 0 || (v4_range && (family != AF_INET || text[n] == '\0')))
        return false;
    if (text[n] == '\0')
        return true;
    if (!is_number_upto(text + n + 1, total))
        return false;
    bits = (unsigned int)strtoul(text + n + 1, NULL, 10);
    for (unsigned int i = bits; v4_range && i < total; i++) {
        if (addr[i / 8] & (0x80u >> (i % 8)))
            return false; /* 10.0.0.1/8 names a host, not a range */
    }
    return true;
}

static bool text_fits(const struct opt *opt, const char *text)
{
    unsigned char addr[16];

    switch (opt->type) {
    case OPT_WORD:
    case OPT_USER:
        return is_word(text);
    case OPT_NAME:
        return is_dns_name(text);
    case OPT_PATH:
        return text[0] == '/';
    case OPT_LIST_PATH:
        return text[0] == '/' && strlen(text) <= PATH_MAX_LEN;
    case OPT_URL:
        return one_of(opt->allowed, text, true) && strchr(text, ' ') == NULL;
    case OPT_ENUM:
        return one_of(opt->allowed, text, false);
    case OPT_ENDPOINT:
    case OPT_LIST_ENDPOINT:
        return is_endpoint(text);
    case OPT_CIDR4:
        return is_cidr(text, true);
    case OPT_LIST_CIDR:
        return is_cidr(text, false);
    case OPT_LIST_ADDRESS:
        return parse_address(text, strlen(text), addr) != 0;
    default:
        return true;
    }
}

int opt_check(const struct opt *opt, const char *text, int64_t *number, struct err *why)
{
    bool is_text = !opt_is_list(opt) && opt->type != OPT_ENUM;
    char wanted[300];
    int r = 0;

    if (opt->type == OPT_INT)
        r = check_int(opt, text, number);
    else if (opt->type == OPT_BOOL)
        r = check_bool(text, number);
    else if (is_text && text[0] == '\0' && opt->min == 0)
        return 0; /* "" switches it off */
    else if (is_text && (int64_t)strlen(text) > opt->max)
        return tr_err_set(why, -EINVAL, "is %zu bytes long; at most %" PRId64 " are allowed",
                          strlen(text), opt->max);
    else if (is_text && text[0] == '\0')
        return tr_err_set(why, -EINVAL, "must not be empty");
    else if (!text_fits(opt, text))
        r = -EINVAL;
    if (r == 0)
        return 0;
    opt_describe(opt, wanted, sizeof(wanted));
    if (opt->type == OPT_URL) /* may hold a password: not repeated */
        return tr_err_set(why, r, "must be %s", wanted);
    return tr_err_set(why, r, "\"%.60s\" does not fit; it must be %s", text, wanted);
}

/* Levenshtein distance of two names of at most NAME_MAX_LEN bytes. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1];
    size_t lb = strlen(b);

    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb];
}

const char *opt_nearest(const char *name)
{
    const char *leaf = strrchr(name, '.') != NULL ? strrchr(name, '.') + 1 : name;
    const char *nearest = NULL;
    size_t best = strlen(leaf) / 3 + 1;

    if (strlen(name) > NAME_MAX_LEN)
        return NULL;
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];
        size_t d;

        if (strlen(opt->name) > NAME_MAX_LEN || opt->name[0] == '\0')
            continue;
        d = distance(name, opt->name);
        /* Right name, wrong section: nearer than any misspelling. */
        if (!opt->section && strcmp(opt_leaf(opt), leaf) == 0 && d > 1)
            d = 1;
        if (d <= best && (nearest == NULL || d < best)) {
            best = d;
            nearest = opt->name;
        }
    }
    return nearest;
}
