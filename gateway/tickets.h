/* SPDX-License-Identifier: MIT */
/* Keys of TLS session tickets (RFC 5077 section 4): one set for all workers, certificates and
 * serving processes of this gateway, so that a client resumes its session with any of them. They
 * are never written to a disk: they live in memory that the keeper keeps. The newest key seals; it
 * and the two before it open. */
#ifndef GATEWAY_TICKETS_H
#define GATEWAY_TICKETS_H

#include <stdint.h>
#include "transom/err.h"

struct ssl_ctx_st;

/* Use the keys in this descriptor (of gw_tickets_create() in an earlier process; borrowed, must
 * stay open). 0, or -EPROTO when that is something else. Before any thread is started. */
TR_MUST_CHECK int gw_tickets_open(int fd);
/* A descriptor with a fresh key, the caller's, or a negative errno. */
TR_MUST_CHECK int gw_tickets_create(void);
/* A new key, if the newest is older than this. Returns the milliseconds until it will be, or a
 * negative errno; then the old one stays. */
TR_MUST_CHECK int64_t gw_tickets_rotate(uint64_t max_age_ms);
/* Sessions of this context are sealed by these keys. */
void gw_tickets_use(struct ssl_ctx_st *ctx);

#endif
