/* SPDX-License-Identifier: MIT */
/* Lines of a .gitignore (gitignore(5), "PATTERN FORMAT"), taken apart in place. */
#ifndef SYNC_PATTERN_H
#define SYNC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sync_pattern {
    const char *text;  /* borrowed from the file's bytes; without "!" and the "/" at either end */
    uint32_t len;      /* bytes of text */
    uint32_t literal;  /* leading bytes that are no wildcard */
    uint32_t line;     /* in its file, from 1 */
    bool is_negated;   /* "!": keeps what an earlier line ignores */
    bool is_dir_only;  /* "x/": folders only */
    bool is_name_only; /* has no "/" but at its end: the name alone counts, at any depth */
};

/* Walks the lines of a file. */
struct sync_pattern_reader {
    const char *bytes; /* borrowed */
    size_t len, at;
    uint32_t line;
};

void sync_pattern_read(struct sync_pattern_reader *reader, const char *bytes, size_t len);

/* The next line that is a pattern at all. False at the end. */
bool sync_pattern_next(struct sync_pattern_reader *reader, struct sync_pattern *pattern);

/* Does the pattern, from a file in a folder, match the path below that folder? path has no "/" at
 * either end. */
bool sync_pattern_match(const struct sync_pattern *pattern, const char *path, size_t len,
                        bool is_dir);

#endif
