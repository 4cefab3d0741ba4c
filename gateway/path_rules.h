/* SPDX-License-Identifier: MIT */
/* Path rules: which port of a sandbox does a request target lead to?
 *
 * A rule's prefix stands for whole segments: "/api" covers "/api" and "/api/x", not "/apiary". The
 * longest that fits wins. Matching decodes unreserved characters only (RFC 3986 section 6.2.2.2),
 * so
 * "/%61pi" is "/api" and "/api%2Fx" is one segment. Dot segments, also encoded, and backslashes are
 * refused: whoever resolves them behind us would leave the rule that was matched. */
#ifndef GATEWAY_PATH_RULES_H
#define GATEWAY_PATH_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include "gateway/message.h"
#include "transom/route.h"

enum gw_path_verdict {
    GW_PATH_NONE, /* no rule fits: the sandbox's own port */
    GW_PATH_RULE, /* *rule is set */
    GW_PATH_BAD,  /* to be answered 400 */
};

/* target: origin-form with its query, or "*". rules may stand in any order. *rule is borrowed. */
enum gw_path_verdict gw_path_match(const struct tr_route_rule *rules, size_t n_rules,
                                   struct gw_str target, const struct tr_route_rule **rule);

/* What to forward in place of a target that rule matched, when it strips: "/" if *slash, then the
 * returned part of target. Never empty, and never begins with "//" (further slashes behind the
 * prefix go with it). */
struct gw_str gw_path_strip(const struct tr_route_rule *rule, struct gw_str target, bool *slash);

#endif
