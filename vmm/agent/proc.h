/* SPDX-License-Identifier: MIT */
/* Reading /proc: one process's numbers, and the set of all that descends from one. */
#ifndef VMM_AGENT_PROC_H
#define VMM_AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "transom/err.h"

struct agent_proc {
    pid_t pid, ppid, pgrp, session;
    char state;
    uint64_t start; /* clock ticks since boot */
};

/* Parse the text of /proc/PID/stat. Returns false when it is none. */
bool agent_proc_parse_stat(const char *text, struct agent_proc *out);
/* Returns false when there is no such process. */
bool agent_proc_read(pid_t pid, struct agent_proc *out);
/* What descends from leader or is in its session, or in the session of such a process. */
struct agent_proc_set {
    pid_t leader;
    bool itself;
    const pid_t *others; /* borrowed: processes that are not meant, and their number */
    size_t n_others;
    pid_t *pids;
    pid_t *sessions;
    size_t n, cap;
};
void agent_proc_set_init(struct agent_proc_set *s, pid_t leader, bool itself);
/* Look through /proc once; n grows by what was found. Zombies are left out. */
void agent_proc_set_grow(struct agent_proc_set *s);
void agent_proc_set_fini(struct agent_proc_set *s);

#endif
