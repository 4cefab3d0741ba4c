/* SPDX-License-Identifier: MIT */
/* What a command of the user starts with: account and environment. */
#ifndef VMM_AGENT_CHILD_H
#define VMM_AGENT_CHILD_H

#include <jansson.h>

#include "vmm/agent/agent.h"
#include "vmm/agent/users.h"

struct agent_child {
    struct agent_user user;
    bool change_user; /* to be passed to agent_spawn() */
    char **envp;
    size_t n_env;
};

/* name: "sandbox" or "root". env: object of strings or NULL, on top of hello's and
 * of the secrets. On a test host
 * every name means the account we run as. Returns 0 or the fault in err; nothing is held then. */
TR_MUST_CHECK int agent_child_init(struct agent_child *c, const struct agent *a, const char *name,
                                   const json_t *env, struct err *err);
/* Set one more variable (replaces). */
TR_MUST_CHECK int agent_child_set(struct agent_child *c, const char *name, const char *value);
void agent_child_fini(struct agent_child *c);

#endif
