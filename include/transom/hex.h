/* SPDX-License-Identifier: MIT */
/* Hexadecimal digits, whatever the locale. */
#ifndef TRANSOM_HEX_H
#define TRANSOM_HEX_H

/* Value of a digit in either case, or -1. */
static inline int tr_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

#endif
