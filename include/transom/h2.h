/* SPDX-License-Identifier: MIT */
/* An HTTP/2 session (RFC 9113) over any byte stream: nghttp2 underneath, the transport on top is
 * the caller's. Adapters for libuv streams and for the machine channel are in h2_uv.h.
 *
 * One thread. No callback runs from inside a tr_h2_* call except tr_h2_feed(), tr_h2_writable(),
 * tr_h2_run(), tr_h2_abort() (closes streams) and tr_h2_free(). Any call is allowed from inside a
 * callback but tr_h2_feed(); tr_h2_abort() then takes effect when the callback has returned. */
#ifndef TRANSOM_H2_H
#define TRANSOM_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

struct tr_h2;
struct tr_h2_stream;

/* A header field. Names are lower case. Not NUL-terminated when received, unless said. */
struct tr_h2_field {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};
#define TR_H2_FIELD(n, v)                                                                          \
    (struct tr_h2_field)                                                                           \
    {                                                                                              \
        .name = (n), .name_len = sizeof(n) - 1, .value = (v), .value_len = strlen(v)               \
    }

/* A received head: request (server), response or trailers. Valid until the callback returns; the
 * request head of a server stream until its on_close returned. Strings are NUL-terminated too
 * (a received field never holds a NUL: nghttp2 refuses it). */
struct tr_h2_head {
    const char *method, *scheme, *authority, *path, *protocol; /* NULL when absent */
    int status;                                                /* response only, else 0 */
    const struct tr_h2_field *fields;                          /* without pseudo-headers */
    size_t n_fields;
};

/* Value of the first field of that name (lower case), or NULL. */
const char *tr_h2_head_get(const struct tr_h2_head *head, const char *name);

/* Events of one stream. Any may be NULL. After on_close the stream is gone. */
struct tr_h2_stream_cbs {
    /* Client only: a response head; may come several times for 1xx. end: no body follows. */
    void (*on_head)(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg);
    /* Body bytes (borrowed). The peer may send only as much as was given back with
     * tr_h2_stream_consume(): call it when the bytes have left, at once or later. */
    void (*on_data)(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg);
    /* The peer's side is complete; trailers is NULL when there were none. Runs for every stream
     * that gets this far, also right after a head whose end was true. */
    void (*on_end)(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg);
    /* The bytes queued for sending fell to the low-water mark after tr_h2_write() said stop. */
    void (*on_drain)(struct tr_h2_stream *st, void *arg);
    /* Last event, exactly once: code 0 (ended well both ways) or an RFC 9113 section 7 code. */
    void (*on_close)(struct tr_h2_stream *st, uint32_t code, void *arg);
};

struct tr_h2_cbs {
    /* Server: a request head. Set the stream's callbacks with tr_h2_stream_set() here, or refuse
     * with tr_h2_respond()/tr_h2_reset(). end: no body follows. */
    void (*on_request)(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg);
    /* Take len bytes for the wire (copy them all). Returns false when full: nothing more is offered
     * until tr_h2_writable(). */
    bool (*send)(const uint8_t *data, size_t len, void *arg);
    /* A call from outside any callback left something to send or to report: call tr_h2_run() soon
     * (not from here). May be NULL for who calls tr_h2_run() after each such call. */
    void (*wake)(void *arg);
    /* The session is over: all streams were closed. status 0 after a graceful end, else the
     * reason. Close the transport and tr_h2_free() (allowed from here). Exactly once. */
    void (*on_over)(struct tr_h2 *h2, int status, const char *reason, void *arg);
};

struct tr_h2_options {
    uint32_t max_streams;   /* concurrent, started by the peer (server); 0: 256 */
    uint32_t stream_window; /* bytes; 0: 256 KiB */
    /* Bytes of all streams together that may wait for tr_h2_stream_consume(). 0: twice max_streams
     * full windows, so that no number of slow readers holds up the others (twice, since the peer is
     * told only when half of a window was given back). */
    uint32_t session_window;
    uint32_t max_head_bytes; /* header list of one head; 0: 64 KiB */
    /* Queued bytes per stream at which tr_h2_write() says stop; 0: 256 KiB. */
    size_t stream_high_water;
    /* Server: streams per second that the peer may reset for long (30 times that at once) before
     * the session ends. Raise it for a peer that passes on other people's requests. 0: 33. */
    uint32_t reset_rate;
    /* h2_uv.h over a stream: a peer that takes no bytes for so long, while some wait, ends the
     * connection (UV_ETIMEDOUT); 0: 30 s. */
    uint32_t write_stall_ms;
    bool connect_protocol; /* server: offer extended CONNECT (RFC 8441) */
};

