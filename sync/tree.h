/* SPDX-License-Identifier: MIT */
/* Looking at one tree and changing it, below a directory descriptor. The same code runs in the
 * agent on a guest's home and on the host on a session's store.
 *
 * All of this blocks: it belongs into a thread pool. It has no global state, and acts with the
 * rights of the calling thread. One tree may be used by several threads at once; an open folder,
 * file or stage by one at a time.
 *
 * Whoever lives in the tree is hostile. Paths (sync/path.h) are resolved beneath the root by
 * openat2(2) without following a symbolic link and without crossing a mount, so no race can lead
 * elsewhere; what is neither file, folder nor link is never opened. Names are bytes. */
#ifndef SYNC_TREE_H
#define SYNC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/node.h"
#include "sync/path.h"
#include "transom/err.h"

/* Name of the folder below the root where what is written is staged, unless another is given. The
 * filter never takes it, and sync_tree_dir_next() does not show it. */
#define SYNC_STAGE_NAME ".transom-stage"

enum {
    SYNC_DIR_MAX = 100000,  /* entries of one folder; more are not listed */
    SYNC_LINK_MAX = 4095,   /* bytes of a link's target */
    SYNC_PIECE_MAX = 65536, /* bytes of content in one piece */
    SYNC_HEAD_MAX = 8192,   /* bytes of a file's beginning, for sync/kinds.h */
};

/* Caller's memory; filled in by hand or by sync_tree_open(). */
struct sync_tree {
    int root;  /* the root folder; O_PATH is enough */
    int stage; /* a folder on the same file system that is ours alone; -1: SYNC_STAGE_NAME in root,
                  made when it is needed */
    bool sync; /* what is applied is on the disk before it is reported: the file is synced before it
                  gets its name, the folder after (the host's side) */
};

/* root: path of the folder. Returns 0 with tree->root ours to close (stage -1, sync false), or the
 * errno. */
TR_MUST_CHECK int sync_tree_open(struct sync_tree *tree, const char *root);
void sync_tree_close(struct sync_tree *tree);
/* Clear the staging folder of what an earlier run left there. What was on its way in goes. What had
 * just come out of the tree, to be compared and removed, goes if it is what it should be; if not,
 * an edit was caught in the middle, and it goes back into the root as "recovered.transom-kept-*".
 * before_ns: only what is older, in ns since 1970; nothing of a program that is alive may be. */
void sync_tree_sweep(const struct sync_tree *tree, int64_t before_ns);

/* The staging folder, made if it is missing: a descriptor to close, or the errno. What is put there
 * beside this library is its owner's to remove. */
TR_MUST_CHECK int sync_tree_own_stage(const struct sync_tree *tree);

/* ---- looking ---- */

struct sync_tree_entry {
    const char *name; /* in the folder; NUL-terminated */
    size_t name_len;
    const char *target; /* of a link, NUL-terminated; else NULL */
    size_t target_len;
    struct sync_sig sig;
};

/* The signature of one path ("" is the root); entry->name is NULL, entry->target is held in
 * `target`. Returns 0, or the errno: UV_ENOENT, UV_ELOOP (a link on the way), UV_EXDEV (on another
 * file system), UV_EINVAL (no path for sync_path_check()). */
TR_MUST_CHECK int sync_tree_stat(const struct sync_tree *tree, const char *path, size_t len,
                                 struct sync_tree_entry *entry, char target[SYNC_LINK_MAX + 1]);

/* One folder being read. */
struct sync_tree_dir;
/* dir: "" is the root. *sig, if not NULL: the folder's own. Returns 0 with *out, or the errno. */
TR_MUST_CHECK int sync_tree_dir_open(const struct sync_tree *tree, const char *dir, size_t len,
                                     struct sync_sig *sig, struct sync_tree_dir **out);
/* The next entry, in no order; it is valid until the next call. What is mounted in the folder, and
 * what cannot be looked at, has mode 0 and is SYNC_TYPE_SPECIAL. Returns 1; 0: that was all of
 * them; or the errno: UV_E2BIG after SYNC_DIR_MAX entries. Entries that go meanwhile are passed
 * over. */
TR_MUST_CHECK int sync_tree_dir_next(struct sync_tree_dir *dir, struct sync_tree_entry *entry);
/* After the last entry: was the folder changed while it was read? Then an entry that was not told
 * may be there all the same. */
bool sync_tree_dir_changed(struct sync_tree_dir *dir);
void sync_tree_dir_close(struct sync_tree_dir *dir);

/* All of the above in one call. *changed as sync_tree_dir_changed(); may be NULL. The callback
 * returns false to end early. Returns 0 or the errno. */
typedef bool (*sync_tree_entry_cb)(const struct sync_tree_entry *entry, void *arg);
TR_MUST_CHECK int sync_tree_list(const struct sync_tree *tree, const char *dir, size_t len,
                                 sync_tree_entry_cb cb, void *arg, bool *changed);

