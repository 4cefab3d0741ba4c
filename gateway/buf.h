/* SPDX-License-Identifier: MIT */
/* Byte buffers of a worker, recycled so that a request allocates nothing in steady state. Between
 * requests a connection holds none. */
#ifndef GATEWAY_BUF_H
#define GATEWAY_BUF_H

#include <stddef.h>
#include <stdint.h>

struct gw_buf {
    struct gw_buf *next;    /* free list */
    uint32_t cap, off, len; /* data[off..off+len) is filled */
    char data[];
};

#define GW_BUF_CLASSES 4

/* Per worker, zeroed at first. */
struct gw_bufs {
    struct gw_buf *free[GW_BUF_CLASSES];
    uint32_t n_free[GW_BUF_CLASSES];
};

/* A buffer with room for at least size bytes, or NULL when there is no memory. */
struct gw_buf *gw_buf_get(struct gw_bufs *bufs, size_t size);
/* NULL is allowed. */
void gw_buf_put(struct gw_bufs *bufs, struct gw_buf *buf);
/* Make room for n more bytes behind what is filled, which may move. Returns NULL (and *buf is as
 * before) when there is no memory. *buf may be NULL. */
char *gw_buf_room(struct gw_bufs *bufs, struct gw_buf **buf, size_t n);
void gw_bufs_fini(struct gw_bufs *bufs);

static inline char *gw_buf_begin(struct gw_buf *buf)
{
    return buf->data + buf->off;
}

static inline size_t gw_buf_len(const struct gw_buf *buf)
{
    return buf != NULL ? buf->len : 0;
}

/* Drop n bytes at the front; an empty buffer goes back and *buf becomes NULL. */
static inline void gw_buf_consume(struct gw_bufs *bufs, struct gw_buf **buf, size_t n)
{
    (*buf)->off += (uint32_t)n;
    (*buf)->len -= (uint32_t)n;
    if ((*buf)->len == 0) {
        gw_buf_put(bufs, *buf);
        *buf = NULL;
    }
}

#endif
