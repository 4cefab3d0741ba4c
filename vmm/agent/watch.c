/* SPDX-License-Identifier: MIT */
#include "vmm/agent/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/utf8.h"

#define READ_BYTES 16384
#define MASK                                                                                       \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM |              \
     IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* ---- lines ---- */

/* Takes obj. What does not fit is not told one by one, only that there was more. */
static void add_line(struct agent_watch_tree *t, json_t *obj)
{
    char *text = obj != NULL ? json_dumps(obj, JSON_COMPACT) : NULL;
    size_t len = text != NULL ? strlen(text) : 0;

    json_decref(obj);
    if (text != NULL && t->out_len + len + 1 > t->out_size && t->out_size < AGENT_WATCH_OUT) {
        size_t size = t->out_size > 0 ? t->out_size : 4096;
        char *grown;

        while (size < t->out_len + len + 1)
            size *= 2;
        grown = size <= AGENT_WATCH_OUT ? realloc(t->out, size) : NULL;
        if (grown != NULL) {
            t->out = grown;
            t->out_size = size;
        }
    }
    if (text != NULL && t->out_len + len + 1 <= t->out_size) {
        memcpy(t->out + t->out_len, text, len);
        t->out_len += len;
        t->out[t->out_len++] = '\n';
    } else {
        t->lost = true;
    }
    free(text);
}

static void add_overflow(struct agent_watch_tree *t, const char *reason)
{
    add_line(t, json_pack("{s:s,s:s}", "type", "overflow", "reason", reason));
}

static void add_event(struct agent_watch_tree *t, const char *type, const char *rel, bool folder,
                      uint32_t cookie)
{
    json_t *obj = json_pack("{s:s,s:o}", "type", type, "path", agent_files_text(rel, strlen(rel)));

    if (obj != NULL && !agent_utf8_valid(rel, strlen(rel))) {
        char *b64 = agent_base64_encode(rel, strlen(rel));

        json_object_set_new(obj, "path_b64", json_string(b64));
        free(b64);
    }
    if (folder)
        json_object_set_new(obj, "dir", json_true());
    if (cookie != 0)
        json_object_set_new(obj, "cookie", json_integer(cookie));
    add_line(t, obj);
}

/* ---- folders ---- */

/* rel and name joined, new. */
static char *join(const char *rel, const char *name)
{
    char *out;

    if (asprintf(&out, "%s%s%s", rel, *rel != '\0' && *name != '\0' ? "/" : "", name) < 0)
        return NULL;
    return out;
}

static struct agent_watched *find(struct agent_watch_tree *t, int wd)
{
    for (size_t i = 0; i < t->n_dirs; i++) {
        if (t->dirs[i].wd == wd)
            return &t->dirs[i];
    }
    return NULL;
}

static void drop(struct agent_watch_tree *t, struct agent_watched *d)
{
    free(d->rel);
    *d = t->dirs[--t->n_dirs];
}

/* rel and all below it went elsewhere. */
static void forget(struct agent_watch_tree *t, const char *rel)
{
    size_t len = strlen(rel);

    for (size_t i = t->n_dirs; i-- > 0;) {
        struct agent_watched *d = &t->dirs[i];

        if (strncmp(d->rel, rel, len) != 0 || (d->rel[len] != '/' && d->rel[len] != '\0'))
            continue;
        inotify_rm_watch(t->fd, d->wd);
        drop(t, d);
    }
}

/* Watch what fd is; rel is taken. Returns 0, UV_ENOSPC (too many), or the errno. */
static int watch_fd(struct agent_watch_tree *t, int fd, char *rel)
{
    struct agent_watched *d, *grown;
    char name[40];
    int wd;

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    wd = t->n_dirs < AGENT_WATCH_DIRS ? inotify_add_watch(t->fd, name, MASK) : -1;
    if (wd < 0) {
        int r = t->n_dirs < AGENT_WATCH_DIRS ? -errno : UV_ENOSPC;

        free(rel);
        return r;
    }
    d = find(t, wd);
    if (d != NULL) { /* the same folder, under another name by now */
        free(d->rel);
        d->rel = rel;
        return 0;
    }
    grown = realloc(t->dirs, (t->n_dirs + 1) * sizeof(*grown));
    if (grown == NULL) {
        inotify_rm_watch(t->fd, wd);
        free(rel);
        return UV_ENOMEM;
    }
    t->dirs = grown;
    t->dirs[t->n_dirs++] = (struct agent_watched){wd, rel};
    return 0;
}

static int open_below(struct agent_watch_tree *t, const char *rel)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int root = agent_files_open_path(t->files, t->path, O_PATH), fd = -1;
    struct stat st;

    if (root < 0)
        return root;
    if (fstat(root, &st) == 0 && st.st_dev == t->dev && st.st_ino == t->ino)
        fd = (int)syscall(SYS_openat2, root, *rel != '\0' ? rel : ".", &how, sizeof(how));
    close(root);
    return fd;
}

