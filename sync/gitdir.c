/* SPDX-License-Identifier: MIT */
/* Reading: look (walk, sort) -> head, path, content of each entry -> end -> look again. */
#include "sync/gitdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINK_MAX_ 4095

struct entry {
    char *path; /* "" is the folder itself */
    size_t path_len;
    enum sync_gitdir_kind kind;
    struct stat st;
    char *target; /* of a link */
};

struct list {
    struct entry *items;
    size_t n, size;
};

struct sync_gitdir_pack {
    int dir;
    struct list list;
    struct sync_id print;
    size_t at;      /* the entry under way */
    bool has_magic; /* was told */
    bool has_end;   /* was told */
    bool is_in;     /* its head was told, content is due */
    int fd;         /* of its content; -1: none */
    int64_t left;   /* bytes of its content that are due */
};

static const uint8_t magic[SYNC_GITDIR_MAGIC] = {'T', 'R', 'G', 'I', 'T', 0, 0, 1};

/* ---- looking ---- */

static void free_list(struct list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i].path);
        free(list->items[i].target);
    }
    free(list->items);
    *list = (struct list){0};
}

static int add(struct list *list, int dir, const char *name, const char *path, size_t len,
               const struct stat *st, enum sync_gitdir_kind kind)
{
    struct entry *e;
    ssize_t n;

    if (list->n == SYNC_GITDIR_ENTRIES_MAX)
        return -E2BIG;
    if (list->n == list->size) {
        size_t size = list->size > 0 ? 2 * list->size : 256;
        struct entry *more = realloc(list->items, size * sizeof(*more));

        if (more == NULL)
            return -ENOMEM;
        list->items = more;
        list->size = size;
    }
    e = &list->items[list->n];
    *e = (struct entry){.kind = kind, .st = *st, .path_len = len, .path = strndup(path, len)};
    if (e->path == NULL)
        return -ENOMEM;
    list->n++;
    if (kind != SYNC_GITDIR_LINK)
        return 0;
    e->target = malloc(LINK_MAX_ + 1);
    if (e->target == NULL)
        return -ENOMEM;
    n = readlinkat(dir, name, e->target, LINK_MAX_);
    if (n < 0)
        return errno == EINVAL || errno == ENOENT ? -ESTALE : -errno;
    e->target[n] = '\0';
    e->st.st_size = n;
    return 0;
}

static enum sync_gitdir_kind kind_of(const struct stat *st)
{
    return S_ISDIR(st->st_mode)   ? SYNC_GITDIR_DIR
           : S_ISREG(st->st_mode) ? SYNC_GITDIR_FILE
           : S_ISLNK(st->st_mode) ? SYNC_GITDIR_LINK
                                  : SYNC_GITDIR_END;
}

static bool is_passing(const char *folder, size_t folder_len, const char *name)
{
    bool in_objects = folder_len >= 7 && memmem(folder, folder_len, "objects", 7) != NULL;
    size_t len = strlen(name);

    if (in_objects)
        return strncmp(name, "tmp_", 4) == 0;
    return len > 5 && strcmp(name + len - 5, ".lock") == 0;
}

static int walk(struct list *list, int fd, char *path, size_t len, unsigned depth);

static int visit(struct list *list, int dir, const char *name, char *path, size_t len,
                 unsigned depth)
{
    size_t name_len = strlen(name), full = len + (len > 0) + name_len;
    enum sync_gitdir_kind kind;
    struct stat st;
    int fd, r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : -errno;
    kind = kind_of(&st);
    if (kind == SYNC_GITDIR_END || (kind == SYNC_GITDIR_FILE && is_passing(path, len, name)))
        return 0;
    if (full > SYNC_GITDIR_PATH_MAX)
        return -E2BIG;
    if (len > 0)
        path[len] = '/';
    memcpy(path + full - name_len, name, name_len + 1);
    r = add(list, dir, name, path, full, &st, kind);
    if (r != 0 || kind != SYNC_GITDIR_DIR)
        return r;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ESTALE : -errno;
    return walk(list, fd, path, full, depth + 1);
}

