/* SPDX-License-Identifier: MIT */
#include "vmm/mask/forms.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "transom/mask.h"

/* A form under construction. At most 12 bytes stand for one (a UTF-16 pair in JSON stands for
 * four). */
struct form {
    uint8_t *text;
    size_t len, cap;
    mask_form_cb cb;
    void *arg;
};

static void put(struct form *f, uint8_t byte)
{
    if (f->len < f->cap)
        f->text[f->len++] = byte;
}

static void put_text(struct form *f, const char *text)
{
    while (*text != '\0')
        put(f, (uint8_t)*text++);
}

static void put_hex(struct form *f, unsigned value, int digits, const char *alphabet)
{
    while (digits-- > 0)
        put(f, (uint8_t)alphabet[(value >> (4 * digits)) & 15]);
}

static int tell(struct form *f, bool wrapped)
{
    return f->len < TR_MASK_MIN ? 0 : f->cb(f->text, f->len, wrapped, f->arg);
}

#define UPPER "0123456789ABCDEF"
#define LOWER "0123456789abcdef"

size_t mask_trimmed(const uint8_t *value, size_t len)
{
    while (len > 0 && (value[len - 1] == '\n' || value[len - 1] == '\r'))
        len--;
    return len;
}

/* The value with each of its line breaks, LF or CR LF, as brk. */
static int whole(struct form *f, const uint8_t *value, size_t len, const char *brk)
{
    f->len = 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] == '\r' && i + 1 < len && value[i + 1] == '\n')
            continue;
        if (value[i] == '\n')
            put_text(f, brk);
        else
            put(f, value[i]);
    }
    return tell(f, false);
}

static bool is_pem_marker(const uint8_t *line, size_t len)
{
    return len >= 16 &&
           (memcmp(line, "-----BEGIN ", 11) == 0 || memcmp(line, "-----END ", 9) == 0) &&
           memcmp(line + len - 5, "-----", 5) == 0;
}

static int lines(struct form *f, const uint8_t *value, size_t len)
{
    size_t begin = 0;
    int r;

    while (begin < len) {
        const uint8_t *nl = memchr(value + begin, '\n', len - begin);
        size_t next = nl == NULL ? len : (size_t)(nl - value), end = next, from = begin;

        while (from < end && (value[from] == ' ' || value[from] == '\t'))
            from++;
        while (end > from && strchr(" \t\r", value[end - 1]) != NULL)
            end--;
        f->len = 0;
        if (!is_pem_marker(value + from, end - from)) {
            while (from < end)
                put(f, value[from++]);
            if ((r = tell(f, false)) != 0)
                return r;
        }
        begin = next + 1;
    }
    return 0;
}

static bool is_alnum(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* kept: characters that stand for themselves besides letters and digits. */
static int percent(struct form *f, const uint8_t *value, size_t len, const char *hex,
                   const char *kept, bool plus)
{
    f->len = 0;
    for (size_t i = 0; i < len; i++) {
        if (is_alnum(value[i]) || (value[i] != 0 && strchr(kept, value[i]) != NULL)) {
            put(f, value[i]);
        } else if (value[i] == ' ' && plus) {
            put(f, '+');
        } else {
            put(f, '%');
            put_hex(f, value[i], 2, hex);
        }
    }
    return tell(f, false);
}

/* Length of the UTF-8 sequence at s and its code point; 0: not valid. */
static size_t utf8(const uint8_t *s, size_t len, unsigned *out)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] >= 0xf0 && s[0] < 0xf8 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    unsigned c;

    if (n == 0 || s[0] >= 0xf8 || n > len)
        return 0;
    c = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    *out = c;
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

static void put_escaped(struct form *f, unsigned c, const char *hex)
{
    if (c >= 0x10000) {
        put_text(f, "\\u");
        put_hex(f, 0xd800 + ((c - 0x10000) >> 10), 4, hex);
        c = 0xdc00 + ((c - 0x10000) & 0x3ff);
    }
    put_text(f, "\\u");
    put_hex(f, c, 4, hex);
}

/* hex: NULL leaves what is not ASCII as it is. */
static int json(struct form *f, const uint8_t *value, size_t len, bool slash, const char *hex)
{
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";

    f->len = 0;
    for (size_t i = 0, n; i < len; i += n) {
        const char *at = value[i] == 0 ? NULL : strchr(special, value[i]);
        unsigned c = 0;

        n = 1;
        if (at != NULL) {
            put(f, '\\');
            put(f, (uint8_t)letter[at - special]);
        } else if (value[i] < 0x20 || (value[i] == 0x7f && hex != NULL)) {
            put_escaped(f, value[i], hex != NULL ? hex : LOWER);
        } else if (value[i] == '/' && slash) {
            put_text(f, "\\/");
        } else if (value[i] >= 0x80 && hex != NULL) {
            if ((n = utf8(value + i, len - i, &c)) == 0)
                return 0; /* no such form */
            put_escaped(f, c, hex);
        } else {
            put(f, value[i]);
        }
    }
    return tell(f, false);
}

/* before: how many unknown bytes, modulo three, stand before the value. Only characters whose six
 * bits are all known are told. */
static int base64(struct form *f, const uint8_t *value, size_t len, size_t before, const char *last)
{
    static const char common[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t end = (before + len) * 8 / 6;

    f->len = 0;
    for (size_t i = (before * 8 + 5) / 6; i < end; i++) {
        size_t bit = i * 6 - before * 8, at = bit / 8;
        unsigned two = (unsigned)value[at] << 8 | (at + 1 < len ? value[at + 1] : 0);
        unsigned six = two >> (10 - bit % 8) & 63;

        put(f, (uint8_t)(six < 62 ? common[six] : last[six - 62]));
    }
    return tell(f, true);
}

static int encoded(struct form *f, const uint8_t *value, size_t len)
{
    static const char *const hex[] = {UPPER, LOWER};
    /* RFC 3986; with "/"; as browsers' encodeURIComponent() does; as forms are sent. */
    static const char *const kept[] = {"-._~", "-._~/", "-._~!*'()", "-._*"};
    int r;

    for (size_t i = 0; i < 16; i++) {
        if ((r = percent(f, value, len, hex[i & 1], kept[i >> 2], (i & 2) != 0)) != 0)
            return r;
    }
    for (size_t i = 0; i < 6; i++) {
        if ((r = json(f, value, len, (i & 1) != 0, i < 2 ? NULL : hex[i >> 2])) != 0)
            return r;
    }
    for (size_t i = 0; i < 6; i++) {
        if ((r = base64(f, value, len, i >> 1, (i & 1) != 0 ? "-_" : "+/")) != 0)
            return r;
    }
    return 0;
}

int mask_forms(const uint8_t *value, size_t len, mask_form_cb cb, void *arg)
{
    struct form f = {.cb = cb, .arg = arg};
    int r;

    len = mask_trimmed(value, len);
    if (len < TR_MASK_MIN)
        return 0;
    f.cap = len * 12;
    f.text = malloc(f.cap);
    if (f.text == NULL)
        return UV_ENOMEM;
    if ((r = whole(&f, value, len, "\n")) == 0 && (r = whole(&f, value, len, "\r\n")) == 0 &&
        (r = whole(&f, value, len, " ")) == 0 && memchr(value, '\n', len) != NULL)
        r = lines(&f, value, len);
    if (r == 0 && len <= TR_MASK_ENCODED_MAX)
        r = encoded(&f, value, len);
    explicit_bzero(f.text, f.cap);
    free(f.text);
    return r;
}
