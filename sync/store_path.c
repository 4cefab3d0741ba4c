/* SPDX-License-Identifier: MIT */
/* Paths of the tree: looked at here, changed in store_change.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sync/store_internal.h"

int sync_store_check_path(const char *path, size_t len, struct err *err)
{
    char shown[SYNC_SHOWN_SIZE];
    size_t end;

    sync_show(path, len, shown);
    switch (sync_path_check(path, len)) {
    case SYNC_PATH_OK:
        break;
    case SYNC_PATH_BAD:
        return tr_err_set(err, -EINVAL,
                          "the path \"%s\" cannot be stored: it must be relative, and no component "
                          "may be empty, \".\" or \"..\"",
                          shown);
    case SYNC_PATH_TOO_LONG:
        return tr_err_set(err, -EINVAL,
                          "the path \"%s\" cannot be stored: it may have %d bytes, each component "
                          "%d",
                          shown, SYNC_PATH_MAX, SYNC_NAME_MAX);
    case SYNC_PATH_TOO_DEEP:
        return tr_err_set(err, -EINVAL,
                          "the path \"%s\" cannot be stored: it has more than %d components", shown,
                          SYNC_DEPTH_MAX);
    }
    for (size_t from = 0; from <= len; from = end + 1) {
        end = sync_path_end(path, len, from);
        if (sync_name_is_git(path + from, end - from))
            return tr_err_set(err, -EINVAL,
                              "the path \"%s\" cannot be stored: \"%.*s\" is Git's own", shown,
                              (int)(end - from), path + from);
    }
    return 0;
}

int sync_at_init(struct sync_at *at, const char *path, size_t len, struct err *err)
{
    size_t base;
    int r = sync_store_check_path(path, len, err);

    if (r != 0)
        return r;
    memcpy(at->path, path, len);
    at->path[len] = '\0';
    at->len = len;
    base = sync_path_base(path, len);
    at->base = at->path + base;
    memcpy(at->folder, path, base);
    at->folder[base > 0 ? base - 1 : 0] = '\0';
    return 0;
}

/* Open what is beneath the tree, with no link in any component. */
static int open_beneath(const struct sync_store *store, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    int fd, tries = 0;

    if (flags & O_PATH)
        how.flags = (uint64_t)(flags | O_CLOEXEC);
    do {
        fd = (int)syscall(SYS_openat2, store->files, *path ? path : ".", &how, sizeof(how));
    } while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < 100)));
    return fd < 0 ? -errno : fd;
}

/* Make the folders of a path that are missing, from the top down. */
static int make_folders(struct sync_store *store, const char *folder)
{
    char name[SYNC_NAME_MAX + 1];
    size_t len = strlen(folder), end;
    int fd = open_beneath(store, "", O_RDONLY | O_DIRECTORY), sub;

    for (size_t from = 0; fd >= 0 && from < len; from = end + 1) {
        end = sync_path_end(folder, len, from);
        memcpy(name, folder + from, end - from);
        name[end - from] = '\0';
        sub = sync_dir_open(fd, name);
        if (sub == -ENOENT) {
            if (mkdirat(fd, name, 0755) != 0 && errno != EEXIST)
                sub = -errno;
            else if (fsync(fd) != 0)
                sub = -errno;
            else
                sub = sync_dir_open(fd, name);
            if (sub >= 0)
                store->usage.n_files++;
        }
        close(fd);
        fd = sub;
    }
    return fd;
}

int sync_at_open_folder(struct sync_store *store, const struct sync_at *at, bool make,
                        struct err *err)
{
    int fd = open_beneath(store, at->folder, O_RDONLY | O_DIRECTORY);

    if (fd == -ENOENT && make)
        fd = make_folders(store, at->folder);
    return fd >= 0 ? fd : sync_fail_path(err, fd, at->path, at->len);
}

void sync_store_etag(const struct sync_stat *st, char out[SYNC_ETAG_SIZE])
{
    snprintf(out, SYNC_ETAG_SIZE, "\"%llx-%llx-%llx-%llx\"", (unsigned long long)st->ino,
             (unsigned long long)st->size, (unsigned long long)st->mtime_ns,
             (unsigned long long)st->ctime_ns);
}

int sync_store_stat(struct sync_store *store, const char *path, size_t len, struct sync_stat *out,
                    struct err *err)
{
    struct sync_at at;
    struct stat st;
    int fd, r = 0;

    if (len == 0) {
        if (fstat(store->files, &st) != 0)
            return sync_fail_path(err, -errno, path, len);
        sync_stat_from(&st, out);
        return 0;
    }
    r = sync_at_init(&at, path, len, err);
    if (r != 0)
        return r;
    fd = sync_at_open_folder(store, &at, false, err);
    if (fd < 0)
        return fd;
    if (fstatat(fd, at.base, &st, AT_SYMLINK_NOFOLLOW) != 0)
        r = sync_fail_path(err, -errno, path, len);
    else
        sync_stat_from(&st, out);
    close(fd);
    return r;
}

int sync_store_open_file(struct sync_store *store, const char *path, size_t len,
                         struct sync_stat *out, struct err *err)
{
    char shown[SYNC_SHOWN_SIZE];
    struct stat st;
    struct sync_at at;
    int r = sync_store_stat(store, path, len, out, err), fd;

