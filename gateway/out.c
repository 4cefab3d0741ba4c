/* SPDX-License-Identifier: MIT */
#include "gateway/out.h"

#include <string.h>
#include <uv.h>

#include "gateway/chunked.h"

#define LAST_CHUNK "0\r\n\r\n"

static void release(struct gw_bufs *bufs, struct gw_out *out)
{
    if (!out->borrowed)
        gw_buf_put(bufs, out->pending);
    out->pending = NULL;
    out->borrowed = false;
}

void gw_out_reset(struct gw_bufs *bufs, struct gw_out *out)
{
    release(bufs, out);
    memset(out, 0, sizeof(*out));
}

int gw_out_append(struct gw_bufs *bufs, struct gw_out *out, const char *data, size_t len)
{
    char *room;

    if (out->borrowed) { /* leave its owner's bytes alone */
        struct gw_buf *copy = gw_buf_get(bufs, out->pending->len + len);

        if (copy == NULL)
            return UV_ENOMEM;
        memcpy(copy->data, gw_buf_begin(out->pending), out->pending->len);
        copy->len = out->pending->len;
        out->pending = copy;
        out->borrowed = false;
    }
    room = gw_buf_room(bufs, &out->pending, len);
    if (room == NULL)
        return UV_ENOMEM;
    memcpy(room, data, len);
    out->pending->len += (uint32_t)len;
    return 0;
}

int gw_out_trailers(struct gw_bufs *bufs, struct gw_out *out, const struct gw_field *fields,
                    size_t n_fields)
{
    int r = gw_out_append(bufs, out, "0\r\n", 3);

    for (size_t i = 0; r == 0 && i < n_fields; i++) {
        r = gw_out_append(bufs, out, fields[i].name, fields[i].name_len);
        if (r == 0)
            r = gw_out_append(bufs, out, ": ", 2);
        if (r == 0 && fields[i].value_len > 0)
            r = gw_out_append(bufs, out, fields[i].value, fields[i].value_len);
        if (r == 0)
            r = gw_out_append(bufs, out, "\r\n", 2);
    }
    if (r == 0)
        r = gw_out_append(bufs, out, "\r\n", 2);
    out->ended = true;
    return r;
}

/* One system call's worth: pending, then the framing and bytes of at most one chunk. */
struct batch {
    struct iovec iov[4];
    int n;
    char line[20]; /* the chunk's first line */
    size_t line_len, body_len, tail_len;
    const char *tail; /* what follows the body bytes */
    size_t total;
};

static void add(struct batch *b, const void *p, size_t len)
{
    if (len == 0)
        return;
    b->iov[b->n].iov_base = (void *)p;
    b->iov[b->n].iov_len = len;
    b->n++;
    b->total += len;
}

static void plan(struct batch *b, const struct gw_out *out, const char *data, size_t len, bool last)
{
    memset(b, 0, offsetof(struct batch, line));
    b->line_len = b->tail_len = b->total = 0;
    b->body_len = len;
    if (out->pending != NULL)
        add(b, gw_buf_begin(out->pending), out->pending->len);
    if (out->framing != GW_BODY_CHUNKED || out->ended) {
        add(b, data, len);
        return;
    }
    if (out->chunk_left > 0) { /* its line went out earlier */
        if (len > out->chunk_left)
            b->body_len = (size_t)out->chunk_left;
    } else if (len > 0) {
        b->line_len = gw_chunked_line(b->line, len);
    }
    last = last && b->body_len == len;
    if (len > 0) {
        bool whole = out->chunk_left == 0 || b->body_len == out->chunk_left;

        b->tail = "\r\n" LAST_CHUNK;
        b->tail_len = !whole ? 0 : last ? sizeof("\r\n" LAST_CHUNK) - 1 : 2;
    } else if (last) {
        b->tail = LAST_CHUNK;
        b->tail_len = sizeof(LAST_CHUNK) - 1;
    }
    add(b, b->line, b->line_len);
    add(b, data, b->body_len);
    add(b, b->tail, b->tail_len);
}

/* n bytes of the batch went out. What was begun must be finished: its framing becomes pending, its
 * body bytes chunk_left. Returns the body bytes taken. */
static ssize_t settle(struct gw_bufs *bufs, struct gw_out *out, const struct batch *b, size_t n)
{
    size_t body;
    int r;

    if (out->pending != NULL) {
        size_t part = n < out->pending->len ? n : out->pending->len;

        out->pending->off += (uint32_t)part;
        out->pending->len -= (uint32_t)part;
        n -= part;
        if (out->pending->len > 0)
            return 0;
        release(bufs, out);
    }
    if (n == 0)
        return 0;
    if (n < b->line_len) {
        out->chunk_left = b->body_len;
        r = gw_out_append(bufs, out, b->line + n, b->line_len - n);
        return r < 0 ? r : 0;
    }
    n -= b->line_len;
    body = n < b->body_len ? n : b->body_len;
    n -= body;
    if (out->framing == GW_BODY_CHUNKED)
        out->chunk_left = (b->line_len > 0 ? b->body_len : out->chunk_left) - body;
    if (body == b->body_len && b->tail_len > 0) {
        if (b->tail_len != 2)
            out->ended = true;
        if (n < b->tail_len) {
            r = gw_out_append(bufs, out, b->tail + n, b->tail_len - n);
            if (r < 0)
                return r;
        }
    }
    return (ssize_t)body;
}

ssize_t gw_out_write(struct gw_bufs *bufs, struct gw_out *out, struct gw_sock *sock,
                     const char *data, size_t len, bool last)
{
    size_t taken = 0;

    for (;;) {
        struct batch b;
        ssize_t n, body;

        plan(&b, out, data + taken, len - taken, last);
        if (b.n == 0)
            break;
        n = gw_sock_writev(sock, b.iov, b.n);
        if (n < 0)
            return n;
        body = settle(bufs, out, &b, (size_t)n);
        if (body < 0)
            return body;
        taken += (size_t)body;
        if ((size_t)n < b.total || taken == len)
            break;
    }
    if (taken == len && last && out->framing != GW_BODY_CHUNKED)
        out->ended = true;
    return (ssize_t)taken;
}
