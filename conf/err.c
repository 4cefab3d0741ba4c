/* SPDX-License-Identifier: MIT */
#include "transom/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int tr_err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return code;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    return code;
}

int tr_err_wrap(struct err *err, const char *fmt, ...)
{
    char inner[sizeof(err->msg)];
    va_list ap;
    int n;

    if (err == NULL)
        return -1;
    memcpy(inner, err->msg, sizeof(inner));
    va_start(ap, fmt);
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->msg))
        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", inner);
    return err->code;
}

void tr_err_clear(struct err *err)
{
    if (err == NULL)
        return;
    err->code = 0;
    err->msg[0] = '\0';
}
