/* SPDX-License-Identifier: MIT */
/* Where WebSocket frames begin and end in a stream that passes by (RFC 6455 section 5.2), so that a
 * frame of our own can be put between two of them. Nothing is checked: what makes no sense is
 * somebody else's fault, and then no place is found. */
#ifndef GATEWAY_WS_FRAMES_H
#define GATEWAY_WS_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_ws_frames {       /* all zero: at the beginning */
    uint64_t left;          /* payload bytes of the frame under way */
    unsigned char head[10]; /* its head, without the mask, as far as it came */
    uint8_t n_head;
    uint8_t n_mask; /* bytes of the mask that are still to come */
    bool closed;    /* a close frame went by: nothing may follow */
    bool lost;      /* this is no WebSocket */
};

/* These bytes pass by. */
void gw_ws_frames_pass(struct gw_ws_frames *f, const char *data, size_t len);
/* May a frame stand here? */
bool gw_ws_frames_between(const struct gw_ws_frames *f);

/* A server's close frame with status 1001, going away (section 7.4.1). */
#define GW_WS_GOING_AWAY "\x88\x02\x03\xe9"

#endif
