/* SPDX-License-Identifier: MIT */
/* The answer to a WebSocket handshake's key (RFC 6455 section 4.2.2). */
#ifndef GATEWAY_WS_ACCEPT_H
#define GATEWAY_WS_ACCEPT_H

#include <stddef.h>

#define GW_WS_KEY_MAX    64 /* a proper one has 24 bytes */
#define GW_WS_ACCEPT_LEN 28

/* The value of Sec-WebSocket-Accept for a Sec-WebSocket-Key of at most GW_WS_KEY_MAX bytes. */
void gw_ws_accept(const char *key, size_t key_len, char out[GW_WS_ACCEPT_LEN + 1]);

#endif
