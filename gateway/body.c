/* SPDX-License-Identifier: MIT */
#include "gateway/body.h"

#include <string.h>
#include <uv.h>

void gw_body_start(struct gw_body *b, enum gw_framing framing, uint64_t length)
{
    memset(b, 0, sizeof(*b));
    b->framing = (uint8_t)framing;
    b->left = length;
    b->done = framing == GW_BODY_NONE;
}

/* The trailer section stays in the buffer until it is complete. */
static enum gw_body_result find_trailers(struct gw_body *b, char *buf, size_t len, size_t max,
                                         struct gw_body_part *out)
{
    char *p = buf + out->used;
    size_t n = len - out->used;
    long end = gw_http1_find_end(&b->scan, p, n);

    if (end < 0 || (end == 0 && n >= max) || (end > 0 && (size_t)end > max))
        return GW_BODY_ERROR;
    if (end == 0)
        return GW_BODY_MORE;
    if (end > 2 && out->plain > 0) {
        /* One thing at a time: the body bytes must have gone before trailers are handed out. */
        memset(&b->scan, 0, sizeof(b->scan));
        return GW_BODY_MORE;
    }
    b->done = true;
    out->used += (size_t)end;
    out->trailers = p;
    out->trailers_len = end > 2 ? (size_t)end : 0;
    return GW_BODY_DONE;
}

enum gw_body_result gw_body_decode(struct gw_body *b, char *buf, size_t len, size_t max_trailers,
                                   struct gw_body_part *out)
{
    size_t n;

    memset(out, 0, sizeof(*out));
    if (b->done)
        return GW_BODY_DONE;
    switch (b->framing) {
    case GW_BODY_LENGTH:
        n = len < b->left ? len : (size_t)b->left;
        b->left -= n;
        b->done = b->left == 0;
        out->plain = out->used = n;
        return b->done ? GW_BODY_DONE : GW_BODY_MORE;
    case GW_BODY_CLOSE:
        out->plain = out->used = len;
        return GW_BODY_MORE;
    case GW_BODY_CHUNKED:
        if (!b->trailers) {
            switch (gw_chunked_decode(&b->chunked, buf, len, &out->plain, &out->used)) {
            case GW_CHUNKED_MORE:
                return GW_BODY_MORE;
            case GW_CHUNKED_ERROR:
                return GW_BODY_ERROR;
            case GW_CHUNKED_LAST:
                b->trailers = true;
                break;
            }
        }
        return find_trailers(b, buf, len, max_trailers, out);
    default:
        return GW_BODY_DONE;
    }
}

int gw_in_keep(struct gw_bufs *bufs, struct gw_in *in, const char *p, size_t n, size_t plain)
{
    char *room;

    in->plain = plain;
    if (in->buf != NULL && p >= in->buf->data && p <= in->buf->data + in->buf->cap) {
        in->buf->off = (uint32_t)(p - in->buf->data);
        in->buf->len = (uint32_t)n;
    } else if (n > 0) {
        gw_buf_put(bufs, in->buf);
        in->buf = NULL;
        room = gw_buf_room(bufs, &in->buf, n);
        if (room == NULL)
            return UV_ENOMEM;
        memcpy(room, p, n);
        in->buf->len = (uint32_t)n;
    }
    if (n == 0) {
        gw_buf_put(bufs, in->buf);
        in->buf = NULL;
    }
    return 0;
}

int gw_in_keep_part(struct gw_bufs *bufs, struct gw_in *in, char *p, size_t n,
                    const struct gw_body_part *part, size_t taken)
{
    size_t rest = part->plain - taken;
    char *start = p + part->used - rest;

    /* Decoding left a hole where framing was: close it, so that the rest is one piece. */
    memmove(start, p + taken, rest);
    return gw_in_keep(bufs, in, start, rest + n - part->used, rest);
}
