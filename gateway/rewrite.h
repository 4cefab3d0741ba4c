/* SPDX-License-Identifier: MIT */
/* The two response fields that are not an app's own business: a cookie for a domain that previews
 * share, and a redirect to the address that the app believes to have. Everything else passes as it
 * is. */
#ifndef GATEWAY_REWRITE_H
#define GATEWAY_REWRITE_H

#include "gateway/buf.h"
#include "gateway/message.h"
#include "transom/err.h"

/* Set-Cookie without those Domain attributes (RFC 6265 section 4.1.2.3) that name a domain which
 * other hosts share (preview_domain, domain, their parents), localhost, or no plain name at all:
 * the cookie then belongs to the one host it came from. All other bytes stay. out has room for
 * value.len. Returns the new length, or 0 when there is nothing to change (out is then undefined).
 */
size_t gw_rewrite_cookie(struct gw_str value, const char *domain, const char *preview_domain,
                         char *out);

/* Where a request came from and went to. */
struct gw_rewrite_own {
    struct gw_str host;   /* as the client sent it */
    bool tls;             /* the client speaks https */
    const char *address;  /* of the machine, as text */
    uint16_t port, port2; /* of the app; 0: none */
};

/* Location whose authority is exactly the app's own (localhost, a loopback or unspecified address,
 * or the machine's, with one of the two ports) with the public scheme and host instead. out has
 * room for value.len + own->host.len + GW_REWRITE_SCHEME. Returns the new length, or 0 when there
 * is nothing to change. */
#define GW_REWRITE_SCHEME 8
size_t gw_rewrite_location(struct gw_str value, const struct gw_rewrite_own *own, char *out);

struct gw_exchange;

/* Both on a response head from a machine. Changed values live in *text until the caller gives it
 * back with gw_buf_put(); NULL: nothing was changed. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_rewrite_response(const struct gw_exchange *x, struct gw_response *resp,
                                      struct gw_buf **text);

#endif
