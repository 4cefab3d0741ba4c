/* SPDX-License-Identifier: MIT */
/* A ZIP archive (APPNOTE.TXT 6.3.10) written in one pass: entries are deflated, sizes follow them,
 * and the directory comes at the end, with the 64-bit forms where they are needed. What is kept in
 * memory is the directory: some 50 bytes and the name for each entry.
 *
 * Functions add to buf and return 0 or -ENOMEM; -EINVAL for a name that is too long. */
#ifndef SYNC_ZIP_H
#define SYNC_ZIP_H

#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

/* Bytes that grow; zeroed memory is an empty one. */
struct sync_buf {
    uint8_t *data;
    size_t len, size;
};
TR_MUST_CHECK int sync_buf_add(struct sync_buf *buf, const void *data, size_t len);
void sync_buf_free(struct sync_buf *buf);

struct sync_zip;

/* time_s: Unix time, of all entries. */
TR_MUST_CHECK int sync_zip_new(int64_t time_s, struct sync_zip **out);
void sync_zip_free(struct sync_zip *zip); /* NULL is fine */
/* An entry: begin, any number of data, end. mode: as of stat(2). size: what will come, for the
 * choice of the form; it need not be exact below 4 GB. */
TR_MUST_CHECK int sync_zip_begin(struct sync_zip *zip, struct sync_buf *buf, const char *name,
                                 uint32_t mode, uint64_t size);
TR_MUST_CHECK int sync_zip_data(struct sync_zip *zip, struct sync_buf *buf, const void *data,
                                size_t len);
TR_MUST_CHECK int sync_zip_end(struct sync_zip *zip, struct sync_buf *buf);
/* The directory; the archive is complete. */
TR_MUST_CHECK int sync_zip_finish(struct sync_zip *zip, struct sync_buf *buf);

#endif
