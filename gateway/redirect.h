/* SPDX-License-Identifier: MIT */
/* From HTTP to HTTPS (gateway.https_redirect). */
#ifndef GATEWAY_REDIRECT_H
#define GATEWAY_REDIRECT_H

#include "gateway/exchange.h"

/* Does the client speak TLS, to us or to the trusted proxy before us? */
bool gw_is_secure(const struct gw_exchange *x, const struct gw_request *req,
                  const struct sockaddr *peer);
/* If the request came without TLS: answer it with 308 (which keeps the method, RFC 9110 section
 * 15.4.9) to the same URL with https, and return true; x is gone. Its Host is well-formed. */
bool gw_redirect(struct gw_exchange *x, const struct gw_request *req, const struct sockaddr *peer);

#endif
