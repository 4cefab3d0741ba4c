/* SPDX-License-Identifier: MIT */
/* What the parts of the tree share: tree.c (paths, signatures), tree_list.c, tree_read.c,
 * tree_stage.c (content on its way), tree_apply.c. */
#ifndef SYNC_TREE_INTERNAL_H
#define SYNC_TREE_INTERNAL_H

#include <sys/stat.h>
#include "sync/tree.h"

enum { SYNC_TEMP_NAME = 64 }; /* bytes of a name in the staging folder, NUL included */

/* Open what lies beneath root. path is NUL-terminated; "" is root itself. Returns the descriptor or
 * the errno. */
TR_MUST_CHECK int sync_tree_open_at(const struct sync_tree *tree, const char *path, int flags);
/* The folder that holds the path's last component (O_PATH), and that component. make: folders on
 * the way are made. Returns the descriptor, or the errno. */
TR_MUST_CHECK int sync_tree_parent(const struct sync_tree *tree, const char *path, size_t len,
                                   bool make, char name[SYNC_NAME_MAX + 1]);
/* path copied with a NUL behind it. Returns 0, or UV_EINVAL: sync_path_check() refuses it. "" is
 * taken when root is true. */
TR_MUST_CHECK int sync_tree_path(const char *path, size_t len, bool root,
                                 char out[SYNC_PATH_MAX + 1]);
void sync_tree_sig(const struct stat *st, struct sync_sig *sig);
/* Signature of name in dir (of dir itself with ""). Returns 0 or the errno. */
TR_MUST_CHECK int sync_tree_sig_at(int dir, const char *name, struct sync_sig *sig);
/* Open name of dir for reading, with its signature. Returns the descriptor, UV_EINVAL (no regular
 * file), or the errno. */
TR_MUST_CHECK int sync_tree_open_file(int dir, const char *name, struct sync_sig *sig);
/* What was done in this folder (which may be open as O_PATH) is on the disk. */
TR_MUST_CHECK int sync_tree_flush_dir(int dir);
/* Does somebody have this file, which is open for reading, open for writing? False also when the
 * kernel does not tell us. */
bool sync_tree_has_writer(int fd);

/* The staging folder. Returns a descriptor to close, or the errno. */
TR_MUST_CHECK int sync_tree_stage_dir(const struct sync_tree *tree);
/* A name that nobody has used. Returns 0 or the errno. */
TR_MUST_CHECK int sync_tree_temp_name(char out[SYNC_TEMP_NAME]);
/* The same for what comes out of the tree: it says so, and what content is to go (id may be NULL:
 * not known). Should this program die before it has looked, sync_tree_sweep() does. */
TR_MUST_CHECK int sync_tree_out_name(const struct sync_id *id, char out[SYNC_TEMP_NAME]);
/* The id of a file's content or a link's target. Returns 0, SYNC_CHANGED (it is neither), or the
 * errno. */
TR_MUST_CHECK int sync_tree_content_id(int dir, const char *name, mode_t mode, struct sync_id *id);
/* Put `name` of the staging folder into the tree's folder `dir`, or, should that be gone, into the
 * root, under a name that begins like `like` and is nobody's. Returns false if it is still in the
 * staging folder. */
bool sync_tree_keep_aside(const struct sync_tree *tree, int stage, const char *name, int dir,
                          const char *like);

struct sync_stage {
    int dir;                   /* the staging folder */
    int fd;                    /* open for writing and reading; -1: committed or closed */
    char name[SYNC_TEMP_NAME]; /* in dir; "" once it is gone from there */
    int64_t size, written;
    struct sync_hash hash;
};

#endif
