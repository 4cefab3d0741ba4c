/* SPDX-License-Identifier: MIT */
/* What Git does with a line, where gitignore(5) leaves it open: a byte order mark goes, at the
 * start of the file; one CR at the end of a line goes; a NUL ends the line; blanks at its end go,
 * tabs do not, and a backslash keeps the blank behind it. */
#include "sync/pattern.h"

#include <string.h>
#include "sync/path.h"
#include "sync/wild.h"

void sync_pattern_read(struct sync_pattern_reader *reader, const char *bytes, size_t len)
{
    *reader = (struct sync_pattern_reader){.bytes = bytes, .len = len};
    if (len >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        reader->at = 3;
}

/* Blanks at the end go, unless a backslash stands before the first of them. */
static size_t trimmed(const char *s, size_t len)
{
    size_t end = len, blanks = 0; /* blanks: how many end the part read so far */

    for (size_t i = 0; i < len; i++) {
        if (s[i] == ' ') {
            blanks++;
            continue;
        }
        blanks = 0;
        if (s[i] == '\\' && ++i == len)
            return len; /* a backslash with nothing behind it: as it is */
    }
    return end - blanks;
}

static bool take_apart(const char *s, size_t len, struct sync_pattern *p)
{
    *p = (struct sync_pattern){0};
    if (len > 0 && s[0] == '!') {
        p->is_negated = true;
        s++;
        len--;
    }
    if (len > 0 && s[len - 1] == '/') {
        p->is_dir_only = true;
        len--;
    }
    p->is_name_only = memchr(s, '/', len) == NULL;
    if (len > 0 && s[0] == '/') {
        s++;
        len--;
    }
    p->text = s;
    p->len = (uint32_t)len;
    p->literal = (uint32_t)sync_wild_literal(s, len);
    return len > 0;
}

bool sync_pattern_next(struct sync_pattern_reader *reader, struct sync_pattern *pattern)
{
    while (reader->at < reader->len) {
        const char *s = reader->bytes + reader->at, *end;
        size_t len = reader->len - reader->at;

        end = memchr(s, '\n', len);
        if (end != NULL)
            len = (size_t)(end - s);
        reader->at += len + (end != NULL);
        reader->line++;
        if (len == 0 || s[0] == '#')
            continue;
        if (s[len - 1] == '\r')
            len--;
        len = strnlen(s, len);
        if (take_apart(s, trimmed(s, len), pattern)) {
            pattern->line = reader->line;
            return true;
        }
    }
    return false;
}

bool sync_pattern_match(const struct sync_pattern *p, const char *path, size_t len, bool is_dir)
{
    size_t base;

    if (p->is_dir_only && !is_dir)
        return false;
    if (p->is_name_only) {
        base = sync_path_base(path, len);
        path += base;
        len -= base;
    }
    /* Git compares the literal start first and gives the wildcards the rest alone. That shows: in
     * "a/b**" and "a/b**" + "/c" the stars stand at the start of what is left, and count as a
     * component's. */
    if (len < p->literal || memcmp(path, p->text, p->literal) != 0)
        return false;
    return sync_wild_match(p->text + p->literal, p->len - p->literal, path + p->literal,
                           len - p->literal, !p->is_name_only);
}
