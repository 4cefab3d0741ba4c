/* SPDX-License-Identifier: MIT */
/* The reason of a failure, for the person who must act on it: set at the source, prefixed on the
 * way up, logged once by whoever handles it. */
#ifndef TRANSOM_ERR_H
#define TRANSOM_ERR_H

#define TR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TR_MUST_CHECK        __attribute__((warn_unused_result))

/* Lives in the caller's memory, so that reporting a failure never allocates. */
struct err {
    int code; /* 0 or a negative errno (UV_E* match on Linux) */
    char msg[512];
};

/* Set the reason; a longer text is cut. err may be NULL. Returns code. */
int tr_err_set(struct err *err, int code, const char *fmt, ...) TR_PRINTF(3, 4);

/* Put "<text>: " before the reason set below. err may be NULL. Returns err's code (-1 for NULL). */
int tr_err_wrap(struct err *err, const char *fmt, ...) TR_PRINTF(2, 3);

/* Forget the reason. */
void tr_err_clear(struct err *err);

#endif
