/* SPDX-License-Identifier: MIT */
/* Fetching of a repository that a session is to begin with, by git in a process of its own: in the
 * machines' network namespace under the rules that hold for them, as a user that owns nothing, in
 * namespaces of its own for mounts, processes and IPC, with bounds on time and size:
 *
 *   transom-vmm --fetch STAGING NAME NETNS DNS BYTES FILES DEPTH URL [REF]
 *
 * STAGING/NAME is made: "tree" in it are the files, "git" the .git folder as one stream
 * (sync/gitdir.h). DEPTH 0: all of the history. The exit status says how it went; on failure
 * standard error says why, in words for the one who asked. */
#ifndef VMM_FETCH_H
#define VMM_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

enum vmm_fetch_status {
    VMM_FETCH_UNREACHABLE = 3, /* no such host, no connection, TLS */
    VMM_FETCH_NOT_FOUND = 4,   /* no repository there */
    VMM_FETCH_AUTH = 5,        /* it wants to know who asks */
    VMM_FETCH_NO_REF = 6,
    VMM_FETCH_TOO_BIG = 7, /* more than BYTES or FILES */
};

/* http, https and git, with a host, and without user, password and query. */
TR_MUST_CHECK int vmm_fetch_check_url(const char *url, struct err *err);
/* A branch, a tag, or all digits of a commit's id. */
TR_MUST_CHECK int vmm_fetch_check_ref(const char *ref, struct err *err);

/* If the arguments ask for it, do it and set the exit status. */
bool vmm_fetch_main(int argc, char **argv, int *status);

#endif
