/* SPDX-License-Identifier: MIT */
#include "vmm/driver/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/proc/child.h"

#define FREE_MIN_MB 64 /* below it a machine would fail soon after its start */

/* Run mke2fs to its end. Returns 0, or a negative errno with what it said in text. */
static int run_mke2fs(const char *path, char *text, size_t size)
{
    const char *const argv[] = {"mke2fs",
                                "-q",
                                "-F",
                                "-t",
                                "ext4",
                                "-m",
                                "0",
                                "-J",
                                "size=16",
                                "-E",
                                "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                                path,
                                NULL};
    int out[2], status;
    size_t len = 0;
    ssize_t n;
    pid_t pid;

    text[0] = '\0';
    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        if (dup2(out[1], 1) < 0 || dup2(out[1], 2) < 0)
            _exit(126);
        (void)execvpe(argv[0], (char *const *)argv, child_environment);
        (void)dprintf(2, "cannot run mke2fs: %s (is e2fsprogs installed?)", strerror(errno));
        _exit(127);
    }
    (void)close(out[1]);
    if (pid < 0) {
        n = -errno;
        (void)close(out[0]);
        return (int)n;
    }
    while (len < size - 1 && (n = read(out[0], text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    text[strcspn(text, "\n")] = '\0';
    (void)close(out[0]);
    if (waitpid(pid, &status, 0) != pid)
        return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int explain(struct err *err, int code, const char *path, const char *what)
{
    const char *hint = "";

    if (code == -ENOSPC || code == -EDQUOT)
        hint = ": the disk is full: free some space or move state_dir";
    else if (code == -ENOENT)
        hint = ": its folder is missing";
    return tr_err_set(err, code, "machine disk %s: cannot %s: %s%s", path, what, strerror(-code),
                      hint);
}

static int check_space(const char *path, int fd, struct err *err)
{
    struct statvfs fs;

    if (fstatvfs(fd, &fs) == 0 && (fs.f_bavail * fs.f_frsize) >> 20 < FREE_MIN_MB)
        return tr_err_set(err, -ENOSPC,
                          "machine disk %s: only %llu MB are free there (%d needed): free some "
                          "space or move state_dir",
                          path, (unsigned long long)((fs.f_bavail * fs.f_frsize) >> 20),
                          FREE_MIN_MB);
    return 0;
}

/* From one hole to the next. */
static int copy_data(int from_fd, int to_fd, off_t size)
{
    off_t at = 0, end, out;
    ssize_t n;

    while (at < size) {
        at = lseek(from_fd, at, SEEK_DATA);
        if (at < 0)
            return errno == ENXIO ? 0 : -errno; /* a hole up to the end */
        end = lseek(from_fd, at, SEEK_HOLE);
        if (end < 0)
            return -errno;
        for (out = at; at < end;) {
            n = copy_file_range(from_fd, &at, to_fd, &out, (size_t)(end - at), 0);
            if (n <= 0)
                return n == 0 ? -EIO : -errno;
        }
    }
    return 0;
}

int disk_copy(int from_fd, int to_fd)
{
    struct stat st;

    if (fstat(from_fd, &st) != 0)
        return -errno;
    if (ioctl(to_fd, FICLONE, from_fd) == 0)
        return 0;
    if (ftruncate(to_fd, st.st_size) != 0)
        return -errno;
    return copy_data(from_fd, to_fd, st.st_size);
}

static int copy_from(const char *from, int fd, const char *path, struct err *err)
{
    int from_fd = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), r;

    if (from_fd < 0)
        return tr_err_set(err, -errno, "template's disk %s: %s", from, strerror(errno));
    r = disk_copy(from_fd, fd);
    (void)close(from_fd);
    return r == 0 ? 0 : explain(err, r, path, "copy the template's");
}

static int make_fs(const char *path, const char *tmp, int fd, unsigned size_mb, struct err *err)
{
    char text[256];
    int r;

    if (ftruncate(fd, (off_t)size_mb << 20) != 0)
        return explain(err, -errno, path, "set its size");
    r = run_mke2fs(tmp, text, sizeof(text));
    if (r != 0 && check_space(path, fd, err) == 0)
        (void)tr_err_set(err, r, "machine disk %s: cannot make a file system: %s", path,
                         text[0] != '\0' ? text : strerror(-r));
    return r;
}

static int disk_make(const char *path, unsigned size_mb, const char *from, struct err *err)
{
    char tmp[4096];
    int fd, r;

    if (snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= (int)sizeof(tmp))
        return explain(err, -ENAMETOOLONG, path, "create it");
    (void)unlink(tmp); /* of an attempt that was killed */
    fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return explain(err, -errno, path, "create it");
    r = check_space(path, fd, err);
    if (r == 0)
        r = *from != '\0' ? copy_from(from, fd, path, err) : make_fs(path, tmp, fd, size_mb, err);
    if (r == 0 && rename(tmp, path) != 0)
        r = explain(err, -errno, path, "create it");
    (void)close(fd);
    if (r != 0)
        (void)unlink(tmp);
    return r;
}

int disk_open(const char *path, unsigned size_mb, const char *from, struct err *err)
{
    struct stat st;
    int fd, r;

    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        r = disk_make(path, size_mb, from, err);
        if (r != 0)
            return r;
        fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return explain(err, -errno, path, "open it");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return tr_err_set(err, -EINVAL, "machine disk %s: not a regular file", path);
    }
    return fd;
}
