/* SPDX-License-Identifier: MIT */
/* Hiding secrets in a stream of bytes, whatever the boundaries at which it arrives. A set of
 * secrets is made once into patterns; each stream has a masker that replaces every run of covered
 * bytes by TR_MASK_TEXT. Implemented in vmm/mask/.
 *
 * Covered, for a value of TR_MASK_MIN bytes or more (line ends at its end do not count):
 *   - the value; its line breaks may be LF, CR LF or a blank
 *   - each of its lines of TR_MASK_MIN bytes or more, but for the marker lines of PEM
 *   - percent-encoded (RFC 3986 section 2.1; with "+" for a blank, with "/" kept) and as the
 *     inside of a JSON string (RFC 8259 section 7; non-ASCII plain or escaped)
 *   - base 64 (RFC 4648 sections 4 and 5) at each of the three alignments, less the characters
 *     that depend on what stands beside it, also wrapped into lines
 * Encoded forms are left out for values above TR_MASK_ENCODED_MAX. Not covered: other encodings,
 * changed case, parts of a value. */
#ifndef TRANSOM_MASK_H
#define TRANSOM_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define TR_MASK_TEXT        "***"
#define TR_MASK_MIN         8
#define TR_MASK_VALUE_MAX   65536 /* bytes of one secret */
#define TR_MASK_ENCODED_MAX 4096
/* Call tr_masker_flush() when bytes are held and no more were there to be read for this long. */
#define TR_MASK_HOLD_MS     50

/* Is a value long enough to be hidden? Lets a user be told when it is activated. */
bool tr_mask_covers(const void *value, size_t len);

/* The patterns of a set of secrets: immutable, counted, of any thread. */
struct tr_mask;
struct tr_mask_secret {
    const void *value;
    size_t len;
};
/* Would tr_mask_new() take them? Returns 0, UV_E2BIG (a value, all of them, or all their forms are
 * too long) or UV_ENOMEM. For whoever keeps a set that another makes into patterns. */
TR_MUST_CHECK int tr_mask_check(const struct tr_mask_secret *secrets, size_t n);
/* Values are not kept as such, but their bytes are in the patterns; they are wiped at the end.
 * *out is NULL when nothing is to be hidden. Returns as tr_mask_check() does. */
TR_MUST_CHECK int tr_mask_new(const struct tr_mask_secret *secrets, size_t n, struct tr_mask **out);
void tr_mask_ref(struct tr_mask *mask);   /* NULL is ignored */
void tr_mask_unref(struct tr_mask *mask); /* NULL is ignored */

/* One stream. */
struct tr_masker;
typedef void (*tr_mask_cb)(const uint8_t *data, size_t len, void *arg);

/* mask may be NULL: nothing is hidden until tr_masker_set(). out receives what may be shown; it
 * runs within the calls below, never otherwise. Returns UV_ENOMEM. */
TR_MUST_CHECK int tr_masker_new(struct tr_mask *mask, tr_mask_cb out, void *arg,
                                struct tr_masker **masker);
/* What is held is wiped, not shown. */
void tr_masker_free(struct tr_masker *m);
/* Bytes that may begin a secret are held until more come or tr_masker_flush() is called. Returns 0,
 * or UV_ENOMEM: what was held and these bytes are lost, and nothing of them was shown. */
TR_MUST_CHECK int tr_masker_write(struct tr_masker *m, const void *data, size_t len);
/* Show what is held. A secret whose beginning is among it is no longer recognised as a whole. */
void tr_masker_flush(struct tr_masker *m);
/* Bytes being held. */
size_t tr_masker_held(const struct tr_masker *m);
/* Has a secret been found in the stream? Also told when it is not shown yet. */
bool tr_masker_has_hidden(const struct tr_masker *m);
/* Other secrets from here on. What is held is judged by the old ones. */
void tr_masker_set(struct tr_masker *m, struct tr_mask *mask);

/* A whole text at once: a copy with its secrets hidden, ended by a NUL, to be freed. NULL when out
 * of memory. */
char *tr_mask_text(struct tr_mask *mask, const char *text, size_t len, size_t *out_len);

#endif
