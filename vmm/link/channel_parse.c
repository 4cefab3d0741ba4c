/* SPDX-License-Identifier: MIT */
/* The frame parser of the machine channel. A DATA frame is told only when it is whole. */
#include "transom/channel.h"

#include <string.h>

enum { FRAME_NOP, FRAME_HELLO, FRAME_DATA, FRAME_READY };
enum { AT_TYPE, AT_LEN_HIGH, AT_LEN_LOW, IN_HELLO, IN_DATA, IN_READY };

#define END_MARK 0xff

void tr_channel_parser_init(struct tr_channel_parser *p)
{
    p->state = AT_TYPE;
    p->want = p->have = 0;
}

static void expect(struct tr_channel_parser *p, uint8_t state, size_t want)
{
    p->state = state;
    p->want = want;
    p->have = 0;
}

static void at_type(struct tr_channel_parser *p, uint8_t type)
{
    switch (type) {
    case FRAME_HELLO:
        expect(p, IN_HELLO, TR_CHANNEL_NONCE_LEN);
        break;
    case FRAME_READY:
        expect(p, IN_READY, TR_CHANNEL_NONCE_LEN);
        break;
    case FRAME_DATA:
        p->state = AT_LEN_HIGH;
        break;
    default: /* NOP, or noise: the next byte may be a type */
        break;
    }
}

static void whole(uint8_t state, const uint8_t *body, size_t len, tr_channel_event_cb cb, void *arg)
{
    if (state == IN_HELLO)
        cb(TR_CHANNEL_HELLO, body, len, arg);
    else if (state == IN_READY)
        cb(TR_CHANNEL_READY, body, len, arg);
    else if (body[len - 1] == END_MARK)
        cb(TR_CHANNEL_BYTES, body, len - 1, arg);
}

/* Take what data has of the frame body; returns how much that was. */
static size_t take_body(struct tr_channel_parser *p, const uint8_t *data, size_t len,
                        tr_channel_event_cb cb, void *arg)
{
    size_t left = p->want - p->have;
    uint8_t state = p->state;

    if (p->have == 0 && len >= left) { /* all here: no copy */
        p->state = AT_TYPE;
        whole(state, data, left, cb, arg);
        return left;
    }
    if (len < left)
        left = len;
    memcpy(p->body + p->have, data, left);
    p->have += left;
    if (p->have == p->want) {
        p->state = AT_TYPE;
        whole(state, p->body, p->want, cb, arg);
    }
    return left;
}

void tr_channel_parse(struct tr_channel_parser *p, const uint8_t *data, size_t len,
                      tr_channel_event_cb cb, void *arg)
{
    size_t i = 0;

    while (i < len) {
        switch (p->state) {
        case AT_TYPE:
            at_type(p, data[i++]);
            break;
        case AT_LEN_HIGH:
            p->want = (size_t)data[i++] << 8;
            p->state = AT_LEN_LOW;
            break;
        case AT_LEN_LOW:
            p->want |= data[i++];
            if (p->want == 0)
                p->state = AT_TYPE; /* not a frame */
            else
                expect(p, IN_DATA, p->want + 1);
            break;
        default:
            i += take_body(p, data + i, len - i, cb, arg);
            break;
        }
    }
}
