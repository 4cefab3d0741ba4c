/* SPDX-License-Identifier: MIT */
#include "gateway/ws_frames.h"

#define OP_CLOSE 8

/* Bytes of a head, without the mask, once its first two are known. */
static uint8_t head_len(const unsigned char *head)
{
    unsigned len = head[1] & 0x7f;

    return len == 127 ? 10 : len == 126 ? 4 : 2;
}

static void take_head(struct gw_ws_frames *f)
{
    const unsigned char *h = f->head;
    unsigned opcode = h[0] & 0x0f;

    f->left = h[1] & 0x7f;
    if (f->left >= 126) {
        f->left = 0;
        for (unsigned i = 2; i < f->n_head; i++)
            f->left = f->left << 8 | h[i];
    }
    f->n_mask = h[1] & 0x80 ? 4 : 0;
    /* Opcodes 3 to 7 and 11 to 15 are of no extension that there is; control frames are short. */
    f->lost |= (opcode > 2 && opcode < OP_CLOSE) || opcode > 10 || f->left >> 63 != 0 ||
               (opcode >= OP_CLOSE && f->left > 125);
    f->closed |= opcode == OP_CLOSE;
    f->n_head = 0;
}

void gw_ws_frames_pass(struct gw_ws_frames *f, const char *data, size_t len)
{
    while (len > 0 && !f->lost) {
        size_t n = 1;

        if (f->n_head > 0 || (f->left == 0 && f->n_mask == 0)) {
            f->head[f->n_head++] = (unsigned char)*data;
            if (f->n_head >= 2 && f->n_head == head_len(f->head))
                take_head(f);
        } else if (f->n_mask > 0) {
            f->n_mask--;
        } else {
            n = f->left < len ? (size_t)f->left : len;
            f->left -= n;
        }
        data += n;
        len -= n;
    }
}

bool gw_ws_frames_between(const struct gw_ws_frames *f)
{
    return f->n_head == 0 && f->n_mask == 0 && f->left == 0 && !f->closed && !f->lost;
}
