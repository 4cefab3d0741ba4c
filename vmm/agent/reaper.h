/* SPDX-License-Identifier: MIT */
/* The one place that waits for children. Each status is published to whoever registered the pid;
 * orphans that became ours (first process, subreaper) are collected and forgotten. */
#ifndef VMM_AGENT_REAPER_H
#define VMM_AGENT_REAPER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "transom/err.h"

struct agent_reaper;
struct agent_watch;

/* exited: code is the exit status; else it is the signal that ended the process. Runs once. The
 * pid may be reused from now on. */
typedef void (*agent_exit_cb)(bool exited, int code, void *arg);

TR_MUST_CHECK int agent_reaper_new(uv_loop_t *loop, struct agent_reaper **out);
void agent_reaper_close(struct agent_reaper *r);
void agent_reaper_free(struct agent_reaper *r); /* after the loop is empty */

/* Watch a child just forked. Must be called before the loop runs again. */
TR_MUST_CHECK int agent_reaper_watch(struct agent_reaper *r, pid_t pid, agent_exit_cb cb, void *arg,
                                     struct agent_watch **out);
/* Nobody asks any more; the child will still be collected. Not to be called after cb ran. */
void agent_watch_forget(struct agent_watch *w);

#endif
