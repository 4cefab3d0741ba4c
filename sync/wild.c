/* SPDX-License-Identifier: MIT */
/* Why greedy is enough: "*" never leaves its component, so components of pattern and text pair off
 * between two "**", and within a component only the last "*" needs to give way. What stands before
 * a
 * "**" is matched as early as can be, which leaves the "**" every choice that a later match would.
 */
#include "sync/wild.h"

#include <stdint.h>
#include <string.h>

struct span {
    const unsigned char *p;
    size_t len;
};

/* Where matching goes on when it fails: pattern and text to try next. */
struct retry {
    size_t p, t;
    bool is_set;
    bool at_components; /* the text goes on after the next "/" only */
};

static bool in_ascii_class(const char *name, size_t len, unsigned char c)
{
    static const char names[][7] = {"alnum", "alpha", "blank", "cntrl", "digit", "graph",
                                    "lower", "print", "punct", "space", "upper", "xdigit"};
    const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
    const bool digit = c >= '0' && c <= '9', print = c >= 0x20 && c < 0x7f;
    /* Git's own idea of white space: no vertical tab and no form feed. */
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    const bool is[] = {
        lower || upper || digit,
        lower || upper,
        c == ' ' || c == '\t',
        c < 0x20 || c == 0x7f,
        digit,
        print && !space,
        lower,
        print,
        print && !space && !lower && !upper && !digit,
        space,
        upper,
        digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'),
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return is[i];
    return false;
}

static bool is_ascii_class(const char *name, size_t len)
{
    for (int c = 0; c < 256; c++)
        if (in_ascii_class(name, len, (unsigned char)c))
            return true;
    return false;
}

/* "[:name:]" at i. Sets *end behind its "]". 1: c is in it, 0: not, -1: no such class or no end,
 * -2: it is not of that form, and the "[" stands for itself. */
static int match_named(struct span p, size_t i, unsigned char c, size_t *end)
{
    size_t first = i + 2, close = first;

    while (close < p.len && p.p[close] != ']')
        close++;
    if (close == p.len)
        return -1;
    if (close == first || p.p[close - 1] != ':')
        return -2;
    *end = close + 1;
    if (!is_ascii_class((const char *)p.p + first, close - 1 - first))
        return -1;
    return in_ascii_class((const char *)p.p + first, close - 1 - first, c);
}

/* The bracket expression whose "[" is at i. Sets *end behind its "]". A malformed one matches
 * nothing, not even with a "!". */
static bool match_bracket(struct span p, size_t i, unsigned char c, size_t *end)
{
    bool negated = false, matched = false;
    int previous = -1; /* lower end of a range, when "-" follows */

    i++;
    if (i < p.len && (p.p[i] == '!' || p.p[i] == '^')) {
        negated = true;
        i++;
    }
    for (bool first = true; i < p.len && (first || p.p[i] != ']'); first = false) {
        int named;
        unsigned char b = p.p[i];

        if (b == '\\') {
            if (++i == p.len)
                return false;
            previous = p.p[i++];
            matched |= c == previous;
        } else if (b == '-' && previous > 0 && i + 1 < p.len && p.p[i + 1] != ']') {
            i++;
            if (p.p[i] == '\\' && ++i == p.len)
                return false;
            matched |= c >= previous && c <= p.p[i];
            previous = -1;
            i++;
        } else if (b == '[' && i + 1 < p.len && p.p[i + 1] == ':' &&
                   (named = match_named(p, i, c, &i)) != -2) {
            if (named < 0)
                return false;
            matched |= named == 1;
            previous = -1;
        } else {
            matched |= c == b;
            previous = b;
            i++;
        }
    }
    if (i >= p.len)
        return false;
    *end = i + 1;
    return matched != negated;
}

/* One element that is no "*" against one byte. Moves *i behind the element. */
static bool match_one(struct span p, size_t *i, unsigned char c, bool is_path)
{
    switch (p.p[*i]) {
    case '?':
        ++*i;
        return !is_path || c != '/';
    case '[':
        return match_bracket(p, *i, c, i) && (!is_path || c != '/');
    case '\\':
        if (++*i == p.len)
            return false; /* git: a trailing backslash never matches */
        break;
    default:
        break;
    }
    return p.p[(*i)++] == c;
}

/* The run of "*" at *i: moves *i behind it, and says whether it may pass over "/". */
static bool is_wide(struct span p, size_t *i, bool is_path)
{
    size_t first = *i, n;

    while (*i < p.len && p.p[*i] == '*')
        ++*i;
    n = *i - first;
    if (!is_path)
        return true;
    return n > 1 && (first == 0 || p.p[first - 1] == '/') &&
           (*i == p.len || p.p[*i] == '/' ||
            (p.p[*i] == '\\' && *i + 1 < p.len && p.p[*i + 1] == '/'));
}

/* Give way at the last "*" or, if it cannot, at the last "**". */
static bool step_back(struct span text, struct retry *narrow, struct retry *wide, size_t *i,
                      size_t *t)
{
    if (narrow->is_set && narrow->t < text.len && text.p[narrow->t] != '/') {
        *i = narrow->p;
        *t = ++narrow->t;
        return true;
    }
    narrow->is_set = false;
    if (!wide->is_set)
        return false;
    if (wide->at_components) {
        const unsigned char *slash =
            wide->t < text.len ? memchr(text.p + wide->t, '/', text.len - wide->t) : NULL;

        if (slash == NULL)
            return false;
        wide->t = (size_t)(slash - text.p) + 1;
    } else if (wide->t++ >= text.len) {
        return false;
    }
    *i = wide->p;
    *t = wide->t;
    return true;
}

bool sync_wild_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len,
                     bool is_path)
{
    struct span p = {(const unsigned char *)pattern, pattern_len};
    struct span s = {(const unsigned char *)text, text_len};
    struct retry narrow = {0}, wide = {0};
    size_t i = 0, t = 0;

    for (;;) {
        if (i < p.len && p.p[i] == '*') {
            if (is_wide(p, &i, is_path)) {
                if (i == p.len)
                    return true;
                /* With a "/" behind it, nothing at all will do, or whole components. */
                wide.at_components = is_path && p.p[i] == '/';
                i += wide.at_components;
                wide.p = i;
                wide.t = t;
                wide.is_set = true;
                narrow.is_set = false;
            } else {
                narrow = (struct retry){.p = i, .t = t, .is_set = true};
            }
            continue;
        }
        if (i == p.len && t == s.len)
            return true;
        if (i < p.len && t < s.len && match_one(p, &i, s.p[t], is_path)) {
            t++;
            continue;
        }
        if (!step_back(s, &narrow, &wide, &i, &t))
            return false;
    }
}

size_t sync_wild_literal(const char *pattern, size_t pattern_len)
{
    size_t i = 0;

    while (i < pattern_len && pattern[i] != '*' && pattern[i] != '?' && pattern[i] != '[' &&
           pattern[i] != '\\')
        i++;
    return i;
}
