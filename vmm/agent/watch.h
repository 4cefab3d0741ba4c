/* SPDX-License-Identifier: MIT */
/* What changes at a path, as lines of JSON, by inotify. All of it blocks and acts with the rights
 * of the calling thread. Bounded: the kernel keeps what is not read, up to its limit, and says when
 * that overflowed; so do we when there are too many folders or too many lines. */
#ifndef VMM_AGENT_WATCH_H
#define VMM_AGENT_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/agent/files.h"

#define AGENT_WATCH_DIRS 1024      /* folders of one watch */
#define AGENT_WATCH_OUT  (1 << 20) /* bytes of lines that one read may make */

struct agent_watched {
    int wd;
    char *rel; /* below what is watched; "" itself */
};

struct agent_watch_tree {
    int fd;                          /* of inotify; not blocking */
    const struct agent_files *files; /* borrowed, and path */
    const char *path;
    dev_t dev; /* what path named at the beginning; a descriptor of it would hide that it goes */
    ino_t ino;
    bool folder; /* root is one */
    bool recursive;
    bool gone; /* what is watched went away: nothing more will come */
    struct agent_watched *dirs;
    size_t n_dirs;
    char *out; /* lines to be sent; the caller sets out_len to 0 when it took them */
    size_t out_len, out_size;
    bool lost; /* a line had no room */
    bool full; /* no more folders are taken in */
};

/* f and path must outlive it. Returns 0 and *t, or the errno with err; nothing is held then. */
TR_MUST_CHECK int agent_watch_tree_open(const struct agent_files *f, const char *path,
                                        bool recursive, struct agent_watch_tree *t,
                                        struct err *err);
/* Read what the kernel has, up to a share, and make lines of it. Returns 0 or the errno. */
TR_MUST_CHECK int agent_watch_tree_read(struct agent_watch_tree *t);
void agent_watch_tree_close(struct agent_watch_tree *t);

#endif
