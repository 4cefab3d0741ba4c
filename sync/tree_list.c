/* SPDX-License-Identifier: MIT */
#include "sync/tree_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

struct sync_tree_dir {
    DIR *dir;
    size_t n;
    bool is_root;
    struct stat before;
    char target[SYNC_LINK_MAX + 2];
};

int sync_tree_dir_open(const struct sync_tree *tree, const char *dir, size_t len,
                       struct sync_sig *sig, struct sync_tree_dir **out)
{
    char path[SYNC_PATH_MAX + 1];
    struct sync_tree_dir *d;
    int r = sync_tree_path(dir, len, true, path), fd;

    if (r != 0)
        return r;
    fd = sync_tree_open_at(tree, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (fd < 0)
        return fd;
    d = calloc(1, sizeof(*d));
    if (d == NULL) {
        close(fd);
        return UV_ENOMEM;
    }
    d->is_root = len == 0;
    r = fstat(fd, &d->before) == 0 ? 0 : -errno;
    if (r == 0 && (d->dir = fdopendir(fd)) == NULL)
        r = -errno;
    if (r != 0) {
        close(fd);
        free(d);
        return r;
    }
    if (sig != NULL)
        sync_tree_sig(&d->before, sig);
    *out = d;
    return 0;
}

static bool is_shown(const struct sync_tree_dir *d, const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !(d->is_root && strcmp(name, SYNC_STAGE_NAME) == 0);
}

/* Of folders only the inode and the mode count, which a file system can tell without asking
 * anybody: so no server that does not answer, behind a mount in this folder, holds us up. What is
 * mounted here belongs to another tree. */
static int look_at_dir(int dir, const char *name, struct sync_sig *sig)
{
    struct statx st;

    memset(sig, 0, sizeof(*sig));
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_BASIC_STATS, &st) != 0)
        return -errno;
    if (!S_ISDIR(st.stx_mode)) /* not any more */
        return sync_tree_sig_at(dir, name, sig);
    sig->ino = st.stx_ino;
    sig->mode = st.stx_attributes & STATX_ATTR_MOUNT_ROOT ? 0 : st.stx_mode;
    sig->mtime_ns = (int64_t)st.stx_mtime.tv_sec * 1000000000 + st.stx_mtime.tv_nsec;
    sig->ctime_ns = (int64_t)st.stx_ctime.tv_sec * 1000000000 + st.stx_ctime.tv_nsec;
    return 0;
}

/* Returns 1, 0 (it is gone), or the errno. */
static int look(struct sync_tree_dir *d, const struct dirent *e, struct sync_tree_entry *entry)
{
    const char *name = e->d_name;
    int r = e->d_type == DT_DIR ? look_at_dir(dirfd(d->dir), name, &entry->sig)
                                : sync_tree_sig_at(dirfd(d->dir), name, &entry->sig);
    ssize_t n;

    if (r == -ENOENT)
        return 0;
    if (r != 0) /* it is there, and nothing can be said of it */
        entry->sig = (struct sync_sig){.ino = e->d_ino};
    entry->name = name;
    entry->name_len = strlen(name);
    entry->target = NULL;
    entry->target_len = 0;
    if (!S_ISLNK(entry->sig.mode))
        return 1;
    n = readlinkat(dirfd(d->dir), name, d->target, sizeof(d->target));
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? 0 : -errno; /* EINVAL: no link any more */
    if (n > SYNC_LINK_MAX) /* not on any file system of Linux */
        return UV_ENAMETOOLONG;
    d->target[n] = '\0';
    entry->target = d->target;
    entry->target_len = (size_t)n;
    return 1;
}

int sync_tree_dir_next(struct sync_tree_dir *d, struct sync_tree_entry *entry)
{
    struct dirent *e;

    for (;;) {
        int r;

        errno = 0;
        e = readdir(d->dir);
        if (e == NULL)
            return -errno;
        if (!is_shown(d, e->d_name))
            continue;
        if (d->n == SYNC_DIR_MAX)
            return UV_E2BIG;
        r = look(d, e, entry);
        if (r == 0)
            continue;
        d->n++;
        return r;
    }
}

bool sync_tree_dir_changed(struct sync_tree_dir *d)
{
    const struct stat *a = &d->before;
    struct stat b;

    return fstat(dirfd(d->dir), &b) != 0 || b.st_nlink == 0 ||
           a->st_mtim.tv_sec != b.st_mtim.tv_sec || a->st_mtim.tv_nsec != b.st_mtim.tv_nsec ||
           a->st_ctim.tv_sec != b.st_ctim.tv_sec || a->st_ctim.tv_nsec != b.st_ctim.tv_nsec;
}

void sync_tree_dir_close(struct sync_tree_dir *d)
{
    if (d == NULL)
        return;
    closedir(d->dir);
    free(d);
}

int sync_tree_list(const struct sync_tree *tree, const char *dir, size_t len, sync_tree_entry_cb cb,
                   void *arg, bool *changed)
{
    struct sync_tree_entry entry;
    struct sync_tree_dir *d;
    int r = sync_tree_dir_open(tree, dir, len, NULL, &d);

    if (r != 0)
        return r;
    do {
        r = sync_tree_dir_next(d, &entry);
    } while (r == 1 && cb(&entry, arg));
    if (changed != NULL)
        *changed = sync_tree_dir_changed(d);
    sync_tree_dir_close(d);
    return r < 0 ? r : 0;
}
