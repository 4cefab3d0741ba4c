/* SPDX-License-Identifier: MIT */
/* What stands under one name of a tree: its type, the signature by which a change is noticed, the
 * id of its content, and how work on it went. Shared by the tree, the messages and the engine. */
#ifndef SYNC_NODE_H
#define SYNC_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sync_type { SYNC_TYPE_FILE, SYNC_TYPE_DIR, SYNC_TYPE_LINK, SYNC_TYPE_SPECIAL };

/* As stat(2) tells it. Two of the same name that are equal mean that nothing was changed between
 * them, unless the earlier one was `fresh`. */
struct sync_sig {
    uint64_t ino;
    int64_t mtime_ns, ctime_ns; /* since 1970, by the clock of the tree's own machine */
    int64_t size;               /* bytes; of a folder 0 */
    uint32_t mode;              /* st_mode: type and permissions */
    /* It had changed within SYNC_FRESH_NS before it was looked at. A later change in the same tick
     * of that clock can leave an equal signature: take the content for known only after it was read
     * again under a signature that is not fresh. What sync_tree_apply() returns never is. */
    bool fresh;
};
#define SYNC_FRESH_NS (INT64_C(20) * 1000 * 1000)

/* Nothing was changed. Of folders only ino and mode count: the rest goes with what is in them.
 * fresh does not count. */
bool sync_sig_equal(const struct sync_sig *a, const struct sync_sig *b);
enum sync_type sync_sig_type(const struct sync_sig *sig);
/* May its owner execute it? What travels of a file's permissions. */
bool sync_sig_exec(const struct sync_sig *sig);

/* Id of a content: that of a Git blob, SHA-1 over "blob <length>\0" and the bytes; of a link, over
 * its target. It tells contents apart within one session, where whoever makes two contents of one
 * id harms nobody but himself. */
enum { SYNC_ID_LEN = 20 };
struct sync_id {
    uint8_t bytes[SYNC_ID_LEN];
};

bool sync_id_equal(const struct sync_id *a, const struct sync_id *b);
/* 40 hexadecimal digits and a NUL. */
void sync_id_hex(const struct sync_id *id, char out[2 * SYNC_ID_LEN + 1]);

/* An id in the making; in the caller's memory, nothing to free. */
struct sync_hash {
    uint64_t state[16];
};
/* size: bytes that will follow. */
void sync_hash_start(struct sync_hash *hash, int64_t size);
void sync_hash_feed(struct sync_hash *hash, const void *bytes, size_t len);
void sync_hash_end(struct sync_hash *hash, struct sync_id *id);
void sync_id_of(const void *bytes, size_t len, struct sync_id *id);

/* How work on one name went: 0, one of these, or the negative errno of the tree's machine. */
enum {
    SYNC_CHANGED = 1, /* not what was expected (any more): look at it again */
    SYNC_BUSY = 2,    /* a program has it open for writing: come back later */
};
/* "changed", "busy", or uv_strerror(). Static. */
const char *sync_status_text(int status);

#endif
