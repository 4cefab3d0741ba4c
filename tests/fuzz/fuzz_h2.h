/* SPDX-License-Identifier: MIT */
/* For the fuzz targets of both HTTP/2 sides: a wire that swallows, and counts that must agree. */
#ifndef TESTS_FUZZ_FUZZ_H2_H
#define TESTS_FUZZ_FUZZ_H2_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "transom/h2.h"

struct fuzz {
    struct tr_h2 *h2;
    int n_opened, n_closed, n_over;
    size_t sent;
    uint8_t mode; /* what handlers do */
};

static bool fuzz_send(const uint8_t *data, size_t len, void *arg)
{
    struct fuzz *f = arg;

    assert(len > 0 && data != NULL);
    f->sent += len;
    return (f->mode & 1) == 0 || f->sent % 3 != 0; /* sometimes full */
}

static void fuzz_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct fuzz *f = arg;

    assert(reason != NULL && (status == 0 || reason[0] != '\0'));
    assert(f->n_over++ == 0);
    assert(f->n_closed == f->n_opened);
    f->h2 = NULL;
    tr_h2_free(h2);
}

/* Feed in pieces whose sizes the input gives; each piece has memory of its own. */
static void fuzz_feed(struct fuzz *f, const uint8_t *data, size_t size)
{
    while (size > 0 && f->h2 != NULL) {
        size_t n = 1 + data[size / 2] * 5u < size ? 1 + data[size / 2] * 5u : size;
        uint8_t *copy = malloc(n);

        if (copy == NULL)
            abort();
        memcpy(copy, data, n);
        tr_h2_feed(f->h2, copy, n);
        free(copy);
        data += n;
        size -= n;
        if (f->h2 != NULL)
            tr_h2_writable(f->h2);
    }
}

static void fuzz_finish(struct fuzz *f)
{
    if (f->h2 != NULL && (f->mode & 2) != 0)
        tr_h2_shutdown(f->h2);
    if (f->h2 != NULL && (f->mode & 4) != 0)
        tr_h2_abort(f->h2, -5, "fuzz");
    tr_h2_free(f->h2);
    assert(f->n_closed == f->n_opened);
}

#endif
