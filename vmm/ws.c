/* SPDX-License-Identifier: MIT */
/* libwslay asks for bytes and offers bytes; nothing is kept between two calls of ours but a text
 * message that is not complete, and the little that libwslay keeps of a frame's head. Binary
 * messages are passed on piece by piece. */
#include "vmm/ws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

struct vmm_ws {
    wslay_event_context_ptr wslay;
    const struct vmm_ws_cbs *cbs;
    void *arg;
    const uint8_t *in; /* what vmm_ws_feed() was given and is not read yet */
    size_t in_len;
    bool feeding; /* libwslay is on the stack: what it is to send goes out afterwards */
    bool closing; /* a close frame was queued: what comes is dropped */
    bool broken;
    bool control; /* the frame under way is a control frame */
    uint8_t kind; /* opcode of the message under way */
    size_t len;   /* of it, as far as its frames have told */
    size_t text_len;
    char text[VMM_WS_TEXT_MAX + 1];
};

static ssize_t on_recv(wslay_event_context_ptr wslay, uint8_t *buf, size_t len, int flags,
                       void *arg)
{
    struct vmm_ws *ws = arg;
    size_t n = ws->in_len < len ? ws->in_len : len;

    (void)flags;
    if (n == 0) {
        wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(buf, ws->in, n);
    ws->in += n;
    ws->in_len -= n;
    return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr wslay, const uint8_t *data, size_t len, int flags,
                       void *arg)
{
    struct vmm_ws *ws = arg;

    (void)flags;
    if (ws->cbs->send(data, len, ws->arg) >= 0)
        return (ssize_t)len;
    wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void flush(struct vmm_ws *ws)
{
    if (!ws->feeding && !ws->broken && wslay_event_send(ws->wslay) != 0)
        ws->broken = true;
}

static void close_now(struct vmm_ws *ws, enum vmm_ws_code code, const char *reason)
{
    size_t len = strlen(reason);

    if (ws->closing)
        return;
    ws->closing = true;
    if (wslay_event_queue_close(ws->wslay, (uint16_t)code, (const uint8_t *)reason, len) != 0)
        ws->broken = true;
    wslay_event_shutdown_read(ws->wslay);
}

static void on_frame_start(wslay_event_context_ptr wslay,
                           const struct wslay_event_on_frame_recv_start_arg *frame, void *arg)
{
    struct vmm_ws *ws = arg;

    (void)wslay;
    ws->control = wslay_is_ctrl_frame(frame->opcode);
    if (ws->control)
        return;
    if (frame->opcode != WSLAY_CONTINUATION_FRAME) {
        ws->kind = frame->opcode;
        ws->len = ws->text_len = 0;
    }
    /* libwslay's limit is for one frame when it does not gather messages: no overflow here. */
    ws->len += frame->payload_length;
    if (ws->len > (ws->kind == WSLAY_TEXT_FRAME ? VMM_WS_TEXT_MAX : VMM_WS_BINARY_MAX))
        close_now(ws, VMM_WS_TOO_BIG, "");
}

static void on_frame_chunk(wslay_event_context_ptr wslay,
                           const struct wslay_event_on_frame_recv_chunk_arg *chunk, void *arg)
{
    struct vmm_ws *ws = arg;

    (void)wslay;
    if (ws->control || ws->closing || chunk->data_length == 0)
        return;
    if (ws->kind == WSLAY_BINARY_FRAME) {
        ws->cbs->on_binary(chunk->data, chunk->data_length, ws->arg);
        return;
    }
    memcpy(ws->text + ws->text_len, chunk->data, chunk->data_length); /* within ws->len */
    ws->text_len += chunk->data_length;
}

static void on_message(wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *msg,
                       void *arg)
{
    struct vmm_ws *ws = arg;

    (void)wslay;
    if (msg->opcode == WSLAY_CONNECTION_CLOSE)
        ws->closing = true; /* its answer is queued */
    if (msg->opcode != WSLAY_TEXT_FRAME || ws->closing)
        return;
    ws->text[ws->text_len] = '\0';
    ws->cbs->on_text(ws->text, ws->text_len, ws->arg);
}

int vmm_ws_new(const struct vmm_ws_cbs *cbs, void *arg, struct vmm_ws **out)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame_start,
        .on_frame_recv_chunk_callback = on_frame_chunk,
        .on_msg_recv_callback = on_message,
    };
    struct vmm_ws *ws = calloc(1, sizeof(*ws));

    if (ws == NULL || wslay_event_context_server_init(&ws->wslay, &callbacks, ws) != 0) {
        free(ws);
        return -ENOMEM;
    }
    wslay_event_config_set_no_buffering(ws->wslay, 1);
    wslay_event_config_set_max_recv_msg_length(ws->wslay, VMM_WS_BINARY_MAX);
    ws->cbs = cbs;
    ws->arg = arg;
    *out = ws;
    return 0;
}

