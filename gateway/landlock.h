/* SPDX-License-Identifier: MIT */
/* Which files the serving process can still open (Linux' Landlock). */
#ifndef GATEWAY_LANDLOCK_H
#define GATEWAY_LANDLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

#define GW_VIEW_MAX 64

/* Folders; the strings are borrowed. */
struct gw_view {
    const char *read[GW_VIEW_MAX];
    size_t n_read;
    const char *append; /* where the log file is; NULL: none */
    bool resolver;      /* names are looked up: its files, too */
};

/* From here on, this thread and those that it starts read below view->read only and write below
 * view->append only; no new listening socket, no signal to others. What the kernel cannot do is
 * said in what, and is no fault. */
TR_MUST_CHECK int gw_landlock(const struct gw_view *view, char *what, size_t what_len,
                              struct err *err);

#endif
