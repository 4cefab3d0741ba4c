/* SPDX-License-Identifier: MIT */
#include "vmm/driver/remains.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "vmm/driver/cgroup.h"
#include "vmm/proc/procid.h"

#define KILL_WAIT_MS 10000

int remains_open(const struct vm_spec *spec)
{
    int fd = open(spec->run_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 ? fd : -errno;
}

/* End the process that the pidfile names, if it still is that one. */
static int end_process(int dir_fd, struct err *err)
{
    struct procid id;
    struct pollfd poll_fd = {.events = POLLIN};
    int r = procid_load(dir_fd, MACHINE_PIDFILE, &id);

    if (r != 0) /* none, or not ours to guess at */
        return 0;
    poll_fd.fd = procid_pidfd(&id);
    if (poll_fd.fd < 0)
        return 0;
    (void)procid_signal(&id, SIGKILL);
    do
        r = poll(&poll_fd, 1, KILL_WAIT_MS);
    while (r < 0 && errno == EINTR);
    (void)close(poll_fd.fd);
    return r == 1 ? 0
                  : tr_err_set(err, UV_ETIMEDOUT, "process %d does not end after SIGKILL",
                               (int)id.pid);
}

/* The files of a machine that runs are not ours to remove, whoever started it. */
static int check_ended(int dir_fd, struct err *err)
{
    struct procid id;

    if (procid_load(dir_fd, MACHINE_PIDFILE, &id) == 0 && procid_alive(&id))
        return tr_err_set(err, UV_EBUSY, "process %d still runs there", (int)id.pid);
    return 0;
}

static int remove_groups(int dir_fd, const struct vm_spec *spec, uint64_t *oom_kills)
{
    struct cgroup_group group;
    char text[2048];
    ssize_t n;
    int fd = openat(dir_fd, MACHINE_CGROUPS, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    cgroup_decode(text, spec->cgroup, spec->label, &group);
    if (oom_kills != NULL)
        *oom_kills = cgroup_oom_kills(&group);
    return cgroup_remove(&group);
}

int remains_remove(const struct vm_spec *spec, bool kill, uint64_t *oom_kills, struct err *err)
{
    static const char *const files[] = {MACHINE_QMP, MACHINE_AGENT, MACHINE_CGROUPS,
                                        MACHINE_PIDFILE, MACHINE_PIDFILE_TMP};
    int dir_fd = remains_open(spec), r = 0;
    size_t i;

    if (oom_kills != NULL)
        *oom_kills = 0;
    if (dir_fd == -ENOENT)
        return 0;
    if (dir_fd < 0)
        return tr_err_set(err, dir_fd, "machine folder %s: %s", spec->run_dir, strerror(-dir_fd));
    r = kill ? end_process(dir_fd, err) : check_ended(dir_fd, err);
    if (r == 0) {
        r = remove_groups(dir_fd, spec, oom_kills);
        if (r != 0)
            (void)tr_err_set(err, r, "machine's control group: %s", strerror(-r));
    }
    if (r == 0) { /* else keep what a later attempt needs */
        for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
            (void)unlinkat(dir_fd, files[i], 0);
        (void)unlinkat(dir_fd, MACHINE_ROOT, AT_REMOVEDIR);
        if (rmdir(spec->run_dir) != 0 && errno != ENOENT)
            r = tr_err_set(err, -errno, "machine folder %s: %s", spec->run_dir, strerror(errno));
    }
    (void)close(dir_fd);
    return r;
}
