/* SPDX-License-Identifier: MIT */
/* Runs a command in a machine's control group, for a test inside a guest, whose systemd offers what
 * test machines lack: cgroup v2 with all controllers. Static, so that it needs nothing there.
 *   cgroupctl PARENT NAME MEMORY_BYTES CPU_PERCENT PIDS COMMAND...
 * Prints what could not be limited ("warn: ..."), the groups' folders, what the command prints,
 * then "oom N" and "removed STATUS". */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/driver/cgroup.h"

static void warn(const char *text)
{
    (void)printf("warn: %s\n", text);
}

int main(int argc, char **argv)
{
    struct cgroup_mounts mounts;
    struct cgroup_group group;
    struct cgroup_limits limits;
    char text[2048];
    pid_t child;

    if (argc < 7 || cgroup_find(&mounts) != 0)
        return 2;
    limits.memory_bytes = strtoull(argv[3], NULL, 10);
    limits.cpu_percent = (unsigned)strtoul(argv[4], NULL, 10);
    limits.pids = (unsigned)strtoul(argv[5], NULL, 10);
    cgroup_plan(&mounts, argv[1], argv[2], &group);
    if (cgroup_encode(&group, text, sizeof(text)) != 0)
        return 2;
    (void)fflush(stdout);
    child = fork(); /* only the child enters: who stays can remove the group */
    if (child == 0) {
        cgroup_enter(&mounts, &group, &limits, warn);
        (void)fputs(text, stdout);
        (void)fflush(stdout);
        (void)execvp(argv[6], argv + 6);
        _exit(127);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 2;
    (void)printf("oom %llu\n", (unsigned long long)cgroup_oom_kills(&group));
    (void)printf("removed %d\n", cgroup_remove(&group));
    return 0;
}
