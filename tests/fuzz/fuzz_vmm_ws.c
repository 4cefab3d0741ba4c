/* SPDX-License-Identifier: MIT */
/* What a client sends on a WebSocket. The first byte says in what pieces it comes; the offer of
 * subprotocols is read from the same bytes. */
#include <stdlib.h>
#include <string.h>
#include "vmm/ws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct peer {
    struct vmm_ws *ws;
    size_t received, sent;
};

static int on_send(const uint8_t *data, size_t len, void *arg)
{
    struct peer *p = arg;

    (void)data;
    p->sent += len;
    return 0;
}

static void on_binary(const uint8_t *data, size_t len, void *arg)
{
    struct peer *p = arg;

    p->received += len;
    if (len == 0 || vmm_ws_is_over(p->ws))
        abort();
    vmm_ws_binary(p->ws, data, len); /* an echo, from inside */
}

static void on_text(const char *text, size_t len, void *arg)
{
    struct peer *p = arg;

    if (len > VMM_WS_TEXT_MAX || text[len] != '\0' || vmm_ws_is_over(p->ws))
        abort();
    p->received += len;
    if (strcmp(text, "close") == 0)
        vmm_ws_close(p->ws, VMM_WS_POLICY, "as asked");
}

static void read_offer(const uint8_t *data, size_t size)
{
    struct tr_h2_field field = {.name = "sec-websocket-protocol", .name_len = 22};
    struct tr_h2_head head = {.fields = &field, .n_fields = 1};
    char *text = malloc(size + 1);
    struct vmm_ws_offer offer;

    if (text == NULL)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    field.value = text;
    field.value_len = strlen(text);
    vmm_ws_read_offer(&head, &offer);
    if ((offer.ours && !offer.any) || strlen(offer.key) >= sizeof(offer.key) ||
        strpbrk(offer.key, " \t,") != NULL)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct vmm_ws_cbs cbs = {
        .send = on_send, .on_binary = on_binary, .on_text = on_text};
    struct peer p = {0};
    size_t piece, sent;

    if (size < 1 || vmm_ws_new(&cbs, &p, &p.ws) != 0)
        return 0;
    piece = data[0] == 0 ? size : data[0];
    for (size_t at = 1; at < size; at += piece) {
        bool over = vmm_ws_is_over(p.ws);

        sent = p.sent;
        vmm_ws_feed(p.ws, data + at, size - at < piece ? size - at : piece);
        if (over && (p.sent != sent || !vmm_ws_is_over(p.ws)))
            abort(); /* nothing follows a close frame */
    }
    if (p.received > size)
        abort();
    vmm_ws_close(p.ws, VMM_WS_NORMAL, "");
    if (!vmm_ws_is_over(p.ws))
        abort();
    vmm_ws_free(p.ws);
    read_offer(data, size);
    return 0;
}
