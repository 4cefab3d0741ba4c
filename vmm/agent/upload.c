/* SPDX-License-Identifier: MIT */
#include "vmm/agent/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

bool agent_upload_id_valid(const char *id, size_t len)
{
    if (len == 0 || len > AGENT_UPLOAD_ID_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= 'A' && id[i] <= 'Z') ||
              (id[i] >= '0' && id[i] <= '9') || id[i] == '-' || id[i] == '_'))
            return false;
    }
    return true;
}

/* Two files of one folder do not share a part, whatever their ids (FNV-1a of the name). */
static void name_part(struct agent_upload *u, const char *id)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (const char *p = u->name; *p != '\0'; p++)
        hash = (hash ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    snprintf(u->temp, sizeof(u->temp), ".transom-%016" PRIx64 "-%s.part", hash, id);
}

/* What lies under the name of a part may be anything: it must be a file that only we write. */
static int check_part(struct agent_upload *u)
{
    struct stat st;

    if (fstat(u->fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid())
        return UV_EPERM;
    if (flock(u->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? UV_EBUSY : -errno;
    if (fstat(u->fd, &st) != 0)
        return -errno;
    if (st.st_nlink != 1) /* put in its place or removed while we came */
        return UV_EBUSY;
    u->size = st.st_size;
    return 0;
}

static int open_part(struct agent_upload *u, const char *id)
{
    uint64_t random;
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, r;

    if (id != NULL) {
        name_part(u, id);
        u->keep = true;
    } else {
        if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
            return -errno;
        snprintf(u->temp, sizeof(u->temp), ".transom-%016" PRIx64 ".part", random);
        flags |= O_EXCL;
    }
    u->fd = openat(u->dir, u->temp, flags, 0600);
    if (u->fd < 0)
        return -errno;
    r = id != NULL ? check_part(u) : 0;
    if (r == 0 && u->size > 0 && lseek(u->fd, 0, SEEK_END) < 0)
        r = -errno;
    return r;
}

/* Whose the new file is to be. */
static void choose_owner(const struct agent_files *f, struct agent_upload *u,
                         const struct stat *old)
{
    u->uid = (uid_t)-1;
    u->gid = (gid_t)-1;
    u->must_own = f->own;
    if (f->own) {
        u->uid = f->uid;
        u->gid = f->gid;
    } else if (u->existed && S_ISREG(old->st_mode)) {
        if (geteuid() == 0)
            u->uid = old->st_uid;
        u->gid = old->st_gid; /* of a group that is not his a user cannot make it */
    }
}

int agent_upload_begin(const struct agent_files *f, const char *path, mode_t mode, const char *id,
                       struct agent_upload *u, struct err *err)
{
    char folder[PATH_MAX];
    struct stat st = {0};
    int r = 0;

    memset(u, 0, sizeof(*u));
    u->fd = u->dir = -1;
    if (!agent_files_split(path, folder, sizeof(folder), u->name, sizeof(u->name)))
        return agent_files_fail(err, UV_EINVAL, path);
    u->dir = agent_files_open_folder(f, folder);
    if (u->dir < 0)
        return agent_files_fail(err, u->dir, path);
    if (fstatat(u->dir, u->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        u->existed = true;
        if (S_ISDIR(st.st_mode))
            r = UV_EISDIR;
    }
    u->mode = mode != (mode_t)-1                  ? mode
              : u->existed && S_ISREG(st.st_mode) ? st.st_mode & 07777
                                                  : 0644;
    choose_owner(f, u, &st);
    if (r == 0)
        r = open_part(u, id);
    if (r == 0)
        return 0;
    if (u->fd >= 0)
        agent_upload_abort(u);
    else
        close(u->dir);
    u->fd = u->dir = -1;
    return agent_files_fail(err, r, path);
}

static void let_go(struct agent_upload *u)
{
    close(u->fd);
    close(u->dir);
    u->fd = u->dir = -1;
}

int agent_upload_commit(struct agent_upload *u, struct err *err)
{
    int r = 0;

    if ((u->uid != (uid_t)-1 || u->gid != (gid_t)-1) && fchown(u->fd, u->uid, u->gid) != 0 &&
        u->must_own)
        r = -errno;
    /* The mode comes after the owner: a change of owner takes set-user-id away. */
    if (r == 0 && (fchmod(u->fd, u->mode) != 0 || fsync(u->fd) != 0 ||
                   renameat(u->dir, u->temp, u->dir, u->name) != 0))
        r = -errno;
    if (r != 0)
        agent_files_fail(err, r, u->name);
    if (r != 0 && !u->keep)
        unlinkat(u->dir, u->temp, 0);
    let_go(u);
    return r;
}

void agent_upload_abort(struct agent_upload *u)
{
    if (u->fd < 0)
        return;
    if (!u->keep)
        unlinkat(u->dir, u->temp, 0);
    let_go(u);
}

int agent_upload_discard(const struct agent_files *f, const char *path, const char *id,
                         struct err *err)
{
    struct agent_upload u = {.dir = -1, .fd = -1};
    char folder[PATH_MAX];
    int r = 0;

    if (!agent_files_split(path, folder, sizeof(folder), u.name, sizeof(u.name)))
        return agent_files_fail(err, UV_EINVAL, path);
    u.dir = agent_files_open_path(f, folder, O_PATH | O_DIRECTORY);
    if (u.dir < 0)
        return u.dir == UV_ENOENT ? 0 : agent_files_fail(err, u.dir, path);
    name_part(&u, id);
    if (unlinkat(u.dir, u.temp, 0) != 0 && errno != ENOENT)
        r = -errno;
    close(u.dir);
    return r == 0 ? 0 : agent_files_fail(err, r, path);
}
