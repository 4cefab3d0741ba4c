/* SPDX-License-Identifier: MIT */
/* The idle rule, in one place and with no clock of its own: when does a sandbox stop because nobody
 * uses it? All times are milliseconds of one monotonic clock. */
#ifndef VMM_IDLE_H
#define VMM_IDLE_H

#include <stdbool.h>
#include <stdint.h>

struct vmm_idle {
    uint64_t now_ms;
    uint64_t last_activity_ms; /* end of the last run, exec or SSH connection, last input, or the
                                  start */
    uint64_t timeout_ms;
    uint64_t warning_ms;     /* so long before the end somebody may want to know; 0: nobody does */
    unsigned n_holds;        /* runs, execs and SSH connections that have not ended */
    uint64_t oldest_hold_ms; /* start of the oldest of them; only with n_holds > 0 */
    uint64_t max_run_ms;     /* a hold counts no longer than this */
    bool holds_listen;       /* one of their processes serves a port: it does not hold */
};

enum vmm_idle_why {
    VMM_IDLE_TIMEOUT, /* nothing holds it; due at the deadline */
    VMM_IDLE_HELD,    /* something runs; the deadline is the end of the hold's allowance */
    VMM_IDLE_SERVING, /* something runs, but it is a server: due as if it did not */
};

struct vmm_idle_verdict {
    enum vmm_idle_why why;
    uint64_t deadline_ms; /* when to stop, or to look again */
    bool stop;            /* the deadline has passed */
    bool warn;            /* it comes near: within warning_ms, half of timeout_ms at most */
};

/* How long a sandbox may be unused, in milliseconds. own_ms: the session's, 0: it has none; a
 * session that persists has the longer of its own and persist_ms. */
uint64_t vmm_idle_timeout(bool persist, uint64_t own_ms, uint64_t default_ms, uint64_t persist_ms);

struct vmm_idle_verdict vmm_idle_judge(const struct vmm_idle *in);
const char *vmm_idle_why_text(enum vmm_idle_why why);

#endif
