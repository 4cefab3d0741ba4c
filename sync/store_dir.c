/* SPDX-License-Identifier: MIT */
/* Folders by descriptor: nothing here follows a link. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/store_internal.h"

/* Whoever runs the manager may put deeper things into the tree than a path of ours can name. */
#define DEPTH_MAX 1000

int sync_write_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

int sync_dir_open(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0)
        return fd;
    if (errno == ENOTDIR && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(st.st_mode))
        return -ELOOP;
    return -errno;
}

void sync_dir_free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(char ***names, size_t *n, size_t *size, const char *name)
{
    if (*n >= SYNC_STORE_FILES_MAX)
        return -E2BIG;
    if (*n == *size) {
        size_t more = *size ? 2 * *size : 64;
        char **grown = realloc(*names, more * sizeof(char *));

        if (grown == NULL)
            return -ENOMEM;
        *names = grown;
        *size = more;
    }
    (*names)[*n] = strdup(name);
    return (*names)[*n] == NULL ? -ENOMEM : ((*n)++, 0);
}

int sync_dir_names(int fd, char ***out, size_t *n)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    char **names = NULL;
    size_t size = 0;
    struct dirent *entry;

    *n = 0;
    if (d == NULL) {
        r = -errno;
        if (copy >= 0)
            close(copy);
        return r;
    }
    while (r == 0) {
        errno = 0;
        entry = readdir(d);
        if (entry == NULL) {
            r = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = add_name(&names, n, &size, entry->d_name);
    }
    closedir(d);
    if (r != 0) {
        sync_dir_free_names(names, *n);
        return r;
    }
    if (*n > 0)
        qsort(names, *n, sizeof(char *), compare_names);
    *out = names;
    return 0;
}

static int remove_below(int dir, const char *name, int depth, struct sync_tally *tally)
{
    struct stat st;
    char **names = NULL;
    size_t n = 0;
    int fd, r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode)) {
        if (depth > DEPTH_MAX)
            return -ELOOP;
        fd = sync_dir_open(dir, name);
        if (fd < 0)
            return fd;
        r = sync_dir_names(fd, &names, &n);
        if (r == 0) {
            for (size_t i = 0; i < n && r == 0; i++)
                r = remove_below(fd, names[i], depth + 1, tally);
            sync_dir_free_names(names, n);
        }
        close(fd);
        if (r != 0)
            return r;
    }
    if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (tally != NULL) {
        tally->n++;
        tally->bytes += S_ISREG(st.st_mode) ? st.st_size : 0;
    }
    return 0;
}

int sync_dir_remove(int dir, const char *name, struct sync_tally *tally)
{
    return remove_below(dir, name, 0, tally);
}

int sync_dir_remove_empty(int dir, const char *name, struct sync_tally *tally)
{
    int fd = sync_dir_open(dir, name), r;
    struct stat st;
    char **names = NULL;
    size_t n = 0;

    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return 0;
    if (fd < 0)
        return fd;
    r = sync_dir_names(fd, &names, &n);
    if (r == 0) {
        for (size_t i = 0; i < n && r == 0; i++) {
            if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
                r = -ENOTEMPTY;
            else
                r = sync_dir_remove_empty(fd, names[i], tally);
        }
        sync_dir_free_names(names, n);
    }
    close(fd);
    if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0)
        r = -errno;
    tally->n += r == 0;
    return r;
}

static int tally_below(int fd, int depth, struct sync_tally *tally)
{
    struct stat st;
    char **names = NULL;
    size_t n = 0;
    int r;

    if (depth > DEPTH_MAX)
        return -ELOOP;
    r = sync_dir_names(fd, &names, &n);
    if (r != 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++) {
        int sub;

        if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0) {
            r = errno == ENOENT ? 0 : -errno;
            continue;
        }
        tally->n++;
        tally->bytes += S_ISREG(st.st_mode) ? st.st_size : 0;
        if (!S_ISDIR(st.st_mode))
            continue;
        sub = sync_dir_open(fd, names[i]);
        r = sub == -ENOENT ? 0 : sub < 0 ? sub : tally_below(sub, depth + 1, tally);
        if (sub >= 0)
            close(sub);
    }
    sync_dir_free_names(names, n);
    return r;
}

int sync_dir_tally(int fd, struct sync_tally *tally)
{
    return tally_below(fd, 0, tally);
}

static int fsync_one(int dir, const char *name, int flags)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags), r;

    if (fd < 0)
        return -errno;
    r = fsync(fd) != 0 ? -errno : 0;
    close(fd);
    return r;
}

int sync_dir_sync(int dir, const char *name)
{
    int fd = sync_dir_open(dir, name), r;
    struct stat st;
    char **names = NULL;
    size_t n = 0;

    if (fd < 0)
        return fd;
    r = sync_dir_names(fd, &names, &n);
    if (r == 0) {
        for (size_t i = 0; i < n && r == 0; i++) {
            if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0)
                r = -errno;
            else if (S_ISDIR(st.st_mode))
                r = sync_dir_sync(fd, names[i]);
            else if (S_ISREG(st.st_mode))
                r = fsync_one(fd, names[i], 0);
        }
        sync_dir_free_names(names, n);
    }
    if (r == 0 && fsync(fd) != 0)
        r = -errno;
    close(fd);
    return r;
}
