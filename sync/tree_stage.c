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
#include <time.h>
#include <unistd.h>
#include <uv.h>

#define SWEEP_AGE_S 2

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

void sync_tree_sweep(const struct sync_tree *tree)
{
    int fd = tree->stage >= 0 ? openat(tree->stage, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : sync_tree_open_at(tree, SYNC_STAGE_NAME, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct timespec now;
    struct dirent *e;
    struct stat st;

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    while ((e = readdir(dir)) != NULL) {
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
            st.st_ctim.tv_sec < now.tv_sec - SWEEP_AGE_S)
            (void)unlinkat(fd, e->d_name, 0);
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
