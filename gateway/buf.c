/* SPDX-License-Identifier: MIT */
#include "gateway/buf.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t class_cap[GW_BUF_CLASSES] = {4 * 1024, 16 * 1024, 40 * 1024, 136 * 1024};
/* What a worker keeps for reuse: 1 MiB of each of the smaller ones, 2 MiB of the largest. */
static const uint32_t class_keep[GW_BUF_CLASSES] = {256, 64, 26, 15};

struct gw_buf *gw_buf_get(struct gw_bufs *bufs, size_t size)
{
    struct gw_buf *buf;
    size_t cap = size;

    if (size > UINT32_MAX / 2)
        return NULL;
    for (int i = 0; i < GW_BUF_CLASSES; i++) {
        if (size > class_cap[i])
            continue;
        buf = bufs->free[i];
        if (buf != NULL) {
            bufs->free[i] = buf->next;
            bufs->n_free[i]--;
            buf->off = buf->len = 0;
            return buf;
        }
        cap = class_cap[i];
        break;
    }
    buf = malloc(sizeof(*buf) + cap);
    if (buf == NULL)
        return NULL;
    buf->next = NULL;
    buf->cap = (uint32_t)cap;
    buf->off = buf->len = 0;
    return buf;
}

void gw_buf_put(struct gw_bufs *bufs, struct gw_buf *buf)
{
    if (buf == NULL)
        return;
    for (int i = 0; i < GW_BUF_CLASSES; i++) {
        if (buf->cap == class_cap[i] && bufs->n_free[i] < class_keep[i]) {
            buf->next = bufs->free[i];
            bufs->free[i] = buf;
            bufs->n_free[i]++;
            return;
        }
    }
    free(buf);
}

char *gw_buf_room(struct gw_bufs *bufs, struct gw_buf **buf, size_t n)
{
    struct gw_buf *old = *buf, *fresh;

    if (old != NULL && old->cap - old->off - old->len >= n)
        return old->data + old->off + old->len;
    if (old != NULL && old->cap - old->len >= n) {
        memmove(old->data, old->data + old->off, old->len);
        old->off = 0;
        return old->data + old->len;
    }
    fresh = gw_buf_get(bufs, gw_buf_len(old) + n);
    if (fresh == NULL)
        return NULL;
    if (old != NULL) {
        memcpy(fresh->data, old->data + old->off, old->len);
        fresh->len = old->len;
        gw_buf_put(bufs, old);
    }
    *buf = fresh;
    return fresh->data + fresh->len;
}

void gw_bufs_fini(struct gw_bufs *bufs)
{
    for (int i = 0; i < GW_BUF_CLASSES; i++) {
        while (bufs->free[i] != NULL) {
            struct gw_buf *next = bufs->free[i]->next;

            free(bufs->free[i]);
            bufs->free[i] = next;
        }
        bufs->n_free[i] = 0;
    }
}
