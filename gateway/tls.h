/* SPDX-License-Identifier: MIT */
/* The TLS context of the HTTPS listeners. */
#ifndef GATEWAY_TLS_H
#define GATEWAY_TLS_H

#include "gateway/options.h"

struct ssl_ctx_st;

/* Load certificate and key, check that they belong together. A fault names the file and what to do
 * about it. Read before privileges are given up. */
TR_MUST_CHECK int gw_tls_new(const char *certificate, const char *key, bool http2,
                             struct ssl_ctx_st **out, struct err *err);
void gw_tls_free(struct ssl_ctx_st *ctx);

#endif
