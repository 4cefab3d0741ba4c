/* SPDX-License-Identifier: MIT */
/* Parser of application/vnd.transom.exec and .run: frames of 1 byte type, 4 bytes length (big
 * endian) and a payload. Output passes through as it comes; other payloads are gathered. */
#ifndef VMM_CLI_FRAMES_H
#define VMM_CLI_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define FRAME_STARTED     0x00
#define FRAME_STDOUT      0x01
#define FRAME_STDERR      0x02
#define FRAME_EXIT        0x03
#define FRAME_GAP         0x04
#define FRAME_LISTEN      0x05  /* of a run */
#define FRAME_CONTROL_MAX 16384 /* longest gathered payload */

/* A piece of FRAME_STDOUT or FRAME_STDERR, or a whole other payload, NUL-terminated. Returns 0 to
 * go on; anything else ends frames_feed() with it. */
typedef int (*frames_cb)(uint8_t type, const uint8_t *data, size_t len, void *arg);

struct frames {
    uint8_t head[5];
    size_t n_head;
    uint32_t left; /* payload bytes still to come */
    size_t n_control;
    uint8_t control[FRAME_CONTROL_MAX + 1];
};

void frames_init(struct frames *f);
/* Returns 0, -EMSGSIZE for an overlong control frame, or what cb returned. */
TR_MUST_CHECK int frames_feed(struct frames *f, const uint8_t *data, size_t len, frames_cb cb,
                              void *arg);

#endif
