/* SPDX-License-Identifier: MIT */
#include "vmm/agent/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/utf8.h"

#define MAX_DEPTH 256

/* Open path (relative to home, which it cannot leave, or absolute). */
static int open_path(const struct agent_files *f, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_NO_MAGICLINKS};
    int home = AT_FDCWD, fd;

    if (*path != '/') {
        home = open(f->home, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (home < 0)
            return -errno;
        how.resolve |= RESOLVE_BENEATH;
    }
    do {
        fd = (int)syscall(SYS_openat2, home, *path != '\0' ? path : ".", &how, sizeof(how));
    } while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename came between */
    fd = fd < 0 ? -errno : fd;
    if (home >= 0)
        close(home);
    return fd;
}

static int fail(struct err *err, int code, const char *path)
{
    char *shown = agent_utf8_repair(path, strnlen(path, 200), NULL);

    tr_err_set(err, code == -EXDEV ? UV_EACCES : code, "%s: %s", shown != NULL ? shown : "?",
               code == -EXDEV ? "a relative path cannot leave the home folder" : uv_strerror(code));
    free(shown);
    return code == -EXDEV ? UV_EACCES : code;
}

int agent_files_open(const struct agent_files *f, const char *path, struct stat *st,
                     struct err *err)
{
    /* Opening a FIFO or device must neither wait nor have an effect. */
    int fd = open_path(f, path, O_RDONLY | O_NONBLOCK | O_NOCTTY), r;

    if (fd < 0)
        return fail(err, fd, path);
    r = fstat(fd, st) != 0 ? -errno : 0;
    if (r == 0 && !S_ISREG(st->st_mode))
        r = S_ISDIR(st->st_mode) ? UV_EISDIR : UV_EINVAL;
    if (r == 0)
        return fd;
    close(fd);
    return fail(err, r, path);
}

