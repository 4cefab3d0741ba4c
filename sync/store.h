/* SPDX-License-Identifier: MIT */
/* The store of one session: a plain tree of files and their checkpoints, below one folder:
 *
 *   files/      the tree: what the session's machines get and what the API shows
 *   store.git/  bare Git repository: one commit per checkpoint, branch main, one line
 *   staging/    what is being written or removed; emptied when the store is opened
 *   sync-staging/  the same for the sync with machines, which sweeps it (sync/tree.h)
 *
 * The folder may be written by whoever runs the manager, and by nobody else. A path is the bytes
 * of sync/path.h; a component that is ".git" in any case is refused, too, since Git could not keep
 * it. No symbolic link is followed on the way to a path, and none at its end.
 *
 * Order of writing, so that a crash at any moment leaves the old or the new:
 *   a file        staging/X written, fsync(X), renamed to its path, fsync(its folder)
 *   a folder      made, fsync(the folder above), from the top down
 *   a removal     unlinked, or renamed into staging/ when it is a folder; fsync(the folder)
 *   a checkpoint  blobs, trees, commit (each written, fsync, renamed, fsync of its folder);
 *                 fsync(store.git/objects); then the branch (likewise)
 * Opening removes what a crash left: staging/X, lock files and half objects of the repository.
 *
 * All calls block and belong on a pool's thread; one at a time for one store. Nothing here is known
 * to other threads but sync_store_init(). Faults: a negative errno with the reason in err; those
 * that callers tell apart are named at each function. -EDQUOT: the quota; -ENOSPC: the disk. */
#ifndef SYNC_STORE_H
#define SYNC_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "sync/filter.h"
#include "sync/path.h"
#include "sync/zip.h"
#include "transom/err.h"

struct sync_store;

#define SYNC_ID_BYTES        20     /* a blob's or a commit's name: SHA-1, as Git's */
#define SYNC_ID_SIZE         41     /* the same in hexadecimal, with its NUL */
#define SYNC_STORE_FILES_MAX 500000 /* entries of the tree */
#define SYNC_MESSAGE_MAX     4096   /* bytes of a checkpoint's message */

/* Once in the process, before any store is opened; and after the last one was closed. */
TR_MUST_CHECK int sync_store_init(struct err *err);
void sync_store_fini(void);

/* ---- the store ---- */

struct sync_usage {
    int64_t files;   /* bytes of the tree's files */
    int64_t history; /* bytes of store.git on the disk */
    int64_t quota;   /* bytes that both may have; 0: no bound */
    int64_t n_files; /* entries, folders too */
};

/* Open, making what is missing (dir itself exists). A new store has one checkpoint, of no files.
 * -ENOTEMPTY: dir holds something that is no store. */
TR_MUST_CHECK int sync_store_open(const char *dir, int64_t quota, struct sync_store **out,
                                  struct err *err);
void sync_store_close(struct sync_store *store); /* NULL is fine */
void sync_store_usage(const struct sync_store *store, struct sync_usage *out);
/* Git objects that are files of their own: with many, sync_store_repack() is due, and
 * sync_store_repacked() after it. */
size_t sync_store_loose(const struct sync_store *store);
TR_MUST_CHECK int sync_store_repacked(struct sync_store *store, struct err *err);
/* Borrowed descriptors of files/ and sync-staging/, which are on one file system. Others may write
 * below them; how much there is is counted anew now and then. */
int sync_store_files(const struct sync_store *store);
int sync_store_staging(const struct sync_store *store);
TR_MUST_CHECK int sync_store_recount(struct sync_store *store, struct err *err);
/* Would `more` bytes of files fit? -EDQUOT: no. */
TR_MUST_CHECK int sync_store_room(struct sync_store *store, int64_t more, struct err *err);

/* ---- paths ---- */

/* -EINVAL: such a path cannot be stored, with the reason. */
TR_MUST_CHECK int sync_store_check_path(const char *path, size_t len, struct err *err);

/* What is at a path. */
struct sync_stat {
    enum sync_type type; /* SPECIAL: neither file, folder nor link; it is never opened */
    bool is_exec;        /* of a file */
    int64_t size;        /* bytes of a file, or of a link's target */
    int64_t mtime_ns, ctime_ns;
    uint64_t ino;
    uint32_t mode;
};

#define SYNC_ETAG_SIZE 72
/* "\"...\"": changes with each change of the file. */
void sync_store_etag(const struct sync_stat *st, char out[SYNC_ETAG_SIZE]);

/* -ENOENT, -ENOTDIR, -ELOOP (a link on the way). path "" with len 0 is the tree's root. */
TR_MUST_CHECK int sync_store_stat(struct sync_store *store, const char *path, size_t len,
                                  struct sync_stat *out, struct err *err);
/* Open a regular file for reading. Returns the descriptor (yours); -EISDIR, -EINVAL (special). */
TR_MUST_CHECK int sync_store_open_file(struct sync_store *store, const char *path, size_t len,
                                       struct sync_stat *out, struct err *err);
