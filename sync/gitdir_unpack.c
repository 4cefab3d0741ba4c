/* SPDX-License-Identifier: MIT */
/* Path: magic -> (head -> path -> content) for each entry -> end -> rename. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "sync/gitdir.h"
#include "sync/tree_internal.h"

enum state { MAGIC, HEAD, PATH, CONTENT, DONE };

struct sync_gitdir_unpack {
    int dir, stage;
    char name[SYNC_TEMP_NAME]; /* in stage; "" : nothing is there (any more) */
    int root;                  /* that folder; -1: none, or no folder */
    enum state state;
    size_t n_entries;
    uint8_t head[SYNC_GITDIR_HEAD];
    size_t got; /* of head (magic included), path, or a link's target */
    enum sync_gitdir_kind kind;
    size_t path_len;
    uint32_t mode;
    int64_t mtime_ns, left;
    char path[SYNC_GITDIR_PATH_MAX + 1];
    char target[SYNC_GITDIR_PATH_MAX + 1];
    int fd; /* the file under way */
};

/* ---- removing ---- */

static int remove_at(int dir, const char *name, unsigned depth)
{
    struct dirent *e;
    DIR *d;
    int fd;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (depth > SYNC_GITDIR_DEPTH_MAX + 2)
        return -E2BIG;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0)
            close(fd);
        return -EIO;
    }
    while ((e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)remove_at(dirfd(d), e->d_name, depth + 1);
    }
    closedir(d);
    return unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
}

/* ---- entries ---- */

static uint64_t number(const uint8_t *at, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | at[n];
    return value;
}

static bool is_good_path(const char *path, size_t len)
{
    size_t from = 0;
    unsigned depth = 0;

    if (len == 0 || memchr(path, '\0', len) != NULL)
        return false;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        if (i == from || i - from > 255 || (i - from == 1 && path[from] == '.') ||
            (i - from == 2 && path[from] == '.' && path[from + 1] == '.') ||
            ++depth > SYNC_GITDIR_DEPTH_MAX)
            return false;
        from = i + 1;
    }
    return true;
}

/* Where the entry belongs: the folder (to be closed unless it is u->stage) and its name. */
static int parent_of(struct sync_gitdir_unpack *u, char **name)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    char *slash;
    int fd;

    if (u->path_len == 0) {
        *name = u->name;
        return u->n_entries == 0 ? u->stage : -EBADMSG;
    }
    if (u->root < 0 || !is_good_path(u->path, u->path_len))
        return -EBADMSG;
    slash = strrchr(u->path, '/');
    *name = slash != NULL ? slash + 1 : u->path;
    if (slash != NULL)
        *slash = '\0';
    do {
        fd = (int)syscall(SYS_openat2, u->root, slash != NULL ? u->path : ".", &how, sizeof(how));
    } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (slash != NULL)
        *slash = '/';
    return fd >= 0 ? fd : errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -EBADMSG : -errno;
}

static int make_entry(struct sync_gitdir_unpack *u)
{
    char *name;
    int dir = parent_of(u, &name), r = 0;

    if (dir < 0)
        return dir;
    switch (u->kind) {
    case SYNC_GITDIR_DIR:
        if (mkdirat(dir, name, (u->mode & 0777) | 0700) != 0)
            r = -errno;
        if (r == 0 && u->path_len == 0) {
            u->root = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (u->root < 0)
                r = -errno;
        }
        break;
    case SYNC_GITDIR_FILE:
        u->fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (u->fd < 0)
            r = -errno;
        break;
    default:
        if (symlinkat(u->target, dir, name) != 0)
            r = -errno;
    }
    if (dir != u->stage)
        close(dir);
    return r == -EEXIST ? -EBADMSG : r; /* twice the same path */
}

static int end_entry(struct sync_gitdir_unpack *u)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = u->mtime_ns / 1000000000, .tv_nsec = u->mtime_ns % 1000000000}};
    int r = 0;

    if (u->kind == SYNC_GITDIR_LINK) {
        u->target[u->got] = '\0';
        r = u->got == 0 || strlen(u->target) != u->got ? -EBADMSG : make_entry(u);
    }
    if (u->fd >= 0) {
        if (u->mtime_ns >= 0)
            (void)futimens(u->fd, times);
        if (fchmod(u->fd, u->mode & 0777) != 0 || close(u->fd) != 0)
            r = -errno;
        u->fd = -1;
    }
    u->n_entries++;
    u->got = 0;
    u->state = HEAD;
    return r;
}

/* Path and head are here. */
static int begin_content(struct sync_gitdir_unpack *u)
{
    int r = u->kind == SYNC_GITDIR_LINK ? 0 : make_entry(u);

    u->got = 0;
    u->state = CONTENT;
    return r == 0 && u->left == 0 ? end_entry(u) : r;
}

