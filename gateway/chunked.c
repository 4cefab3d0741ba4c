/* SPDX-License-Identifier: MIT */
#include "gateway/chunked.h"

#include <string.h>
#include "transom/hex.h"

/* left is valid in SIZE, EXT, SIZE_LF (being read) and DATA (counting down). */
enum { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, LAST };

#define EXT_MAX 4096 /* extensions mean nothing to anybody; more is an attack */

/* One byte of framing. Returns false when it cannot stand here. */
static bool step(struct gw_chunked *c, char byte)
{
    int digit;

    switch (c->state) {
    case SIZE:
        digit = tr_hex_digit(byte);
        if (digit >= 0) {
            if (++c->n_digits > 15)
                return false;
            c->left = c->left * 16 + (uint64_t)digit;
            return true;
        }
        if (c->n_digits == 0)
            return false;
        if (byte == '\r') {
            c->state = SIZE_LF;
            return true;
        }
        if (byte != ';' && byte != ' ' && byte != '\t')
            return false;
        c->state = EXT;
        return true;
    case EXT:
        if (byte == '\r') {
            c->state = SIZE_LF;
            return true;
        }
        return ++c->ext_len <= EXT_MAX && byte != '\n' && byte != '\0' && byte != 0x7f &&
               ((unsigned char)byte >= ' ' || byte == '\t');
    case SIZE_LF:
        c->state = c->left > 0 ? DATA : LAST;
        c->n_digits = 0;
        c->ext_len = 0;
        return byte == '\n';
    case DATA_CR:
        c->state = DATA_LF;
        return byte == '\r';
    case DATA_LF:
        c->state = SIZE;
        return byte == '\n';
    default:
        return false;
    }
}

enum gw_chunked_result gw_chunked_decode(struct gw_chunked *c, char *buf, size_t len,
                                         size_t *body_len, size_t *consumed)
{
    size_t in = 0, out = 0;

    while (in < len && c->state != LAST) {
        if (c->state == DATA) {
            size_t n = len - in < c->left ? len - in : (size_t)c->left;

            if (in != out)
                memmove(buf + out, buf + in, n);
            in += n;
            out += n;
            c->left -= n;
            if (c->left == 0)
                c->state = DATA_CR;
        } else if (!step(c, buf[in++])) {
            *body_len = out;
            *consumed = in;
            return GW_CHUNKED_ERROR;
        }
    }
    *body_len = out;
    *consumed = in;
    return c->state == LAST ? GW_CHUNKED_LAST : GW_CHUNKED_MORE;
}

size_t gw_chunked_line(char *buf, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    char hex[16];
    size_t len = 0, out = 0;

    for (; n > 0; n >>= 4)
        hex[len++] = digits[n & 15];
    while (len > 0)
        buf[out++] = hex[--len];
    buf[out++] = '\r';
    buf[out++] = '\n';
    return out;
}
