/* SPDX-License-Identifier: MIT */
/* Changes, each of which either is made whole or not at all.
 *
 * What goes is never simply overwritten or unlinked: between looking at a name and acting on it
 * somebody may have changed what is there. It is moved into the staging folder first, where nobody
 * comes by it any more, then compared with what was expected, and only then removed, or put back.
 * File systems that cannot exchange two names (NFS) get the look just before, and that only. */
#include "sync/tree_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#define MAX_TRIES 8

/* Where an operation takes place. */
struct place {
    const struct sync_tree *tree;
    const struct sync_op *op;
    int dir; /* the folder, as O_PATH */
    char name[SYNC_NAME_MAX + 1];
    int stage;     /* the staging folder; -1: not opened yet */
    bool is_stuck; /* what came out of the tree is in the staging folder, and must stay there */
};

static bool is_unsupported(int error)
{
    return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

/* ---- is it what was expected? ---- */

int sync_tree_content_id(int dir, const char *name, mode_t mode, struct sync_id *id)
{
    struct sync_tree tree = {.root = dir, .stage = -1};
    struct sync_tree_read read;
    int r;

    if (!S_ISREG(mode) && !S_ISLNK(mode))
        return SYNC_CHANGED;
    r = sync_tree_read(&tree, name, strlen(name), NULL, NULL, NULL, NULL, NULL, &read);
    *id = read.id;
    return r;
}

/* What stands under this name now. moved: it was renamed since, which set its ctime. */
static int compare(int dir, const char *name, const struct sync_op *op, bool moved)
{
    struct sync_sig now;
    struct sync_id id;
    int r = sync_tree_sig_at(dir, name, &now), fd;

    if (r == -ENOENT)
        return SYNC_CHANGED;
    if (r != 0)
        return r;
    if (moved)
        now.ctime_ns = op->expected.ctime_ns;
    if (!sync_sig_equal(&now, &op->expected))
        return SYNC_CHANGED;
    if (S_ISREG(now.mode)) {
        struct sync_sig again;
        bool writer;

        fd = sync_tree_open_file(dir, name, &again);
        if (fd == -ENOENT || fd == UV_EINVAL)
            return SYNC_CHANGED;
        if (fd < 0) /* one that may not be read: its signature must do */
            return op->has_id && fd != -EACCES ? fd : 0;
        writer = sync_tree_has_writer(fd);
        close(fd);
        if (writer)
            return SYNC_BUSY;
    }
    if (!moved || !op->has_id)
        return 0;
    r = sync_tree_content_id(dir, name, now.mode, &id);
    return r != 0 ? r : sync_id_equal(&id, &op->id) ? 0 : SYNC_CHANGED;
}

/* ---- putting back ---- */

/* Its name is taken by something newer: beside it, under a name that tells. If not even that can be
 * done, the next sync_tree_sweep() tries again. */
static void keep_aside(struct place *p, const char *temp)
{
    p->is_stuck = !sync_tree_keep_aside(p->tree, p->stage, temp, p->dir, p->name);
}

/* The name is free, or was. */
static void put_back(struct place *p, const char *temp)
{
    if (renameat2(p->stage, temp, p->dir, p->name, RENAME_NOREPLACE) == 0)
        return;
    if (is_unsupported(errno) && linkat(p->stage, temp, p->dir, p->name, 0) == 0) {
        (void)unlinkat(p->stage, temp, 0);
        return;
    }
    keep_aside(p, temp);
}

/* Has somebody laid hands on what stands in the staging folder, since it was as `before` says? */
static bool is_touched(int dir, const char *name, const struct sync_sig *before)
{
    struct sync_sig now;
    bool touched;
    int fd;

    if (sync_tree_sig_at(dir, name, &now) != 0 || now.ino != before->ino ||
        now.mtime_ns != before->mtime_ns || now.size != before->size)
        return true;
    if (!S_ISREG(now.mode))
        return false;
    fd = sync_tree_open_file(dir, name, &now);
    touched = fd >= 0 && sync_tree_has_writer(fd);
    if (fd >= 0)
        close(fd);
    return touched;
}

/* Ours was put where temp came from: exchange them again. What somebody made of ours in between, or
 * put in its place, is not lost either. */
static void exchange_back(struct place *p, const char *temp, const struct sync_sig *ours)
{
    struct sync_sig sig;

    if (renameat2(p->stage, temp, p->dir, p->name, RENAME_EXCHANGE) != 0) {
        put_back(p, temp); /* somebody removed ours */
        return;
    }
    if (sync_tree_sig_at(p->stage, temp, &sig) != 0)
        return;
    if (sig.ino == ours->ino) {
        if (is_touched(p->stage, temp, ours))
            keep_aside(p, temp);
    } else if (renameat2(p->stage, temp, p->dir, p->name, RENAME_EXCHANGE) == 0) {
        keep_aside(p, temp); /* ours was replaced: that stands */
    } else {
        put_back(p, temp);
    }
}

/* ---- putting something there ---- */

/* temp of the staging folder gets its place. Afterwards what is there under that name may go. */
static int place_new(struct place *p, const char *temp)
{
    if (renameat2(p->stage, temp, p->dir, p->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (is_unsupported(errno) && linkat(p->stage, temp, p->dir, p->name, 0) == 0)
        return unlinkat(p->stage, temp, 0) == 0 ? 0 : -errno;
    return errno == EEXIST ? SYNC_CHANGED : -errno;
}

/* From here on the name says that what is behind it comes from the tree: whoever dies between the
 * exchange and the look at what came out leaves it behind. */
static int mark_out(struct place *p, char temp[SYNC_TEMP_NAME])
{
    char out[SYNC_TEMP_NAME];
    int r = sync_tree_out_name(p->op->has_id ? &p->op->id : NULL, out);

    if (r == 0 && renameat(p->stage, temp, p->stage, out) != 0)
        r = -errno;
    if (r == 0)
        memcpy(temp, out, sizeof(out));
    return r;
}

static int place_over(struct place *p, const char *temp, const struct sync_sig *ours)
{
    int r;

    if (renameat2(p->stage, temp, p->dir, p->name, RENAME_EXCHANGE) != 0) {
        if (errno == ENOENT)
            return SYNC_CHANGED;
        if (!is_unsupported(errno))
            return -errno;
        r = compare(p->dir, p->name, p->op, false);
        return r != 0 ? r : renameat(p->stage, temp, p->dir, p->name) == 0 ? 0 : -errno;
    }
    r = compare(p->stage, temp, p->op, true);
    if (r != 0)
        exchange_back(p, temp, ours);
    return r;
}

static int place(struct place *p, const char *temp, const struct sync_sig *ours)
{
    int r = p->op->absent ? place_new(p, temp) : place_over(p, temp, ours);

    return r == 0 && p->tree->sync ? sync_tree_flush_dir(p->dir) : r;
}

/* Signature of what was placed, by a descriptor that does not depend on its name. before: as it was
 * when its name was still ours alone, with a modification time that no clock of the kernel gives,
 * so that every later change shows. */
static void placed_sig(int fd, const struct sync_sig *before, struct sync_sig *sig)
{
    struct sync_sig now;

    *sig = *before;
    if (sync_tree_sig_at(fd, "", &now) != 0 || now.mtime_ns != before->mtime_ns ||
        now.size != before->size || now.mode != before->mode)
        return; /* changed already: what we say will not be found any more */
    *sig = now;
    sig->fresh = before->fresh;
}

/* Returns 0, or the errno, with *sig. */
static int stamp(int dir, const char *name, struct sync_sig *sig)
{
    struct timespec now[2];
    int r;

    clock_gettime(CLOCK_REALTIME, &now[1]);
    now[1].tv_nsec |= 1;
    now[0] = now[1];
    if (utimensat(dir, name, now, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    r = sync_tree_sig_at(dir, name, sig);
    sig->fresh = sig->mtime_ns % 1000000000 != now[1].tv_nsec; /* a file system that rounds */
    return r;
}

/* What must be there, before anything is moved. *mode: what a file that comes to stand there gets.
 */
static int check_before(struct place *p, mode_t *mode)
{
    struct sync_sig old;
    int r = sync_tree_sig_at(p->dir, p->name, &old);

    *mode = 0644;
    if (p->op->absent)
        return r == -ENOENT ? 0 : r == 0 ? SYNC_CHANGED : r;
    if (r != 0)
        return r == -ENOENT ? SYNC_CHANGED : r;
    if (S_ISDIR(old.mode))
        return S_ISDIR(p->op->expected.mode) ? UV_EISDIR : SYNC_CHANGED;
    if (S_ISREG(old.mode))
        *mode = old.mode & 0777;
    return compare(p->dir, p->name, p->op, false);
}

static mode_t with_exec(mode_t mode, bool exec)
{
    return exec ? mode | ((mode & 0444) >> 2) : mode & ~(mode_t)0111;
}

/* The file is complete: its permissions, its time, and the disk if that is wanted. The descriptor
 * for writing goes: a program may be started at once, and nobody takes us for a writer. */
static int finish_stage(struct place *p, struct sync_stage *stage, mode_t mode,
                        struct sync_sig *sig)
{
    int r = 0;

    if (fchmod(stage->fd, with_exec(mode, p->op->exec)) != 0)
        r = -errno;
    if (r == 0)
        r = stamp(stage->dir, stage->name, sig);
    if (r == 0 && p->tree->sync && fsync(stage->fd) != 0)
        r = -errno;
    if (close(stage->fd) != 0 && r == 0)
        r = -errno;
    stage->fd = -1;
    return r;
}

/* name of the staging folder takes its place. */
static int put(struct place *p, char temp[SYNC_TEMP_NAME], const struct sync_sig *before,
               struct sync_sig *sig)
{
    int r = p->op->absent ? 0 : mark_out(p, temp), fd;

    if (r != 0)
        return r;
    fd = openat(p->stage, temp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = place(p, temp, before);
    if (r == 0)
        placed_sig(fd, before, sig);
    close(fd);
    return r;
}

static int apply_file(struct place *p, struct sync_stage *stage, struct sync_sig *sig)
{
    struct sync_sig before;
    mode_t mode;
    int r = check_before(p, &mode);

    if (r == 0)
        r = finish_stage(p, stage, mode, &before);
    if (r != 0)
        return r;
    p->stage = stage->dir;
    r = put(p, stage->name, &before, sig);
    if ((r == 0 && p->op->absent) || p->is_stuck)
        stage->name[0] = '\0'; /* it is where it belongs, and nothing came in its place */
    p->stage = -1;             /* the stage's own */
    return r;
}

static int apply_link(struct place *p, struct sync_sig *sig)
{
    char target[SYNC_LINK_MAX + 1], temp[SYNC_TEMP_NAME];
    struct sync_sig before;
    mode_t mode;
    int r = check_before(p, &mode);

    if (r != 0)
        return r;
    memcpy(target, p->op->target, p->op->target_len);
    target[p->op->target_len] = '\0';
    p->stage = sync_tree_stage_dir(p->tree);
    r = p->stage < 0 ? p->stage : sync_tree_temp_name(temp);
    if (r == 0 && symlinkat(target, p->stage, temp) != 0)
        r = -errno;
    if (r != 0)
        return r;
    r = stamp(p->stage, temp, &before);
    if (r == 0)
        r = put(p, temp, &before, sig);
    if (!p->is_stuck)
        (void)unlinkat(p->stage, temp, 0); /* what was there, or the link if it was not put */
    return r;
}

/* ---- taking something away ---- */

static int remove_plainly(struct place *p)
{
    int r = compare(p->dir, p->name, p->op, false);

    return r != 0 ? r : unlinkat(p->dir, p->name, 0) == 0 ? 0 : -errno;
}

static int apply_remove(struct place *p)
{
    char temp[SYNC_TEMP_NAME];
    mode_t mode;
    int r;

    if (faccessat(p->dir, p->name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        return 0;
    r = check_before(p, &mode);
    if (r != 0)
        return r;
    p->stage = sync_tree_stage_dir(p->tree);
    r = p->stage < 0 ? p->stage : sync_tree_out_name(p->op->has_id ? &p->op->id : NULL, temp);
    if (r == 0 && renameat2(p->dir, p->name, p->stage, temp, RENAME_NOREPLACE) != 0)
        r = -errno;
    if (r == -ENOENT)
        return 0;
    /* Also where the disk is too full to move it: removing is what helps then. */
    if (r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP || r == -ENOSPC || r == -EDQUOT)
        return remove_plainly(p);
    if (r != 0)
        return r;
    r = compare(p->stage, temp, p->op, true);
    if (r != 0)
        put_back(p, temp);
    else if (unlinkat(p->stage, temp, 0) != 0)
        r = -errno;
    return r == 0 && p->tree->sync ? sync_tree_flush_dir(p->dir) : r;
}

static int apply_rmdir(struct place *p)
{
    struct sync_sig now;
    int r = sync_tree_sig_at(p->dir, p->name, &now);

    if (r != 0)
        return r == -ENOENT ? 0 : r;
    if (!S_ISDIR(now.mode) || p->op->absent || now.ino != p->op->expected.ino)
        return SYNC_CHANGED;
    if (unlinkat(p->dir, p->name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return errno == EEXIST ? -ENOTEMPTY : errno == ENOTDIR ? SYNC_CHANGED : -errno;
    return p->tree->sync ? sync_tree_flush_dir(p->dir) : 0;
}

/* ---- the rest ---- */

static int apply_dir(struct place *p, struct sync_sig *sig)
{
    int r;

    if (mkdirat(p->dir, p->name, 0755) != 0 && errno != EEXIST)
        return -errno;
    r = sync_tree_sig_at(p->dir, p->name, sig);
    if (r == -ENOENT || (r == 0 && !S_ISDIR(sig->mode)))
        return SYNC_CHANGED;
    return r == 0 && p->tree->sync ? sync_tree_flush_dir(p->dir) : r;
}

static int apply_chmod(struct place *p, struct sync_sig *sig)
{
    int fd = openat(p->dir, p->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), r;
    char self[32];

    if (fd < 0)
        return errno == ENOENT ? SYNC_CHANGED : -errno;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    r = sync_tree_sig_at(fd, "", sig);
    if (r == 0 && (p->op->absent || !sync_sig_equal(sig, &p->op->expected)))
        r = SYNC_CHANGED;
    else if (r == 0 && !S_ISREG(sig->mode))
        r = UV_EINVAL;
    if (r == 0 && sync_sig_exec(sig) != p->op->exec &&
        chmod(self, with_exec(sig->mode & 07777, p->op->exec)) != 0)
        r = -errno;
    if (r == 0)
        r = sync_tree_sig_at(fd, "", sig);
    if (r == 0 && (sig->mtime_ns != p->op->expected.mtime_ns || sig->size != p->op->expected.size))
        r = SYNC_CHANGED; /* edited meanwhile; the permission does no harm */
    close(fd);
    return r;
}

static bool is_valid(const struct sync_op *op, const struct sync_stage *stage)
{
    if (op->kind >= SYNC_N_OP || (op->kind == SYNC_OP_FILE) != (stage != NULL))
        return false;
    if (stage != NULL && (stage->fd < 0 || stage->written != stage->size))
        return false;
    return op->kind != SYNC_OP_LINK || (op->target_len > 0 && op->target_len <= SYNC_LINK_MAX &&
                                        memchr(op->target, '\0', op->target_len) == NULL);
}

static int apply_at(struct place *p, struct sync_stage *stage, struct sync_sig *sig)
{
    switch (p->op->kind) {
    case SYNC_OP_DIR:
        return apply_dir(p, sig);
    case SYNC_OP_FILE:
        return apply_file(p, stage, sig);
    case SYNC_OP_LINK:
        return apply_link(p, sig);
    case SYNC_OP_REMOVE:
        return apply_remove(p);
    case SYNC_OP_RMDIR:
        return apply_rmdir(p);
    default:
        return apply_chmod(p, sig);
    }
}

int sync_tree_apply(const struct sync_tree *tree, const struct sync_op *op,
                    struct sync_stage *stage, struct sync_sig *sig)
{
    bool going = op->kind == SYNC_OP_REMOVE || op->kind == SYNC_OP_RMDIR;
    bool make = op->kind == SYNC_OP_DIR ||
                (op->absent && (op->kind == SYNC_OP_FILE || op->kind == SYNC_OP_LINK));
    struct place p = {.tree = tree, .op = op, .stage = -1};
    int r = UV_EINVAL;

    memset(sig, 0, sizeof(*sig));
    if (!is_valid(op, stage))
        return UV_EINVAL;
    /* A folder on the way may go between making it and using it; it is made again. */
    for (int i = 0; i < MAX_TRIES; i++) {
        p.dir = sync_tree_parent(tree, op->path, op->path_len, make, p.name);
        r = p.dir < 0 ? p.dir : apply_at(&p, stage, sig);
        if (p.dir >= 0)
            close(p.dir);
        if (p.stage >= 0)
            close(p.stage);
        p.stage = -1;
        if (r != -ENOENT || !make || (stage != NULL && stage->fd < 0))
            break;
    }
    if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP) /* the way there is another now */
        r = going ? 0 : SYNC_CHANGED;
    if (r != 0 || going)
        memset(sig, 0, sizeof(*sig));
    return r;
}

/* ---- content that is here already ---- */

static int put_stage(const struct sync_tree *tree, const struct sync_op *op,
                     struct sync_stage *stage, struct sync_sig *sig)
{
    struct sync_id id;
    int r = sync_stage_end(stage, &id);

    return r != 0 ? r : sync_tree_apply(tree, op, stage, sig);
}

int sync_tree_put(const struct sync_tree *tree, const struct sync_op *op, const void *bytes,
                  size_t len, struct sync_sig *sig)
{
    struct sync_stage *stage;
    int r = sync_stage_open(tree, (int64_t)len, &stage);

    if (r != 0)
        return r;
    r = sync_stage_write(stage, bytes, len);
    if (r == 0)
        r = put_stage(tree, op, stage, sig);
    sync_stage_close(stage);
    return r;
}

static int fill(struct sync_stage *stage, int fd)
{
    char *buf = malloc(SYNC_PIECE_MAX);
    ssize_t n = 1;
    int r = buf == NULL ? UV_ENOMEM : 0;

    while (r == 0 && n != 0) {
        n = read(fd, buf, SYNC_PIECE_MAX);
        if (n < 0)
            r = errno == EINTR ? 0 : -errno;
        else
            r = sync_stage_write(stage, buf, (size_t)n);
    }
    free(buf);
    return r;
}

int sync_tree_put_fd(const struct sync_tree *tree, const struct sync_op *op, int fd,
                     struct sync_sig *sig)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    struct sync_stage *stage;
    struct stat st;
    int r;

    if (at < 0 || fstat(fd, &st) != 0)
        return -errno;
    r = sync_stage_open(tree, st.st_size - at, &stage);
    if (r != 0)
        return r;
    r = fill(stage, fd);
    if (r == 0)
        r = put_stage(tree, op, stage, sig);
    sync_stage_close(stage);
    return r;
}
