/* SPDX-License-Identifier: MIT */
/* What a file holds. It is looked at before the first byte and after the last. */
#include "sync/tree_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

struct sync_tree_file {
    int fd;     /* of a link: of its folder */
    char *link; /* of a link: its target, which is the content */
    char name[SYNC_NAME_MAX + 1];
    struct sync_sig sig;
    struct sync_hash hash;
    int64_t at;
    bool cut; /* it ended before its size */
};

static int open_link(int dir, struct sync_tree_file *f)
{
    ssize_t n;

    f->link = malloc(SYNC_LINK_MAX + 1);
    if (f->link == NULL)
        return UV_ENOMEM;
    n = readlinkat(dir, f->name, f->link, SYNC_LINK_MAX + 1);
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? SYNC_CHANGED : -errno;
    if (n > SYNC_LINK_MAX)
        return UV_ENAMETOOLONG;
    if (n != f->sig.size)
        return SYNC_CHANGED;
    f->fd = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    return f->fd < 0 ? -errno : 0;
}

/* name is a regular file, or was one a moment ago. */
static int open_file(int dir, struct sync_tree_file *f)
{
    struct sync_sig now;
    int r;

    f->fd = sync_tree_open_file(dir, f->name, &now);
    if (f->fd < 0) {
        r = f->fd;
        f->fd = -1;
        return r == -ENOENT || r == UV_EINVAL ? SYNC_CHANGED : r;
    }
    if (!sync_sig_equal(&now, &f->sig))
        return SYNC_CHANGED;
    f->sig.fresh = now.fresh;
    return 0;
}

int sync_tree_file_open(const struct sync_tree *tree, const char *path, size_t len,
                        const struct sync_sig *expected, struct sync_sig *sig,
                        struct sync_tree_file **out)
{
    struct sync_tree_file *f = calloc(1, sizeof(*f));
    int dir, r;

    if (f == NULL)
        return UV_ENOMEM;
    f->fd = -1;
    dir = sync_tree_parent(tree, path, len, false, f->name);
    r = dir < 0 ? dir : sync_tree_sig_at(dir, f->name, &f->sig);
    if (r == 0 && expected != NULL && !sync_sig_equal(expected, &f->sig))
        r = SYNC_CHANGED;
    else if ((r == -ENOENT || r == -ENOTDIR || r == -ELOOP) && expected != NULL)
        r = SYNC_CHANGED;
    if (r == 0)
        r = S_ISREG(f->sig.mode)   ? open_file(dir, f)
            : S_ISLNK(f->sig.mode) ? open_link(dir, f)
            : S_ISDIR(f->sig.mode) ? UV_EISDIR
                                   : UV_EINVAL;
    if (dir >= 0)
        close(dir);
    if (r != 0) {
        sync_tree_file_close(f);
        return r;
    }
    sync_hash_start(&f->hash, f->sig.size);
    *sig = f->sig;
    *out = f;
    return 0;
}

static int64_t read_file(struct sync_tree_file *f, void *buf, size_t size)
{
    ssize_t n;

    do {
        n = pread(f->fd, buf, size, f->at);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int64_t sync_tree_file_next(struct sync_tree_file *f, void *buf, size_t size)
{
    int64_t left = f->sig.size - f->at, n;

    if (left <= 0 || f->cut)
        return 0;
    if ((int64_t)size > left)
        size = (size_t)left;
    if (f->link != NULL) {
        memcpy(buf, f->link + f->at, size);
        n = (int64_t)size;
    } else {
        n = read_file(f, buf, size);
        if (n < 0)
            return n;
        f->cut = n == 0;
    }
    sync_hash_feed(&f->hash, buf, (size_t)n);
    f->at += n;
    return n;
}

int sync_tree_file_end(struct sync_tree_file *f, struct sync_tree_read *out)
{
    struct sync_sig now;
    int r = sync_tree_sig_at(f->fd, f->link != NULL ? f->name : "", &now);

    if (r != 0 || f->at != f->sig.size || !sync_sig_equal(&now, &f->sig))
        return SYNC_CHANGED;
    out->sig = f->sig; /* as fresh as it was before the first byte */
    /* One who was there before the first byte and is gone has left a trace in the signature, or has
     * written nothing. */
    out->writer = f->link == NULL && sync_tree_has_writer(f->fd);
    sync_hash_end(&f->hash, &out->id);
    return 0;
}

void sync_tree_file_close(struct sync_tree_file *f)
{
    if (f == NULL)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->link);
    free(f);
}

static int read_all(struct sync_tree_file *f, sync_tree_sink_cb sink, void *arg, uint8_t *head,
                    size_t *head_len, struct sync_tree_read *out)
{
    uint8_t *buf = malloc(SYNC_PIECE_MAX);
    size_t kept = 0;
    int64_t n = 0;
    int r = buf == NULL ? UV_ENOMEM : 0;

    while (r == 0 && (n = sync_tree_file_next(f, buf, SYNC_PIECE_MAX)) > 0) {
        if (head != NULL && kept < SYNC_HEAD_MAX) {
            size_t more = SYNC_HEAD_MAX - kept < (size_t)n ? SYNC_HEAD_MAX - kept : (size_t)n;

            memcpy(head + kept, buf, more);
            kept += more;
        }
        if (sink != NULL)
            r = sink(buf, (size_t)n, arg);
    }
    free(buf);
    if (head_len != NULL)
        *head_len = kept;
    return r != 0 ? r : n < 0 ? (int)n : sync_tree_file_end(f, out);
}

int sync_tree_read(const struct sync_tree *tree, const char *path, size_t len,
                   const struct sync_sig *expected, sync_tree_sink_cb sink, void *arg,
                   uint8_t *head, size_t *head_len, struct sync_tree_read *out)
{
    struct sync_tree_file *f;
    struct sync_sig sig;
    int r = sync_tree_file_open(tree, path, len, expected, &sig, &f);

    if (r != 0)
        return r;
    r = read_all(f, sink, arg, head, head_len, out);
    sync_tree_file_close(f);
    return r;
}