void vmm_ws_free(struct vmm_ws *ws)
{
    if (ws == NULL)
        return;
    wslay_event_context_free(ws->wslay);
    free(ws);
}

void vmm_ws_feed(struct vmm_ws *ws, const uint8_t *data, size_t len)
{
    if (ws->closing || ws->broken)
        return;
    ws->in = data;
    ws->in_len = len;
    ws->feeding = true;
    /* A fault of the peer's leaves a close frame in the queue, one of memory does not. */
    if (wslay_event_recv(ws->wslay) == WSLAY_ERR_NOMEM)
        ws->broken = true;
    ws->feeding = false;
    ws->in_len = 0;
    if (!wslay_event_get_read_enabled(ws->wslay))
        ws->closing = true;
    flush(ws);
}

static void queue(struct vmm_ws *ws, uint8_t opcode, const void *data, size_t len)
{
    const struct wslay_event_msg msg = {.opcode = opcode, .msg = data, .msg_length = len};

    if (ws->closing || ws->broken)
        return;
    if (wslay_event_queue_msg(ws->wslay, &msg) != 0)
        ws->broken = true;
    flush(ws);
}

void vmm_ws_binary(struct vmm_ws *ws, const uint8_t *data, size_t len)
{
    queue(ws, WSLAY_BINARY_FRAME, data, len);
}

void vmm_ws_text(struct vmm_ws *ws, const char *text)
{
    queue(ws, WSLAY_TEXT_FRAME, text, strlen(text));
}

void vmm_ws_ping(struct vmm_ws *ws)
{
    queue(ws, WSLAY_PING, NULL, 0);
}

void vmm_ws_close(struct vmm_ws *ws, enum vmm_ws_code code, const char *reason)
{
    if (ws->broken)
        return;
    close_now(ws, code, reason);
    flush(ws);
}

bool vmm_ws_is_over(const struct vmm_ws *ws)
{
    return ws->broken || (ws->closing && !ws->feeding);
}

/* ---- subprotocols ---- */

static void take_protocol(const char *word, size_t len, struct vmm_ws_offer *out)
{
    static const char key[] = "transom.key.";
    const size_t prefix = sizeof(key) - 1;

    if (len == 0)
        return;
    out->any = true;
    if (len == sizeof(VMM_WS_PROTOCOL) - 1 && memcmp(word, VMM_WS_PROTOCOL, len) == 0)
        out->ours = true;
    if (len <= prefix || len - prefix >= sizeof(out->key) || memcmp(word, key, prefix) != 0)
        return;
    memcpy(out->key, word + prefix, len - prefix);
    out->key[len - prefix] = '\0';
}

void vmm_ws_read_offer(const struct tr_h2_head *head, struct vmm_ws_offer *out)
{
    static const char name[] = "sec-websocket-protocol";

    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct tr_h2_field *f = &head->fields[i];
        const char *p = f->value;

        if (f->name_len != sizeof(name) - 1 || memcmp(f->name, name, sizeof(name) - 1) != 0)
            continue;
        for (;;) { /* RFC 9110 section 5.6.1 */
            size_t len;

            p += strspn(p, " \t,");
            if (*p == '\0')
                break;
            len = strcspn(p, " \t,");
            take_protocol(p, len, out);
            p += len;
        }
    }
}
