/* SPDX-License-Identifier: MIT */
#include "sync/tree_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

int sync_tree_open_at(const struct sync_tree *tree, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    int fd;

    do {
        fd = (int)syscall(SYS_openat2, tree->root, *path != '\0' ? path : ".", &how, sizeof(how));
    } while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename came between */
    return fd < 0 ? -errno : fd;
}

int sync_tree_path(const char *path, size_t len, bool root, char out[SYNC_PATH_MAX + 1])
{
    if (!(root && len == 0) && sync_path_check(path, len) != SYNC_PATH_OK)
        return UV_EINVAL;
    if (len > 0)
        memcpy(out, path, len);
    out[len] = '\0';
    return 0;
}

int sync_tree_flush_dir(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

    if (fd < 0)
        return -errno;
    r = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return r;
}

/* Make the folders of path, each in the one above it. Returns a descriptor of the last. */
static int make_dirs(const struct sync_tree *tree, char *path)
{
    int dir = sync_tree_open_at(tree, "", O_PATH | O_DIRECTORY);

    for (char *name = path; dir >= 0 && *name != '\0';) {
        char *end = strchrnul(name, '/'), was = *end;
        int r = 0;

        *end = '\0';
        if (mkdirat(dir, name, 0755) == 0) {
            if (tree->sync)
                r = sync_tree_flush_dir(dir);
        } else if (errno != EEXIST) {
            r = -errno;
        }
        close(dir);
        /* From the root again, not from the descriptor: it may have been moved elsewhere. */
        dir = r == 0 ? sync_tree_open_at(tree, path, O_PATH | O_DIRECTORY) : r;
        *end = was;
        name = was == '\0' ? end : end + 1;
    }
    return dir;
}

int sync_tree_parent(const struct sync_tree *tree, const char *path, size_t len, bool make,
                     char name[SYNC_NAME_MAX + 1])
{
    char above[SYNC_PATH_MAX + 1];
    size_t base;
    int r = sync_tree_path(path, len, false, above), fd;

    if (r != 0)
        return r;
    base = sync_path_base(path, len);
    memcpy(name, path + base, len - base);
    name[len - base] = '\0';
    above[base > 0 ? base - 1 : 0] = '\0';
    fd = sync_tree_open_at(tree, above, O_PATH | O_DIRECTORY);
    return fd == -ENOENT && make ? make_dirs(tree, above) : fd;
}

static int64_t to_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void sync_tree_sig(const struct stat *st, struct sync_sig *sig)
{
    struct timespec now = {0};

    sig->ino = st->st_ino;
    sig->mtime_ns = to_ns(&st->st_mtim);
    sig->ctime_ns = to_ns(&st->st_ctim);
    sig->size = S_ISDIR(st->st_mode) ? 0 : st->st_size;
    sig->mode = st->st_mode;
    /* Nobody can set ctime. Of a clock that was put back the future counts as fresh, too. */
    clock_gettime(CLOCK_REALTIME, &now);
    sig->fresh = sig->ctime_ns > to_ns(&now) - SYNC_FRESH_NS;
}

int sync_tree_sig_at(int dir, const char *name, struct sync_sig *sig)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
        return -errno;
    sync_tree_sig(&st, sig);
    return 0;
}

/* Opened as a mere path first, then by that descriptor: whatever comes to stand under the name
 * meanwhile, nothing but a file is ever opened, and waiting at a FIFO or waking a device cannot
 * happen. */
int sync_tree_open_file(int dir, const char *name, struct sync_sig *sig)
{
    int path = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd, r;
    char self[32];

    if (path < 0)
        return -errno;
    r = sync_tree_sig_at(path, "", sig);
    if (r == 0 && !S_ISREG(sig->mode))
        r = UV_EINVAL;
    if (r == 0) {
        snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
        fd = open(self, O_RDONLY | O_CLOEXEC);
        r = fd < 0 ? -errno : fd;
    }
    close(path);
    return r;
}

/* A read lease is given only on what nobody has open for writing. It is given back at once; the
 * signal for a writer who comes in this moment is one that is ignored unless somebody asks. Such a
 * writer waits for that moment; one who opens with O_NONBLOCK is told EWOULDBLOCK. */
bool sync_tree_has_writer(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG) != 0)
        return false;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

int sync_tree_open(struct sync_tree *tree, const char *root)
{
    int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    *tree = (struct sync_tree){.root = fd, .stage = -1};
    return 0;
}

void sync_tree_close(struct sync_tree *tree)
{
    if (tree->root >= 0)
        close(tree->root);
    tree->root = -1;
}

int sync_tree_stat(const struct sync_tree *tree, const char *path, size_t len,
                   struct sync_tree_entry *entry, char target[SYNC_LINK_MAX + 1])
{
    char text[SYNC_PATH_MAX + 1], name[SYNC_NAME_MAX + 1] = "";
    int r = sync_tree_path(path, len, true, text), fd;
    ssize_t n = 0;

    if (r != 0)
        return r;
    memset(entry, 0, sizeof(*entry));
    fd = len == 0 ? sync_tree_open_at(tree, "", O_PATH | O_DIRECTORY)
                  : sync_tree_open_at(tree, text, O_PATH);
    if (fd == -ELOOP) /* RESOLVE_NO_SYMLINKS refuses the last component, too */
        fd = sync_tree_parent(tree, path, len, false, name);
    if (fd < 0)
        return fd;
    r = sync_tree_sig_at(fd, name, &entry->sig);
    if (r == 0 && S_ISLNK(entry->sig.mode)) {
        n = readlinkat(fd, name, target, SYNC_LINK_MAX + 1);
        r = n < 0 ? -errno : n > SYNC_LINK_MAX ? UV_ENAMETOOLONG : 0;
    }
    close(fd);
    if (r == 0 && S_ISLNK(entry->sig.mode)) {
        target[n] = '\0';
        entry->target = target;
        entry->target_len = (size_t)n;
    }
    return r;
}