    if (r != 0)
        return r;
    if (out->type == SYNC_TYPE_DIR)
        return sync_fail_path(err, -EISDIR, path, len);
    if (out->type != SYNC_TYPE_FILE)
        return tr_err_set(err, -EINVAL, "%s: it is no regular file", sync_show(path, len, shown));
    r = sync_at_init(&at, path, len, err);
    if (r != 0)
        return r;
    fd = open_beneath(store, at.path, O_RDONLY);
    if (fd < 0)
        return sync_fail_path(err, fd, path, len);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return tr_err_set(err, -EINVAL, "%s: it is no regular file", sync_show(path, len, shown));
    }
    sync_stat_from(&st, out);
    return fd;
}

/* NULL and errno. */
static char *read_link(int fd, const char *name)
{
    char buf[SYNC_PATH_MAX + 2];
    ssize_t n = readlinkat(fd, name, buf, sizeof(buf));

    if (n < 0)
        return NULL;
    if ((size_t)n > SYNC_PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return strndup(buf, (size_t)n);
}

int sync_store_read_link(struct sync_store *store, const char *path, size_t len, char **target,
                         struct err *err)
{
    struct sync_at at;
    int r = sync_at_init(&at, path, len, err), fd;

    if (r != 0)
        return r;
    fd = sync_at_open_folder(store, &at, false, err);
    if (fd < 0)
        return fd;
    *target = read_link(fd, at.base);
    if (*target == NULL)
        r = sync_fail_path(err, -errno, path, len);
    close(fd);
    return r;
}

/* ---- listing ---- */

struct listing {
    bool recursive;
    sync_list_cb cb;
    void *arg;
    char path[SYNC_PATH_MAX + 1 + SYNC_NAME_MAX + 1];
};

static int list_folder(struct listing *l, int fd, size_t len, const char *after);

/* One entry. after: the rest of the path to go on behind, below this entry; NULL: none. */
static int list_entry(struct listing *l, int fd, const char *name, size_t len, const char *after,
                      bool is_past)
{
    struct sync_stat info;
    char *target = NULL;
    struct stat st;
    int sub, r = 0;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : -errno;
    sync_stat_from(&st, &info);
    if (info.type == SYNC_TYPE_LINK) {
        target = read_link(fd, name);
        if (target == NULL)
            return 0; /* not stored either */
    }
    if (!is_past)
        r = l->cb(l->path, len, &info, target, l->arg);
    free(target);
    if (r != 0 || info.type != SYNC_TYPE_DIR || !l->recursive)
        return r;
    sub = sync_dir_open(fd, name);
    if (sub < 0)
        return sub == -ENOENT ? 0 : sub;
    r = list_folder(l, sub, len, after);
    close(sub);
    return r;
}

static int list_folder(struct listing *l, int fd, size_t len, const char *after)
{
    size_t first = after != NULL ? strcspn(after, "/") : 0, n;
    char **names = NULL;
    int r = sync_dir_names(fd, &names, &n);

    for (size_t i = 0; r == 0 && i < n; i++) {
        size_t name_len = strlen(names[i]), at = len > 0 ? len + 1 : 0;
        int order = 1;

        if (after != NULL) {
            size_t shorter = name_len < first ? name_len : first;

            order = memcmp(names[i], after, shorter);
            if (order == 0)
                order = name_len < first ? -1 : name_len > first ? 1 : 0;
        }
        if (order < 0 || at + name_len > SYNC_PATH_MAX)
            continue;
        memcpy(l->path + at, names[i], name_len + 1);
        if (at > 0)
            l->path[len] = '/';
        if (sync_path_check(l->path, at + name_len) != SYNC_PATH_OK ||
            sync_name_is_git(names[i], name_len))
            continue;
        r = list_entry(l, fd, names[i], at + name_len,
                       order == 0 && after[first] == '/' ? after + first + 1 : NULL, order == 0);
    }
    if (names != NULL)
        sync_dir_free_names(names, n);
    l->path[len] = '\0';
    return r;
}

int sync_store_list(struct sync_store *store, const char *dir, size_t dir_len, bool recursive,
                    const char *after, sync_list_cb cb, void *arg, struct err *err)
{
    struct listing *l;
    int fd, r = dir_len > 0 ? sync_store_check_path(dir, dir_len, err) : 0;

    if (r != 0)
        return r;
    if (after != NULL && dir_len > 0) {
        if (strncmp(after, dir, dir_len) != 0 || after[dir_len] != '/')
            return tr_err_set(err, -EINVAL, "\"after\" is no path in this folder");
        after += dir_len + 1;
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    l->recursive = recursive;
    l->cb = cb;
    l->arg = arg;
    memcpy(l->path, dir, dir_len);
    fd = open_beneath(store, l->path, O_RDONLY | O_DIRECTORY);
    r = fd;
    if (fd >= 0) {
        r = list_folder(l, fd, dir_len, after);
        close(fd);
    }
    free(l);
    if (r < 0 && (err == NULL || err->code == 0))
        return sync_fail_path(err, r, dir, dir_len);
    return r;
}
