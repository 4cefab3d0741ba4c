/* SPDX-License-Identifier: MIT */
/* Messages between the host and the agent about a tree. Both directions have one form: a version
 * byte, then blocks. A block is
 *     u32 on the wire, u32 raw (both in bytes, at most SYNC_BLOCK_MAX), its bytes:
 * as they are when both are equal, else one zstd frame. Joined, the raw bytes of all blocks are
 * messages:
 *     u8 type, u32 length (at most SYNC_MSG_MAX), payload.
 * Numbers are little endian. A message may lie across blocks. What a peer announces is checked
 * before anything is made of it, so that memory is bounded whatever it sends: one block on the
 * wire, one raw, one message.
 *
 * A conversation is one HTTP/2 request, whose body goes one way and whose answer the other; see
 * sync/serve.h for which messages belong to which. */
#ifndef SYNC_WIRE_H
#define SYNC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/tree.h"
#include "transom/err.h"

enum {
    SYNC_WIRE_VERSION = 1,
    SYNC_BLOCK_MAX = 262144, /* bytes, raw and on the wire */
    SYNC_BLOCK_ZIP = 1024,   /* bytes from which compressing is tried */
    SYNC_MSG_MAX = 81920,    /* bytes of one payload */
};

/* ---- messages ---- */

enum sync_msg_type {
    /* Host to agent. */
    SYNC_MSG_DIR = 1, /* list: this folder */
    SYNC_MSG_WANT,    /* hash, read: this file, if it has this signature */
    SYNC_MSG_OP,      /* apply: this; FILE is followed by PIECEs and then COMMIT or DROP */
    SYNC_MSG_COMMIT,  /* apply: the content is complete */
    SYNC_MSG_DROP,    /* apply: the content cannot be had: forget the file */
    SYNC_MSG_WATCH,   /* watch: this folder, too */
    SYNC_MSG_UNWATCH, /* watch: this folder no more */
    /* Both. */
    SYNC_MSG_PIECE, /* content */
    /* Agent to host. */
    SYNC_MSG_LISTING,  /* a folder's entries follow (status 0), or the reason why not */
    SYNC_MSG_ENTRY,    /* one of them */
    SYNC_MSG_LISTED,   /* that was all of that folder, unless status says otherwise */
    SYNC_MSG_HASHED,   /* the id of a file and its beginning, or why not */
    SYNC_MSG_READING,  /* a file's content follows (status 0), or the reason why not */
    SYNC_MSG_READ,     /* that was all of it, and it counts only if status is 0 */
    SYNC_MSG_APPLIED,  /* how an operation went */
    SYNC_MSG_DIRTY,    /* this folder is, or may be, different */
    SYNC_MSG_LOST,     /* this folder is not watched (any more), and why */
    SYNC_MSG_OVERFLOW, /* nothing is watched any more */
    SYNC_MSG_ALIVE,    /* it takes long: the next answer is still being worked on */
    SYNC_N_MSG,
};

/* One message. What it points to is borrowed: from the writer, or valid until the next message is
 * read. Which fields count, by type:
 *   DIR WATCH UNWATCH DIRTY      path (may be "": the root)
 *   LOST                         path, status
 *   WANT                         path, has_sig, sig
 *   OP                           op (with op.path; size is FILE's content), size
 *   COMMIT                       id (of the content, which is checked)
 *   PIECE                        bytes, len (1 to SYNC_PIECE_MAX)
 *   LISTING                      index, status, sig (the folder's)
 *   ENTRY                        entry
 *   LISTED                       index, status, flag (changed while it was read)
 *   HASHED                       index, status, flag (writer), sig, id, bytes, len (the beginning)
 *   READING                      index, status, sig
 *   READ                         index, status, flag (writer), sig, id
 *   APPLIED                      index, status, sig
 * index counts the requests of one conversation from 0. A status is as in sync/node.h: 0,
 * SYNC_CHANGED, SYNC_BUSY, or -1 to -4095; where it is not 0, sig, id and bytes are zeros. */
struct sync_msg {
    enum sync_msg_type type;
    const char *path;
    size_t path_len;
    bool has_sig, flag;
    struct sync_sig sig;
    struct sync_id id;
    struct sync_op op;
    int64_t size;
    const uint8_t *bytes;
    size_t len;
    uint32_t index;
    int32_t status;
    struct sync_tree_entry entry; /* name and target are not NUL-terminated */
};

/* Read the payload of one message. Everything is checked: paths by sync_path_check(), names,
 * lengths, statuses, and that nothing follows. Returns 0 or UV_EPROTO. */
TR_MUST_CHECK int sync_msg_parse(uint8_t type, const uint8_t *payload, size_t len,
                                 struct sync_msg *msg);

/* ---- writing ---- */

/* Collects messages and makes blocks of them. */
struct sync_pack;
/* Returns 0 with *out, or UV_ENOMEM. zip: compress where it helps. */
TR_MUST_CHECK int sync_pack_new(bool zip, struct sync_pack **out);
void sync_pack_free(struct sync_pack *pack);
/* Add one message. A message that sync_msg_parse() would refuse is UV_EINVAL; UV_ENOMEM. After an
 * error nothing was added. */
TR_MUST_CHECK int sync_pack_add(struct sync_pack *pack, const struct sync_msg *msg);
/* Raw bytes that wait to become a block. A whole block becomes one by itself. */
size_t sync_pack_waiting(const struct sync_pack *pack);
/* Make a block of what waits. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int sync_pack_flush(struct sync_pack *pack);
/* The finished bytes, owned by pack, valid until the next call that adds; sync_pack_taken() removes
 * len of them from the front. */
const uint8_t *sync_pack_bytes(const struct sync_pack *pack, size_t *len);
void sync_pack_taken(struct sync_pack *pack, size_t len);

/* ---- reading ---- */

/* Takes bytes of any size apart into messages. */
struct sync_unpack;
/* Returns 0 with *out, or UV_ENOMEM. */
TR_MUST_CHECK int sync_unpack_new(struct sync_unpack **out);
void sync_unpack_free(struct sync_unpack *unpack);
/* More bytes (copied). Returns how many were taken, from 0 to len: the rest again after messages
 * were read. */
size_t sync_unpack_feed(struct sync_unpack *unpack, const uint8_t *bytes, size_t len);
/* The next message. Returns 1; 0: feed more; UV_EPROTO: the peer is broken, and so is all that
 * follows; UV_ENOMEM. */
TR_MUST_CHECK int sync_unpack_next(struct sync_unpack *unpack, struct sync_msg *msg);
/* After the last byte: was that the end of a message, and of at least a version byte? */
bool sync_unpack_at_end(const struct sync_unpack *unpack);

#endif
