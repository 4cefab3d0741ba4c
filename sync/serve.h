/* SPDX-License-Identifier: MIT */
/* The agent's half of a conversation about a tree, without the transport: bytes of the request in,
 * bytes of the answer out, work in between in steps that a thread pool can take.
 *
 *   list   DIR*                                  -> per DIR: LISTING ENTRY* LISTED
 *                                                   (a LISTING with a status stands alone)
 *   hash   WANT*                                 -> per WANT: HASHED
 *   read   WANT*                                 -> per WANT: READING PIECE* READ
 *                                                   (a READING with a status stands alone)
 *   apply  (OP | OP PIECE* (COMMIT | DROP))*     -> per OP: APPLIED
 *
 * Between any two, ALIVE, when an answer takes long. Answers come in the order of the requests,
 * while later ones still arrive. A file whose content was dropped, or has another id than COMMIT
 * says, is APPLIED with -ECANCELED or -EBADMSG. One that cannot be staged (no space) is answered
 * when its content is over; the rest goes on. */
#ifndef SYNC_SERVE_H
#define SYNC_SERVE_H

#include "sync/wire.h"

enum sync_serve_kind { SYNC_SERVE_LIST, SYNC_SERVE_HASH, SYNC_SERVE_READ, SYNC_SERVE_APPLY };

enum {
    SYNC_SERVE_MORE = 0, /* there is more to do: step again once the output was taken */
    SYNC_SERVE_HUNGRY,   /* nothing to do until there is more input */
    SYNC_SERVE_DONE,     /* the request is answered; the output is complete */
};

struct sync_serve;

/* tree is borrowed. Returns 0 with *out, or UV_ENOMEM. Nothing here blocks but step() and free()
 * (which removes a file that was being staged). Not for two threads at once. */
TR_MUST_CHECK int sync_serve_new(enum sync_serve_kind kind, const struct sync_tree *tree,
                                 struct sync_serve **out);
void sync_serve_free(struct sync_serve *serve);
/* Ask this before anything is looked at or changed: what is op (NULL: looked at only) to do with
 * this path? 0, or the negative errno that is the answer. arg is borrowed. */
typedef int (*sync_serve_guard_cb)(const char *path, size_t len, const struct sync_op *op,
                                   void *arg);
void sync_serve_guard(struct sync_serve *serve, sync_serve_guard_cb guard, void *arg);
/* More of the request (copied). Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int sync_serve_input(struct sync_serve *serve, const uint8_t *bytes, size_t len);
void sync_serve_input_end(struct sync_serve *serve);
/* Work until about 64 KiB of output are ready or 50 ms have passed. Returns one of the above, or
 * UV_EPROTO (the request is broken), UV_ENOMEM. Output that is ready before a fault is good. */
TR_MUST_CHECK int sync_serve_step(struct sync_serve *serve);
/* Bytes of input that were dealt with since the last call. */
size_t sync_serve_eaten(struct sync_serve *serve);
/* As sync_pack_bytes() and sync_pack_taken(). */
const uint8_t *sync_serve_output(const struct sync_serve *serve, size_t *len);
void sync_serve_taken(struct sync_serve *serve, size_t len);

#endif
