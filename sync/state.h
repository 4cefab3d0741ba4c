/* SPDX-License-Identifier: MIT */
/* What one side of a sync looks like: a sorted map from path to what is there. One is kept of the
 * guest, one of the store, and one of the ancestor, which is what both had in common last.
 *
 * Paths are in tree order: a folder, then all that is in it, then what comes after ("a", "a/b",
 * "a.b"), so that a folder's content is one run of nodes. Names are hostile: their number and their
 * bytes are bounded, and what goes beyond is refused, never forgotten: see sync_state_put().
 *
 * Nothing here is known to other threads; a state that nobody changes may be read by many. */
#ifndef SYNC_STATE_H
#define SYNC_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/node.h"
#include "transom/err.h"

enum {
    SYNC_STATE_NODES_MAX = 250000,           /* paths of one side */
    SYNC_STATE_BYTES_MAX = 32 * 1024 * 1024, /* bytes of those paths */
};

enum sync_what {
    SYNC_IS_ABSENT = 0,
    SYNC_IS_FILE, /* id, is_exec */
    SYNC_IS_LINK, /* id */
    SYNC_IS_DIR,
    /* Left out: it does not take part, and neither does anything below it. Never the same as
     * absent. why says for what reason; is_there whether something is at the path at all; has_id
     * that it is a file (is_exec) whose content is known all the same (id). */
    SYNC_IS_LEFT_OUT,
};

/* What is at a path. Unused fields are 0. */
struct sync_value {
    uint8_t what; /* enum sync_what */
    bool is_exec;
    bool is_there;
    bool has_id;
    uint8_t why; /* enum sync_why, or the engine's own reasons above those */
    struct sync_id id;
};

struct sync_node {
    struct sync_value value;
    struct sync_sig sig; /* the keeper's own: no part of any decision */
    uint64_t seq;        /* when the host learnt of this value; larger is later */
    uint16_t len;
    char path[]; /* NUL-terminated */
};

struct sync_state;

/* n_max, bytes_max: 0 for the defaults above. Returns 0 with *out set (caller frees it), or
 * UV_ENOMEM. */
TR_MUST_CHECK int sync_state_new(size_t n_max, size_t bytes_max, struct sync_state **out);
void sync_state_free(struct sync_state *st); /* NULL is fine */
void sync_state_clear(struct sync_state *st);
size_t sync_state_count(const struct sync_state *st);

/* The node of this path, made if there is none; value and sig are then 0, which the caller fills.
 * The path is copied, checked before (sync_path_check(), or "" for the tree as a whole).
 * UV_ENOSPC: over a limit; nothing has changed, and the caller has to leave out the folder as a
 * whole. UV_ENOMEM: nothing has changed. A node stays where it is until it is removed. */
TR_MUST_CHECK int sync_state_put(struct sync_state *st, const char *path, size_t len,
                                 struct sync_node **out);
/* Borrowed, or NULL. */
struct sync_node *sync_state_get(const struct sync_state *st, const char *path, size_t len);
/* Remove one path (not what is below it). Nothing happens if it is not there. */
void sync_state_remove(struct sync_state *st, const char *path, size_t len);
/* Remove all that is below a folder ("": everything but ""), not the folder itself. */
void sync_state_remove_below(struct sync_state *st, const char *dir, size_t len);

/* A place in a state; any change of the state ends it. */
struct sync_cursor {
    const struct sync_state *state;
    size_t chunk, at;
};

/* Start with the first node that is not before this path; "" is before all. */
void sync_cursor_start(struct sync_cursor *c, const struct sync_state *st, const char *path,
                       size_t len);
/* The node here (borrowed), or NULL at the end. */
struct sync_node *sync_cursor_get(const struct sync_cursor *c);
void sync_cursor_next(struct sync_cursor *c);

/* Tree order: negative, 0 or positive. */
int sync_path_order(const char *a, size_t a_len, const char *b, size_t b_len);
/* Is path below dir? Everything but "" is below "". */
bool sync_path_is_below(const char *path, size_t len, const char *dir, size_t dir_len);
/* The same, or dir itself. */
bool sync_path_is_within(const char *path, size_t len, const char *dir, size_t dir_len);

/* The same thing on both sides? Of what is left out, reasons count, too. */
bool sync_value_is_same(const struct sync_value *a, const struct sync_value *b);

#endif
