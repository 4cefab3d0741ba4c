/* SPDX-License-Identifier: MIT */
/* Start one program: user, group, directory, cgroup, descriptors and terminal are set in the child
 * before exec, and a failure of any of it is reported to the caller. */
#ifndef VMM_AGENT_SPAWN_H
#define VMM_AGENT_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "transom/err.h"
#include "vmm/agent/users.h"

struct agent_spawn {
    const char *path; /* program; without a slash it is sought in envp's PATH */
    char *const *argv, *const *envp;
    const char *cwd;               /* NULL: "/" */
    const struct agent_user *user; /* NULL: stay who we are */
    int fds[3];                    /* become 0, 1, 2; -1: /dev/null. Stay the caller's */
    bool terminal;                 /* fds[0] becomes the controlling terminal */
    int procs_fd;                  /* cgroup.procs to join, or -1 */
};

/* The child is a session leader with default signals, nothing inherited but 0 to 2, and
 * oom_score_adj 0. Returns 0 and *pid (to be registered with the reaper at once), or the errno of
 * the step that failed with the reason in err. Blocks until the child's exec. */
TR_MUST_CHECK int agent_spawn(const struct agent_spawn *sp, pid_t *pid, struct err *err);

#endif
