/* SPDX-License-Identifier: MIT */
#include "sync/zip.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define ZLIB_CONST
#include <zlib.h>

#define VERSION     20 /* deflate */
#define VERSION_64  45
#define MADE_BY     (3 << 8 | VERSION_64) /* Unix: the upper half of the attributes is a mode */
#define SIZES_AFTER 0x0008
#define UTF8_NAME   0x0800
#define BIG         UINT64_C(0xff000000) /* from here on the 64-bit forms */

struct sync_zip {
    z_stream deflate;
    bool is_ready; /* deflate is to be ended */
    uint16_t time, date;
    uint64_t offset; /* of the archive's next byte */
    struct sync_buf directory;
    uint64_t n_entries;
    /* the entry under way */
    char *name;
    uint32_t mode, crc;
    uint16_t flags;
    bool is_big;
    uint64_t start, packed, plain;
};

/* ---- bytes ---- */

int sync_buf_add(struct sync_buf *buf, const void *data, size_t len)
{
    if (buf->len + len > buf->size) {
        size_t size = buf->size ? buf->size : 1024;
        uint8_t *grown;

        while (size < buf->len + len)
            size *= 2;
        grown = realloc(buf->data, size);
        if (grown == NULL)
            return -ENOMEM;
        buf->data = grown;
        buf->size = size;
    }
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    return 0;
}

void sync_buf_free(struct sync_buf *buf)
{
    free(buf->data);
    memset(buf, 0, sizeof(*buf));
}

/* A record: little endian numbers one after the other, at most 64 bytes. */
struct record {
    uint8_t bytes[64];
    size_t len;
};

static void put(struct record *r, int n_bytes, uint64_t value)
{
    for (int i = 0; i < n_bytes; i++)
        r->bytes[r->len++] = (uint8_t)(value >> (8 * i));
}

