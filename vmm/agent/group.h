/* SPDX-License-Identifier: MIT */
/* Groups of processes that can be signalled as a whole: cgroup v2 directories, which nothing can
 * leave. Where those cannot be used (an agent on a foreign host), a group is what descends from its
 * leader or shares the leader's session; a process that leaves both ways is lost from sight. */
#ifndef VMM_AGENT_GROUP_H
#define VMM_AGENT_GROUP_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "transom/err.h"

struct agent_groups;
struct agent_group;

/* path: the directory to make groups in, made if missing. "" or one that is no usable cgroup v2
 * directory: the second way. */
TR_MUST_CHECK int agent_groups_new(uv_loop_t *loop, const char *path, struct agent_groups **out);
bool agent_groups_are_cgroups(const struct agent_groups *gs);
/* Kill all that is in any group. */
void agent_groups_kill(struct agent_groups *gs);
void agent_groups_close(struct agent_groups *gs);
void agent_groups_free(struct agent_groups *gs);

/* A new group, inside parent if not NULL. Names are made here and never come from a client. */
TR_MUST_CHECK int agent_group_new(struct agent_groups *gs, struct agent_group *parent,
                                  const char *prefix, struct agent_group **out);
/* Let go: the directory is removed once the last process has left. */
void agent_group_free(struct agent_group *g);

/* For struct agent_spawn; -1 without cgroups. Borrowed. */
int agent_group_procs_fd(const struct agent_group *g);
/* Without cgroups: who the group descends from. itself: is the leader a member? Only what started
 * from now on counts, when it is not. */
void agent_group_set_leader(struct agent_group *g, pid_t leader, bool itself);
/* Move one process in. Nothing without cgroups. */
void agent_group_move(struct agent_group *g, pid_t pid);

/* Signal every process of the group and of groups inside. SIGKILL misses none, even if they fork.
 */
void agent_group_signal(struct agent_group *g, int signum);
/* The same for all but one, which may go on making others: to be repeated. */
void agent_group_signal_others(struct agent_group *g, int signum, pid_t but);
/* Is the process in the group or one inside? inside, of size bytes (NULL: not asked for): the name
 * of the group right inside that it is in, "" for none or without cgroups. */
bool agent_group_has(const struct agent_group *g, pid_t pid, char *inside, size_t size);
/* The path below the file system's mount of the cgroup that text, that of /proc/PID/cgroup, names.
 * Returns its length, 0 when there is none; *path points into text. */
size_t agent_group_parse(const char *text, const char **path);
/* Number of processes, groups inside included; never a wrong 0. */
size_t agent_group_count(struct agent_group *g);

#endif
