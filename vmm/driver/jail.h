/* SPDX-License-Identifier: MIT */
/* What a machine's process loses before it starts: rights, view of the host, network. Called in
 * this order by the launcher, which ends in exec. What this host does not allow (an ordinary user,
 * a container) is said through warn and left out; each step is independent of the others. */
#ifndef VMM_JAIL_H
#define VMM_JAIL_H

#include <stdbool.h>
#include <sys/types.h>
#include "transom/err.h"

/* A host file that is to be seen, read-only, under another name. */
struct jail_file {
    const char *host;
    const char *inside; /* e.g. "/image/kernel" */
};

struct jail_view {
    const char *root;    /* an empty folder to build it on; it stays empty on the host */
    const char *program; /* must be runnable inside */
    const struct jail_file *files;
    int n_files;
    bool kvm;             /* with /dev/kvm */
    bool own_descriptors; /* with /proc/self/fd, to open again what it holds */
};

/* Own network, IPC and host name; nothing in them. */
void jail_namespaces(void (*warn)(const char *text));

/* Own mount view: system libraries, the named files, /dev/null and /dev/urandom, all read-only.
 * Returns whether it stands (else the host's view is still there). */
bool jail_enter_view(const struct jail_view *view, void (*warn)(const char *text));

/* Core dumps, descriptors, file size (of the largest file it has to write). */
void jail_limits(unsigned largest_mb);

/* Become uid:gid with extra_gid (0: none) for good, without capabilities and without a way to gain
 * any. uid 0: stay what we are. Returns 0, or < 0 with err: then do not go on. */
TR_MUST_CHECK int jail_drop_rights(uid_t uid, gid_t gid, gid_t extra_gid,
                                   void (*warn)(const char *text), struct err *err);

#endif
