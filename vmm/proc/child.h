/* SPDX-License-Identifier: MIT */
/* Run a program to its end: text to its standard input, bounded output, a deadline. */
#ifndef VMM_CHILD_H
#define VMM_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

#define CHILD_OUTPUT_MAX (256 * 1024) /* of each stream; what exceeds it is dropped */

struct child;

struct child_result {
    int status;      /* 0: exit status 0; UV_EIO: another end; UV_ETIMEDOUT; UV_ECANCELED */
    int code;        /* exit status */
    int signal;      /* or the signal that ended it */
    const char *out; /* what it wrote (NUL-terminated, borrowed) */
    size_t out_len;
    const char *errors; /* standard error, trimmed of trailing blanks */
};

typedef void (*child_cb)(const struct child_result *result, void *arg);

/* Start argv[0] (found in PATH; a fixed environment: PATH, LC_ALL=C). input may be NULL; it is
 * copied. Returns 0: cb runs exactly once, after this returned; *out (may be NULL) is valid until
 * then. Returns < 0 with err: nothing was started (UV_ENOENT: no such program). */
TR_MUST_CHECK int child_run(uv_loop_t *loop, const char *const *argv, const char *input,
                            uint64_t timeout_ms, child_cb cb, void *arg, struct child **out,
                            struct err *err);

/* Kill it; cb still runs, with UV_ECANCELED. */
void child_cancel(struct child *child);

/* "nft: exit status 1: <first lines of its standard error>" for a failed result. Returns
 * result->status. */
int child_explain(const struct child_result *result, const char *name, struct err *err);

/* PATH and LC_ALL, for whoever spawns by other means. NULL-terminated. */
extern char *const child_environment[];

#endif
