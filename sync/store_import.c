/* SPDX-License-Identifier: MIT */
/* Two walks: the first one looks, the second one takes. */
#include "sync/store_import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/store_internal.h"

struct import {
    struct sync_store *store;
    bool with_links, is_taking;
    struct sync_import *out;
    int64_t replaced; /* bytes of what goes */
    struct err *err;
    char path[SYNC_PATH_MAX + 1]; /* in the tree */
    char target[SYNC_PATH_MAX + 1];
};

static int refuse(struct import *x, size_t len, const char *why)
{
    char shown[SYNC_SHOWN_SIZE];

    return tr_err_set(x->err, -EINVAL, "%s: %s", sync_show(x->path, len, shown), why);
}

static int look(struct import *x, size_t len, const struct stat *st)
{
    struct sync_stat now;
    struct err nothing = {0};
    int r = sync_store_check_path(x->path, len, x->err);

    if (r != 0)
        return r;
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode) && !(S_ISLNK(st->st_mode) && x->with_links))
        return refuse(x, len, "neither a file nor a folder");
    r = sync_store_stat(x->store, x->path, len, &now, &nothing);
    if (r != 0 && r != -ENOENT)
        return sync_fail_path(x->err, r, x->path, len);
    if (r == 0 && S_ISDIR(st->st_mode) != (now.type == SYNC_TYPE_DIR))
        return sync_fail_path(x->err, S_ISDIR(st->st_mode) ? -ENOTDIR : -EISDIR, x->path, len);
    if (r == 0 && now.type == SYNC_TYPE_FILE)
        x->replaced += now.size;
    x->out->n_files += S_ISREG(st->st_mode);
    x->out->n_dirs += S_ISDIR(st->st_mode);
    x->out->n_links += S_ISLNK(st->st_mode);
    x->out->bytes += S_ISREG(st->st_mode) ? st->st_size : 0;
    return 0;
}

static int take_file(struct import *x, size_t len, int dir, const char *name)
{
    struct sync_staged staged;
    struct sync_stat now;
    struct stat st;
    bool created;
    int r;

    staged.fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (staged.fd < 0)
        return sync_fail_path(x->err, -errno, x->path, len);
    sync_store_import_name(x->store, staged.name);
    if (fstat(staged.fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        renameat(dir, name, x->store->staging, staged.name) != 0) {
        close(staged.fd);
        return refuse(x, len, "it was changed meanwhile");
    }
    if (st.st_uid != geteuid() && fchown(staged.fd, geteuid(), getegid()) != 0) {
        r = sync_fail_path(x->err, -errno, x->path, len);
        sync_store_unstage(x->store, &staged);
        return r;
    }
    r = sync_store_put(x->store, x->path, len, &staged,
                       (st.st_mode & S_IXUSR) != 0 ? SYNC_EXEC_ON : SYNC_EXEC_OFF, NULL, &now,
                       &created, x->err);
    sync_store_unstage(x->store, &staged);
    return r;
}

static int take(struct import *x, size_t len, int dir, const char *name, const struct stat *st)
{
    bool created;
    ssize_t n;

    if (S_ISDIR(st->st_mode))
        return sync_store_mkdir(x->store, x->path, len, &created, x->err);
    if (S_ISREG(st->st_mode))
        return take_file(x, len, dir, name);
    n = readlinkat(dir, name, x->target, SYNC_PATH_MAX);
    if (n <= 0)
        return refuse(x, len, "it was changed meanwhile");
    x->target[n] = '\0';
    return sync_store_link(x->store, x->path, len, x->target, NULL, &created, x->err);
}

/* All in the folder fd, which is at len bytes of x->path. */
static int walk(struct import *x, int fd, size_t len)
{
    char **names = NULL;
    size_t n = 0;
    int r = sync_dir_names(fd, &names, &n);

    if (r != 0)
        return sync_fail_path(x->err, r, x->path, len);
    for (size_t i = 0; i < n && r == 0; i++) {
        size_t name_len = strlen(names[i]), full = len + (len > 0) + name_len;
        struct stat st;
        int sub;

        if (full > SYNC_PATH_MAX) {
            r = refuse(x, len, "the paths below it are too long");
            break;
        }
        if (len > 0)
            x->path[len] = '/';
        memcpy(x->path + full - name_len, names[i], name_len + 1);
        if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0)
            r = refuse(x, full, "it was changed meanwhile");
        else
            r = x->is_taking ? take(x, full, fd, names[i], &st) : look(x, full, &st);
        if (r == 0 && S_ISDIR(st.st_mode)) {
            sub = sync_dir_open(fd, names[i]);
            r = sub < 0 ? refuse(x, full, "it was changed meanwhile") : walk(x, sub, full);
            if (sub >= 0)
                close(sub);
        }
        x->path[len] = '\0';
    }
    sync_dir_free_names(names, n);
    return r;
}

void sync_store_import_name(struct sync_store *store, char out[SYNC_IMPORT_NAME])
{
    snprintf(out, SYNC_IMPORT_NAME, "in-%llu", (unsigned long long)++store->n_staged);
}

/* Look, keep what is there, take. */
static int import(struct import *x, int fd, const char *dir, size_t len, const char *author,
                  struct sync_checkpoint *made)
{
    bool created;
    int r = len > 0 ? sync_store_check_path(dir, len, x->err) : 0;

    if (r != 0)
        return r;
    memcpy(x->path, dir, len);
    r = walk(x, fd, len);
    if (r == 0)
        r = sync_store_room(x->store, x->out->bytes - x->replaced, x->err);
    if (r == 0)
        r = sync_store_checkpoint(x->store, "Before files were put there as a whole",
                                  SYNC_CAUSE_API, author, made, NULL, x->err);
    if (r < 0)
        return r;
    x->is_taking = true;
    r = len > 0 ? sync_store_mkdir(x->store, dir, len, &created, x->err) : 0;
    return r == 0 ? walk(x, fd, len) : r;
}

int sync_store_import(struct sync_store *store, const char *name, const char *dir, size_t dir_len,
                      bool with_links, const char *author, struct sync_import *out, struct err *err)
{
    int fd = sync_dir_open(store->staging, name), r;
    struct sync_checkpoint *made;
    struct import *x;

    memset(out, 0, sizeof(*out));
    if (fd < 0)
        return tr_err_set(err, fd, "what was unpacked is gone");
    x = calloc(1, sizeof(*x));
    made = malloc(sizeof(*made));
    if (x == NULL || made == NULL) {
        r = tr_err_set(err, -ENOMEM, "out of memory");
    } else {
        x->store = store;
        x->with_links = with_links;
        x->out = out;
        x->err = err;
        r = import(x, fd, dir, dir_len, author, made);
    }
    close(fd);
    free(made);
    free(x);
    return r;
}

void sync_store_import_drop(struct sync_store *store, const char *name)
{
    (void)!sync_dir_remove(store->staging, name, NULL); /* else the next opening does it */
}
