/* SPDX-License-Identifier: MIT */
/* HTTP/1.1 heads, strictly after RFC 9112: what is ambiguous is refused, never repaired, so that no
 * two parties can read it differently. */
#ifndef GATEWAY_HTTP1_H
#define GATEWAY_HTTP1_H

#include "gateway/message.h"
#include "transom/err.h"

struct gw_http1_limits {
    size_t head_bytes;
    size_t n_fields; /* also the room in the fields array */
};

/* Where the search for a head's end stands; zero it for a new head. */
struct gw_http1_scan {
    size_t at, line; /* searched up to, start of the line that is not complete */
};

/* Find the end of a head (after its empty line) in buf, where earlier calls saw a shorter buf.
 * Returns the head's length; 0: not complete; < 0: a bare LF, a NUL or a stray CR. */
TR_MUST_CHECK long gw_http1_find_end(struct gw_http1_scan *scan, const char *buf, size_t len);

/* Parse a complete head. fields has room for limits->n_fields. Strings point into buf. Returns 0,
 * or the status to answer with (400, 414, 431, 501, 505); *why is then a short constant. */
TR_MUST_CHECK int gw_http1_parse_request(const char *buf, size_t len,
                                         const struct gw_http1_limits *limits,
                                         struct gw_field *fields, struct gw_request *out,
                                         const char **why);

/* The same for a response head. method: of the request it answers. Returns 0 or UV_EPROTO. */
TR_MUST_CHECK int gw_http1_parse_response(const char *buf, size_t len,
                                          const struct gw_http1_limits *limits,
                                          enum gw_method method, struct gw_field *fields,
                                          struct gw_response *out, const char **why);

/* Field lines up to and including the empty line (trailers). Fields that may not stand in a
 * trailer (RFC 9110 section 6.5.1) are left out. Returns 0 or UV_EPROTO. */
TR_MUST_CHECK int gw_http1_parse_trailers(const char *buf, size_t len,
                                          const struct gw_http1_limits *limits,
                                          struct gw_field *fields, size_t *n_fields);

/* Which field is this? enum gw_field_id. */
uint8_t gw_http1_classify(const char *name, size_t len);

/* Not empty, and of such characters alone: a token (RFC 9110 section 5.6.2), one without capitals,
 * a request target. */
bool gw_http1_is_token(const char *p, size_t len);
bool gw_http1_is_lower_token(const char *p, size_t len);
bool gw_http1_is_target(const char *p, size_t len);
/* A field value (RFC 9110 section 5.5), may be empty: no blanks around it, no controls. */
bool gw_http1_is_value(const char *p, size_t len);

/* Equal, but for the case of ASCII letters. */
bool gw_str_ieq(struct gw_str a, const char *b, size_t b_len);

#endif
