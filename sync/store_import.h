/* SPDX-License-Identifier: MIT */
/* A whole folder of files that somebody else made, taken into the session's tree. It is made in
 * the store's staging/ under a name of its own; whoever made it is not trusted. Rules as in
 * store.h. */
#ifndef SYNC_STORE_IMPORT_H
#define SYNC_STORE_IMPORT_H

#include "sync/store.h"

#define SYNC_IMPORT_NAME 32

struct sync_import {
    uint64_t n_files, n_dirs, n_links;
    int64_t bytes;
};

/* A name in staging/ that nobody uses. */
void sync_store_import_name(struct sync_store *store, char out[SYNC_IMPORT_NAME]);
/* Take what is in the folder staging/name: files, folders and links (the last unless with_links is
 * false: -EINVAL), below `dir`. All is looked at first, and nothing is changed when a path cannot
 * be stored (-EINVAL), stands in the way of a folder or on the way through a file (-EISDIR,
 * -ENOTDIR, -ELOOP) or when there is no room (-EDQUOT). A fault of the disk later leaves a part.
 * What was there before is kept in a checkpoint. */
TR_MUST_CHECK int sync_store_import(struct sync_store *store, const char *name, const char *dir,
                                    size_t dir_len, bool with_links, const char *author,
                                    struct sync_import *out, struct err *err);
/* Remove staging/name, whatever it is. */
void sync_store_import_drop(struct sync_store *store, const char *name);

#endif