/* fd is taken. path holds len bytes and has room for SYNC_GITDIR_PATH_MAX and a NUL. */
static int walk(struct list *list, int fd, char *path, size_t len, unsigned depth)
{
    DIR *d = depth > SYNC_GITDIR_DEPTH_MAX ? NULL : fdopendir(fd);
    struct dirent *e;
    int r = 0;

    if (d == NULL) {
        r = depth > SYNC_GITDIR_DEPTH_MAX ? -E2BIG : -errno;
        close(fd);
        return r;
    }
    while (r == 0 && (errno = 0, e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = visit(list, dirfd(d), e->d_name, path, len, depth);
        path[len] = '\0';
    }
    if (r == 0 && errno != 0)
        r = -errno;
    closedir(d);
    return r;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

static void make_print(const struct list *list, struct sync_id *out)
{
    struct sync_hash hash;

    sync_hash_start(&hash, 0);
    for (size_t i = 0; i < list->n; i++) {
        const struct entry *e = &list->items[i];
        /* A folder's times tell of locks that came and went. */
        bool is_dir = e->kind == SYNC_GITDIR_DIR;
        const uint64_t facts[] = {
            (uint64_t)e->kind,
            (uint64_t)e->st.st_mode,
            is_dir ? 0 : (uint64_t)e->st.st_ino,
            is_dir ? 0 : (uint64_t)e->st.st_size,
            is_dir ? 0 : (uint64_t)e->st.st_mtim.tv_sec,
            is_dir ? 0 : (uint64_t)e->st.st_mtim.tv_nsec,
            is_dir ? 0 : (uint64_t)e->st.st_ctim.tv_sec,
            is_dir ? 0 : (uint64_t)e->st.st_ctim.tv_nsec,
        };

        sync_hash_feed(&hash, e->path, e->path_len + 1);
        sync_hash_feed(&hash, facts, sizeof(facts));
    }
    sync_hash_end(&hash, out);
}

/* *list is empty when there is none. To be freed, also on a fault. */
static int look(int dir, struct list *list, struct sync_id *print)
{
    enum sync_gitdir_kind kind;
    struct stat st;
    char *path;
    int fd, r;

    if (fstatat(dir, SYNC_GITDIR_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : -errno;
    kind = kind_of(&st);
    if (kind == SYNC_GITDIR_END)
        return 0;
    r = add(list, dir, SYNC_GITDIR_NAME, "", 0, &st, kind);
    if (r == 0 && kind == SYNC_GITDIR_DIR) {
        fd = openat(dir, SYNC_GITDIR_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        path = malloc(SYNC_GITDIR_PATH_MAX + 1);
        if (fd < 0 || path == NULL) {
            r = fd < 0 ? -errno : -ENOMEM;
            if (fd >= 0)
                close(fd);
        } else {
            path[0] = '\0';
            r = walk(list, fd, path, 0, 0);
        }
        free(path);
    }
    if (r != 0)
        return r;
    qsort(list->items, list->n, sizeof(*list->items), by_path);
    make_print(list, print);
    return 0;
}

static int64_t content_len(const struct entry *e)
{
    return e->kind == SYNC_GITDIR_DIR ? 0 : e->st.st_size;
}

int sync_gitdir_look(int dir, struct sync_gitdir_look *out)
{
    struct list list = {0};
    int r;

    *out = (struct sync_gitdir_look){0};
    r = look(dir, &list, &out->print);
    out->found = list.n > 0;
    out->n = list.n;
    out->bytes = SYNC_GITDIR_MAGIC + SYNC_GITDIR_HEAD;
    for (size_t i = 0; i < list.n; i++)
        out->bytes +=
            SYNC_GITDIR_HEAD + (int64_t)list.items[i].path_len + content_len(&list.items[i]);
    free_list(&list);
    return r;
}

/* ---- reading ---- */

int sync_gitdir_pack_new(int dir, struct sync_gitdir_pack **out)
{
    struct sync_gitdir_pack *p = calloc(1, sizeof(*p));
    int r;

    if (p == NULL)
        return -ENOMEM;
    p->dir = dir;
    p->fd = -1;
    r = look(dir, &p->list, &p->print);
    if (r == 0 && p->list.n == 0)
        r = -ENOENT;
    if (r != 0)
        sync_gitdir_pack_free(p);
    else
        *out = p;
    return r;
}

void sync_gitdir_pack_free(struct sync_gitdir_pack *p)
{
    if (p == NULL)
        return;
    if (p->fd >= 0)
        close(p->fd);
    free_list(&p->list);
    free(p);
}

static void put_number(uint8_t *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static size_t put_head(uint8_t *out, enum sync_gitdir_kind kind, const struct entry *e)
{
    memset(out, 0, SYNC_GITDIR_HEAD);
    out[0] = (uint8_t)kind;
    if (e == NULL)
        return SYNC_GITDIR_HEAD;
    put_number(out + 2, e->path_len, 2);
    put_number(out + 4, e->st.st_mode & 0777, 4);
    put_number(out + 8,
               (uint64_t)((int64_t)e->st.st_mtim.tv_sec * 1000000000 + e->st.st_mtim.tv_nsec), 8);
    put_number(out + 16, (uint64_t)content_len(e), 8);
    memcpy(out + SYNC_GITDIR_HEAD, e->path, e->path_len);
    return SYNC_GITDIR_HEAD + e->path_len;
}

/* The file of an entry, if it is still the one. */
static int open_content(const struct sync_gitdir_pack *p, const struct entry *e)
{
    struct open_how how = {.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    char path[SYNC_GITDIR_PATH_MAX + 8];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), SYNC_GITDIR_NAME "%s%s", e->path_len > 0 ? "/" : "", e->path);
    do {
        fd = (int)syscall(SYS_openat2, p->dir, path, &how, sizeof(how));
    } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? -ESTALE : -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == e->st.st_ino)
        return fd;
    close(fd);
    return -ESTALE;
}

/* Begin the next entry: its head. Returns the bytes. */
static int64_t begin_entry(struct sync_gitdir_pack *p, uint8_t *out)
{
    const struct entry *e = &p->list.items[p->at];

    p->left = content_len(e);
    p->is_in = true;
    if (e->kind == SYNC_GITDIR_FILE && p->left > 0) {
        p->fd = open_content(p, e);
        if (p->fd < 0)
            return p->fd;
    }
    return (int64_t)put_head(out, e->kind, e);
}

/* More of the content; at most size bytes. */
static int64_t go_on(struct sync_gitdir_pack *p, uint8_t *out, size_t size)
{
    const struct entry *e = &p->list.items[p->at];
    size_t want = p->left < (int64_t)size ? (size_t)p->left : size;
    ssize_t n;

    if (e->kind == SYNC_GITDIR_LINK) {
        memcpy(out, e->target + (e->st.st_size - p->left), want);
        p->left -= (int64_t)want;
        return (int64_t)want;
    }
    do {
        n = read(p->fd, out, want);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : -ESTALE; /* it became shorter */
    p->left -= n;
    return n;
}

static int64_t end_pack(struct sync_gitdir_pack *p)
{
    struct list now = {0};
    struct sync_id print = {{0}};
    int r = look(p->dir, &now, &print);

    free_list(&now);
    if (r != 0 && r != -E2BIG)
        return r;
    return r == 0 && sync_id_equal(&print, &p->print) ? 0 : -ESTALE;
}

int64_t sync_gitdir_pack_next(struct sync_gitdir_pack *p, void *buf, size_t size)
{
    uint8_t *out = buf;
    size_t used = 0;
    int64_t n;

    if (!p->has_magic) {
        memcpy(out, magic, sizeof(magic));
        used = sizeof(magic);
        p->has_magic = true;
    }
    while (p->at < p->list.n && size - used >= SYNC_GITDIR_HEAD + SYNC_GITDIR_PATH_MAX) {
        n = p->is_in ? 0 : begin_entry(p, out + used);
        if (n == 0 && p->left > 0)
            n = go_on(p, out + used, size - used);
        if (n < 0)
            return n;
        used += (size_t)n;
        if (p->left > 0)
            continue;
        if (p->fd >= 0)
            close(p->fd);
        p->fd = -1;
        p->is_in = false;
        p->at++;
    }
    if (used > 0)
        return (int64_t)used;
    if (p->has_end)
        return end_pack(p);
    p->has_end = true;
    return (int64_t)put_head(out, SYNC_GITDIR_END, NULL);
}
