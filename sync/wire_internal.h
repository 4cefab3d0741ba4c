/* SPDX-License-Identifier: MIT */
/* What the parts of the wire share: wire_msg.c (payloads), wire_block.c (blocks). */
#ifndef SYNC_WIRE_INTERNAL_H
#define SYNC_WIRE_INTERNAL_H

#include "sync/wire.h"

/* Any message with its head fits: the longest has a piece of content, or two paths. */
enum { SYNC_MSG_ROOM = 5 + SYNC_MSG_MAX };

struct sync_buf {
    uint8_t *bytes;
    size_t len;
};

bool sync_status_valid(int64_t status);
/* Append one message; there are SYNC_MSG_ROOM bytes. Returns 0 or UV_EINVAL. */
TR_MUST_CHECK int sync_msg_put(struct sync_buf *buf, const struct sync_msg *msg);

#endif
