/* SPDX-License-Identifier: MIT */
/* Base 64 (RFC 4648 section 4, padded). */
#ifndef VMM_AGENT_BASE64_H
#define VMM_AGENT_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "transom/err.h"

/* Heap text with a NUL behind it, or NULL: out of memory. */
char *agent_base64_encode(const void *data, size_t len);
/* Heap bytes with a NUL behind them and *len. Returns 0, UV_EINVAL or UV_ENOMEM. */
TR_MUST_CHECK int agent_base64_decode(const char *text, uint8_t **out, size_t *len);

#endif
