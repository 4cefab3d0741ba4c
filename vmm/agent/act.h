/* SPDX-License-Identifier: MIT */
/* Acting on files with another user's rights, on the calling thread alone. The kernel keeps
 * credentials per thread (the C library's wrappers hide that by changing all threads; these calls
 * go around them). With the effective user no longer root the thread has no capability in effect
 * either, so each path is judged by the kernel exactly as if that user had named it. Compared with
 * a helper process per request this costs no fork, and descriptors need not be passed; compared
 * with fsuid alone it also drops what root could do elsewhere (reading /proc, reserved blocks).
 * The real and saved ids stay root's: nobody else may signal or trace the thread meanwhile. */
#ifndef VMM_AGENT_ACT_H
#define VMM_AGENT_ACT_H

#include <stdbool.h>
#include <sys/types.h>

#include "transom/err.h"
#include "vmm/agent/users.h"

struct agent_act {
    bool change; /* false: stay who we are, the rest is not used */
    uid_t uid;
    gid_t gid;
    gid_t groups[AGENT_MAX_GROUPS];
    size_t n_groups;
};

/* From here on this thread has that user's rights. Calls do not nest. Returns 0 or the errno;
 * nothing is changed then. */
TR_MUST_CHECK int agent_act_begin(const struct agent_act *act);
/* Be ourselves again. Ends the program if that cannot be. Keeps errno. */
void agent_act_end(const struct agent_act *act);

#endif
