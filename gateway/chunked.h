/* SPDX-License-Identifier: MIT */
/* The chunked transfer coding (RFC 9112 section 7.1), decoded in place, in any pieces. */
#ifndef GATEWAY_CHUNKED_H
#define GATEWAY_CHUNKED_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

/* Zero it for a new body. */
struct gw_chunked {
    uint64_t left; /* bytes of the chunk under way */
    uint8_t state;
    uint8_t n_digits;
    uint16_t ext_len; /* of this chunk's extensions: bounded, dropped */
};

enum gw_chunked_result {
    GW_CHUNKED_MORE,  /* everything was consumed */
    GW_CHUNKED_LAST,  /* the last chunk's line was consumed: trailers or the empty line follow */
    GW_CHUNKED_ERROR, /* not chunked coding */
};

/* Decode buf[0..len). On return buf[0..*body_len) is body; the bytes from buf + *consumed on were
 * not looked at. */
enum gw_chunked_result gw_chunked_decode(struct gw_chunked *c, char *buf, size_t len,
                                         size_t *body_len, size_t *consumed);

/* A chunk's first line for n > 0 bytes, "1f\r\n". Returns its length, at most 18. */
size_t gw_chunked_line(char *buf, uint64_t n);

#endif
