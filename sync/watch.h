/* SPDX-License-Identifier: MIT */
/* Which folders of a tree have changed, by inotify(7) on folders that were asked for and no others.
 * It tells folders, not files: whoever listens looks at the folder and compares. So nothing depends
 * on the order of events, or on seeing each of them.
 *
 * A folder is told SYNC_WATCH_QUIET_MS after its last event and at most SYNC_WATCH_LIMIT_MS after
 * its first; writing into a file that stays open is told after SYNC_WATCH_OPEN_QUIET_MS without
 * more, at most SYNC_WATCH_OPEN_LIMIT_MS. A folder whose watch was added is told once at once, for
 * what came before the watch. */
#ifndef SYNC_WATCH_H
#define SYNC_WATCH_H

#include <uv.h>
#include "sync/tree.h"

enum {
    SYNC_WATCH_QUIET_MS = 50,
    SYNC_WATCH_LIMIT_MS = 500,
    SYNC_WATCH_OPEN_QUIET_MS = 1000,
    SYNC_WATCH_OPEN_LIMIT_MS = 10000,
    SYNC_WATCH_MAX = 100000, /* folders */
};

struct sync_watch;

struct sync_watch_cbs {
    /* Something in it is, or may be, different. Returns false: tell it again after
     * sync_watch_resume(), and nothing more until then. */
    bool (*on_dirty)(const char *dir, size_t len, void *arg);
    /* It is not watched (any more). UV_ENOSPC: there are no more watches to be had, look at it from
     * time to time. UV_ENOENT, UV_ENOTDIR, UV_ELOOP: there is no such folder (any more); what it
     * was moved to must be added by its new name. Or another errno. */
    void (*on_lost)(const char *dir, size_t len, int status, void *arg);
    /* Events were lost. Nothing is watched any more: add again what is still wanted, each of which
     * is then told as dirty. */
    void (*on_overflow)(void *arg);
    /* Around calls in the thread pool, to act as another user. Returns 0 or the errno. Both may be
     * NULL. */
    int (*begin)(void *arg);
    void (*end)(void *arg);
    /* Last event: all is closed and freed. */
    void (*on_close)(void *arg);
};

/* root: the tree's root, duplicated here. cbs are borrowed. Callbacks come from the loop, never
 * before this returns. Returns 0 with *out, or the errno. */
TR_MUST_CHECK int sync_watch_open(uv_loop_t *loop, int root, const struct sync_watch_cbs *cbs,
                                  void *arg, struct sync_watch **out);
/* Watch a folder ("" is the root), later; a path that is watched already is looked up anew. Returns
 * 0 or UV_ENOMEM, UV_EINVAL (no path), UV_ENOSPC (SYNC_WATCH_MAX). Other failure is told by
 * on_lost. */
TR_MUST_CHECK int sync_watch_add(struct sync_watch *w, const char *dir, size_t len);
/* Stop watching it. Nothing happens if it is not watched. */
void sync_watch_remove(struct sync_watch *w, const char *dir, size_t len);
void sync_watch_resume(struct sync_watch *w);
size_t sync_watch_count(const struct sync_watch *w);
/* on_close follows, nothing else. */
void sync_watch_close(struct sync_watch *w);

#endif
