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
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/utf8.h"

#define MAX_DEPTH 256

int agent_files_open_path(const struct agent_files *f, const char *path, int flags)
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

int agent_files_fail(struct err *err, int code, const char *path)
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
    int fd = agent_files_open_path(f, path, O_RDONLY | O_NONBLOCK | O_NOCTTY), r;

    if (fd < 0)
        return agent_files_fail(err, fd, path);
    r = fstat(fd, st) != 0 ? -errno : 0;
    if (r == 0 && !S_ISREG(st->st_mode))
        r = S_ISDIR(st->st_mode) ? UV_EISDIR : UV_EINVAL;
    if (r == 0)
        return fd;
    close(fd);
    return agent_files_fail(err, r, path);
}

bool agent_files_split(const char *path, char *folder, size_t size, char *name, size_t name_size)
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

int agent_files_open_folder(const struct agent_files *f, char *folder)
{
    int fd = agent_files_open_path(f, folder, O_PATH | O_DIRECTORY);

    for (char *p = folder; fd == -ENOENT && *p != '\0';) {
        char *slash = strchr(p + 1, '/'), name[256], above[PATH_MAX];
        int dir;

        if (slash != NULL)
            *slash = '\0';
        if (agent_files_split(folder, above, sizeof(above), name, sizeof(name))) {
            dir = agent_files_open_path(f, above, O_PATH | O_DIRECTORY);
            if (dir < 0)
                return dir;
            if (mkdirat(dir, name, 0755) == 0) {
                if (f->own && fchownat(dir, name, f->uid, f->gid, AT_SYMLINK_NOFOLLOW) != 0) {
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
    return fd == -ENOENT ? agent_files_open_path(f, folder, O_PATH | O_DIRECTORY) : fd;
}

/* ---- listing ---- */

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "symlink" : "other";
}

json_t *agent_files_text(const char *text, size_t len)
{
    size_t out_len = 0;
    char *repaired = agent_utf8_repair(text, len, &out_len);
    json_t *v = repaired != NULL ? json_stringn(repaired, out_len) : NULL;

    free(repaired);
    return v;
}

/* name in dir; with name "" dir itself, which may be an O_PATH descriptor of anything. */
static json_t *entry_json(int dir, const char *name)
{
    char target[PATH_MAX], mode[16];
    struct stat st;
    json_t *obj;
    ssize_t n;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
        return NULL; /* gone meanwhile */
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(st.st_mode & 07777));
    obj = json_pack("{s:o,s:s,s:I,s:s,s:I,s:I,s:I}", "name", agent_files_text(name, strlen(name)),
                    "type", type_name(st.st_mode), "size", (json_int_t)st.st_size, "mode", mode,
                    "uid", (json_int_t)st.st_uid, "gid", (json_int_t)st.st_gid, "mtime_ms",
                    (json_int_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
    if (obj == NULL)
        return NULL;
    if (!agent_utf8_valid(name, strlen(name))) {
        char *b64 = agent_base64_encode(name, strlen(name));

        json_object_set_new(obj, "name_b64", json_string(b64));
        free(b64);
    }
    if (S_ISLNK(st.st_mode) && (n = readlinkat(dir, name, target, sizeof(target))) >= 0)
        json_object_set_new(obj, "target", agent_files_text(target, (size_t)n));
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
    int fd = agent_files_open_path(f, path, O_RDONLY | O_DIRECTORY);
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
        return agent_files_fail(err, r, path);
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
    *out = json_pack("{s:o,s:o}", "path", agent_files_text(path, strlen(path)), "entries", entries);
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
    if (fd < 0) /* no folder at all: what unlinking it said was so */
        return errno == ENOTDIR || errno == ELOOP ? UV_EPERM : -errno;
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

    if (!agent_files_split(path, folder, sizeof(folder), name, sizeof(name)))
        return agent_files_fail(err, UV_EINVAL, path);
    dir = agent_files_open_path(f, folder, O_PATH | O_DIRECTORY);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return agent_files_fail(err, dir, path);
    if (recursive) {
        r = remove_tree(dir, name, 0);
    } else {
        r = unlinkat(dir, name, 0) == 0 ? 0 : -errno;
        if (r == -EISDIR || r == -EPERM) {
            r = unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
            if (r == -ENOTDIR)
                r = -EPERM;
        }
    }
    close(dir);
    return r == 0 || r == -ENOENT ? 0 : agent_files_fail(err, r, path);
}

/* ---- single entries ---- */

int agent_files_stat(const struct agent_files *f, const char *path, bool follow, json_t **out,
                     struct err *err)
{
    int fd = agent_files_open_path(f, path, O_PATH | (follow ? 0 : O_NOFOLLOW));
    json_t *obj;

    if (fd < 0)
        return agent_files_fail(err, fd, path);
    obj = entry_json(fd, "");
    close(fd);
    if (obj == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    json_object_del(obj, "name");
    json_object_set_new(obj, "path", agent_files_text(path, strlen(path)));
    *out = obj;
    return 0;
}

int agent_files_mkdir(const struct agent_files *f, const char *path, mode_t mode, bool *made,
                      struct err *err)
{
    char folder[PATH_MAX], name[256];
    int dir, fd, r = 0;
    struct stat st;

    *made = false;
    if (!agent_files_split(path, folder, sizeof(folder), name, sizeof(name)))
        return agent_files_fail(err, UV_EINVAL, path);
    dir = agent_files_open_folder(f, folder);
    if (dir < 0)
        return agent_files_fail(err, dir, path);
    if (mkdirat(dir, name, 0755) != 0) {
        r = -errno;
        if (r == UV_EEXIST && fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            r = 0;
        close(dir);
        return r == 0 ? 0 : agent_files_fail(err, r, path);
    }
    *made = true;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || (f->own && fchown(fd, f->uid, f->gid) != 0) ||
        (mode != (mode_t)-1 && fchmod(fd, mode) != 0))
        r = -errno;
    if (fd >= 0)
        close(fd);
    close(dir);
    return r == 0 ? 0 : agent_files_fail(err, r, path);
}

int agent_files_move(const struct agent_files *f, const char *from, const char *to, bool replace,
                     struct err *err)
{
    char folder[PATH_MAX], name[256], to_name[256];
    int dir, to_dir, r = 0;

    if (!agent_files_split(from, folder, sizeof(folder), name, sizeof(name)))
        return agent_files_fail(err, UV_EINVAL, from);
    dir = agent_files_open_path(f, folder, O_PATH | O_DIRECTORY);
    if (dir < 0)
        return agent_files_fail(err, dir, from);
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) { /* before any folder is made */
        r = -errno;
        close(dir);
        return agent_files_fail(err, r, from);
    }
    if (!agent_files_split(to, folder, sizeof(folder), to_name, sizeof(to_name))) {
        close(dir);
        return agent_files_fail(err, UV_EINVAL, to);
    }
    to_dir = agent_files_open_folder(f, folder);
    if (to_dir < 0) {
        close(dir);
        return agent_files_fail(err, to_dir, to);
    }
    if (renameat2(dir, name, to_dir, to_name, replace ? 0 : RENAME_NOREPLACE) != 0)
        r = -errno;
    close(dir);
    close(to_dir);
    if (r == UV_EXDEV)
        return tr_err_set(err, UV_EINVAL, "the two places are on different file systems");
    return r == 0 ? 0 : agent_files_fail(err, r, to);
}
