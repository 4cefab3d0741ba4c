/* SPDX-License-Identifier: MIT */
/* Files of the machine by path. Relative paths lie beneath the home of the sandbox user and cannot
 * leave it, by ".." or by symlink; absolute ones are what they say. Names are bytes. All of this
 * blocks; only agent_files_list() and agent_files_remove() may take long. */
#ifndef VMM_AGENT_FILES_H
#define VMM_AGENT_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "transom/err.h"

#define AGENT_MAX_ENTRIES 50000 /* of one listing; the rest is cut off and said so */

struct agent_files {
    const char *home;
    bool give; /* hand what is made to: */
    uid_t uid;
    gid_t gid;
};

/* Open a regular file. Returns the descriptor and *st, or UV_EISDIR, UV_EINVAL (something else),
 * the errno. */
TR_MUST_CHECK int agent_files_open(const struct agent_files *f, const char *path, struct stat *st,
                                   struct err *err);

/* A file on its way: written under another name beside its place. */
struct agent_upload {
    int dir, fd;
    char name[256], temp[48];
    bool existed;
    mode_t mode;
};
/* mode (mode_t)-1: that of the file replaced, or 0644. Missing folders are made. On failure nothing
 * is held. */
TR_MUST_CHECK int agent_upload_begin(const struct agent_files *f, const char *path, mode_t mode,
                                     struct agent_upload *u, struct err *err);
/* Put it in its place. Either way nothing is held afterwards. */
TR_MUST_CHECK int agent_upload_commit(struct agent_upload *u, struct err *err);
void agent_upload_abort(struct agent_upload *u);

/* {"path","entries":[..],"truncated"?}, sorted by name. */
TR_MUST_CHECK int agent_files_list(const struct agent_files *f, const char *path, json_t **out,
                                   struct err *err);
/* A missing one is removed already. recursive: folders with all that is in them, else only empty
 * ones. Home and "/" themselves are refused. */
TR_MUST_CHECK int agent_files_remove(const struct agent_files *f, const char *path, bool recursive,
                                     struct err *err);

#endif