/* A link's target; *target is yours, NUL-terminated. */
TR_MUST_CHECK int sync_store_read_link(struct sync_store *store, const char *path, size_t len,
                                       char **target, struct err *err);

/* Return non-zero to end the listing; it is passed on. target: of a link, else NULL. */
typedef int (*sync_list_cb)(const char *path, size_t len, const struct sync_stat *st,
                            const char *target, void *arg);
/* The entries of a folder, in the order of their bytes, with all below them if recursive (a folder
 * before what is in it). after (NULL: none): go on behind this path of an earlier listing. */
TR_MUST_CHECK int sync_store_list(struct sync_store *store, const char *dir, size_t dir_len,
                                  bool recursive, const char *after, sync_list_cb cb, void *arg,
                                  struct err *err);

/* A file on its way in. Bytes are written to fd at its position; the caller asks
 * sync_store_room() as it goes. */
struct sync_staged {
    int fd; /* -1: none */
    char name[32];
};
TR_MUST_CHECK int sync_store_stage(struct sync_store *store, struct sync_staged *out,
                                   struct err *err);
void sync_store_unstage(struct sync_store *store, struct sync_staged *staged); /* twice is fine */

/* What must be at the path for a change to be made. */
enum sync_expect {
    SYNC_EXPECT_ANY,
    SYNC_EXPECT_ABSENT, /* nothing */
    SYNC_EXPECT_SAME,   /* what etag says */
};
struct sync_condition {
    enum sync_expect expect;
    const char *etag;
};

enum sync_exec { SYNC_EXEC_KEEP, SYNC_EXEC_ON, SYNC_EXEC_OFF };

/* Give a staged file its path; folders above are made, a file or link there is replaced. KEEP: the
 * bit of the file that is replaced, off for a new one. staged is used up on success. *created: the
 * path was new. -ESTALE: the condition did not hold; -EISDIR; -ENOTDIR; -ELOOP. */
TR_MUST_CHECK int sync_store_put(struct sync_store *store, const char *path, size_t len,
                                 struct sync_staged *staged, enum sync_exec exec,
                                 const struct sync_condition *condition, struct sync_stat *out,
                                 bool *created, struct err *err);
/* The same for bytes in memory. */
TR_MUST_CHECK int sync_store_put_bytes(struct sync_store *store, const char *path, size_t len,
                                       const void *data, size_t data_len, enum sync_exec exec,
                                       const struct sync_condition *condition,
                                       struct sync_stat *out, bool *created, struct err *err);
/* A link; target is kept as it is, 1 to SYNC_PATH_MAX bytes. */
TR_MUST_CHECK int sync_store_link(struct sync_store *store, const char *path, size_t len,
                                  const char *target, const struct sync_condition *condition,
                                  bool *created, struct err *err);
TR_MUST_CHECK int sync_store_mkdir(struct sync_store *store, const char *path, size_t len,
                                   bool *created, struct err *err);
TR_MUST_CHECK int sync_store_set_exec(struct sync_store *store, const char *path, size_t len,
                                      bool is_exec, struct err *err);
/* Returns 0 (also when there was nothing and nothing was asked for with a condition), -ENOTEMPTY,
 * -ESTALE. */
TR_MUST_CHECK int sync_store_remove(struct sync_store *store, const char *path, size_t len,
                                    bool recursive, const struct sync_condition *condition,
                                    struct err *err);
/* Rename a file, link or folder; folders above `to` are made. -EEXIST: something is there and not
 * replace, or it is a folder; -ENOENT; -EINVAL: into itself. */
TR_MUST_CHECK int sync_store_move(struct sync_store *store, const char *from, size_t from_len,
                                  const char *to, size_t to_len, bool replace, struct err *err);

/* ---- checkpoints ---- */

enum sync_cause {
    SYNC_CAUSE_CREATED, /* the store was made */
    SYNC_CAUSE_RUN,     /* a run ended */
    SYNC_CAUSE_IDLE,    /* the sandbox stops for being idle */
    SYNC_CAUSE_STOP,
    SYNC_CAUSE_RESET,
    SYNC_CAUSE_API, /* somebody asked for it */
    SYNC_CAUSE_TIMER,
    SYNC_CAUSE_RESTORE,
    SYNC_CAUSE_CONFLICT, /* both sides had changed a file: what was lost */
    SYNC_N_CAUSES,
};
const char *sync_cause_name(enum sync_cause cause); /* "run"; static */

struct sync_checkpoint {
    char id[SYNC_ID_SIZE];
    char parent[SYNC_ID_SIZE]; /* "" for the first */
    enum sync_cause cause;
    int64_t time_s;                     /* Unix time */
    char message[SYNC_MESSAGE_MAX + 1]; /* without the line that holds the cause */
    char author[256];                   /* a name */
};

/* What a checkpoint could not take: paths that no store should hold, special files, files that
 * could not be read. The first of them is named. */
struct sync_left_out {
    uint64_t n;
    char path[256]; /* cut */
    char why[128];
};

