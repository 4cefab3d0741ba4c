/* SPDX-License-Identifier: MIT */
/* The machine channel: a byte stream between manager and agent over a wire that may outlive either
 * end (virtio-serial), where stale bytes of an earlier conversation can arrive at any time.
 *
 * Wire format. A frame is one type byte, then:
 *   0x00 NOP    nothing. Receivers skip it.
 *   0x01 HELLO  16 bytes nonce. Host to guest: a new conversation begins.
 *   0x02 DATA   2 bytes length (big endian, 1..65535), that many bytes, then one byte 0xff. Counts
 *               only when whole: a frame whose sender went away is completed by the NOPs of the
 *               next one, ends in 0x00, and is dropped.
 *   0x03 READY  16 bytes nonce. Guest to host: echoes HELLO; the conversation is open.
 * The host begins with more NOPs than the longest frame has bytes (65,540), so that a guest that
 * was left in the middle of a frame comes back into step, then sends HELLO, and drops all it
 * receives until READY with its nonce. HELLO is repeated every 500 ms (after NOPs) until answered.
 * A guest that sees HELLO drops its unsent output, ends the conversation under way and answers; a
 * repeated HELLO (same nonce) is answered again and changes nothing. */
#ifndef TRANSOM_CHANNEL_H
#define TRANSOM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

struct tr_channel;

struct tr_channel_cbs {
    /* In step: a fresh byte stream begins. On the guest it may come again and again. */
    void (*on_open)(struct tr_channel *ch, void *arg);
    /* Bytes of the conversation (borrowed). */
    void (*on_data)(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg);
    /* Room again after tr_channel_write() returned 0. */
    void (*on_drain)(struct tr_channel *ch, void *arg);
    /* The conversation under way is over (guest: a new one follows with on_open; host: the wire
     * ended). Pairs with on_open. */
    void (*on_end)(struct tr_channel *ch, int status, void *arg);
    /* The wire ended or tr_channel_close() completed; last event; the channel is freed after. */
    void (*on_close)(struct tr_channel *ch, int status, void *arg);
};

/* Open over descriptors (owned by the channel from success on; fd_in may equal fd_out). host: we
 * speak first. A guest on virtio-serial passes serial: with no host at the other end the device
 * reads as end-of-file and polls as ready, which is then waited out (50 ms), not the end.
 * Returns 0 and *out; no callback runs before this returns. */
TR_MUST_CHECK int tr_channel_open(uv_loop_t *loop, int fd_in, int fd_out, bool host, bool serial,
                                  const struct tr_channel_cbs *cbs, void *arg,
                                  struct tr_channel **out);

/* Send bytes (copied into frames). Returns 1: go on; 0: taken, wait for on_drain; < 0: not taken
 * (UV_EPIPE: no conversation, UV_ENOMEM). */
TR_MUST_CHECK int tr_channel_write(struct tr_channel *ch, const uint8_t *data, size_t len);

/* Close; on_end (if one is open) and on_close follow later, and nothing else. Again: nothing. */
void tr_channel_close(struct tr_channel *ch);

uv_loop_t *tr_channel_loop(const struct tr_channel *ch);

/* The frame parser alone, for tests and fuzzing: feed any bytes; emits through cb. */
#define TR_CHANNEL_NONCE_LEN 16
#define TR_CHANNEL_DATA_MAX  65535
struct tr_channel_parser {
    uint8_t state;
    size_t want, have;                     /* bytes of the frame body: expected, seen */
    uint8_t body[TR_CHANNEL_DATA_MAX + 1]; /* nonce, or data and end mark */
};
enum tr_channel_event { TR_CHANNEL_HELLO, TR_CHANNEL_READY, TR_CHANNEL_BYTES };
typedef void (*tr_channel_event_cb)(enum tr_channel_event event, const uint8_t *data, size_t len,
                                    void *arg);
void tr_channel_parser_init(struct tr_channel_parser *p);
/* Unknown frame types are skipped byte by byte (the sender resynchronises). */
void tr_channel_parse(struct tr_channel_parser *p, const uint8_t *data, size_t len,
                      tr_channel_event_cb cb, void *arg);

#endif
