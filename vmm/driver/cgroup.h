/* SPDX-License-Identifier: MIT */
/* A machine's control group: memory, CPU and process limits under cgroup v1, v2 or a mix of both
 * (each controller is looked for in v1 first). Blocking; called from the launcher and from worker
 * threads. */
#ifndef VMM_CGROUP_H
#define VMM_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

enum cgroup_controller { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_N };

/* Where new groups go, per controller: below the caller's own group in v1; in v2, which forbids
 * groups below one that has processes, at the top of the hierarchy. */
struct cgroup_mounts {
    char v1[CGROUP_N][256]; /* "" none */
    char v2[256];           /* "" none */
    bool in_v2[CGROUP_N];   /* the unified hierarchy offers it (and v1 does not) */
};

/* A machine's groups, one per controller; several may be the same folder. */
struct cgroup_group {
    char dir[CGROUP_N][512]; /* "" no such controller */
    bool v2[CGROUP_N];
};

struct cgroup_limits {
    uint64_t memory_bytes;
    unsigned cpu_percent; /* 150: one and a half cores */
    unsigned pids;
};

/* Find the folders from the texts of /proc/self/mountinfo and /proc/self/cgroup. */
void cgroup_parse_mounts(const char *mountinfo, const char *self, struct cgroup_mounts *out);
/* Note which controllers the text of v2's cgroup.controllers offers. */
void cgroup_parse_controllers(const char *text, struct cgroup_mounts *mounts);
/* Both for this process. Returns 0 or a negative errno. */
TR_MUST_CHECK int cgroup_find(struct cgroup_mounts *out);

/* Name the groups parent/name. */
void cgroup_plan(const struct cgroup_mounts *mounts, const char *parent, const char *name,
                 struct cgroup_group *out);

/* Make the groups with limits and move the calling process there. What cannot be limited is said
 * through warn (one sentence each) and left out. */
void cgroup_enter(const struct cgroup_mounts *mounts, const struct cgroup_group *group,
                  const struct cgroup_limits *limits, void (*warn)(const char *text));

/* The plan as text and back, so that a later manager, which may itself be in another group, finds
 * them. Decoding takes only lines whose folder ends in parent/name. */
int cgroup_encode(const struct cgroup_group *group, char *text, size_t size);
void cgroup_decode(const char *text, const char *parent, const char *name,
                   struct cgroup_group *out);

/* How many processes of the group the kernel killed for want of memory. */
uint64_t cgroup_oom_kills(const struct cgroup_group *group);

/* Remove the groups (their processes must be ending), and their parents when empty. Waits up to a
 * second for the last process to leave. Returns 0, or -EBUSY. */
int cgroup_remove(const struct cgroup_group *group);

#endif
