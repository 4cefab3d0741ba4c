/* SPDX-License-Identifier: MIT */
/* The machine's sockets and its console ring. */
#ifndef VMM_CONSOLE_H
#define VMM_CONSOLE_H

#include <jansson.h>
#include <stddef.h>
#include "transom/err.h"

/* Connect to a machine's unix socket. Returns a nonblocking descriptor, or < 0. */
TR_MUST_CHECK int console_connect(const char *run_dir, const char *name);

/* Arguments of QMP's ringbuf-read for the whole console ring (new). */
json_t *console_request(void);

/* Decode its answer (base64; NULL allowed) into malloc'ed, NUL-terminated bytes; NULL: not base64,
 * or out of memory. */
char *console_decode(const char *base64, size_t *len);

#endif
