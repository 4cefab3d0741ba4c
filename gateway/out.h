/* SPDX-License-Identifier: MIT */
/* The outgoing side of a message: head, framing and body bytes onto a socket, with as few system
 * calls as can be, and without a copy of the body. */
#ifndef GATEWAY_OUT_H
#define GATEWAY_OUT_H

#include "gateway/buf.h"
#include "gateway/message.h"
#include "gateway/runtime.h"

struct gw_out {
    struct gw_buf *pending; /* goes out before anything else: heads, parts of framing */
    bool borrowed;          /* pending belongs to somebody else and is kept for a second use */
    uint8_t framing;        /* enum gw_framing of the message under way */
    bool ended;             /* the message's end was written or is in pending */
    uint64_t chunk_left;    /* bytes that a chunk already announced still needs */
};

/* Write data behind what is pending. last: the message ends with it. Returns how many bytes of data
 * were taken; what was not must be shown again, first. When less than all was taken, or something
 * is pending afterwards, ask the socket to tell when it is writable. */
TR_MUST_CHECK ssize_t gw_out_write(struct gw_bufs *bufs, struct gw_out *out, struct gw_sock *sock,
                                   const char *data, size_t len, bool last);
/* Append to pending. 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_out_append(struct gw_bufs *bufs, struct gw_out *out, const char *data,
                                size_t len);
/* End a chunked message with trailer fields, into pending. */
TR_MUST_CHECK int gw_out_trailers(struct gw_bufs *bufs, struct gw_out *out,
                                  const struct gw_field *fields, size_t n_fields);
void gw_out_reset(struct gw_bufs *bufs, struct gw_out *out);

static inline bool gw_out_is_pending(const struct gw_out *out)
{
    return out->pending != NULL;
}

#endif
