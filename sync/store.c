/* SPDX-License-Identifier: MIT */
/* A store is opened in this order: folders, what a crash left of the last writer, the repository
 * (made under another name and renamed), what it all weighs. */
#include "sync/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "sync/tree.h"

#define COUNT_MS 5000 /* how old what is known of the tree's size may be */
#define REPO     "store.git"
#define REPO_NEW "store.git.new"

/* libgit2 reads no settings but these. Names that Windows or macOS could not hold are fine; and
 * git itself, if somebody uses it here, packs nothing behind our back. */
static const char config_text[] = "[core]\n"
                                  "\trepositoryformatversion = 0\n"
                                  "\tfilemode = true\n"
                                  "\tbare = true\n"
                                  "\tprotectHFS = false\n"
                                  "\tprotectNTFS = false\n"
                                  "\tlogAllRefUpdates = false\n"
                                  "[gc]\n"
                                  "\tauto = 0\n";

static struct timespec started; /* the process's use of stores */

/* ---- small things ---- */

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int sync_store_init(struct err *err)
{
    if (git_libgit2_init() < 0)
        return sync_fail_git(err, -EIO, "libgit2");
    clock_gettime(CLOCK_REALTIME_COARSE, &started); /* the clock of files' times */
    /* No settings of the host or its users; caches that stay small with many stores; all synced. */
    for (int level = GIT_CONFIG_LEVEL_PROGRAMDATA; level <= GIT_CONFIG_LEVEL_GLOBAL; level++)
        git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, level, "/nonexistent");
    git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    git_libgit2_opts(GIT_OPT_SET_CACHE_MAX_SIZE, (ssize_t)(16 * 1024 * 1024));
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_SIZE, (size_t)(2 * 1024 * 1024));
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, (size_t)(16 * 1024 * 1024));
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_FILE_LIMIT, (size_t)64);
    return 0;
}

void sync_store_fini(void)
{
    git_libgit2_shutdown();
}

/* Length of the printable UTF-8 character at s, or 0. */
static size_t printable(const unsigned char *s, size_t len)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;

    if (s[0] < 0x20 || s[0] == 0x7f || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4 || n > len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ||
        (s[0] == 0xc2 && s[1] < 0xa0)) /* the C1 controls */
        return 0;
    return n;
}

const char *sync_show(const char *path, size_t len, char out[SYNC_SHOWN_SIZE])
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        size_t c = printable((const unsigned char *)path + i, len - i);

        if (n + 8 >= SYNC_SHOWN_SIZE) {
            memcpy(out + n, "...", 4);
            return out;
        }
        if (c == 0) {
            snprintf(out + n, 5, "\\x%02x", (unsigned char)path[i++]);
            n += 4;
            continue;
        }
        memcpy(out + n, path + i, c);
        n += c;
        i += c;
    }
    out[n] = '\0';
    return out;
}

int sync_fail_path(struct err *err, int code, const char *path, size_t len)
{
    char shown[SYNC_SHOWN_SIZE];
    const char *why = strerror(-code);

    switch (code) {
    case -ENOENT:
        why = "there is no such file";
        break;
    case -ELOOP:
        why = "a component of the path is a symbolic link";
        break;
    case -ENOTDIR:
        why = "a component of the path is not a folder";
        break;
    case -EISDIR:
        why = "it is a folder";
        break;
    case -ENOTEMPTY:
        why = "the folder is not empty";
        break;
    case -EEXIST:
        why = "something is there already";
        break;
    case -ENOSPC:
        why = "the node's disk is full";
        break;
    default:
        break;
    }
    return tr_err_set(err, code, "%s: %s", len == 0 ? "/" : sync_show(path, len, shown), why);
}

int sync_fail_git(struct err *err, int code, const char *what)
{
    const git_error *fault = git_error_last();

    if (code == GIT_ENOTFOUND)
        code = -ENOENT;
    else if (errno == ENOSPC || errno == EDQUOT)
        code = -ENOSPC;
    else
        code = -EIO;
    return tr_err_set(err, code, "%s: %s", what,
                      fault != NULL && fault->message != NULL ? fault->message : "libgit2 failed");
}

