/* SPDX-License-Identifier: MIT */
#include "sync/wire_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include <zstd.h>

#define BLOCK_HEAD 8
#define MSG_HEAD   5
#define LEVEL      1
/* Raw bytes at which a block is made without being asked: a message always fits behind them. */
#define BLOCK_FULL (SYNC_BLOCK_MAX - SYNC_MSG_ROOM)

static void put_u32(uint8_t *at, size_t v)
{
    for (size_t i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static size_t get_u32(const uint8_t *at)
{
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

/* ---- writing ---- */

struct sync_pack {
    bool zip;
    struct sync_buf raw;
    ZSTD_CCtx *zstd;
    uint8_t *out;
    size_t out_at, out_len, out_cap; /* out_at: taken already */
};

int sync_pack_new(bool zip, struct sync_pack **out)
{
    struct sync_pack *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return UV_ENOMEM;
    p->zip = zip;
    p->raw.bytes = malloc(SYNC_BLOCK_MAX);
    p->out_cap = 4096;
    p->out = malloc(p->out_cap);
    if (p->raw.bytes == NULL || p->out == NULL) {
        sync_pack_free(p);
        return UV_ENOMEM;
    }
    p->out[p->out_len++] = SYNC_WIRE_VERSION;
    *out = p;
    return 0;
}

void sync_pack_free(struct sync_pack *p)
{
    if (p == NULL)
        return;
    ZSTD_freeCCtx(p->zstd);
    free(p->raw.bytes);
    free(p->out);
    free(p);
}

static int reserve(struct sync_pack *p, size_t more)
{
    size_t cap = p->out_cap;
    uint8_t *grown;

    if (p->out_at > 0) {
        memmove(p->out, p->out + p->out_at, p->out_len - p->out_at);
        p->out_len -= p->out_at;
        p->out_at = 0;
    }
    while (cap - p->out_len < more)
        cap *= 2;
    if (cap == p->out_cap)
        return 0;
    grown = realloc(p->out, cap);
    if (grown == NULL)
        return UV_ENOMEM;
    p->out = grown;
    p->out_cap = cap;
    return 0;
}

/* Returns how many bytes the block has on the wire. Without memory to compress it goes as it is. */
static size_t squeeze(struct sync_pack *p, uint8_t *to)
{
    size_t n = p->raw.len;

    if (p->zip && n >= SYNC_BLOCK_ZIP && p->zstd == NULL)
        p->zstd = ZSTD_createCCtx();
    if (p->zip && n >= SYNC_BLOCK_ZIP && p->zstd != NULL)
        n = ZSTD_compressCCtx(p->zstd, to, p->raw.len - p->raw.len / 16, p->raw.bytes, p->raw.len,
                              LEVEL);
    if (n < p->raw.len && !ZSTD_isError(n))
        return n;
    memcpy(to, p->raw.bytes, p->raw.len); /* no gain */
    return p->raw.len;
}

int sync_pack_flush(struct sync_pack *p)
{
    uint8_t *head;
    size_t n;

    if (p->raw.len == 0)
        return 0;
    if (reserve(p, BLOCK_HEAD + p->raw.len) != 0)
        return UV_ENOMEM;
    head = p->out + p->out_len;
    n = squeeze(p, head + BLOCK_HEAD);
    put_u32(head, n);
    put_u32(head + 4, p->raw.len);
    p->out_len += BLOCK_HEAD + n;
    p->raw.len = 0;
    return 0;
}

int sync_pack_add(struct sync_pack *p, const struct sync_msg *msg)
{
    int r = p->raw.len > BLOCK_FULL ? sync_pack_flush(p) : 0;

    return r != 0 ? r : sync_msg_put(&p->raw, msg);
}

size_t sync_pack_waiting(const struct sync_pack *p)
{
    return p->raw.len;
}

const uint8_t *sync_pack_bytes(const struct sync_pack *p, size_t *len)
{
    *len = p->out_len - p->out_at;
    return p->out + p->out_at;
}

void sync_pack_taken(struct sync_pack *p, size_t len)
{
    p->out_at += len;
    if (p->out_at == p->out_len) {
        p->out_at = p->out_len = 0;
    }
}

/* ---- reading ---- */

struct sync_unpack {
    bool has_version, broken;
    uint8_t head[BLOCK_HEAD];
    size_t n_head;
    size_t wire_len, raw_len; /* of the block under way; once its head is complete */
    uint8_t *wire;            /* its bytes so far; SYNC_BLOCK_MAX */
    size_t n_wire;
    uint8_t *raw; /* what of the last blocks was not read: less than a message, and a block */
    size_t raw_at, raw_end;
    ZSTD_DCtx *zstd;
};

int sync_unpack_new(struct sync_unpack **out)
{
    struct sync_unpack *u = calloc(1, sizeof(*u));

    if (u == NULL)
        return UV_ENOMEM;
    *out = u;
    return 0;
}

void sync_unpack_free(struct sync_unpack *u)
{
    if (u == NULL)
        return;
    ZSTD_freeDCtx(u->zstd);
    free(u->wire);
    free(u->raw);
    free(u);
}

static bool has_block(const struct sync_unpack *u)
{
    return u->n_head == BLOCK_HEAD && u->n_wire == u->wire_len;
}

static size_t feed_head(struct sync_unpack *u, const uint8_t *bytes, size_t len)
{
    size_t n = BLOCK_HEAD - u->n_head;

    if (!u->has_version) {
        u->has_version = true;
        u->broken = bytes[0] != SYNC_WIRE_VERSION;
        return 1;
    }
    if (n > len)
        n = len;
    memcpy(u->head + u->n_head, bytes, n);
    u->n_head += n;
    if (u->n_head < BLOCK_HEAD)
        return n;
    u->wire_len = get_u32(u->head);
    u->raw_len = get_u32(u->head + 4);
    u->n_wire = 0;
    if (u->wire_len == 0 || u->wire_len > u->raw_len || u->raw_len > SYNC_BLOCK_MAX)
        u->broken = true;
    return n;
}

size_t sync_unpack_feed(struct sync_unpack *u, const uint8_t *bytes, size_t len)
{
    size_t at = 0;

    while (at < len && !u->broken && !has_block(u)) {
        size_t n;

        if (u->n_head < BLOCK_HEAD) {
            at += feed_head(u, bytes + at, len - at);
            continue;
        }
        if (u->wire == NULL && (u->wire = malloc(SYNC_BLOCK_MAX)) == NULL)
            break; /* said by sync_unpack_next() */
        n = u->wire_len - u->n_wire < len - at ? u->wire_len - u->n_wire : len - at;
        memcpy(u->wire + u->n_wire, bytes + at, n);
        u->n_wire += n;
        at += n;
    }
    return u->broken ? len : at;
}

/* The block that is complete goes behind what is left of the last. */
static int open_block(struct sync_unpack *u)
{
    size_t n = u->wire_len;

    assert(u->wire != NULL); /* the block is complete, and no block is empty */
    if (u->raw == NULL && (u->raw = malloc(SYNC_MSG_ROOM + SYNC_BLOCK_MAX)) == NULL)
        return UV_ENOMEM;
    if (u->wire_len < u->raw_len && u->zstd == NULL && (u->zstd = ZSTD_createDCtx()) == NULL)
        return UV_ENOMEM;
    memmove(u->raw, u->raw + u->raw_at, u->raw_end - u->raw_at);
    u->raw_end -= u->raw_at;
    u->raw_at = 0;
    if (u->wire_len < u->raw_len)
        n = ZSTD_decompressDCtx(u->zstd, u->raw + u->raw_end, u->raw_len, u->wire, u->wire_len);
    else
        memcpy(u->raw + u->raw_end, u->wire, n);
    if (n != u->raw_len) /* an error of zstd is no length */
        return UV_EPROTO;
    u->raw_end += n;
    u->n_head = u->n_wire = 0;
    return 0;
}

/* Returns 1, 0: not all of it is here, or UV_EPROTO. */
static int next_msg(struct sync_unpack *u, struct sync_msg *msg)
{
    size_t left = u->raw_end - u->raw_at, len;
    const uint8_t *at = u->raw + u->raw_at;
    int r;

    if (left < MSG_HEAD)
        return 0;
    len = get_u32(at + 1);
    if (len > SYNC_MSG_MAX)
        return UV_EPROTO;
    if (left < MSG_HEAD + len)
        return 0;
    r = sync_msg_parse(at[0], at + MSG_HEAD, len, msg);
    u->raw_at += MSG_HEAD + len;
    return r == 0 ? 1 : r;
}

int sync_unpack_next(struct sync_unpack *u, struct sync_msg *msg)
{
    int r = u->broken ? UV_EPROTO : 0;

    while (r == 0) {
        r = u->raw == NULL ? 0 : next_msg(u, msg);
        if (r != 0)
            break;
        if (u->n_head == BLOCK_HEAD && u->wire == NULL && u->wire_len > 0) {
            u->wire = malloc(SYNC_BLOCK_MAX);
            return u->wire == NULL ? UV_ENOMEM : 0;
        }
        if (!has_block(u))
            return 0;
        r = open_block(u);
    }
    if (r < 0 && r != UV_ENOMEM)
        u->broken = true;
    return r;
}

bool sync_unpack_at_end(const struct sync_unpack *u)
{
    return u->has_version && !u->broken && u->n_head == 0 && u->raw_at == u->raw_end;
}
