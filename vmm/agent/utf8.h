/* SPDX-License-Identifier: MIT */
/* UTF-8 (RFC 3629): judging it, and making it out of any bytes. */
#ifndef VMM_AGENT_UTF8_H
#define VMM_AGENT_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length (1 to 4) of the well-formed sequence at text[0..len), or 0. */
size_t agent_utf8_sequence(const char *text, size_t len);
bool agent_utf8_valid(const char *text, size_t len);
/* Heap text in which each maximal ill-formed part became U+FFFD; *out_len may be NULL. NULs stay.
 * NULL: out of memory. */
char *agent_utf8_repair(const char *text, size_t len, size_t *out_len);

/* Window names: valid UTF-8 of 1 to 128 bytes without control characters (C0, DEL, C1). */
bool agent_window_name_ok(const char *name, size_t len);

#endif