/* Create a session; the peer's preface or ours is produced at the first tr_h2_writable().
 * cbs and options are copied. Returns 0 and *out, or UV_ENOMEM. */
TR_MUST_CHECK int tr_h2_new(bool server, const struct tr_h2_options *options,
                            const struct tr_h2_cbs *cbs, void *arg, struct tr_h2 **out);
/* Ends at once: streams get on_close (code CANCEL); on_over does not run. NULL is allowed. */
void tr_h2_free(struct tr_h2 *h2);

/* Bytes from the wire. Callbacks run, and answers are sent. A broken peer ends in on_over. */
void tr_h2_feed(struct tr_h2 *h2, const uint8_t *data, size_t len);
/* The transport can take bytes (again): offers what is waiting. Also call once after opening. */
void tr_h2_writable(struct tr_h2 *h2);
/* Offers what is waiting if the transport is not full, and reports what is due. See wake. */
void tr_h2_run(struct tr_h2 *h2);
/* The transport ended: every stream closes (code CANCEL), then on_over(status). */
void tr_h2_abort(struct tr_h2 *h2, int status, const char *reason);
/* The same, but nothing runs before this returns: all of it comes from the next tr_h2_run(), and no
 * other event before. */
void tr_h2_abort_later(struct tr_h2 *h2, int status, const char *reason);
/* Graceful: GOAWAY; running streams end by themselves, then on_over(0). */
void tr_h2_shutdown(struct tr_h2 *h2);
/* Send a PING; cb runs once: 0, or an error when the session ended first. */
TR_MUST_CHECK int tr_h2_ping(struct tr_h2 *h2, void (*cb)(int status, void *arg), void *arg);
size_t tr_h2_n_streams(const struct tr_h2 *h2);
bool tr_h2_can_request(const struct tr_h2 *h2); /* client: no GOAWAY seen, room for a stream */
bool tr_h2_peer_connect_protocol(const struct tr_h2 *h2); /* client: server takes RFC 8441 */

/* Client: open a stream. fields include the pseudo-headers, first. end: no body follows.
 * Returns 0 and *out (borrowed, valid until on_close), UV_ENOMEM, UV_EAGAIN (peer's limit, or the
 * session is ending), UV_EINVAL (a field that may not be sent). */
TR_MUST_CHECK int tr_h2_request(struct tr_h2 *h2, const struct tr_h2_field *fields, size_t n_fields,
                                bool end, const struct tr_h2_stream_cbs *cbs, void *arg,
                                struct tr_h2_stream **out);

void tr_h2_stream_set(struct tr_h2_stream *st, const struct tr_h2_stream_cbs *cbs, void *arg);
void *tr_h2_stream_arg(const struct tr_h2_stream *st);
struct tr_h2 *tr_h2_stream_session(const struct tr_h2_stream *st);
int32_t tr_h2_stream_id(const struct tr_h2_stream *st);

/* Server: response head. 1xx (not 101) may precede the final one. end: no body follows. After the
 * final head a second one is UV_EINVAL, as is a field that may not be sent; UV_EPIPE after reset.
 */
TR_MUST_CHECK int tr_h2_respond(struct tr_h2_stream *st, int status,
                                const struct tr_h2_field *fields, size_t n_fields, bool end);
/* Queue body bytes (copied). Returns 1: go on; 0: taken, but stop until on_drain; < 0: not taken
 * (UV_EPIPE after end or reset, UV_ENOMEM). */
TR_MUST_CHECK int tr_h2_write(struct tr_h2_stream *st, const void *data, size_t len);
/* No more body; trailers may be NULL. A second call does nothing. */
void tr_h2_end(struct tr_h2_stream *st, const struct tr_h2_field *trailers, size_t n_trailers);
/* End both directions with an RFC 9113 code; queued bytes are dropped. on_close follows later. */
void tr_h2_reset(struct tr_h2_stream *st, uint32_t code);
/* n body bytes were dealt with: the peer may send as many more. */
void tr_h2_stream_consume(struct tr_h2_stream *st, size_t n);
/* The rest of the peer's body is not wanted: its bytes are dropped (given back, on_data runs no
 * more; on_end still may). Server: once the answer is out, the stream ends without waiting for it.
 */
void tr_h2_stream_discard(struct tr_h2_stream *st);
size_t
tr_h2_stream_queued(const struct tr_h2_stream *st); /* bytes waiting in tr_h2_write()'s queue */

#endif
