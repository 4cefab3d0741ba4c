/* SPDX-License-Identifier: MIT */
/* The ancestor on disk: what guest and store of one instance had in common last.
 *
 * It belongs to one boot of one machine. An ancestor that is missing, damaged, or of another
 * instance counts as none at all, which is safe: without an ancestor nothing is ever taken for
 * deleted, and what differs is a conflict (sync/reconcile.h).
 *
 * It may lag behind both sides, never be ahead of them: whoever saves it has made sure before that
 * the store's files are on disk. The guest's need not be, since an instance does not outlive its
 * machine's disk.
 *
 * Format, integers in little endian: "TRSYNCA1", instance (8 bytes), number of nodes (4), then per
 * node: bytes shared with the path before (2), further bytes (2) and these, what (1), is_exec (1),
 * and of files and links the id (20); at the end the SHA-256 of all before. */
#ifndef SYNC_ANCESTOR_H
#define SYNC_ANCESTOR_H

#include <stddef.h>
#include <stdint.h>
#include "sync/state.h"
#include "transom/err.h"

#define SYNC_ANCESTOR_FILE_MAX (64 * 1024 * 1024) /* bytes */

/* Returns 0 with *out of *len bytes, yours to free, or UV_ENOMEM. What is left out is no part of
 * an ancestor and is not written. */
TR_MUST_CHECK int sync_ancestor_encode(const struct sync_state *st, uint64_t instance,
                                       uint8_t **out, size_t *len);

/* st is emptied and filled. Returns 0; UV_ESTALE: of another instance; UV_EBADMSG: damaged;
 * UV_ENOMEM, UV_ENOSPC (over st's limits). On failure st is empty. */
TR_MUST_CHECK int sync_ancestor_decode(const void *bytes, size_t len, uint64_t instance,
                                       struct sync_state *st);

/* Write path: temporary name beside it, fsync, rename, fsync of the folder. Blocks. May be called
 * on another thread than the one that has encoded. */
TR_MUST_CHECK int sync_ancestor_write(const char *path, const void *bytes, size_t len,
                                      struct err *err);

/* Read path into st. Returns 0; st is empty (a fresh ancestor) and *why says so in words where the
 * file is missing ("" then), of another instance, damaged or unreadable. Only UV_ENOMEM is a
 * failure. Blocks. */
TR_MUST_CHECK int sync_ancestor_read(const char *path, uint64_t instance, struct sync_state *st,
                                     bool *is_fresh, struct err *why);

#endif
