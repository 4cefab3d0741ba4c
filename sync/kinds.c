/* SPDX-License-Identifier: MIT */
#include "sync/kinds.h"

#include <string.h>
#include <strings.h>

/* What a name promises. */
enum { NAME_OTHER, NAME_PICTURE, NAME_PDF, NAME_ZIPPED, NAME_COMPOUND };

enum { ENC_UTF8, ENC_UTF16_LE, ENC_UTF16_BE };

static const struct {
    const char *ending;
    uint8_t name;
} endings[] = {
    {"png", NAME_PICTURE},  {"jpg", NAME_PICTURE},  {"jpeg", NAME_PICTURE}, {"jpe", NAME_PICTURE},
    {"jfif", NAME_PICTURE}, {"webp", NAME_PICTURE}, {"gif", NAME_PICTURE},  {"pdf", NAME_PDF},
    {"docx", NAME_ZIPPED},  {"xlsx", NAME_ZIPPED},  {"pptx", NAME_ZIPPED},  {"odt", NAME_ZIPPED},
    {"ods", NAME_ZIPPED},   {"odp", NAME_ZIPPED},   {"doc", NAME_COMPOUND}, {"xls", NAME_COMPOUND},
    {"ppt", NAME_COMPOUND},
};

static const struct {
    uint8_t at, len;
    const char *bytes;
    enum sync_kind kind;
    uint8_t name; /* what the name must promise */
} signatures[] = {
    {0, 8, "\x89PNG\r\n\x1a\n", SYNC_KIND_PNG, NAME_PICTURE},
    {0, 3, "\xff\xd8\xff", SYNC_KIND_JPEG, NAME_PICTURE},
    {8, 4, "WEBP", SYNC_KIND_WEBP, NAME_PICTURE}, /* behind "RIFF" and a length */
    {0, 6, "GIF87a", SYNC_KIND_GIF, NAME_PICTURE},
    {0, 6, "GIF89a", SYNC_KIND_GIF, NAME_PICTURE},
    {0, 5, "%PDF-", SYNC_KIND_PDF, NAME_PDF},
    {0, 4, "PK\x03\x04", SYNC_KIND_DOCUMENT, NAME_ZIPPED},
    {0, 8, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", SYNC_KIND_DOCUMENT, NAME_COMPOUND},
};

static uint8_t name_of(const char *name, size_t len)
{
    const char *dot = len > 0 ? memrchr(name, '.', len) : NULL;
    size_t n;

    if (dot == NULL)
        return NAME_OTHER;
    n = len - (size_t)(++dot - name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (strlen(endings[i].ending) == n && strncasecmp(endings[i].ending, dot, n) == 0)
            return endings[i].name;
    return NAME_OTHER;
}

/* The index of the signature at the start of the file, or -1. */
static int signature_of(const struct sync_kind_scan *scan)
{
    for (size_t i = 0; i < sizeof(signatures) / sizeof(signatures[0]); i++) {
        if ((size_t)signatures[i].at + signatures[i].len > scan->n_head ||
            memcmp(scan->head + signatures[i].at, signatures[i].bytes, signatures[i].len) != 0)
            continue;
        if (signatures[i].kind == SYNC_KIND_WEBP && memcmp(scan->head, "RIFF", 4) != 0)
            continue;
        return (int)i;
    }
    return -1;
}

static bool is_as_named(const struct sync_kind_scan *scan)
{
    int i = signature_of(scan);

    return i >= 0 && signatures[i].name == scan->name;
}

void sync_kind_start(struct sync_kind_scan *scan, const char *name, size_t name_len)
{
    memset(scan, 0, sizeof(*scan));
    scan->name = name_of(name, name_len);
}

/* The first byte of a character (RFC 3629, section 4), or false. */
static bool utf8_first(struct sync_kind_scan *scan, uint8_t b)
{
    scan->low = 0x80;
    scan->high = 0xbf;
    if (b < 0x80)
        return b != 0;
    if (b < 0xc2 || b > 0xf4)
        return false;
    if (b < 0xe0) {
        scan->n_due = 1;
        return true;
    }
    scan->n_due = b < 0xf0 ? 2 : 3;
    if (b == 0xe0)
        scan->low = 0xa0; /* no longer form than needed */
    else if (b == 0xed)
        scan->high = 0x9f; /* no surrogates */
    else if (b == 0xf0)
        scan->low = 0x90;
    else if (b == 0xf4)
        scan->high = 0x8f; /* U+10FFFF is the last */
    return true;
}

static bool utf8_next(struct sync_kind_scan *scan, uint8_t b)
{
    if (scan->n_due == 0)
        return utf8_first(scan, b);
    if (b < scan->low || b > scan->high)
        return false;
    scan->n_due--;
    scan->low = 0x80;
    scan->high = 0xbf;
    return true;
}

static bool utf16_next(struct sync_kind_scan *scan, uint8_t b)
{
    unsigned unit;

    if (scan->n_due == 0) {
        scan->half = b;
        scan->n_due = 1;
        return true;
    }
    scan->n_due = 0;
    unit = scan->encoding == ENC_UTF16_LE ? scan->half | (unsigned)b << 8
                                          : b | (unsigned)scan->half << 8;
    if (scan->is_pair) {
        scan->is_pair = false;
        return unit >= 0xdc00 && unit <= 0xdfff;
    }
    scan->is_pair = unit >= 0xd800 && unit <= 0xdbff;
    return unit != 0 && (unit < 0xdc00 || unit > 0xdfff);
}

static void read_text(struct sync_kind_scan *scan, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool is_good = scan->encoding == ENC_UTF8 ? utf8_next(scan, p[i]) : utf16_next(scan, p[i]);

        if (!is_good) {
            scan->is_not_text = true;
            return;
        }
    }
}

bool sync_kind_feed(struct sync_kind_scan *scan, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;

    while (len > 0 && scan->n_head < SYNC_KIND_HEAD) {
        uint8_t at = scan->n_head++, b = *p++;

        len--;
        scan->head[at] = b;
        if (at == 0 && b >= 0xfe) {
            scan->encoding = b == 0xff ? ENC_UTF16_LE : ENC_UTF16_BE;
            continue;
        }
        if (at == 1 && scan->encoding != ENC_UTF8) {
            scan->is_not_text = b != (scan->encoding == ENC_UTF16_LE ? 0xfe : 0xff);
            continue;
        }
        if (!scan->is_not_text)
            read_text(scan, &b, 1);
    }
    if (scan->n_head == SYNC_KIND_HEAD) {
        /* A picture whose first bytes happen to be text may not have to be read to its end. */
        if (is_as_named(scan))
            return false;
        if (!scan->is_not_text)
            read_text(scan, p, len);
        return !scan->is_not_text;
    }
    return true;
}

enum sync_kind sync_kind_end(const struct sync_kind_scan *scan)
{
    bool has_mark = scan->encoding == ENC_UTF8 || scan->n_head >= 2;
    int i;

    if (is_as_named(scan))
        return signatures[signature_of(scan)].kind;
    if (!scan->is_not_text && scan->n_due == 0 && !scan->is_pair && has_mark)
        return SYNC_KIND_TEXT;
    if (scan->name != NAME_OTHER)
        return SYNC_KIND_MISMATCH;
    /* Every archive is a ZIP, and much else is a compound file: that tells no story. */
    i = signature_of(scan);
    return i >= 0 && signatures[i].kind != SYNC_KIND_DOCUMENT ? SYNC_KIND_MISMATCH
                                                              : SYNC_KIND_BINARY;
}

enum sync_kind sync_kind_of(const char *name, size_t name_len, const void *bytes, size_t len)
{
    struct sync_kind_scan scan;

    sync_kind_start(&scan, name, name_len);
    (void)sync_kind_feed(&scan, bytes, len);
    return sync_kind_end(&scan);
}

bool sync_kind_is_wanted(enum sync_kind kind)
{
    return kind != SYNC_KIND_BINARY && kind != SYNC_KIND_MISMATCH;
}

static const struct {
    const char *name, *media_type;
} about[] = {
    [SYNC_KIND_TEXT] = {"text", "text/plain"},
    [SYNC_KIND_PNG] = {"png", "image/png"},
    [SYNC_KIND_JPEG] = {"jpeg", "image/jpeg"},
    [SYNC_KIND_WEBP] = {"webp", "image/webp"},
    [SYNC_KIND_GIF] = {"gif", "image/gif"},
    [SYNC_KIND_PDF] = {"pdf", "application/pdf"},
    [SYNC_KIND_DOCUMENT] = {"document", "application/octet-stream"},
    [SYNC_KIND_BINARY] = {"binary", "application/octet-stream"},
    [SYNC_KIND_MISMATCH] = {"mismatch", "application/octet-stream"},
};

const char *sync_kind_name(enum sync_kind kind)
{
    return about[kind].name;
}

const char *sync_kind_media_type(enum sync_kind kind)
{
    return about[kind].media_type;
}
