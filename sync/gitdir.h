/* SPDX-License-Identifier: MIT */
/* A repository's own folder (.git), whatever is in it, as one stream of bytes, and back. Whoever
 * keeps the stream need not understand it, and no Git program ever reads it on the way.
 *
 * The stream: the 8 bytes "TRGIT" 0 0 1, then one record for each entry, sorted by the bytes of its
 * path, and one of kind SYNC_GITDIR_END. A record is 24 bytes, little endian: kind (1), 0 (1),
 * bytes of the path (2), permissions (4), time of the last change in nanoseconds since 1970 (8),
 * bytes of the content (8); then the path, relative to the folder ("" is the folder itself), then
 * the content: of a file its bytes, of a link its target. ".git" may be a file or a link, too.
 *
 * Left out are sockets and the like, lock files (NAME.lock outside of objects/: in another machine
 * nobody holds them) and what a write that is under way leaves in objects/ (tmp_*).
 *
 * All of this blocks, and acts with the rights of the calling thread. Whoever lives beside the
 * folder may change it at any time: no link is followed, nothing but regular files is opened. */
#ifndef SYNC_GITDIR_H
#define SYNC_GITDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/node.h"
#include "transom/err.h"

#define SYNC_GITDIR_NAME ".git"

enum {
    SYNC_GITDIR_MAGIC = 8,
    SYNC_GITDIR_HEAD = 24,
    SYNC_GITDIR_ENTRIES_MAX = 200000,
    SYNC_GITDIR_DEPTH_MAX = 64,
    SYNC_GITDIR_PATH_MAX = 4095,
};

enum sync_gitdir_kind {
    SYNC_GITDIR_DIR = 1,
    SYNC_GITDIR_FILE,
    SYNC_GITDIR_LINK,
    SYNC_GITDIR_END,
};

/* What it looks like without reading any content: two looks with the same print mean that nothing
 * was changed between them. */
struct sync_gitdir_look {
    bool found;
    uint64_t n;    /* entries */
    int64_t bytes; /* of the stream */
    struct sync_id print;
};
/* dir: the folder that holds it. Returns 0, -E2BIG (too many entries, or too deep), or the errno.
 */
TR_MUST_CHECK int sync_gitdir_look(int dir, struct sync_gitdir_look *out);

/* Read it. dir is used until the end. Returns 0 with *out; -ENOENT: there is none. */
struct sync_gitdir_pack;
TR_MUST_CHECK int sync_gitdir_pack_new(int dir, struct sync_gitdir_pack **out);
/* The next bytes, at most size (at least 8192). Returns how many; 0: that was all, and nothing was
 * changed since the beginning; -ESTALE: something was, what came is worth nothing; the errno. */
TR_MUST_CHECK int64_t sync_gitdir_pack_next(struct sync_gitdir_pack *pack, void *buf, size_t size);
void sync_gitdir_pack_free(struct sync_gitdir_pack *pack); /* NULL is fine */

/* Put one beside the files of dir, where there must be none. It is made in stage, a folder on the
 * same file system, and renamed at the end: it comes whole or not at all. Both are used until the
 * end. Returns 0 with *out; -EEXIST. */
struct sync_gitdir_unpack;
TR_MUST_CHECK int sync_gitdir_unpack_new(int dir, int stage, struct sync_gitdir_unpack **out);
/* Bytes of the stream, in pieces of any size. Returns 0, -EBADMSG (no such stream), the errno. */
TR_MUST_CHECK int sync_gitdir_unpack_feed(struct sync_gitdir_unpack *u, const void *bytes,
                                          size_t len);
/* After the last byte. Returns 0: it is there; -EBADMSG: the stream was cut; -EEXIST; the errno. */
TR_MUST_CHECK int sync_gitdir_unpack_end(struct sync_gitdir_unpack *u);
/* What is still staged is removed. */
void sync_gitdir_unpack_free(struct sync_gitdir_unpack *u); /* NULL is fine */

#endif
