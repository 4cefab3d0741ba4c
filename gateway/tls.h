/* SPDX-License-Identifier: MIT */
/* The TLS context of the HTTPS listeners: all certificates, chosen by the name that the client asks
 * for (SNI, RFC 6066 section 3). */
#ifndef GATEWAY_TLS_H
#define GATEWAY_TLS_H

#include "gateway/options.h"

struct ssl_ctx_st;

/* Load every certificate that the options name, and check that keys belong to them. A client that
 * asks for a name gets the certificate of that name, else one of "*.<rest>", else the first. *out
 * is NULL when no certificate is configured. A fault names option, file and what to do about it. */
TR_MUST_CHECK int gw_tls_new(const struct gw_options *opt, struct ssl_ctx_st **out,
                             struct err *err);
/* Another owner of the context; connections hold it by themselves. NULL is allowed. */
struct ssl_ctx_st *gw_tls_ref(struct ssl_ctx_st *ctx);
void gw_tls_free(struct ssl_ctx_st *ctx);
/* How many certificates, and the day on which the first of them ends (seconds; 0: none). */
size_t gw_tls_certificates(const struct ssl_ctx_st *ctx, int64_t *ends_s);

#endif
