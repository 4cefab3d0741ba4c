/* SPDX-License-Identifier: MIT */
/* What the files of the store share; see store.h. */
#ifndef SYNC_STORE_INTERNAL_H
#define SYNC_STORE_INTERNAL_H

#include <dirent.h>
#include <git2.h>
#include <sys/stat.h>
#include "sync/path.h"
#include "sync/store.h"

#define SYNC_BRANCH      "refs/heads/main"
#define SYNC_GITS_REF    "refs/transom/git"
#define SYNC_STORE_STAGE "sync-staging"
#define SYNC_PIECE       (128 * 1024) /* bytes that are read or written at a time */

/* A file of the last look at the tree: while it stays as it was, it need not be read again. */
struct sync_known {
    char *path;
    uint64_t ino;
    int64_t mtime_ns, ctime_ns, size;
    git_oid id;
};

struct sync_known_list { /* in the order of the paths' bytes */
    struct sync_known *items;
    size_t n, size;
};

struct sync_packing;

struct sync_store {
    char *dir;
    int dir_fd, files;
    int staging; /* ours; emptied when the store is opened */
    int sync_staging;
    size_t n_loose;     /* objects that are files of their own */
    int64_t counted_ms; /* when the tree was counted, by the clock that never goes back */
    git_repository *repo;
    git_odb *odb;
    struct sync_usage usage;
    uint64_t n_staged;            /* for names */
    bool is_writing;              /* the tree */
    struct sync_packing *packing; /* then: takes the objects; NULL: they are few so far */
    size_t n_few;                 /* that became files of their own */
    struct sync_known_list known;
    git_oid gits; /* store_gits.c: what the next checkpoint names; zero: none */
};

/* ---- store_dir.c: folders by descriptor ---- */

/* Names of a folder but "." and "..", sorted by their bytes. Returns 0, -EMFILE, -E2BIG (more than
 * SYNC_STORE_FILES_MAX) and the like. */
TR_MUST_CHECK int sync_dir_names(int fd, char ***out, size_t *n);
void sync_dir_free_names(char **names, size_t n);
/* Open the folder `name` of `dir` for reading. -ELOOP: it is a link; -ENOTDIR. */
TR_MUST_CHECK int sync_dir_open(int dir, const char *name);

struct sync_tally {
    int64_t bytes, n; /* of regular files; of all entries */
};
/* Remove dir/name, whatever it is, with all below it; what is removed is added to tally (may be
 * NULL). Missing is fine. */
TR_MUST_CHECK int sync_dir_remove(int dir, const char *name, struct sync_tally *tally);
/* Remove the folder dir/name if nothing but folders is below it, else -ENOTEMPTY. What is no folder
 * stays, which is fine. */
TR_MUST_CHECK int sync_dir_remove_empty(int dir, const char *name, struct sync_tally *tally);
/* Add up all below a folder. */
TR_MUST_CHECK int sync_dir_tally(int fd, struct sync_tally *tally);
/* Write all below dir/name to the disk, and it. */
TR_MUST_CHECK int sync_dir_sync(int dir, const char *name);
TR_MUST_CHECK int sync_write_all(int fd, const void *data, size_t len);

/* ---- store.c ---- */

/* A path as text that can be shown: what is no printable UTF-8 as \xNN; cut with "..." */
#define SYNC_SHOWN_SIZE 220
const char *sync_show(const char *path, size_t len, char out[SYNC_SHOWN_SIZE]);
/* "PATH: why" for a code. */
int sync_fail_path(struct err *err, int code, const char *path, size_t len);
/* libgit2's last fault as ours. */
int sync_fail_git(struct err *err, int code, const char *what);
void sync_stat_from(const struct stat *st, struct sync_stat *out);
bool sync_name_is_git(const char *name, size_t len);

/* ---- store_path.c ---- */

/* A checked path, and its split. */
struct sync_at {
    char path[SYNC_PATH_MAX + 1];
    size_t len;
    char *base;                     /* last component, in path */
    char folder[SYNC_PATH_MAX + 1]; /* "" : the root */
};
TR_MUST_CHECK int sync_at_init(struct sync_at *at, const char *path, size_t len, struct err *err);
/* Open its folder, making it if asked to. */
TR_MUST_CHECK int sync_at_open_folder(struct sync_store *store, const struct sync_at *at, bool make,
                                      struct err *err);

/* ---- store_tree.c ---- */

/* Write the tree as it is now into the repository (no commit). *out: the tree object's id. */
TR_MUST_CHECK int sync_tree_write(struct sync_store *store, git_oid *out,
                                  struct sync_left_out *left, struct err *err);
void sync_known_free(struct sync_known_list *list);
/* Write a blob to a descriptor. */
TR_MUST_CHECK int sync_odb_write_to(git_odb *odb, const git_oid *id, int fd, struct err *err);

/* ---- store_pack.c: many new objects as one pack ---- */

/* Returns 0 with *out, to be freed, or an error. */
TR_MUST_CHECK int sync_packing_new(struct sync_store *store, struct sync_packing **out,
                                   struct err *err);
void sync_packing_free(struct sync_packing *p); /* NULL is fine */
bool sync_packing_has(const struct sync_packing *p, const git_oid *id);
/* Each object once. Returns 0 or the errno. */
TR_MUST_CHECK int sync_packing_add(struct sync_packing *p, const git_oid *id, git_object_t type,
                                   const void *data, size_t len);
/* The pack and its index are on the disk, and the store reads them. */
TR_MUST_CHECK int sync_packing_finish(struct sync_packing *p, struct sync_store *store,
                                      struct err *err);

/* ---- store_checkpoint.c ---- */

/* What was done in the folder `path` is on the disk. */
TR_MUST_CHECK int sync_sync_folder(const char *path, struct err *err);

/* Make a commit of a tree; parent NULL: the first. */
TR_MUST_CHECK int sync_commit(struct sync_store *store, const git_oid *tree, const git_oid *parent,
                              const char *message, enum sync_cause cause, const char *author,
                              struct sync_checkpoint *out, struct err *err);
/* The .git folders that a commit names; zero: none. */
void sync_commit_gits(const git_commit *commit, git_oid *out);
TR_MUST_CHECK int sync_head(struct sync_store *store, git_oid *out, struct err *err);
TR_MUST_CHECK int sync_find_commit(struct sync_store *store, const char *name, git_commit **out,
                                   struct err *err);

/* ---- store_gits.c ---- */

/* What store->gits names stays in the repository. */
TR_MUST_CHECK int sync_gits_keep(struct sync_store *store, struct err *err);
/* Make those of the folders at and below path what they were then. Returns whether that changed
 * anything. */
TR_MUST_CHECK int sync_gits_restore(struct sync_store *store, const git_oid *then, const char *path,
                                    size_t len, struct err *err);

#endif
