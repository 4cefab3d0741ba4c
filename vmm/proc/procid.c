/* SPDX-License-Identifier: MIT */
#include "vmm/proc/procid.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static ssize_t read_small(int dir_fd, const char *path, char *buf, size_t size)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = read(fd, buf, size - 1);
    if (n < 0)
        n = -errno;
    else
        buf[n] = '\0';
    (void)close(fd);
    return n;
}

static int read_boot(char boot[37])
{
    char text[64];
    ssize_t n = read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

    if (n < 36)
        return n < 0 ? (int)n : -EIO;
    memcpy(boot, text, 36);
    boot[36] = '\0';
    return 0;
}

/* State letter and start time. The command name may hold anything, so fields count from the last
 * closing parenthesis. */
static int read_stat(pid_t pid, char *state, uint64_t *start)
{
    char path[48], text[1024];
    const char *p;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    n = read_small(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return -ESRCH;
    p = strrchr(text, ')');
    if (p == NULL || sscanf(p + 1,
                            " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                            "%*d %*d %" SCNu64,
                            state, start) != 2)
        return -ESRCH;
    return 0;
}

int procid_of(pid_t pid, struct procid *out)
{
    char state;
    int r;

    memset(out, 0, sizeof(*out));
    out->pid = pid;
    r = read_stat(pid, &state, &out->start);
    return r != 0 ? r : read_boot(out->boot);
}

bool procid_alive(const struct procid *id)
{
    char state, boot[37];
    uint64_t start;

    return read_boot(boot) == 0 && strcmp(boot, id->boot) == 0 &&
           read_stat(id->pid, &state, &start) == 0 && start == id->start && state != 'Z' &&
           state != 'X';
}

int procid_pidfd(const struct procid *id)
{
    int fd = (int)syscall(SYS_pidfd_open, id->pid, 0); /* is close-on-exec by definition */

    if (fd < 0)
        return -ESRCH;
    /* The descriptor pins the process: if the check holds now, it is the right one. */
    if (!procid_alive(id)) {
        (void)close(fd);
        return -ESRCH;
    }
    return fd;
}

int procid_signal(const struct procid *id, int signal)
{
    int fd = procid_pidfd(id), r = 0;

    if (fd < 0)
        return fd;
    if (syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) != 0)
        r = -errno;
    (void)close(fd);
    return r;
}

static bool has_argument(const char *pid, const char *argument)
{
    char path[300], text[8192];
    const char *p;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    n = read_small(AT_FDCWD, path, text, sizeof(text));
    for (p = text; n > 0 && p < text + n; p += strlen(p) + 1)
        if (strcmp(p, argument) == 0)
            return true;
    return false;
}

void procid_kill_by_argument(const char *argument)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    if (proc == NULL)
        return;
    while ((entry = readdir(proc)) != NULL) {
        struct pollfd p = {.events = POLLIN};

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !has_argument(entry->d_name, argument))
            continue;
        p.fd = (int)syscall(SYS_pidfd_open, atoi(entry->d_name), 0);
        if (p.fd < 0)
            continue;
        if (has_argument(entry->d_name, argument) && /* the descriptor pins it: still that one */
            syscall(SYS_pidfd_send_signal, p.fd, SIGKILL, NULL, 0) == 0)
            (void)poll(&p, 1, 500);
        (void)close(p.fd);
    }
    (void)closedir(proc);
}

int procid_save(int dir_fd, const char *name, const struct procid *id)
{
    char tmp[64], text[160];
    int fd, n, r = 0;

    (void)snprintf(tmp, sizeof(tmp), ".%s.tmp", name);
    n = snprintf(text, sizeof(text), "%d %" PRIu64 " %s %" PRIu64 "\n", (int)id->pid, id->start,
                 id->boot, id->instance);
    fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (write(fd, text, (size_t)n) != n)
        r = errno != 0 ? -errno : -EIO;
    (void)close(fd);
    if (r == 0 && renameat(dir_fd, tmp, dir_fd, name) != 0)
        r = -errno;
    if (r != 0)
        (void)unlinkat(dir_fd, tmp, 0);
    return r;
}

int procid_parse(const char *text, struct procid *out)
{
    int pid, end = 0;

    memset(out, 0, sizeof(*out));
    if (sscanf(text, "%9d %20" SCNu64 " %36[0-9a-f-] %20" SCNu64 " %n", &pid, &out->start,
               out->boot, &out->instance, &end) != 4 ||
        end == 0 || text[end] != '\0' || pid <= 1)
        return -EINVAL;
    out->pid = pid;
    return 0;
}

int procid_load(int dir_fd, const char *name, struct procid *out)
{
    char text[160];
    ssize_t n = read_small(dir_fd, name, text, sizeof(text));

    return n < 0 ? (int)n : procid_parse(text, out);
}