/* Watch a folder, then those in it; what is in it is told when it came while we watched. The watch
 * comes before the look inside: nothing falls between. Folders that cannot be read are left out,
 * as whoever asks could not see into them either. */
static void add_tree(struct agent_watch_tree *t, const char *rel, bool tell)
{
    int fd = open_below(t, rel), r;
    char *copy = fd >= 0 ? strdup(rel) : NULL;
    struct dirent *e;
    DIR *dir;

    if (copy == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    r = watch_fd(t, fd, copy);
    dir = r == 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (r == UV_ENOSPC && !t->full) {
            t->full = true; /* said once: from here on not all is seen */
            add_overflow(t, "too many folders");
        }
        close(fd);
        return;
    }
    while (!t->lost && (e = readdir(dir)) != NULL) {
        char *path;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        path = join(rel, e->d_name);
        if (path == NULL)
            break;
        if (tell)
            add_event(t, "create", path, e->d_type == DT_DIR, 0);
        if (t->recursive && e->d_type == DT_DIR && !t->full)
            add_tree(t, path, tell);
        free(path);
    }
    closedir(dir);
}

/* ---- events ---- */

static const char *type_name(uint32_t mask)
{
    return mask & IN_CREATE        ? "create"
           : mask & IN_DELETE      ? "delete"
           : mask & IN_MODIFY      ? "modify"
           : mask & IN_CLOSE_WRITE ? "written"
           : mask & IN_ATTRIB      ? "attrib"
           : mask & IN_MOVED_FROM  ? "moved_from"
           : mask & IN_MOVED_TO    ? "moved_to"
                                   : NULL;
}

static void take_event(struct agent_watch_tree *t, const struct inotify_event *e)
{
    const char *name = e->len > 0 ? e->name : "", *type = type_name(e->mask);
    struct agent_watched *d;
    bool folder = (e->mask & IN_ISDIR) != 0;
    char *path;

    if (e->mask & IN_Q_OVERFLOW) {
        add_overflow(t, "read too slowly");
        return;
    }
    d = find(t, e->wd);
    if (d == NULL) /* forgotten meanwhile */
        return;
    if (*d->rel == '\0' && (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED))) {
        t->gone = true;
        return;
    }
    if (e->mask & IN_IGNORED) {
        drop(t, d);
        return;
    }
    if (type == NULL || (folder && *name == '\0' && *d->rel != '\0'))
        return; /* a folder's own attributes: its parent tells */
    path = join(d->rel, name);
    if (path == NULL) {
        t->lost = true;
        return;
    }
    add_event(t, type, path, folder, e->cookie);
    if (folder && t->recursive && (e->mask & IN_MOVED_FROM))
        forget(t, path);
    if (folder && t->recursive && (e->mask & (IN_CREATE | IN_MOVED_TO)))
        add_tree(t, path, true);
    free(path);
}

int agent_watch_tree_read(struct agent_watch_tree *t)
{
    uint8_t buf[READ_BYTES] __attribute__((aligned(8)));
    ssize_t n = read(t->fd, buf, sizeof(buf));

    t->lost = false;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    for (ssize_t at = 0; at < n && !t->gone;) {
        const struct inotify_event *e = (const struct inotify_event *)(buf + at);

        take_event(t, e);
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    if (t->lost) { /* there is no room for it behind the lines; they are worth nothing now */
        t->out_len = 0;
        t->lost = false;
        add_overflow(t, "too many changes at once");
    }
    if (t->gone)
        add_line(t, json_pack("{s:s}", "type", "gone"));
    return 0;
}

int agent_watch_tree_open(const struct agent_files *f, const char *path, bool recursive,
                          struct agent_watch_tree *t, struct err *err)
{
    int root = agent_files_open_path(f, path, O_PATH), r;
    struct stat st = {0};
    char *self;

    if (root < 0)
        return agent_files_fail(err, root, path);
    memset(t, 0, sizeof(*t));
    t->recursive = recursive;
    t->files = f;
    t->path = path;
    t->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    r = t->fd < 0 || fstat(root, &st) != 0 ? -errno : 0;
    if (r == 0) {
        t->folder = S_ISDIR(st.st_mode);
        t->dev = st.st_dev;
        t->ino = st.st_ino;
        self = strdup("");
        r = self == NULL ? UV_ENOMEM : watch_fd(t, root, self);
    }
    close(root);
    if (r != 0) {
        agent_watch_tree_close(t);
        return agent_files_fail(err, r, path);
    }
    add_line(t, json_pack("{s:s,s:o,s:b}", "type", "start", "path",
                          agent_files_text(path, strlen(path)), "recursive", (int)recursive));
    if (t->folder && recursive)
        add_tree(t, "", false);
    return 0;
}

void agent_watch_tree_close(struct agent_watch_tree *t)
{
    if (t->fd >= 0)
        close(t->fd);
    for (size_t i = 0; i < t->n_dirs; i++)
        free(t->dirs[i].rel);
    free(t->dirs);
    free(t->out);
    memset(t, 0, sizeof(*t));
    t->fd = -1;
}
