/* SPDX-License-Identifier: MIT */
/* Path rules and opened ports between JSON and C, the same in Redis, in the manager's records and
 * in its API. What is read may be hostile: everything is bounded. A fault is UV_EINVAL, its reason
 * begins with the member's name ("rules[1].port: ..."). A member that is null counts as absent. */
#ifndef VMM_STATE_ROUTE_JSON_H
#define VMM_STATE_ROUTE_JSON_H

#include <jansson.h>
#include "transom/route.h"

/* Text without control characters, for logs and pages; absent: "". cap counts the NUL. */
TR_MUST_CHECK int tr_member_text(const json_t *object, const char *name, char *out, size_t cap,
                                 struct err *err);
/* Must be there. */
TR_MUST_CHECK int tr_member_number(const json_t *object, const char *name, json_int_t min,
                                   json_int_t max, json_int_t *out, struct err *err);
/* Absent: false. */
TR_MUST_CHECK int tr_member_flag(const json_t *object, const char *name, bool *out,
                                 struct err *err);
/* "protocol"; absent: http1. */
TR_MUST_CHECK int tr_member_protocol(const json_t *object, uint8_t *out, struct err *err);

/* Members "rules" and "ports" of an object; absent: none. key and embed go into *out unread, see
 * tr_route_extra_new(). */
TR_MUST_CHECK int tr_route_places_parse(const json_t *object, const uint8_t *key, bool embed,
                                        struct tr_route_extra **out, struct err *err);
/* New references, NULL when out of memory. extra may be NULL: an empty array. */
json_t *tr_route_rules_json(const struct tr_route_extra *extra);
json_t *tr_route_ports_json(const struct tr_route_extra *extra);

#endif