static int take_head(struct sync_gitdir_unpack *u)
{
    const uint8_t *h = u->head;
    uint64_t size = number(h + 16, 8);

    u->kind = (enum sync_gitdir_kind)h[0];
    u->path_len = (size_t)number(h + 2, 2);
    u->mode = (uint32_t)number(h + 4, 4);
    u->mtime_ns = (int64_t)number(h + 8, 8);
    u->left = (int64_t)size;
    u->got = 0;
    if (h[0] < SYNC_GITDIR_DIR || h[0] > SYNC_GITDIR_END || h[1] != 0 || size > INT64_MAX ||
        u->path_len > SYNC_GITDIR_PATH_MAX || u->n_entries > SYNC_GITDIR_ENTRIES_MAX ||
        (u->kind == SYNC_GITDIR_LINK && size > SYNC_GITDIR_PATH_MAX) ||
        (u->kind == SYNC_GITDIR_DIR && size > 0))
        return -EBADMSG;
    if (u->kind == SYNC_GITDIR_END) {
        u->state = DONE;
        return u->n_entries > 0 && u->path_len == 0 && size == 0 ? 0 : -EBADMSG;
    }
    u->path[u->path_len] = '\0';
    u->state = PATH;
    return u->path_len == 0 ? begin_content(u) : 0;
}

/* ---- bytes ---- */

/* Fill `to` up to `want` bytes. */
static size_t take(void *to, size_t *got, size_t want, const uint8_t *bytes, size_t len)
{
    size_t n = want - *got < len ? want - *got : len;

    memcpy((uint8_t *)to + *got, bytes, n);
    *got += n;
    return n;
}

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Returns how many bytes were taken, or the fault. */
static int64_t take_content(struct sync_gitdir_unpack *u, const uint8_t *bytes, size_t len)
{
    size_t n = u->left < (int64_t)len ? (size_t)u->left : len;
    int r = 0;

    if (u->kind == SYNC_GITDIR_FILE)
        r = write_all(u->fd, bytes, n);
    else
        memcpy(u->target + u->got, bytes, n);
    u->got += n;
    u->left -= (int64_t)n;
    if (r == 0 && u->left == 0)
        r = end_entry(u);
    return r == 0 ? (int64_t)n : r;
}

int sync_gitdir_unpack_feed(struct sync_gitdir_unpack *u, const void *data, size_t len)
{
    static const uint8_t magic[SYNC_GITDIR_MAGIC] = {'T', 'R', 'G', 'I', 'T', 0, 0, 1};
    const uint8_t *at = data;
    int64_t n = 0;
    int r = 0;

    while (len > 0 && r == 0) {
        switch (u->state) {
        case MAGIC:
            n = (int64_t)take(u->head, &u->got, SYNC_GITDIR_MAGIC, at, len);
            if (u->got < SYNC_GITDIR_MAGIC)
                break;
            u->got = 0;
            u->state = HEAD;
            r = memcmp(u->head, magic, sizeof(magic)) == 0 ? 0 : -EBADMSG;
            break;
        case HEAD:
            n = (int64_t)take(u->head, &u->got, SYNC_GITDIR_HEAD, at, len);
            if (u->got == SYNC_GITDIR_HEAD)
                r = take_head(u);
            break;
        case PATH:
            n = (int64_t)take(u->path, &u->got, u->path_len, at, len);
            if (u->got == u->path_len)
                r = begin_content(u);
            break;
        case CONTENT:
            n = take_content(u, at, len);
            if (n < 0)
                r = (int)n;
            break;
        default:
            r = -EBADMSG;
        }
        if (r == 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    return r;
}

int sync_gitdir_unpack_new(int dir, int stage, struct sync_gitdir_unpack **out)
{
    struct sync_gitdir_unpack *u;
    struct stat st;
    int r;

    if (fstatat(dir, SYNC_GITDIR_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    if (errno != ENOENT)
        return -errno;
    u = calloc(1, sizeof(*u));
    if (u == NULL)
        return -ENOMEM;
    u->dir = dir;
    u->stage = stage;
    u->root = u->fd = -1;
    r = sync_tree_temp_name(u->name);
    if (r != 0)
        free(u);
    else
        *out = u;
    return r;
}

int sync_gitdir_unpack_end(struct sync_gitdir_unpack *u)
{
    if (u->state != DONE)
        return -EBADMSG;
    if (renameat2(u->stage, u->name, u->dir, SYNC_GITDIR_NAME, RENAME_NOREPLACE) != 0)
        return -errno;
    u->name[0] = '\0';
    return 0;
}

void sync_gitdir_unpack_free(struct sync_gitdir_unpack *u)
{
    if (u == NULL)
        return;
    if (u->fd >= 0)
        close(u->fd);
    if (u->root >= 0)
        close(u->root);
    if (u->name[0] != '\0')
        (void)remove_at(u->stage, u->name, 0);
    free(u);
}
