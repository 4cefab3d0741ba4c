/* SPDX-License-Identifier: MIT */
/* The configuration of one connection's sshd. */
#ifndef VMM_AGENT_SSH_CONFIG_H
#define VMM_AGENT_SSH_CONFIG_H

#include "vmm/agent/child.h"

/* Text of an sshd_config (new) for the keys in dir and the account and environment of child.
 * env_file: as of ssh_session.h for what cannot stand there, or NULL. NULL without memory. */
char *agent_ssh_config_text(const char *dir, const struct agent_child *child, const char *env_file);

#endif
