/* SPDX-License-Identifier: MIT */
/* Files of the machine by path. Relative paths lie beneath the home of the sandbox user and cannot
 * leave it, by ".." or by symlink; absolute ones are what they say. Names are bytes. All of this
 * blocks, and acts with the rights of the calling thread: see act.h. */
#ifndef VMM_AGENT_FILES_H
#define VMM_AGENT_FILES_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "transom/err.h"
#include "vmm/agent/act.h"

#define AGENT_MAX_ENTRIES 50000 /* of one listing; the rest is cut off and said so */

/* Who asks, and where relative paths begin. */
struct agent_files {
    char home[PATH_MAX];
    struct agent_act act; /* for the caller */
    bool own;             /* hand what is made to: */
    uid_t uid;
    gid_t gid;
};

/* Open path, no magic links on the way. Returns the descriptor or the errno (-EXDEV: it would leave
 * home). */
TR_MUST_CHECK int agent_files_open_path(const struct agent_files *f, const char *path, int flags);
/* Split into folder and last name. Returns false for a path without a last name. */
bool agent_files_split(const char *path, char *folder, size_t size, char *name, size_t name_size);
/* Open a folder (O_PATH), making what is missing of it one name at a time. folder is scratch. */
TR_MUST_CHECK int agent_files_open_folder(const struct agent_files *f, char *folder);
/* Set err to path and what code means. Returns the code to pass on. */
int agent_files_fail(struct err *err, int code, const char *path);
/* Bytes as JSON text (new), what is no UTF-8 replaced. */
json_t *agent_files_text(const char *text, size_t len);

/* Open a regular file. Returns the descriptor and *st, or UV_EISDIR, UV_EINVAL (something else),
 * the errno. */
TR_MUST_CHECK int agent_files_open(const struct agent_files *f, const char *path, struct stat *st,
                                   struct err *err);
/* {"path","entries":[..],"truncated"?}, sorted by name. */
TR_MUST_CHECK int agent_files_list(const struct agent_files *f, const char *path, json_t **out,
                                   struct err *err);
/* {"path","type","size","mode","uid","gid","mtime_ms","target"?}; follow: of what a symlink names.
 */
TR_MUST_CHECK int agent_files_stat(const struct agent_files *f, const char *path, bool follow,
                                   json_t **out, struct err *err);
/* Make a folder and those above it. mode (mode_t)-1: 0755. One that is there already is left as it
 * is; *made tells. */
TR_MUST_CHECK int agent_files_mkdir(const struct agent_files *f, const char *path, mode_t mode,
                                    bool *made, struct err *err);
/* Rename within a file system; missing folders of to are made. replace: what is at to may go, else
 * UV_EEXIST. */
TR_MUST_CHECK int agent_files_move(const struct agent_files *f, const char *from, const char *to,
                                   bool replace, struct err *err);
/* A missing one is removed already. recursive: folders with all that is in them, else only empty
 * ones. Home and "/" themselves are refused. */
TR_MUST_CHECK int agent_files_remove(const struct agent_files *f, const char *path, bool recursive,
                                     struct err *err);

#endif
