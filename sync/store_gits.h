/* SPDX-License-Identifier: MIT */
/* The .git folders of a session's machine, each as an opaque stream (sync/gitdir.h), beside the
 * tree of files: a checkpoint names those that belong to it, and going back to it brings them back,
 * too. They are not among the session's files, and nobody who clones the session gets them.
 *
 * A stream is cut where its bytes say so, and its pieces are kept as blobs: what did not change
 * since the last time takes no room. Rules as in store.h. */
#ifndef SYNC_STORE_GITS_H
#define SYNC_STORE_GITS_H

#include "sync/store.h"

struct sync_git_writer;
struct sync_git_reader;

/* One that is kept; borrowed for the call. */
struct sync_git {
    const char *path; /* the folder that holds it, "" the session's own; NUL-terminated */
    size_t len;
    int64_t bytes; /* of the stream */
    char id[SYNC_ID_SIZE];
};
typedef int (*sync_git_cb)(const struct sync_git *git, void *arg);
/* Those that the next checkpoint will have, in no order. cb's non-zero ends it and is passed on. */
TR_MUST_CHECK int sync_store_gits(struct sync_store *store, sync_git_cb cb, void *arg,
                                  struct err *err);

/* Take one in place of the one there was for this folder. Nothing is changed before end(), and
 * lost with the store's closing until a checkpoint is made. */
TR_MUST_CHECK int sync_git_writer_new(struct sync_store *store, struct sync_git_writer **out,
                                      struct err *err);
/* No more than so many bytes in all; 0 (as it begins): no limit. Pieces that are there already cost
 * nothing of the quota, so that alone bounds nothing. */
void sync_git_writer_limit(struct sync_git_writer *w, int64_t max);
/* -EDQUOT; -EFBIG: over the limit. */
TR_MUST_CHECK int sync_git_writer_add(struct sync_git_writer *w, const void *bytes, size_t len,
                                      struct err *err);
TR_MUST_CHECK int sync_git_writer_end(struct sync_git_writer *w, const char *path, size_t len,
                                      struct err *err);
void sync_git_writer_free(struct sync_git_writer *w); /* before the store; NULL is fine */

/* The machine has it no longer. Missing is fine. */
TR_MUST_CHECK int sync_store_git_drop(struct sync_store *store, const char *path, size_t len,
                                      struct err *err);

/* -ENOENT. */
TR_MUST_CHECK int sync_git_reader_open(struct sync_store *store, const char *path, size_t len,
                                       struct sync_git_reader **out, struct err *err);
/* The next piece, borrowed until the next call. Returns its bytes; 0: that was all. */
TR_MUST_CHECK int64_t sync_git_reader_next(struct sync_git_reader *r, const void **bytes,
                                           struct err *err);
void sync_git_reader_close(struct sync_git_reader *r); /* before the store; NULL is fine */

#endif
