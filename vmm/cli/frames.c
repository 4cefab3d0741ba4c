/* SPDX-License-Identifier: MIT */
#include "vmm/cli/frames.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

void frames_init(struct frames *f)
{
    f->n_head = 0;
    f->left = 0;
    f->n_control = 0;
}

static bool is_output(uint8_t type)
{
    return type == FRAME_STDOUT || type == FRAME_STDERR;
}

/* A control frame is whole. */
static int deliver_control(struct frames *f, frames_cb cb, void *arg)
{
    size_t n = f->n_control;

    f->control[n] = '\0';
    f->n_control = 0;
    return cb(f->head[0], f->control, n, arg);
}

static int payload(struct frames *f, const uint8_t *data, size_t len, frames_cb cb, void *arg)
{
    f->left -= (uint32_t)len;
    if (is_output(f->head[0]))
        return len > 0 ? cb(f->head[0], data, len, arg) : 0;
    memcpy(f->control + f->n_control, data, len);
    f->n_control += len;
    return f->left == 0 ? deliver_control(f, cb, arg) : 0;
}

int frames_feed(struct frames *f, const uint8_t *data, size_t len, frames_cb cb, void *arg)
{
    int r = 0;

    while (r == 0 && len > 0) {
        size_t n;

        if (f->n_head < sizeof(f->head)) {
            f->head[f->n_head++] = *data++;
            len--;
            if (f->n_head < sizeof(f->head))
                continue;
            f->left = (uint32_t)f->head[1] << 24 | (uint32_t)f->head[2] << 16 |
                      (uint32_t)f->head[3] << 8 | f->head[4];
            if (!is_output(f->head[0]) && f->left > FRAME_CONTROL_MAX)
                return -EMSGSIZE;
            if (f->left == 0) {
                f->n_head = 0;
                r = payload(f, data, 0, cb, arg);
            }
            continue;
        }
        n = f->left < len ? f->left : len;
        if (n == f->left)
            f->n_head = 0; /* before the callback: it may end the loop */
        r = payload(f, data, n, cb, arg);
        data += n;
        len -= n;
    }
    return r;
}
