/* SPDX-License-Identifier: MIT */
/* What the mains of both daemons have in common: command line, configuration, log, readiness. */
#ifndef TRANSOM_DAEMON_H
#define TRANSOM_DAEMON_H

#include <sys/types.h>
#include "transom/config.h"

#define TR_CONFIG_DEFAULT_PATH "/etc/transom/transom.yaml"

struct tr_daemon {
    const char *program;   /* "transom-gateway" */
    const char *component; /* name in log lines, "gateway" */
    const char *purpose;   /* one sentence for --help */
    /* Further checks of a configuration that parses (files exist, values agree); may be NULL.
     * Runs at each start and for -n; has no other effect. */
    int (*check)(const struct tr_config *config, struct err *err);
};

/* Deal with the whole command line: -f FILE, -n/--check, -d, -v, --help, --version. Reads the
 * configuration (the default file may be missing), sets up the log and ignores SIGPIPE.
 * Returns -1: go on, *config is the caller's. Else the process's exit status (0 after --help,
 * --version and a good -n; 1 for a fault, 2 for wrong usage); all was said and *config is NULL. */
TR_MUST_CHECK int tr_daemon_start(int argc, char **argv, const struct tr_daemon *daemon,
                                  struct tr_config **config);

/* The file that tr_daemon_start() read (it may be missing, if it is the default one). */
const char *tr_daemon_config_path(void);
/* Read the configuration again, without the daemon's own checks. Same returns as
 * tr_config_load(). */
TR_MUST_CHECK int tr_daemon_reload(struct tr_config **config, struct err *err);
/* Let the log follow this configuration (what the command line said still wins). */
void tr_daemon_apply_log(const struct tr_config *config);

/* Who the gateway becomes when root starts it, from gateway.user: a name or a number. Empty: the
 * user "transom-gateway" where there is one, else the number 65532, which no distribution gives
 * away. *name is the user's name, for its groups, or NULL (borrowed until the next getpwnam()).
 * Returns 0, or -ENOENT with the reason. */
TR_MUST_CHECK int tr_daemon_gateway_user(const char *user, uid_t *uid, gid_t *gid,
                                         const char **name, struct err *err);

/* Tell the service manager named by NOTIFY_SOCKET, if any, e.g. "READY=1". Failures are not
 * errors: nobody depends on it. */
void tr_daemon_notify(const char *state);

/* Say that we go round, if the service manager wants to know (WATCHDOG_USEC). Returns how often in
 * ms it should be said, half of its patience, or 0. */
unsigned tr_daemon_watchdog(void);

#endif
