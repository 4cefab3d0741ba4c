/* SPDX-License-Identifier: MIT */
/* What a reload replaces: configuration and certificates. Each worker holds the one that it works
 * with and moves to a newer one by itself, between two turns of its loop. */
#ifndef GATEWAY_LIVE_H
#define GATEWAY_LIVE_H

#include "gateway/options.h"

struct ssl_ctx_st;

struct gw_live {
    _Atomic unsigned refs;
    _Atomic unsigned n_taken; /* workers that have moved to it */
    struct tr_config *config;
    struct gw_options opt;  /* strings lie in config */
    struct ssl_ctx_st *tls; /* NULL: no certificate */
};

/* Take config over and load the certificates; the caller has the one reference. On a fault config
 * is freed. */
TR_MUST_CHECK int gw_live_new(struct tr_config *config, struct gw_live **out, struct err *err);
struct gw_live *gw_live_ref(struct gw_live *live);
/* NULL is allowed. */
void gw_live_unref(struct gw_live *live);
/* Log the names of options that differ and that a running process cannot change. */
void gw_live_say_ignored(const struct gw_live *running, const struct gw_live *fresh);

#endif
