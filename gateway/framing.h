/* SPDX-License-Identifier: MIT */
/* Previews in frames of other sites (gateway.framing: allow): what forbids it is taken out of an
 * app's response. */
#ifndef GATEWAY_FRAMING_H
#define GATEWAY_FRAMING_H

#include "gateway/message.h"

/* A Content-Security-Policy, perhaps several joined by commas, without its frame-ancestors
 * directives (CSP level 3, section 6.4.2); all other bytes stay. out has room for value.len.
 * Returns the new length, which is value.len when there is nothing to change. */
size_t gw_framing_policy(struct gw_str value, char *out);

/* How much room gw_framing_apply() needs. */
size_t gw_framing_room(const struct gw_response *resp);
/* Take X-Frame-Options out, and rewrite policies into out. Returns how much of it was used. */
size_t gw_framing_apply(struct gw_response *resp, char *out);

#endif
