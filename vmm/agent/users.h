/* SPDX-License-Identifier: MIT */
/* Accounts from /etc/passwd and /etc/group, read without NSS: the program is static. */
#ifndef VMM_AGENT_USERS_H
#define VMM_AGENT_USERS_H

#include <limits.h>
#include <sys/types.h>

#include "transom/err.h"

#define AGENT_MAX_GROUPS 64

struct agent_user {
    char name[64];
    uid_t uid;
    gid_t gid;
    char home[PATH_MAX];
    char shell[256];
    gid_t groups[AGENT_MAX_GROUPS]; /* supplementary, the primary one included */
    size_t n_groups;
};

/* Look an account up. Returns 0, UV_ENOENT, or the fault of reading. */
TR_MUST_CHECK int agent_user_find(const char *passwd_path, const char *group_path, const char *name,
                                  struct agent_user *out);
/* The same by uid (of a developer's own account in tests). */
TR_MUST_CHECK int agent_user_find_uid(const char *passwd_path, const char *group_path, uid_t uid,
                                      struct agent_user *out);

#endif