static int fail_quota(struct err *err, int64_t quota, int64_t files, int64_t history)
{
    return tr_err_set(err, -EDQUOT,
                      "the session's quota of %lld MiB is used up: files %lld MiB, checkpoints "
                      "%lld MiB (sessions.quota_mb)",
                      (long long)(quota >> 20), (long long)(files >> 20),
                      (long long)(history >> 20));
}

void sync_stat_from(const struct stat *st, struct sync_stat *out)
{
    out->type = S_ISREG(st->st_mode)   ? SYNC_TYPE_FILE
                : S_ISDIR(st->st_mode) ? SYNC_TYPE_DIR
                : S_ISLNK(st->st_mode) ? SYNC_TYPE_LINK
                                       : SYNC_TYPE_SPECIAL;
    out->is_exec = S_ISREG(st->st_mode) && (st->st_mode & S_IXUSR) != 0;
    out->size = S_ISDIR(st->st_mode) ? 0 : st->st_size;
    out->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    out->ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
    out->ino = st->st_ino;
    out->mode = st->st_mode;
}

bool sync_name_is_git(const char *name, size_t len)
{
    return len == 4 && strncasecmp(name, ".git", 4) == 0;
}

/* ---- opening ---- */

/* Locks and half-written objects of a dead process. What is younger than ours may be the vault's,
 * which has the repository open for itself (sync/vault_git.h). */
static bool is_leftover(const char *name, const struct stat *st)
{
    size_t len = strlen(name);

    return (strncmp(name, "tmp_", 4) == 0 || strstr(name, "_git2_") != NULL ||
            (len > 5 && strcmp(name + len - 5, ".lock") == 0)) &&
           (st->st_mtim.tv_sec < started.tv_sec ||
            (st->st_mtim.tv_sec == started.tv_sec && st->st_mtim.tv_nsec < started.tv_nsec));
}

/* Remove half-written files of the repository and add up the others. */
static int recover_below(struct sync_store *store, int fd, int depth)
{
    struct stat st;
    char **names;
    size_t n;
    int r = sync_dir_names(fd, &names, &n);

    if (r != 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++) {
        int sub;

        if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0) {
            r = errno == ENOENT ? 0 : -errno; /* the vault may be at work */
        } else if (S_ISDIR(st.st_mode) && depth < 16) {
            sub = sync_dir_open(fd, names[i]);
            r = sub < 0 ? sub : recover_below(store, sub, depth + 1);
            if (sub >= 0)
                close(sub);
        } else if (is_leftover(names[i], &st)) {
            r = unlinkat(fd, names[i], 0) != 0 && errno != ENOENT ? -errno : 0;
        } else {
            store->usage.history += (int64_t)st.st_blocks * 512;
            store->n_loose += depth == 2 && strlen(names[i]) == SYNC_ID_SIZE - 3;
        }
    }
    sync_dir_free_names(names, n);
    return r;
}

