/* SPDX-License-Identifier: MIT */
/* The gateway's user, known to both daemons: the manager opens Redis' socket to its group. */
#include "transom/daemon.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>

#define FALLBACK_NAME "transom-gateway"
#define FALLBACK_ID   65532

int tr_daemon_gateway_user(const char *user, uid_t *uid, gid_t *gid, const char **name,
                           struct err *err)
{
    struct passwd *pw = getpwnam(*user != '\0' ? user : FALLBACK_NAME);
    unsigned long number = FALLBACK_ID;
    char *end;

    if (pw != NULL) {
        *uid = pw->pw_uid;
        *gid = pw->pw_gid;
        *name = pw->pw_name;
        return 0;
    }
    if (*user != '\0') {
        number = strtoul(user, &end, 10);
        if (*end != '\0' || number >= (uid_t)-1)
            return tr_err_set(err, -ENOENT, "gateway.user: there is no user \"%s\"", user);
    }
    *uid = (uid_t)number;
    *gid = (gid_t)number;
    *name = NULL;
    return 0;
}
