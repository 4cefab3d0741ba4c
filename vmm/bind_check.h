/* SPDX-License-Identifier: MIT */
/* May a folder be bound to a session? What both have in common is known by the folder's ancestor
 * (sync/ancestor.h), one file per folder in state_dir/sessions/ID/bindings. Blocks. */
#ifndef VMM_BIND_CHECK_H
#define VMM_BIND_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define VMM_BIND_KEPT_MAX 64 /* ancestors of one session; the oldest go */

enum vmm_bind_verdict {
    VMM_BIND_GOOD,
    VMM_BIND_UNRELATED, /* both have files, and nothing is known of the folder */
    VMM_BIND_EMPTIED,   /* the folder has nothing, and had something when it was in step last */
};

struct vmm_bind_ask {
    const char *dir;    /* of the session, in state_dir */
    const char *folder; /* id: hexadecimal digits */
    int files;          /* the session's files; borrowed */
    bool is_empty;      /* the folder */
    /* Both may be put together: nothing is deleted, and of what differs the folder's version stays
     * and the session's is kept. */
    bool may_merge;
};

/* Whose ancestor it is. */
uint64_t vmm_bind_instance(const char *folder);
/* Path of its file. */
void vmm_bind_ancestor(const char *dir, const char *folder, char *out, size_t size);
/* Decide. After VMM_BIND_GOOD the folder is known: a connection that breaks before anything is in
 * step may come back. Returns 0, or the reason in err. */
TR_MUST_CHECK int vmm_bind_check(const struct vmm_bind_ask *ask, enum vmm_bind_verdict *out,
                                 struct err *err);

#endif
