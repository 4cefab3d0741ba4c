/* SPDX-License-Identifier: MIT */
#include "sync/tree_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

#define OUT        "out-"
#define OUT_RANDOM 16 /* digits behind the id */

int sync_tree_stage_dir(const struct sync_tree *tree)
{
    int fd;

    if (tree->stage >= 0) {
        fd = fcntl(tree->stage, F_DUPFD_CLOEXEC, 3);
        return fd < 0 ? -errno : fd;
    }
    fd = sync_tree_open_at(tree, SYNC_STAGE_NAME, O_RDONLY | O_DIRECTORY);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(tree->root, SYNC_STAGE_NAME, 0700) != 0 && errno != EEXIST)
        return -errno;
    return sync_tree_open_at(tree, SYNC_STAGE_NAME, O_RDONLY | O_DIRECTORY);
}

int sync_tree_own_stage(const struct sync_tree *tree)
{
    return sync_tree_stage_dir(tree);
}

int sync_tree_temp_name(char out[SYNC_TEMP_NAME])
{
    uint64_t random[2];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -errno;
    snprintf(out, SYNC_TEMP_NAME, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return 0;
}

/* ---- what comes out of the tree ---- */

int sync_tree_out_name(const struct sync_id *id, char out[SYNC_TEMP_NAME])
{
    static const struct sync_id unknown;
    char hex[2 * SYNC_ID_LEN + 1], random[SYNC_TEMP_NAME];
    int r = sync_tree_temp_name(random);

    sync_id_hex(id != NULL ? id : &unknown, hex);
    if (r == 0)
        snprintf(out, SYNC_TEMP_NAME, OUT "%s-%.*s", hex, OUT_RANDOM, random);
    return r;
}

bool sync_tree_keep_aside(const struct sync_tree *tree, int stage, const char *name, int dir,
                          const char *like)
{
    char random[SYNC_TEMP_NAME], to[SYNC_NAME_MAX + 1];

    if (sync_tree_temp_name(random) != 0)
        return false;
    snprintf(to, sizeof(to), "%.200s.transom-kept-%.8s", like, random);
    return renameat2(stage, name, dir, to, RENAME_NOREPLACE) == 0 ||
           renameat2(stage, name, tree->root, to, RENAME_NOREPLACE) == 0;
}

/* Of one that died: is it, under a name by sync_tree_out_name(), something else than was to go? */
static bool is_caught(int stage, const char *name, mode_t mode)
{
    char hex[2 * SYNC_ID_LEN + 1];
    struct sync_id id;

    if (strncmp(name, OUT, strlen(OUT)) != 0)
        return false;
    if (sync_tree_content_id(stage, name, mode, &id) != 0)
        return S_ISREG(mode) || S_ISLNK(mode);
    sync_id_hex(&id, hex);
    return strncmp(name + strlen(OUT), hex, strlen(hex)) != 0;
}

void sync_tree_sweep(const struct sync_tree *tree, int64_t before_ns)
{
    int fd = tree->stage >= 0 ? openat(tree->stage, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : sync_tree_open_at(tree, SYNC_STAGE_NAME, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    struct stat st;

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((e = readdir(dir)) != NULL) {
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode) ||
            (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec >= before_ns)
            continue;
        if (!is_caught(fd, e->d_name, st.st_mode))
            (void)unlinkat(fd, e->d_name, 0);
        else
            (void)sync_tree_keep_aside(tree, fd, e->d_name, tree->root, "recovered");
    }
    closedir(dir);
}

int sync_stage_open(const struct sync_tree *tree, int64_t size, struct sync_stage **out)
{
    struct sync_stage *s = calloc(1, sizeof(*s));
    int r;

    if (s == NULL)
        return UV_ENOMEM;
    s->fd = -1;
    s->size = size;
    s->dir = sync_tree_stage_dir(tree);
    r = s->dir < 0 ? s->dir : sync_tree_temp_name(s->name);
    if (r == 0) {
        s->fd = openat(s->dir, s->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (s->fd < 0)
            r = -errno;
    }
    if (r != 0) {
        s->name[0] = '\0';
        sync_stage_close(s);
        return r;
    }
    sync_hash_start(&s->hash, size);
    *out = s;
    return 0;
}

int sync_stage_write(struct sync_stage *s, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    if ((int64_t)len > s->size - s->written)
        return UV_EFBIG;
    sync_hash_feed(&s->hash, bytes, len);
    while (len > 0) {
        ssize_t n = write(s->fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        len -= (size_t)n;
        s->written += n;
    }
    return 0;
}

int sync_stage_end(struct sync_stage *s, struct sync_id *id)
{
    if (s->written != s->size)
        return -EBADMSG;
    sync_hash_end(&s->hash, id);
    return 0;
}

void sync_stage_close(struct sync_stage *s)
{
    if (s == NULL)
        return;
    if (s->fd >= 0)
        close(s->fd);
    if (s->name[0] != '\0')
        (void)unlinkat(s->dir, s->name, 0);
    if (s->dir >= 0)
        close(s->dir);
    free(s);
}
