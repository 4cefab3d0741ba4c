/* SPDX-License-Identifier: MIT */
/* The incoming side of a body: takes the framing off, keeps what cannot be passed on yet. */
#ifndef GATEWAY_BODY_H
#define GATEWAY_BODY_H

#include "gateway/buf.h"
#include "gateway/chunked.h"
#include "gateway/http1.h"

struct gw_body {
    uint8_t framing; /* enum gw_framing */
    bool trailers;   /* the last chunk was seen: the trailer section follows */
    bool done;
    uint64_t left; /* GW_BODY_LENGTH: still to come */
    struct gw_chunked chunked;
    struct gw_http1_scan scan; /* of the trailer section */
};

enum gw_body_result { GW_BODY_MORE, GW_BODY_DONE, GW_BODY_ERROR };

/* What one call of gw_body_decode() found in buf. */
struct gw_body_part {
    size_t plain;        /* buf[0..plain) is body */
    size_t used;         /* bytes from buf + used on are not part of it, or wait for more */
    char *trailers;      /* with GW_BODY_DONE: the trailer section, its empty line included */
    size_t trailers_len; /* 0: none */
};

void gw_body_start(struct gw_body *b, enum gw_framing framing, uint64_t length);
/* Decode in place. Bytes behind used must be shown again, with more behind them (or, after
 * GW_BODY_DONE, belong to the next message). */
enum gw_body_result gw_body_decode(struct gw_body *b, char *buf, size_t len, size_t max_trailers,
                                   struct gw_body_part *out);

/* Received bytes that wait: first `plain` ones that are decoded, then raw ones. */
struct gw_in {
    struct gw_buf *buf;
    size_t plain;
};

/* Keep p[0..n), of which the first plain are decoded; they may lie inside in->buf already. An n of
 * 0 gives the buffer back. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_in_keep(struct gw_bufs *bufs, struct gw_in *in, const char *p, size_t n,
                             size_t plain);

/* The same for what was decoded from p[0..n) as part, of which the first `taken` bytes are gone. */
TR_MUST_CHECK int gw_in_keep_part(struct gw_bufs *bufs, struct gw_in *in, char *p, size_t n,
                                  const struct gw_body_part *part, size_t taken);

static inline void gw_in_drop(struct gw_bufs *bufs, struct gw_in *in)
{
    gw_buf_put(bufs, in->buf);
    in->buf = NULL;
    in->plain = 0;
}

#endif
