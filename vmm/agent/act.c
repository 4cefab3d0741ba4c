/* SPDX-License-Identifier: MIT */
#include "vmm/agent/act.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNCHANGED ((unsigned)-1)

static bool set_groups(const gid_t *groups, size_t n)
{
    return syscall(SYS_setgroups, (long)n, groups) == 0;
}

static bool set_gid(gid_t gid)
{
    return syscall(SYS_setresgid, UNCHANGED, gid, UNCHANGED) == 0;
}

static bool set_uid(uid_t uid)
{
    return syscall(SYS_setresuid, UNCHANGED, uid, UNCHANGED) == 0;
}

int agent_act_begin(const struct agent_act *act)
{
    int r;

    if (!act->change)
        return 0;
    if (set_groups(act->groups, act->n_groups) && set_gid(act->gid) && set_uid(act->uid))
        return 0;
    r = -errno;
    agent_act_end(act);
    return r;
}

/* The agent itself, started as the first process, has no supplementary groups. */
void agent_act_end(const struct agent_act *act)
{
    int kept = errno;

    if (act->change && (!set_uid(getuid()) || !set_gid(getgid()) || !set_groups(NULL, 0)))
        abort();
    errno = kept;
}
