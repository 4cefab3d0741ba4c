/* SPDX-License-Identifier: MIT */
#include "vmm/agent/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool agent_proc_parse_stat(const char *text, struct agent_proc *out)
{
    const char *comm_end = strrchr(text, ')'); /* the name may hold anything, ')' too */
    int pid, ppid, pgrp, session;
    unsigned long long start;
    char state;

    if (comm_end == NULL || sscanf(text, "%d", &pid) != 1)
        return false;
    if (sscanf(comm_end + 1,
               " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &ppid, &pgrp, &session, &start) != 5)
        return false;
    *out = (struct agent_proc){pid, ppid, pgrp, session, state, start};
    return true;
}

bool agent_proc_read(pid_t pid, struct agent_proc *out)
{
    char path[64], text[1024];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return agent_proc_parse_stat(text, out);
}

void agent_proc_set_init(struct agent_proc_set *s, pid_t leader, bool itself)
{
    memset(s, 0, sizeof(*s));
    s->leader = leader;
    s->itself = itself;
}

static bool contains(const pid_t *list, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i] == pid)
            return true;
    }
    return false;
}

static void add(struct agent_proc_set *s, const struct agent_proc *p)
{
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? s->cap * 2 : 32;
        pid_t *pids = realloc(s->pids, cap * sizeof(*pids));
        pid_t *sessions;

        if (pids == NULL)
            return;
        s->pids = pids;
        sessions = realloc(s->sessions, cap * sizeof(*sessions));
        if (sessions == NULL)
            return;
        s->sessions = sessions;
        s->cap = cap;
    }
    s->pids[s->n] = p->pid;
    s->sessions[s->n++] = p->session;
}

static bool belongs(const struct agent_proc_set *s, const struct agent_proc *p)
{
    if (p->pid == s->leader)
        return s->itself;
    if (p->state == 'Z' || contains(s->others, s->n_others, p->pid) || p->pid == getpid())
        return false;
    /* Session 0 is the kernel's; a session of ours is never that of the agent itself. */
    return p->ppid == s->leader || p->session == s->leader || contains(s->pids, s->n, p->ppid) ||
           (p->session != getsid(0) && contains(s->sessions, s->n, p->session));
}

void agent_proc_set_grow(struct agent_proc_set *s)
{
    DIR *dir = opendir("/proc");
    struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        int pid = atoi(e->d_name);
        struct agent_proc p;

        if (pid > 1 && agent_proc_read(pid, &p) && belongs(s, &p) && !contains(s->pids, s->n, pid))
            add(s, &p);
    }
    if (dir != NULL)
        closedir(dir);
}

void agent_proc_set_fini(struct agent_proc_set *s)
{
    free(s->pids);
    free(s->sessions);
}