/* Keep the tree as it is now. message: UTF-8 or not, at most SYNC_MESSAGE_MAX bytes; NULs and "\r"
 * are no part of it. Empty folders are in the tree, but in no checkpoint. Returns 0, or 1 when
 * nothing has changed since the last one; *out is the new or the last one. left may be NULL. */
TR_MUST_CHECK int sync_store_checkpoint(struct sync_store *store, const char *message,
                                        enum sync_cause cause, const char *author,
                                        struct sync_checkpoint *out, struct sync_left_out *left,
                                        struct err *err);
/* name: an id, at least 7 digits of one, "latest" or "first". -ENOENT; -EINVAL: it cannot be one.
 */
TR_MUST_CHECK int sync_store_find(struct sync_store *store, const char *name,
                                  struct sync_checkpoint *out, struct err *err);
/* Newest first; cb returns non-zero to end it, which is passed on. before (NULL: the latest one
 * on): only those older than this id. */
typedef int (*sync_checkpoint_cb)(const struct sync_checkpoint *checkpoint, void *arg);
TR_MUST_CHECK int sync_store_history(struct sync_store *store, const char *before,
                                     sync_checkpoint_cb cb, void *arg, struct err *err);
/* Make the tree below path (len 0: all of it) what it was then. What was there before is kept in a
 * checkpoint, and the outcome is one, too: *out. Returns 0, or 1 when nothing was to be done.
 * -ENOENT: neither the checkpoint nor the tree has the path. */
TR_MUST_CHECK int sync_store_restore(struct sync_store *store, const char *name, const char *path,
                                     size_t len, const char *author, struct sync_checkpoint *out,
                                     struct err *err);

/* ---- blobs: contents by their Git id, raw bytes ---- */

bool sync_store_has_blob(struct sync_store *store, const uint8_t id[SYNC_ID_BYTES]);
/* Keep the bytes of a descriptor, from its position to its end, size in all. */
TR_MUST_CHECK int sync_store_put_blob(struct sync_store *store, int fd, int64_t size,
                                      uint8_t id[SYNC_ID_BYTES], struct err *err);
/* Write a blob to a descriptor. -ENOENT. */
TR_MUST_CHECK int sync_store_get_blob(struct sync_store *store, const uint8_t id[SYNC_ID_BYTES],
                                      int fd, struct err *err);

/* The same into a file without a name: a descriptor of it (yours), at its end. hex: 40 digits.
 * -ENOENT, -EINVAL. */
TR_MUST_CHECK int sync_store_open_blob(struct sync_store *store, const char *hex, struct err *err);

/* What a sync with a machine replaced or removed (sync/vault_git.h), newest first. */
struct sync_kept_version {
    char why[12], side[8]; /* "older", "removed", "conflict"; "guest", "store": whose it was */
    char id[SYNC_ID_SIZE]; /* of the content */
    enum sync_type type;
    bool is_exec;
    int64_t time_s;             /* when, in Unix time */
    char at[SYNC_ID_SIZE + 24]; /* for `after`: go on behind this one */
    size_t len;
    char path[SYNC_PATH_MAX + 1];
};
/* Return non-zero to end it; it is passed on. */
typedef int (*sync_kept_cb)(const struct sync_kept_version *version, void *arg);
TR_MUST_CHECK int sync_store_kept(struct sync_store *store, const char *after, sync_kept_cb cb,
                                  void *arg, struct err *err);

/* A file of the repository, as Git's dumb HTTP protocol asks for it ("info/refs", "HEAD",
 * "objects/..."). Returns a descriptor (yours) of a regular file; -ENOENT. */
TR_MUST_CHECK int sync_store_open_git(struct sync_store *store, const char *path, struct err *err);

/* ---- changes ---- */

enum sync_change_kind { SYNC_ADDED = 1, SYNC_MODIFIED, SYNC_DELETED };
struct sync_change {
    enum sync_change_kind kind;
    const char *path; /* NUL-terminated bytes */
    enum sync_type type, old_type;
    bool is_exec, old_exec;
    int64_t size; /* bytes, of what there is now */
    uint8_t id[SYNC_ID_BYTES], old_id[SYNC_ID_BYTES];
};
const char *sync_change_name(enum sync_change_kind kind); /* "added"; static */

struct sync_changes;

/* What changed between two checkpoints; to NULL: the tree as it is now. */
TR_MUST_CHECK int sync_changes_open(struct sync_store *store, const char *from, const char *to,
                                    struct sync_changes **out, struct err *err);
void sync_changes_close(struct sync_changes *c); /* before the store; NULL is fine */
size_t sync_changes_count(const struct sync_changes *c);
void sync_changes_get(struct sync_changes *c, size_t i, struct sync_change *out);

/* The changes as Git's patch, and as a ZIP archive of what was added or modified. Each call adds
 * the next piece, of some 256 KiB at most but for a text file's patch; returns 1 while there is
 * more, 0 at the end. The formats do not mix. */
TR_MUST_CHECK int sync_changes_patch(struct sync_changes *c, struct sync_buf *buf, struct err *err);
TR_MUST_CHECK int sync_changes_zip(struct sync_changes *c, struct sync_buf *buf, struct err *err);

#endif
