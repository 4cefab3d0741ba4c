/* SPDX-License-Identifier: MIT */
/* Small conversions of text: random identifiers, times, percent-encoding, query strings. */
#ifndef VMM_TEXT_H
#define VMM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define VMM_ID_LEN    16
#define VMM_TIME_SIZE 32

/* Fill out[0..len) from [a-z0-9], evenly, from the kernel's generator; out[len] = 0. */
void vmm_random_id(char *out, size_t len);
/* The same from [0-9a-f]. */
void vmm_random_hex(char *out, size_t len);
void vmm_hex(const uint8_t *data, size_t len, char *out); /* out: 2 * len + 1 bytes */

int64_t vmm_wall_ms(void); /* Unix time */
/* "2026-01-02T03:04:05.678Z"; "" for 0. */
void vmm_time_text(int64_t wall_ms, char out[VMM_TIME_SIZE]);

bool vmm_utf8_valid(const char *s, size_t len);
/* No control characters, valid UTF-8, 1..max bytes. */
bool vmm_name_valid(const char *s, size_t max);
/* Bytes from [A-Za-z0-9._-] and extra, 1..max, not "." nor "..". */
bool vmm_word_valid(const char *s, size_t max, const char *extra);

/* Decode %XX in s[0..len) into a new string. Returns NULL for a bad escape, an encoded NUL or when
 * out of memory. */
char *vmm_percent_decode(const char *s, size_t len);
/* The decoded value of a query member ("" when it has none), new; NULL when absent or broken. */
char *vmm_query_get(const char *query, const char *name);

#endif