/* Split into folder and last name. Returns false for a path without a last name. */
static bool split(const char *path, char *folder, size_t size, char *name, size_t name_size)
{
    size_t len = strlen(path), start;

    while (len > 0 && path[len - 1] == '/')
        len--;
    for (start = len; start > 0 && path[start - 1] != '/'; start--)
        ;
    if (len == start || len - start >= name_size || start >= size)
        return false;
    memcpy(name, path + start, len - start);
    name[len - start] = '\0';
    memcpy(folder, path, start);
    folder[start] = '\0';
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Open a folder, making what is missing of it one name at a time. */
static int open_folder(const struct agent_files *f, char *folder)
{
    int fd = open_path(f, folder, O_PATH | O_DIRECTORY);

    for (char *p = folder; fd == -ENOENT && *p != '\0';) {
        char *slash = strchr(p + 1, '/'), name[256], above[PATH_MAX];
        int dir;

        if (slash != NULL)
            *slash = '\0';
        if (split(folder, above, sizeof(above), name, sizeof(name))) {
            dir = open_path(f, above, O_PATH | O_DIRECTORY);
            if (dir < 0)
                return dir;
            if (mkdirat(dir, name, 0755) == 0) {
                if (f->give && fchownat(dir, name, f->uid, f->gid, AT_SYMLINK_NOFOLLOW) != 0) {
                    /* It stays root's; the file inside is still made. */
                }
            } else if (errno != EEXIST) {
                int r = -errno;

                close(dir);
                return r;
            }
            close(dir);
        }
        if (slash == NULL)
            break;
        *slash = '/';
        p = slash;
    }
    return fd == -ENOENT ? open_path(f, folder, O_PATH | O_DIRECTORY) : fd;
}

int agent_upload_begin(const struct agent_files *f, const char *path, mode_t mode,
                       struct agent_upload *u, struct err *err)
{
    char folder[PATH_MAX];
    uint64_t random;
    struct stat st;
    int r = 0;

    memset(u, 0, sizeof(*u));
    u->fd = u->dir = -1;
    if (!split(path, folder, sizeof(folder), u->name, sizeof(u->name)))
        return fail(err, UV_EINVAL, path);
    u->dir = open_folder(f, folder);
    if (u->dir < 0)
        return fail(err, u->dir, path);
    if (fstatat(u->dir, u->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        u->existed = true;
        if (S_ISDIR(st.st_mode))
            r = UV_EISDIR;
    }
    u->mode = mode != (mode_t)-1                  ? mode
              : u->existed && S_ISREG(st.st_mode) ? st.st_mode & 07777
                                                  : 0644;
    if (r == 0 && getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        r = -errno;
    if (r == 0) {
        snprintf(u->temp, sizeof(u->temp), ".transom-%016llx.part", (unsigned long long)random);
        u->fd = openat(u->dir, u->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (u->fd < 0)
            r = -errno;
        else if (f->give && fchown(u->fd, f->uid, f->gid) != 0)
            r = -errno;
    }
    if (r == 0)
        return 0;
    if (u->fd >= 0)
        agent_upload_abort(u);
    else
        close(u->dir);
    return fail(err, r, path);
}

int agent_upload_commit(struct agent_upload *u, struct err *err)
{
    int r = 0;

    /* The mode comes after the owner: a change of owner takes set-user-id away. */
    if (fchmod(u->fd, u->mode) != 0 || fsync(u->fd) != 0 ||
        renameat(u->dir, u->temp, u->dir, u->name) != 0)
        r = fail(err, -errno, u->name);
    if (r != 0)
        unlinkat(u->dir, u->temp, 0);
    close(u->fd);
    close(u->dir);
    u->fd = u->dir = -1;
    return r;
}

void agent_upload_abort(struct agent_upload *u)
{
    if (u->fd < 0)
        return;
    unlinkat(u->dir, u->temp, 0);
    close(u->fd);
    close(u->dir);
    u->fd = u->dir = -1;
}

/* ---- listing ---- */

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "symlink" : "other";
}

static json_t *text_json(const char *text, size_t len)
{
    size_t out_len = 0;
    char *repaired = agent_utf8_repair(text, len, &out_len);
    json_t *v = repaired != NULL ? json_stringn(repaired, out_len) : NULL;

    free(repaired);
    return v;
}

static json_t *entry_json(int dir, const char *name)
{
    char target[PATH_MAX], mode[16];
    struct stat st;
    json_t *obj;
    ssize_t n;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return NULL; /* gone meanwhile */
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(st.st_mode & 07777));
    obj = json_pack("{s:o,s:s,s:I,s:s,s:I}", "name", text_json(name, strlen(name)), "type",
                    type_name(st.st_mode), "size", (json_int_t)st.st_size, "mode", mode, "mtime_ms",
                    (json_int_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
    if (obj == NULL)
        return NULL;
    if (!agent_utf8_valid(name, strlen(name))) {
        char *b64 = agent_base64_encode(name, strlen(name));

        json_object_set_new(obj, "name_b64", json_string(b64));
        free(b64);
    }
    if (S_ISLNK(st.st_mode) && (n = readlinkat(dir, name, target, sizeof(target))) >= 0)
        json_object_set_new(obj, "target", text_json(target, (size_t)n));
    return obj;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder. Returns how many, sorted; *cut: there are more. */
static size_t read_names(DIR *dir, char ***out, bool *cut)
{
    char **names = NULL;
    size_t n = 0, cap = 0;
    struct dirent *e;

    while ((e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (n == AGENT_MAX_ENTRIES) {
            *cut = true;
            break;
        }
        if (n == cap) {
            size_t next = cap > 0 ? cap * 2 : 64;
            char **grown = realloc(names, next * sizeof(*names));

            if (grown == NULL)
                break;
            names = grown;
            cap = next;
        }
        names[n] = strdup(e->d_name);
        if (names[n] == NULL)
            break;
        n++;
    }
    if (n > 0)
        qsort(names, n, sizeof(*names), by_name);
    *out = names;
    return n;
}

int agent_files_list(const struct agent_files *f, const char *path, json_t **out, struct err *err)
{
    int fd = open_path(f, path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    json_t *entries = json_array();
    char **names = NULL;
    bool cut = false;
    size_t n;

    if (dir == NULL) {
        int r = fd < 0 ? fd : -errno;

        json_decref(entries);
        if (fd >= 0)
            close(fd);
        return fail(err, r, path);
    }
    n = read_names(dir, &names, &cut);
    for (size_t i = 0; i < n; i++) {
        json_t *entry = entry_json(fd, names[i]);

        if (entry != NULL)
            json_array_append_new(entries, entry);
        free(names[i]);
    }
    free(names);
    closedir(dir);
    *out = json_pack("{s:o,s:o}", "path", text_json(path, strlen(path)), "entries", entries);
    if (*out != NULL && cut)
        json_object_set_new(*out, "truncated", json_true());
    return *out != NULL ? 0 : tr_err_set(err, UV_ENOMEM, "out of memory");
}

/* ---- removal ---- */

static int remove_tree(int dir, const char *name, int depth)
{
    int fd, r = 0;
    struct dirent *e;
    DIR *d;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (depth == MAX_DEPTH || (d = fdopendir(fd)) == NULL) {
        close(fd);
        return -ELOOP;
    }
    while (r == 0 && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = remove_tree(fd, e->d_name, depth + 1);
    }
    closedir(d);
    if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        r = -errno;
    return r;
}

int agent_files_remove(const struct agent_files *f, const char *path, bool recursive,
                       struct err *err)
{
    char folder[PATH_MAX], name[256];
    int dir, r;

    if (!split(path, folder, sizeof(folder), name, sizeof(name)))
        return fail(err, UV_EINVAL, path);
    dir = open_path(f, folder, O_PATH | O_DIRECTORY);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return fail(err, dir, path);
    if (recursive) {
        r = remove_tree(dir, name, 0);
    } else {
        r = unlinkat(dir, name, 0) == 0 ? 0 : -errno;
        if (r == -EISDIR || r == -EPERM)
            r = unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
    }
    close(dir);
    return r == 0 || r == -ENOENT ? 0 : fail(err, r, path);
}
