/* SPDX-License-Identifier: MIT */
/* Who may do what in the embedded Redis: the manager, the gateway, and the node's administrator
 * with redis-cli; the default user is off. Each password is random, made once for a run_dir, and
 * stands in a file that only its reader can open; the server gets their hashes. */
#ifndef VMM_REDIS_USERS_H
#define VMM_REDIS_USERS_H

#include <sys/types.h>
#include "transom/err.h"

#define VMM_REDIS_USERS_SIZE 2048

/* Read the passwords in run_dir, or make those that are missing or broken. group: who may read the
 * gateway's, besides us; NULL: nobody. acl: the text of the ACL file. */
TR_MUST_CHECK int vmm_redis_users_init(const char *run_dir, const gid_t *group,
                                       char acl[VMM_REDIS_USERS_SIZE], struct err *err);
/* Remove the passwords. */
void vmm_redis_users_remove(const char *run_dir);

#endif