/* One file, or one link's target, being read. */
struct sync_tree_file;
struct sync_tree_read {
    struct sync_sig sig; /* of what was read */
    struct sync_id id;   /* of its content */
    /* A program has it open for writing: this is what it holds now, and may be half of what it will
     * hold. Not known of files that belong to others (false then). */
    bool writer;
};
/* expected: what it must be, or NULL. Returns 0 with *out and *sig; SYNC_CHANGED (nothing is open
 * then, also when it is gone); or the errno: UV_EISDIR, UV_EINVAL (no file and no link). */
TR_MUST_CHECK int sync_tree_file_open(const struct sync_tree *tree, const char *path, size_t len,
                                      const struct sync_sig *expected, struct sync_sig *sig,
                                      struct sync_tree_file **out);
/* The next bytes, in order, at most size (> 0). Returns how many; 0: that was all; SYNC_CHANGED is
 * not told here; the errno. Never more bytes than the signature said, whatever the file does. */
TR_MUST_CHECK int64_t sync_tree_file_next(struct sync_tree_file *file, void *buf, size_t size);
/* After the last byte: what was read. Returns 0, or SYNC_CHANGED: what was read is nothing. */
TR_MUST_CHECK int sync_tree_file_end(struct sync_tree_file *file, struct sync_tree_read *out);
void sync_tree_file_close(struct sync_tree_file *file);

/* All of the above in one call. sink may be NULL: only the id is wanted. The sink returns 0 or an
 * errno that ends it. head may be NULL; else it gets the first SYNC_HEAD_MAX bytes or less, and
 * *head_len how many. */
typedef int (*sync_tree_sink_cb)(const void *bytes, size_t len, void *arg);
TR_MUST_CHECK int sync_tree_read(const struct sync_tree *tree, const char *path, size_t len,
                                 const struct sync_sig *expected, sync_tree_sink_cb sink, void *arg,
                                 uint8_t *head, size_t *head_len, struct sync_tree_read *out);

/* ---- changing ---- */

enum sync_op_kind {
    SYNC_OP_DIR,    /* make a folder; one that is there is as good */
    SYNC_OP_FILE,   /* put a file there, with content from a stage */
    SYNC_OP_LINK,   /* put a link there */
    SYNC_OP_REMOVE, /* remove a file or link, or whatever is no folder */
    SYNC_OP_RMDIR,  /* remove an empty folder; else -ENOTEMPTY */
    SYNC_OP_CHMOD,  /* set or take away the right to execute */
    SYNC_N_OP,
};

struct sync_op {
    enum sync_op_kind kind;
    const char *path;
    size_t path_len;
    /* What must be there now: nothing, or what has this signature. REMOVE and RMDIR are done when
     * there is nothing, whatever is expected; DIR looks at neither. */
    bool absent;
    struct sync_sig expected; /* unless absent */
    /* FILE: what is replaced must also have this content. It closes the last gap: an edit that left
     * size and time as they were in the moment between looking and replacing. */
    bool has_id;
    struct sync_id id;
    bool exec;          /* FILE, CHMOD */
    const char *target; /* LINK */
    size_t target_len;
};

/* Content on its way, under a name of its own in the staging folder. It is in nobody's way, and
 * goes when the stage is closed without having been applied. */
struct sync_stage;
/* size: bytes that will be written, for the id. Returns 0 with *out, or the errno. */
TR_MUST_CHECK int sync_stage_open(const struct sync_tree *tree, int64_t size,
                                  struct sync_stage **out);
/* Returns 0 or the errno (UV_ENOSPC, UV_EFBIG: more than was announced). */
TR_MUST_CHECK int sync_stage_write(struct sync_stage *stage, const void *bytes, size_t len);
/* What was written so far, once all of it was. Returns 0, or -EBADMSG: less than announced. */
TR_MUST_CHECK int sync_stage_end(struct sync_stage *stage, struct sync_id *id);
void sync_stage_close(struct sync_stage *stage);

/* Carry it out. stage: of FILE, after sync_stage_end(); else NULL; the caller closes it. Folders on
 * the way are made. What is replaced goes as one step (renameat2(2), RENAME_EXCHANGE), is compared
 * once it can no longer be found, and put back if it is not what was expected: a program that edits
 * the file meanwhile never loses its edit (at worst it is found beside, as NAME.transom-kept-*),
 * and nobody ever sees half a file. A new file is 0644 or
 * 0755; one that is replaced keeps its permissions but for the right to execute. Hard links part.
 * Returns 0 with *sig (of what is there now; ino 0: nothing is), SYNC_CHANGED, SYNC_BUSY (a program
 * has the file that would go open for writing), or the errno; nothing is changed then. */
TR_MUST_CHECK int sync_tree_apply(const struct sync_tree *tree, const struct sync_op *op,
                                  struct sync_stage *stage, struct sync_sig *sig);

/* The same for a FILE whose content is in memory or in a descriptor (read from where it stands to
 * its end). */
TR_MUST_CHECK int sync_tree_put(const struct sync_tree *tree, const struct sync_op *op,
                                const void *bytes, size_t len, struct sync_sig *sig);
TR_MUST_CHECK int sync_tree_put_fd(const struct sync_tree *tree, const struct sync_op *op, int fd,
                                   struct sync_sig *sig);

#endif
