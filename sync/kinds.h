/* SPDX-License-Identifier: MIT */
/* What a file is, by its content and its name.
 *
 * Text is what reads as UTF-8 (with or without a byte order mark), or as UTF-16 behind one, from
 * the first byte to the last, without U+0000; the name does not matter, so a Makefile is text and
 * an empty file is, too. A picture, PDF or office document needs both the signature and a name that
 * goes with it: a PNG called x.py, and noise called x.png, are a mismatch. The name of one picture
 * format goes with the signature of any, since such files are common and open everywhere. Text
 * called x.png is text: pointers of Git LFS look like that. Office documents are docx xlsx pptx odt
 * ods odp (a ZIP) and doc xls ppt (a compound file); other archives are binary. Latin-1, UTF-16 and
 * UTF-32 without a mark are binary: nothing says what they are.
 */
#ifndef SYNC_KINDS_H
#define SYNC_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sync_kind {
    SYNC_KIND_TEXT,
    SYNC_KIND_PNG,
    SYNC_KIND_JPEG,
    SYNC_KIND_WEBP,
    SYNC_KIND_GIF,
    SYNC_KIND_PDF,
    SYNC_KIND_DOCUMENT,
    SYNC_KIND_BINARY,
    SYNC_KIND_MISMATCH, /* a binary whose name and signature tell different stories */
};

enum { SYNC_KIND_HEAD = 16 }; /* bytes that hold every signature */

/* One file on its way through; in the caller's memory, nothing to free. */
struct sync_kind_scan {
    uint8_t head[SYNC_KIND_HEAD]; /* the first bytes */
    uint8_t n_head;
    uint8_t name;      /* what the name promises; see kinds.c */
    uint8_t encoding;  /* see kinds.c */
    bool is_not_text;  /* final: no later byte makes it text */
    uint8_t n_due;     /* UTF-8: bytes still due of a character; UTF-16: 1 with half a unit read */
    uint8_t low, high; /* UTF-8: bounds of the next byte */
    uint8_t half;      /* UTF-16: that half */
    bool is_pair;      /* UTF-16: a low surrogate is due */
};

/* Start with the file's name, its last component; it is read here only. */
void sync_kind_start(struct sync_kind_scan *scan, const char *name, size_t name_len);

/* The next bytes, in pieces of any size. Returns false once no further byte can change the answer.
 */
bool sync_kind_feed(struct sync_kind_scan *scan, const void *bytes, size_t len);

/* What it is, after the last byte, or after feed() has returned false. */
enum sync_kind sync_kind_end(const struct sync_kind_scan *scan);

/* All of the above for bytes in memory. */
enum sync_kind sync_kind_of(const char *name, size_t name_len, const void *bytes, size_t len);

/* Neither binary nor mismatch. */
bool sync_kind_is_wanted(enum sync_kind kind);

/* "text", "png", ...; static. */
const char *sync_kind_name(enum sync_kind kind);

/* As a Content-Type; for text without a charset. Static. */
const char *sync_kind_media_type(enum sync_kind kind);

#endif
