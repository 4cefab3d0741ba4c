/* SPDX-License-Identifier: MIT */
/* Name a process so that a reused pid is never taken for it: pid, start time and boot. */
#ifndef VMM_PROCID_H
#define VMM_PROCID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "transom/err.h"

struct procid {
    pid_t pid;
    uint64_t start;    /* field 22 of /proc/PID/stat: clock ticks since boot */
    char boot[37];     /* /proc/sys/kernel/random/boot_id */
    uint64_t instance; /* the writer's own number */
};

/* Identity of a live process. Returns 0 or -ESRCH. */
TR_MUST_CHECK int procid_of(pid_t pid, struct procid *out);

/* Does it still run? A zombie does not. */
bool procid_alive(const struct procid *id);

/* A pidfd of exactly that process (close it), or -ESRCH. It polls readable at the end. */
TR_MUST_CHECK int procid_pidfd(const struct procid *id);

/* Signal exactly that process. Returns 0 or a negative errno. */
int procid_signal(const struct procid *id, int signal);

/* Kill (SIGKILL) every process that has exactly this argument on its command line, and wait for
 * their ends, half a second at most. For processes of ours that an earlier manager left: the
 * argument must be one that nobody else's has, such as the path of a file of ours. Blocks. */
void procid_kill_by_argument(const char *argument);

/* Write (temporary name, rename) or read dir/name. A file that does not parse is -EINVAL. */
TR_MUST_CHECK int procid_save(int dir_fd, const char *name, const struct procid *id);
TR_MUST_CHECK int procid_load(int dir_fd, const char *name, struct procid *out);
/* The same from text, for tests. */
TR_MUST_CHECK int procid_parse(const char *text, struct procid *out);

#endif
