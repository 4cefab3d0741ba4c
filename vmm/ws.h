/* SPDX-License-Identifier: MIT */
/* The server's end of a WebSocket (RFC 6455) on any byte stream: libwslay underneath. What breaks
 * the protocol or the bounds below is answered with a close frame by itself. */
#ifndef VMM_WS_H
#define VMM_WS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/h2.h"

#define VMM_WS_BINARY_MAX 65536 /* bytes of a message that is received, in however many frames */
#define VMM_WS_TEXT_MAX   4096

/* RFC 6455 section 7.4.1 */
enum vmm_ws_code {
    VMM_WS_NORMAL = 1000,
    VMM_WS_GOING_AWAY = 1001,
    VMM_WS_POLICY = 1008,
    VMM_WS_TOO_BIG = 1009,
    VMM_WS_INTERNAL = 1011,
};

struct vmm_ws;

/* Any call is allowed from inside, but vmm_ws_feed() and vmm_ws_free(). */
struct vmm_ws_cbs {
    /* Bytes for the peer, to be copied. Returns < 0 when they cannot be: nothing more is sent. May
     * run inside any function below but vmm_ws_new() and vmm_ws_free(); the others run inside
     * vmm_ws_feed() alone. */
    int (*send)(const uint8_t *data, size_t len, void *arg);
    /* A piece of a binary message, as it comes. */
    void (*on_binary)(const uint8_t *data, size_t len, void *arg);
    /* A whole text message: UTF-8, with a NUL behind it. */
    void (*on_text)(const char *text, size_t len, void *arg);
};

/* Returns 0 and *out, or -ENOMEM. cbs is borrowed. */
TR_MUST_CHECK int vmm_ws_new(const struct vmm_ws_cbs *cbs, void *arg, struct vmm_ws **out);
void vmm_ws_free(struct vmm_ws *ws); /* NULL is allowed */

/* Bytes from the peer. */
void vmm_ws_feed(struct vmm_ws *ws, const uint8_t *data, size_t len);
/* Send. Once a close frame was sent these do nothing. */
void vmm_ws_binary(struct vmm_ws *ws, const uint8_t *data, size_t len);
void vmm_ws_text(struct vmm_ws *ws, const char *text);
void vmm_ws_ping(struct vmm_ws *ws);
/* reason: at most 123 bytes of UTF-8. What the peer still sends is dropped. */
void vmm_ws_close(struct vmm_ws *ws, enum vmm_ws_code code, const char *reason);
/* A close frame was sent, ours or the answer to the peer's, or sending is not possible any more:
 * end the stream. */
bool vmm_ws_is_over(const struct vmm_ws *ws);

/* What a client offers in its "sec-websocket-protocol" fields. Browsers can send no other field of
 * their own, so an API key may come here, as "transom.key.KEY". */
#define VMM_WS_PROTOCOL "transom.v1"
#define VMM_WS_KEY_SIZE 128
struct vmm_ws_offer {
    bool any; /* it offers something */
    bool ours;
    char key[VMM_WS_KEY_SIZE]; /* "": none, or one that is too long to be a key */
};
void vmm_ws_read_offer(const struct tr_h2_head *head, struct vmm_ws_offer *out);

#endif
