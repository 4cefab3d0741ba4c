/* SPDX-License-Identifier: MIT */
/* A dnsmasq that is kept running: configuration, start, restart when it dies, end. It outlives the
 * manager; the next one ends it and starts its own. */
#ifndef VMM_DNSMASQ_H
#define VMM_DNSMASQ_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>
#include "transom/err.h"

struct dnsmasq;

struct dnsmasq_options {
    const char *dir;    /* for the configuration file */
    const char *name;   /* of it, without .conf: "dns-outside" */
    const char *netns;  /* run inside that namespace; "": here */
    const char *listen; /* address */
    unsigned port;
    const char *const *servers; /* "10.0.0.1" or "10.0.0.1#5353"; none: the host's resolv.conf */
    size_t n_servers;
};

/* Text of the configuration file (malloc'ed), NULL when out of memory. user "": stay what we are.
 */
char *dnsmasq_config(const struct dnsmasq_options *options, const char *user);

typedef void (*dnsmasq_cb)(int status, const struct err *err, void *arg);

/* Start it (ending one that an earlier manager left). cb runs once: 0 when it serves, else the
 * reason; then it is not kept running, close it. Returns < 0: nothing started, no cb. */
TR_MUST_CHECK int dnsmasq_open(uv_loop_t *loop, const struct dnsmasq_options *options,
                               dnsmasq_cb cb, void *arg, struct dnsmasq **out, struct err *err);

/* Close handles; end: also the process and its files. cb (may be NULL) runs later, then it is
 * freed. */
void dnsmasq_close(struct dnsmasq *d, bool end, void (*cb)(void *arg), void *arg);

/* End what an earlier manager left under that name (for a clean-up without an open one). */
void dnsmasq_remove(const char *dir, const char *name);

#endif
