/* SPDX-License-Identifier: MIT */
/* admin.<domain>: the dashboard, and the way of its page to the manager.
 *
 *   GET /, /assets/...   the page and its files (asset.h); no sign-in needed to see them
 *   POST /signin         with "authorization: Bearer KEY": answers with the cookie (admin_cookie.h)
 *   POST /signout        forgets it
 *   /v1/...              as on api.<domain>, with the cookie in place of the key
 *
 * What a browser sends by itself must not be enough for another page, be it a preview on a
 * neighbouring host name: writes and WebSockets need this very origin (RFC 6454), reads must not
 * come from elsewhere where the browser says so (Sec-Fetch-Site), and nothing of the API is ever
 * shown as a document of this origin. */
#ifndef GATEWAY_ADMIN_H
#define GATEWAY_ADMIN_H

#include "gateway/exchange.h"

/* As gw_upstream_start(). */
void gw_admin_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer);
/* Add to the head of an answer of the API what keeps it from being a document. Its fields have room
 * for GW_FIELDS_EXTRA more. */
void gw_admin_guard(struct gw_response *resp);

/* The parts, for tests. */

/* Is Origin there, once, and this host of this scheme? */
bool gw_admin_same_origin(const struct gw_request *req, bool secure);
/* Does the browser say that another site asks, or that a document is wanted? */
bool gw_admin_is_foreign(const struct gw_request *req);

#endif
