/* SPDX-License-Identifier: MIT */
/* Git's wildcard language for one pattern and one name: what "*", "**", "?", "[...]" and "\" mean
 * in a line of .gitignore. Bytes are bytes, case counts, no locale. */
#ifndef SYNC_WILD_H
#define SYNC_WILD_H

#include <stdbool.h>
#include <stddef.h>

/* Does the whole of text match the whole of pattern? With is_path, "/" is matched by "/" and by a
 * "**" that is a whole component only; else by any wildcard. Neither string is NUL-terminated or
 * holds a NUL. The time is at most pattern_len times text_len steps, whatever the pattern: there
 * are two places to go back to and no recursion. */
bool sync_wild_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len,
                     bool is_path);

/* Bytes before the first "*", "?", "[" or "\": all of them match themselves only. */
size_t sync_wild_literal(const char *pattern, size_t pattern_len);

#endif
