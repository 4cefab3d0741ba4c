/* SPDX-License-Identifier: MIT */
/* Changes of the tree: each is on the disk when the call returns; see store.h for the order. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/store_internal.h"

/* ---- staging ---- */

int sync_store_stage(struct sync_store *store, struct sync_staged *out, struct err *err)
{
    snprintf(out->name, sizeof(out->name), "in-%llu", (unsigned long long)++store->n_staged);
    out->fd =
        openat(store->staging, out->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (out->fd < 0)
        return tr_err_set(err, -errno, "%s/staging: %s", store->dir, strerror(errno));
    return 0;
}

void sync_store_unstage(struct sync_store *store, struct sync_staged *staged)
{
    if (staged->fd < 0)
        return;
    close(staged->fd);
    staged->fd = -1;
    (void)unlinkat(store->staging, staged->name, 0); /* else the next opening does it */
}

/* ---- conditions ---- */

/* st NULL: nothing is there. */
static int check_condition(const struct sync_condition *condition, const struct stat *st,
                           const struct sync_at *at, struct err *err)
{
    char etag[SYNC_ETAG_SIZE] = "", shown[SYNC_SHOWN_SIZE];
    struct sync_stat now;

    if (condition == NULL || condition->expect == SYNC_EXPECT_ANY)
        return 0;
    sync_show(at->path, at->len, shown);
    if (condition->expect == SYNC_EXPECT_ABSENT)
        return st == NULL ? 0 : tr_err_set(err, -ESTALE, "%s: something is there already", shown);
    if (st != NULL) {
        sync_stat_from(st, &now);
        sync_store_etag(&now, etag);
    }
    if (strcmp(etag, condition->etag) == 0)
        return 0;
    return tr_err_set(err, -ESTALE, "%s: it %s", shown,
                      st == NULL ? "is not there any more" : "has changed meanwhile");
}

/* What is at base? Returns 1, 0 (nothing) or an error. */
static int look(int fd, const struct sync_at *at, struct stat *st, struct err *err)
{
    if (fstatat(fd, at->base, st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    return errno == ENOENT ? 0 : sync_fail_path(err, -errno, at->path, at->len);
}

static int64_t weight(const struct stat *st)
{
    return S_ISREG(st->st_mode) ? st->st_size : 0;
}

/* ---- putting ---- */

/* The new thing `name` of staging takes its place in the folder fd. found: old is what is there. */
static int place(struct sync_store *store, int fd, const struct sync_at *at, const char *name,
                 bool found, const struct stat *old, struct err *err)
{
    struct stat now;

    if (fstatat(store->staging, name, &now, AT_SYMLINK_NOFOLLOW) != 0 ||
        (found ? renameat(store->staging, name, fd, at->base)
               : renameat2(store->staging, name, fd, at->base, RENAME_NOREPLACE)) != 0)
        return sync_fail_path(err, -errno, at->path, at->len);
    store->usage.files += weight(&now) - (found ? weight(old) : 0);
    store->usage.n_files += !found;
    if (fsync(fd) != 0)
        return sync_fail_path(err, -errno, at->path, at->len);
    return 0;
}

/* Before anything is placed: folder, condition, what is there, room. Returns the folder. */
static int prepare(struct sync_store *store, const struct sync_at *at,
                   const struct sync_condition *condition, int64_t size, bool *found,
                   struct stat *old, struct err *err)
{
    int fd, r;

    if (store->usage.n_files >= SYNC_STORE_FILES_MAX)
        return tr_err_set(err, -EDQUOT, "the session has %d files and folders, the most it can",
                          SYNC_STORE_FILES_MAX);
    fd = sync_at_open_folder(store, at, true, err);
    if (fd < 0)
        return fd;
    r = look(fd, at, old, err);
    *found = r == 1;
    if (r >= 0)
        r = check_condition(condition, *found ? old : NULL, at, err);
    if (r == 0 && *found && S_ISDIR(old->st_mode))
        r = sync_fail_path(err, -EISDIR, at->path, at->len);
    if (r == 0)
        r = sync_store_room(store, size - (*found ? weight(old) : 0), err);
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

int sync_store_put(struct sync_store *store, const char *path, size_t len,
                   struct sync_staged *staged, enum sync_exec exec,
                   const struct sync_condition *condition, struct sync_stat *out, bool *created,
                   struct err *err)
{
    struct stat st, old = {0};
    struct sync_at at;
    bool found = false, is_exec;
    int r = sync_at_init(&at, path, len, err), fd;

    if (r != 0)
        return r;
    if (fstat(staged->fd, &st) != 0)
        return sync_fail_path(err, -errno, path, len);
    fd = prepare(store, &at, condition, st.st_size, &found, &old, err);
    if (fd < 0)
        return fd;
    is_exec = exec == SYNC_EXEC_ON ||
              (exec == SYNC_EXEC_KEEP && found && S_ISREG(old.st_mode) && (old.st_mode & S_IXUSR));
    if (fchmod(staged->fd, is_exec ? 0755 : 0644) != 0 || fsync(staged->fd) != 0)
        r = sync_fail_path(err, -errno, path, len);
    if (r == 0)
        r = place(store, fd, &at, staged->name, found, &old, err);
    if (r == 0 && fstat(staged->fd, &st) != 0)
        r = sync_fail_path(err, -errno, path, len);
    close(fd);
    if (r != 0)
        return r;
    close(staged->fd);
    staged->fd = -1;
    sync_stat_from(&st, out);
    *created = !found;
    return 0;
}

int sync_store_put_bytes(struct sync_store *store, const char *path, size_t len, const void *data,
                         size_t data_len, enum sync_exec exec,
                         const struct sync_condition *condition, struct sync_stat *out,
                         bool *created, struct err *err)
{
    struct sync_staged staged;
    int r = sync_store_stage(store, &staged, err);

    if (r != 0)
        return r;
    r = sync_write_all(staged.fd, data, data_len);
    if (r != 0)
        (void)sync_fail_path(err, r, path, len);
    if (r == 0)
        r = sync_store_put(store, path, len, &staged, exec, condition, out, created, err);
    sync_store_unstage(store, &staged);
    return r;
}

int sync_store_link(struct sync_store *store, const char *path, size_t len, const char *target,
                    const struct sync_condition *condition, bool *created, struct err *err)
{
    size_t target_len = strlen(target);
    struct sync_at at;
    struct stat old = {0};
    char name[32];
    bool found = false;
    int r = sync_at_init(&at, path, len, err), fd;

    if (r != 0)
        return r;
    if (target_len == 0 || target_len > SYNC_PATH_MAX)
        return tr_err_set(err, -EINVAL, "a link's target has 1 to %d bytes", SYNC_PATH_MAX);
    fd = prepare(store, &at, condition, 0, &found, &old, err);
    if (fd < 0)
        return fd;
    snprintf(name, sizeof(name), "in-%llu", (unsigned long long)++store->n_staged);
    if (symlinkat(target, store->staging, name) != 0) {
        r = sync_fail_path(err, -errno, path, len);
    } else {
        r = place(store, fd, &at, name, found, &old, err);
        if (r != 0)
            (void)unlinkat(store->staging, name, 0);
    }
    close(fd);
    *created = !found;
    return r;
}

int sync_store_mkdir(struct sync_store *store, const char *path, size_t len, bool *created,
                     struct err *err)
{
    struct sync_at at;
    struct stat st;
    int r = sync_at_init(&at, path, len, err), fd;

    if (r != 0)
        return r;
    if (store->usage.n_files >= SYNC_STORE_FILES_MAX)
        return tr_err_set(err, -EDQUOT, "the session has %d files and folders, the most it can",
                          SYNC_STORE_FILES_MAX);
    fd = sync_at_open_folder(store, &at, true, err);
    if (fd < 0)
        return fd;
    *created = mkdirat(fd, at.base, 0755) == 0;
    if (*created) {
        store->usage.n_files++;
        if (fsync(fd) != 0)
            r = sync_fail_path(err, -errno, path, len);
    } else if (errno != EEXIST) {
        r = sync_fail_path(err, -errno, path, len);
    } else if (fstatat(fd, at.base, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) {
        r = sync_fail_path(err, -EEXIST, path, len);
    }
    close(fd);
    return r;
}

int sync_store_set_exec(struct sync_store *store, const char *path, size_t len, bool is_exec,
                        struct err *err)
{
    struct sync_stat st;
    int fd = sync_store_open_file(store, path, len, &st, err), r = 0;

    if (fd < 0)
        return fd;
    if (fchmod(fd, is_exec ? 0755 : 0644) != 0 || fsync(fd) != 0)
        r = sync_fail_path(err, -errno, path, len);
    close(fd);
    return r;
}

/* ---- removing and moving ---- */

static int remove_folder(struct sync_store *store, int fd, const struct sync_at *at, bool recursive,
                         struct err *err)
{
    struct sync_tally tally = {0};
    char name[32];
    int r;

    if (!recursive) {
        if (unlinkat(fd, at->base, AT_REMOVEDIR) != 0 || fsync(fd) != 0)
            return sync_fail_path(err, errno == EEXIST ? -ENOTEMPTY : -errno, at->path, at->len);
        store->usage.n_files--;
        return 0;
    }
    snprintf(name, sizeof(name), "out-%llu", (unsigned long long)++store->n_staged);
    if (renameat(fd, at->base, store->staging, name) != 0 || fsync(fd) != 0)
        return sync_fail_path(err, -errno, at->path, at->len);
    r = sync_dir_remove(store->staging, name, &tally);
    store->usage.files -= tally.bytes;
    store->usage.n_files -= tally.n;
    return r == 0 ? 0 : sync_fail_path(err, r, at->path, at->len);
}

int sync_store_remove(struct sync_store *store, const char *path, size_t len, bool recursive,
                      const struct sync_condition *condition, struct err *err)
{
    struct sync_at at;
    struct stat st;
    int r = sync_at_init(&at, path, len, err), fd, found;

    if (r != 0)
        return r;
    fd = sync_at_open_folder(store, &at, false, NULL);
    if (fd < 0 && fd != -ENOENT && fd != -ENOTDIR)
        return sync_fail_path(err, fd, path, len);
    found = fd >= 0 ? look(fd, &at, &st, err) : 0;
    r = found < 0 ? found : check_condition(condition, found ? &st : NULL, &at, err);
    if (r == 0 && found && S_ISDIR(st.st_mode)) {
        r = remove_folder(store, fd, &at, recursive, err);
    } else if (r == 0 && found) {
        if (unlinkat(fd, at.base, 0) != 0 || fsync(fd) != 0) {
            r = sync_fail_path(err, -errno, path, len);
        } else {
            store->usage.files -= weight(&st);
            store->usage.n_files--;
        }
    }
    if (fd >= 0)
        close(fd);
    return r;
}

/* Everything below a folder must have a path that can be stored after the move, too. */
static int check_below(int fd, char *path, size_t len, struct err *err)
{
    struct stat st;
    char **names;
    size_t n;
    int r = sync_dir_names(fd, &names, &n);

    if (r != 0)
        return sync_fail_path(err, r, path, len);
    for (size_t i = 0; i < n && r == 0; i++) {
        size_t name_len = strlen(names[i]);
        int sub;

        if (len + 1 + name_len > SYNC_PATH_MAX) {
            r = tr_err_set(err, -EINVAL, "a path below would have more than %d bytes",
                           SYNC_PATH_MAX);
            break;
        }
        path[len] = '/';
        memcpy(path + len + 1, names[i], name_len + 1);
        if (sync_path_check(path, len + 1 + name_len) == SYNC_PATH_TOO_DEEP) {
            r = tr_err_set(err, -EINVAL, "a path below would have more than %d components",
                           SYNC_DEPTH_MAX);
        } else if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
            sub = sync_dir_open(fd, names[i]);
            r = sub < 0 ? sync_fail_path(err, sub, path, len + 1 + name_len)
                        : check_below(sub, path, len + 1 + name_len, err);
            if (sub >= 0)
                close(sub);
        }
    }
    sync_dir_free_names(names, n);
    path[len] = '\0';
    return r;
}

static int check_moved_folder(int fd, const struct sync_at *from, const struct sync_at *to,
                              struct err *err)
{
    char path[SYNC_PATH_MAX + 2];
    int sub, r;

    if (to->len > from->len && memcmp(to->path, from->path, from->len) == 0 &&
        to->path[from->len] == '/')
        return tr_err_set(err, -EINVAL, "a folder cannot be moved into itself");
    sub = sync_dir_open(fd, from->base);
    if (sub < 0)
        return sync_fail_path(err, sub, from->path, from->len);
    memcpy(path, to->path, to->len + 1);
    r = check_below(sub, path, to->len, err);
    close(sub);
    return r;
}

int sync_store_move(struct sync_store *store, const char *from, size_t from_len, const char *to,
                    size_t to_len, bool replace, struct err *err)
{
    struct sync_at *at = calloc(2, sizeof(*at)), *source = at, *goal = at + 1;
    int source_fd = -1, goal_fd = -1, found = 0, r;
    struct stat st, old;

    if (at == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = sync_at_init(source, from, from_len, err);
    if (r == 0)
        r = sync_at_init(goal, to, to_len, err);
    if (r == 0 && (source_fd = sync_at_open_folder(store, source, false, err)) < 0)
        r = source_fd;
    if (r == 0 && fstatat(source_fd, source->base, &st, AT_SYMLINK_NOFOLLOW) != 0)
        r = sync_fail_path(err, -errno, from, from_len);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = check_moved_folder(source_fd, source, goal, err);
    if (r == 0 && (goal_fd = sync_at_open_folder(store, goal, true, err)) < 0)
        r = goal_fd;
    if (r == 0 && (found = look(goal_fd, goal, &old, err)) < 0)
        r = found;
    if (r == 0 && found && (from_len != to_len || memcmp(from, to, to_len) != 0) &&
        (!replace || S_ISDIR(old.st_mode) || S_ISDIR(st.st_mode)))
        r = sync_fail_path(err, -EEXIST, to, to_len);
    if (r == 0 && (renameat2(source_fd, source->base, goal_fd, goal->base,
                             found ? 0 : RENAME_NOREPLACE) != 0 ||
                   fsync(goal_fd) != 0 || fsync(source_fd) != 0))
        r = sync_fail_path(err, -errno, to, to_len);
    if (r == 0 && found && st.st_ino != old.st_ino) {
        store->usage.files -= weight(&old);
        store->usage.n_files--;
    }
    if (source_fd >= 0)
        close(source_fd);
    if (goal_fd >= 0)
        close(goal_fd);
    free(at);
    return r;
}