static int make_repository(struct sync_store *store, struct err *err)
{
    git_repository_init_options options = {.version = GIT_REPOSITORY_INIT_OPTIONS_VERSION};
    struct sync_checkpoint first;
    git_oid tree;
    char *path;
    int fd, r;

    r = sync_dir_remove(store->dir_fd, REPO_NEW, NULL);
    if (r != 0)
        return tr_err_set(err, r, "%s/" REPO_NEW ": %s", store->dir, strerror(-r));
    if (asprintf(&path, "%s/" REPO_NEW, store->dir) < 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    options.flags =
        GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_NO_REINIT | GIT_REPOSITORY_INIT_MKDIR;
    options.initial_head = "main";
    errno = 0;
    r = git_repository_init_ext(&store->repo, path, &options);
    git_repository_free(store->repo);
    store->repo = NULL;
    if (r == 0) {
        char *config;

        r = -ENOMEM;
        if (asprintf(&config, "%s/config", path) >= 0) {
            fd = open(config, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0644);
            r = fd < 0 ? -errno : sync_write_all(fd, config_text, sizeof(config_text) - 1);
            if (fd >= 0)
                close(fd);
            free(config);
        }
        if (r != 0)
            r = tr_err_set(err, r, "%s: %s", path, strerror(-r));
    } else {
        r = sync_fail_git(err, r, path);
    }
    if (r == 0 && (git_repository_open_bare(&store->repo, path) != 0 ||
                   git_repository_odb(&store->odb, store->repo) != 0 ||
                   git_odb_write(&tree, store->odb, "", 0, GIT_OBJECT_TREE) != 0))
        r = sync_fail_git(err, -EIO, path);
    if (r == 0)
        r = sync_commit(store, &tree, NULL, "The session's files begin.", SYNC_CAUSE_CREATED,
                        "Transom", &first, err);
    git_odb_free(store->odb);
    git_repository_free(store->repo);
    store->odb = NULL;
    store->repo = NULL;
    free(path);
    if (r != 0)
        return r;
    r = sync_dir_sync(store->dir_fd, REPO_NEW);
    if (r == 0 &&
        (renameat(store->dir_fd, REPO_NEW, store->dir_fd, REPO) != 0 || fsync(store->dir_fd) != 0))
        r = -errno;
    return r == 0 ? 0 : tr_err_set(err, r, "%s/" REPO ": %s", store->dir, strerror(-r));
}

static int open_repository(struct sync_store *store, struct err *err)
{
    git_commit *last = NULL;
    struct stat st;
    git_oid head;
    char *path;
    int fd, r;

    if (fstatat(store->dir_fd, REPO, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return tr_err_set(err, -errno, "%s/" REPO ": %s", store->dir, strerror(errno));
        r = make_repository(store, err);
        if (r != 0)
            return r;
    }
    fd = sync_dir_open(store->dir_fd, REPO);
    r = fd < 0 ? fd : recover_below(store, fd, 0);
    if (fd >= 0)
        close(fd);
    if (r != 0)
        return tr_err_set(err, r, "%s/" REPO ": %s", store->dir, strerror(-r));
    if (asprintf(&path, "%s/" REPO, store->dir) < 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    errno = 0;
    r = git_repository_open_bare(&store->repo, path);
    if (r == 0)
        r = git_repository_odb(&store->odb, store->repo);
    if (r != 0)
        (void)sync_fail_git(err, r, path);
    free(path);
    if (r != 0)
        return err->code;
    r = sync_head(store, &head, err);
    if (r == 0 && git_commit_lookup(&last, store->repo, &head) != 0)
        r = sync_fail_git(err, -EIO, "the last checkpoint cannot be read");
    if (r == 0)
        sync_commit_gits(last, &store->gits);
    git_commit_free(last);
    return r;
}

/* Open a folder of the store, making it. */
static int open_sub(struct sync_store *store, const char *name, struct err *err)
{
    int fd;

    if (mkdirat(store->dir_fd, name, 0755) == 0) {
        if (fsync(store->dir_fd) != 0)
            return tr_err_set(err, -errno, "%s: %s", store->dir, strerror(errno));
    } else if (errno != EEXIST) {
        return tr_err_set(err, -errno, "%s/%s: %s", store->dir, name, strerror(errno));
    }
    fd = sync_dir_open(store->dir_fd, name);
    return fd >= 0 ? fd : tr_err_set(err, fd, "%s/%s: %s", store->dir, name, strerror(-fd));
}

static int empty_staging(struct sync_store *store, struct err *err)
{
    char **names;
    size_t n;
    int r = sync_dir_names(store->staging, &names, &n);

    if (r == 0) {
        for (size_t i = 0; i < n && r == 0; i++)
            r = sync_dir_remove(store->staging, names[i], NULL);
        sync_dir_free_names(names, n);
    }
    return r == 0 ? 0 : tr_err_set(err, r, "%s/staging: %s", store->dir, strerror(-r));
}

/* What a dead process's sync had in its hands. */
static void sweep_sync(const struct sync_store *store)
{
    const struct sync_tree tree = {
        .root = store->files, .stage = store->sync_staging, .sync = true};

    sync_tree_sweep(&tree, (int64_t)started.tv_sec * 1000000000 + started.tv_nsec);
}

int sync_store_recount(struct sync_store *store, struct err *err)
{
    struct sync_tally tally = {0};
    int r = sync_dir_tally(store->files, &tally);

    if (r != 0)
        return tr_err_set(err, r, "%s/files: %s", store->dir, strerror(-r));
    store->counted_ms = now_ms();
    store->usage.files = tally.bytes;
    store->usage.n_files = tally.n;
    return 0;
}

int sync_store_open(const char *dir, int64_t quota, struct sync_store **out, struct err *err)
{
    struct sync_store *store = calloc(1, sizeof(*store));
    struct err why = {0};
    int r = 0;

    if (store == NULL || (store->dir = strdup(dir)) == NULL) {
        free(store);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    store->usage.quota = quota;
    store->files = store->staging = store->sync_staging = -1;
    store->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->dir_fd < 0)
        r = tr_err_set(&why, -errno, "%s: %s", dir, strerror(errno));
    if (r == 0 && (store->files = open_sub(store, "files", &why)) < 0)
        r = store->files;
    if (r == 0 && (store->staging = open_sub(store, "staging", &why)) < 0)
        r = store->staging;
    if (r == 0 && (store->sync_staging = open_sub(store, SYNC_STORE_STAGE, &why)) < 0)
        r = store->sync_staging;
    if (r == 0)
        sweep_sync(store);
    if (r == 0)
        r = empty_staging(store, &why);
    if (r == 0)
        r = open_repository(store, &why);
    if (r == 0)
        r = sync_store_recount(store, &why);
    if (r != 0) {
        sync_store_close(store);
        if (err != NULL)
            *err = why;
        return r;
    }
    *out = store;
    return 0;
}

void sync_store_close(struct sync_store *store)
{
    if (store == NULL)
        return;
    sync_known_free(&store->known);
    git_odb_free(store->odb);
    git_repository_free(store->repo);
    if (store->files >= 0)
        close(store->files);
    if (store->staging >= 0)
        close(store->staging);
    if (store->sync_staging >= 0)
        close(store->sync_staging);
    if (store->dir_fd >= 0)
        close(store->dir_fd);
    free(store->dir);
    free(store);
}

void sync_store_usage(const struct sync_store *store, struct sync_usage *out)
{
    *out = store->usage;
}

size_t sync_store_loose(const struct sync_store *store)
{
    return store->n_loose;
}

int sync_store_repacked(struct sync_store *store, struct err *err)
{
    int fd = sync_dir_open(store->dir_fd, REPO), r;

    store->usage.history = 0;
    store->n_loose = 0;
    r = fd < 0 ? fd : recover_below(store, fd, 0);
    if (fd >= 0)
        close(fd);
    if (r != 0)
        return tr_err_set(err, r, "%s/" REPO ": %s", store->dir, strerror(-r));
    return git_odb_refresh(store->odb) == 0 ? 0 : sync_fail_git(err, -EIO, store->dir);
}

int sync_store_files(const struct sync_store *store)
{
    return store->files;
}

int sync_store_staging(const struct sync_store *store)
{
    return store->sync_staging;
}

int sync_store_room(struct sync_store *store, int64_t more, struct err *err)
{
    const struct sync_usage *u = &store->usage;
    int r = 0;

    if (more > 0 && u->quota != 0 && now_ms() - store->counted_ms > COUNT_MS)
        r = sync_store_recount(store, err); /* a sync may have written meanwhile */
    if (r != 0)
        return r;
    if (more <= 0 || u->quota == 0 || more <= u->quota - u->files - u->history)
        return 0;
    return fail_quota(err, u->quota, u->files, u->history);
}
