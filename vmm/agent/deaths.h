/* SPDX-License-Identifier: MIT */
/* How the children of certain processes died, who are not ours to wait for: the kernel's process
 * events (netlink connector, cn_proc). A shell gives 137 for a command that was killed and for one
 * that ended with exit(137); this tells the two apart. */
#ifndef VMM_AGENT_DEATHS_H
#define VMM_AGENT_DEATHS_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "transom/err.h"

#define AGENT_DEATHS_KEPT 16 /* of each parent's children, the last ones */

/* One parent. In the caller's memory; valid until agent_deaths_forget(). */
struct agent_parent {
    struct agent_parent *next;
    pid_t pid;
    int statuses[AGENT_DEATHS_KEPT]; /* as wait() has them; the n-th at n % AGENT_DEATHS_KEPT */
    size_t n;
};

struct agent_deaths;
/* Where the kernel does not tell (no right to it, no support), nothing is known of any death. */
TR_MUST_CHECK int agent_deaths_new(uv_loop_t *loop, struct agent_deaths **out);
void agent_deaths_close(struct agent_deaths *d);
void agent_deaths_free(struct agent_deaths *d);

void agent_deaths_watch(struct agent_deaths *d, struct agent_parent *p, pid_t pid);
void agent_deaths_forget(struct agent_deaths *d, struct agent_parent *p);
/* What was is of no more interest. */
void agent_deaths_reset(struct agent_deaths *d, struct agent_parent *p);
/* Is anything to be learnt here? */
bool agent_deaths_are_told(const struct agent_deaths *d);
/* The parent has just learnt of status in a shell's words (128 + N for signal N): what was it? The
 * kernel tells the parent first and us a moment later (do_exit(): exit_notify(), then
 * proc_exit_connector()): UNKNOWN may mean that. */
enum agent_death { AGENT_DEATH_UNKNOWN, AGENT_DEATH_EXITED, AGENT_DEATH_SIGNALLED };
enum agent_death agent_deaths_ask(struct agent_deaths *d, const struct agent_parent *p, int status);

#endif
