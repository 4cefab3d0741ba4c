/* SPDX-License-Identifier: MIT */
/* Variables that no line of an sshd_config can hold, since a line end is in their value. sshd then
 * starts a copy of this program in place of each command, which sets them from a file that the
 * connection's user alone can read, and goes on as the command. */
#ifndef VMM_AGENT_SSH_SESSION_H
#define VMM_AGENT_SSH_SESSION_H

#include "vmm/agent/child.h"

#define AGENT_SSH_SESSION_OPTION "--ssh-session"

/* Is there such a variable? */
bool agent_ssh_session_needed(const struct agent_child *child);
/* Write dir/ID.env (to path, of size bytes) and, once, dir/session, the program. */
TR_MUST_CHECK int agent_ssh_session_write(const char *dir, const char *id,
                                          const struct agent_child *child, char *path, size_t size,
                                          struct err *err);
/* The program's part: become the command. Returns an exit status when that fails. */
int agent_ssh_session(const char *path);

#endif