static uint32_t cut(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* ---- the archive ---- */

static void dos_time(int64_t time_s, uint16_t *time_out, uint16_t *date_out)
{
    time_t t = (time_t)time_s;
    struct tm tm;

    *time_out = 0;
    *date_out = 1 << 5 | 1; /* 1980-01-01 */
    if (gmtime_r(&t, &tm) == NULL || tm.tm_year < 80 || tm.tm_year > 207)
        return;
    *time_out = (uint16_t)(tm.tm_hour << 11 | tm.tm_min << 5 | tm.tm_sec / 2);
    *date_out = (uint16_t)((tm.tm_year - 80) << 9 | (tm.tm_mon + 1) << 5 | tm.tm_mday);
}

int sync_zip_new(int64_t time_s, struct sync_zip **out)
{
    struct sync_zip *zip = calloc(1, sizeof(*zip));

    /* Negative window: raw deflate. */
    if (zip == NULL || deflateInit2(&zip->deflate, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                                    Z_DEFAULT_STRATEGY) != Z_OK) {
        free(zip);
        return -ENOMEM;
    }
    zip->is_ready = true;
    dos_time(time_s, &zip->time, &zip->date);
    *out = zip;
    return 0;
}

void sync_zip_free(struct sync_zip *zip)
{
    if (zip == NULL)
        return;
    if (zip->is_ready)
        (void)deflateEnd(&zip->deflate);
    sync_buf_free(&zip->directory);
    free(zip->name);
    free(zip);
}

static bool is_utf8(const char *name)
{
    const unsigned char *s = (const unsigned char *)name;

    while (*s) {
        int n = *s < 0x80 ? 0 : (*s & 0xe0) == 0xc0 ? 1 : (*s & 0xf0) == 0xe0 ? 2 : 3;

        if (*s >= 0x80 && (*s < 0xc2 || *s > 0xf4))
            return false;
        for (s++; n > 0; n--, s++) {
            if ((*s & 0xc0) != 0x80)
                return false;
        }
    }
    return true;
}

static int add(struct sync_zip *zip, struct sync_buf *buf, const void *data, size_t len)
{
    zip->offset += len;
    return sync_buf_add(buf, data, len);
}

int sync_zip_begin(struct sync_zip *zip, struct sync_buf *buf, const char *name, uint32_t mode,
                   uint64_t size)
{
    size_t name_len = strlen(name);
    struct record r = {.len = 0};
    int status;

    if (name_len > UINT16_MAX)
        return -EINVAL;
    free(zip->name);
    zip->name = strdup(name);
    if (zip->name == NULL || deflateReset(&zip->deflate) != Z_OK)
        return -ENOMEM;
    zip->mode = mode;
    zip->crc = (uint32_t)crc32(0, NULL, 0);
    zip->flags = SIZES_AFTER | (is_utf8(name) ? UTF8_NAME : 0);
    zip->is_big = size >= BIG;
    zip->start = zip->offset;
    zip->packed = zip->plain = 0;
    put(&r, 4, 0x04034b50);
    put(&r, 2, zip->is_big ? VERSION_64 : VERSION);
    put(&r, 2, zip->flags);
    put(&r, 2, Z_DEFLATED);
    put(&r, 2, zip->time);
    put(&r, 2, zip->date);
    put(&r, 4, 0); /* CRC and sizes follow the data */
    put(&r, 4, zip->is_big ? UINT32_MAX : 0);
    put(&r, 4, zip->is_big ? UINT32_MAX : 0);
    put(&r, 2, name_len);
    put(&r, 2, zip->is_big ? 20 : 0);
    status = add(zip, buf, r.bytes, r.len);
    if (status == 0)
        status = add(zip, buf, name, name_len);
    if (status != 0 || !zip->is_big)
        return status;
    r.len = 0;
    put(&r, 2, 1); /* the 64-bit sizes, which are in what follows the data */
    put(&r, 2, 16);
    put(&r, 8, 0);
    put(&r, 8, 0);
    return add(zip, buf, r.bytes, r.len);
}

static int pump(struct sync_zip *zip, struct sync_buf *buf, const void *data, size_t len, int flush)
{
    uint8_t out[16384];
    int status;

    zip->deflate.next_in = data;
    zip->deflate.avail_in = (uInt)len;
    do {
        size_t n;

        zip->deflate.next_out = out;
        zip->deflate.avail_out = sizeof(out);
        status = deflate(&zip->deflate, flush);
        if (status == Z_STREAM_ERROR)
            return -EINVAL;
        n = sizeof(out) - zip->deflate.avail_out;
        zip->packed += n;
        if (add(zip, buf, out, n) != 0)
            return -ENOMEM;
    } while (zip->deflate.avail_out == 0 || (flush == Z_FINISH && status != Z_STREAM_END));
    return 0;
}

int sync_zip_data(struct sync_zip *zip, struct sync_buf *buf, const void *data, size_t len)
{
    zip->crc = (uint32_t)crc32(zip->crc, data, (uInt)len);
    zip->plain += len;
    return pump(zip, buf, data, len, Z_NO_FLUSH);
}

static int add_to_directory(struct sync_zip *zip)
{
    bool is_far = zip->start >= UINT32_MAX, is_big = zip->is_big;
    size_t name_len = strlen(zip->name);
    struct record r = {.len = 0}, extra = {.len = 0};
    int status;

    if (is_big || is_far) {
        put(&extra, 2, 1);
        put(&extra, 2, (is_big ? 16 : 0) + (is_far ? 8 : 0));
        if (is_big) {
            put(&extra, 8, zip->plain);
            put(&extra, 8, zip->packed);
        }
        if (is_far)
            put(&extra, 8, zip->start);
    }
    put(&r, 4, 0x02014b50);
    put(&r, 2, MADE_BY);
    put(&r, 2, extra.len > 0 ? VERSION_64 : VERSION);
    put(&r, 2, zip->flags);
    put(&r, 2, Z_DEFLATED);
    put(&r, 2, zip->time);
    put(&r, 2, zip->date);
    put(&r, 4, zip->crc);
    put(&r, 4, is_big ? UINT32_MAX : zip->packed);
    put(&r, 4, is_big ? UINT32_MAX : zip->plain);
    put(&r, 2, name_len);
    put(&r, 2, extra.len);
    put(&r, 2, 0); /* comment */
    put(&r, 2, 0); /* disk */
    put(&r, 2, 0); /* internal attributes */
    put(&r, 4, (uint64_t)(zip->mode & 0xffff) << 16);
    put(&r, 4, cut(zip->start));
    status = sync_buf_add(&zip->directory, r.bytes, r.len);
    if (status == 0)
        status = sync_buf_add(&zip->directory, zip->name, name_len);
    if (status == 0)
        status = sync_buf_add(&zip->directory, extra.bytes, extra.len);
    zip->n_entries++;
    return status;
}

int sync_zip_end(struct sync_zip *zip, struct sync_buf *buf)
{
    struct record r = {.len = 0};
    int status = pump(zip, buf, NULL, 0, Z_FINISH);

    if (status != 0)
        return status;
    put(&r, 4, 0x08074b50);
    put(&r, 4, zip->crc);
    put(&r, zip->is_big ? 8 : 4, zip->packed);
    put(&r, zip->is_big ? 8 : 4, zip->plain);
    status = add(zip, buf, r.bytes, r.len);
    return status == 0 ? add_to_directory(zip) : status;
}

int sync_zip_finish(struct sync_zip *zip, struct sync_buf *buf)
{
    uint64_t start = zip->offset, size = zip->directory.len, end = start + size;
    bool is_big = zip->n_entries >= UINT16_MAX || end >= UINT32_MAX;
    struct record r = {.len = 0};
    int status = add(zip, buf, zip->directory.data, zip->directory.len);

    if (status == 0 && is_big) {
        put(&r, 4, 0x06064b50);
        put(&r, 8, 44);
        put(&r, 2, MADE_BY);
        put(&r, 2, VERSION_64);
        put(&r, 4, 0);
        put(&r, 4, 0);
        put(&r, 8, zip->n_entries);
        put(&r, 8, zip->n_entries);
        put(&r, 8, size);
        put(&r, 8, start);
        status = add(zip, buf, r.bytes, r.len);
        r.len = 0;
        put(&r, 4, 0x07064b50);
        put(&r, 4, 0);
        put(&r, 8, end);
        put(&r, 4, 1);
        if (status == 0)
            status = add(zip, buf, r.bytes, r.len);
        r.len = 0;
    }
    put(&r, 4, 0x06054b50);
    put(&r, 2, 0);
    put(&r, 2, 0);
    put(&r, 2, is_big ? UINT16_MAX : zip->n_entries);
    put(&r, 2, is_big ? UINT16_MAX : zip->n_entries);
    put(&r, 4, is_big ? UINT32_MAX : size);
    put(&r, 4, is_big ? UINT32_MAX : start);
    put(&r, 2, 0); /* comment */
    return status == 0 ? add(zip, buf, r.bytes, r.len) : status;
}
