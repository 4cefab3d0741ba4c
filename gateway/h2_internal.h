/* SPDX-License-Identifier: MIT */
/* Inside the HTTP/2 front. Who calls whom:
 *
 *   h2_client.c   the connection: session, socket, timers, drain
 *   h2_request.c  header blocks: collected, checked, made a request
 *   h2_stream.c   the stream: its life, what it receives
 *   h2_response.c what it sends
 *   h2_tunnel.c   as the client's end of a tunnel
 *   h2_limits.c   what a peer may make us do for nothing
 *
 * nghttp2 must not be entered from its own callbacks. While it receives, only its submit functions
 * are used; frames are taken from it afterwards, by gw_h2_pump(), and go out at the end of the
 * loop's turn, by gw_h2_touch(), so that the answers of many streams leave in one write. */
#ifndef GATEWAY_H2_INTERNAL_H
#define GATEWAY_H2_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include "gateway/exchange.h"
#include "gateway/h2.h"
#include "gateway/http1.h"
#include "gateway/tunnel.h"

/* Received body bytes that may wait for a machine: of one stream, of the connection. */
#define GW_H2_STREAM_WINDOW  (128 * 1024)
#define GW_H2_SESSION_WINDOW (1024 * 1024)
/* Frames that wait for the socket; more are made only when these have gone. */
#define GW_H2_OUT_HIGH       ((size_t)64 * 1024)

struct gw_h2_limits {
    uint64_t at;       /* when the two below were brought up to date (loop time) */
    uint32_t resets;   /* streams that were reset, by the client or through its fault */
    uint32_t noise;    /* frames that bring nothing */
    uint32_t progress; /* body bytes moved since noise was last forgiven for some */
};

/* RUN:    the session is alive.
 * ENDING: it is over; what is in out still leaves, then the write side shuts down.
 * LINGER: input is dropped until the client closes, so that it can read what we said last.
 * CLOSED: the socket is closed; freed once nothing on the stack uses it. */
enum gw_h2_state { GW_H2_RUN, GW_H2_ENDING, GW_H2_LINGER, GW_H2_CLOSED };

/* What the connection's timer waits for. */
enum gw_h2_wait {
    GW_H2_WAIT_NOTHING,
    GW_H2_WAIT_IDLE,
    GW_H2_WAIT_HEAD,
    GW_H2_WAIT_WRITE,
    GW_H2_WAIT_END,
};

struct gw_h2_stream;

/* A header block, collected. */
struct gw_h2_block {
    struct gw_buf *buf; /* NULL: no fields */
    uint32_t bytes, fields, cookie_bytes, n_cookies;
    bool too_large;
};

struct gw_h2_list {
    struct gw_h2_stream *first, *last;
};

struct gw_h2_client {
    struct gw_sock sock;
    struct gw_worker *w;
    struct gw_h2_client *prev, *next; /* of the worker */
    nghttp2_session *ng;
    struct gw_timer timer, turn, drain;
    struct gw_buf *out; /* frames for the socket */
    struct gw_h2_stream *streams;
    unsigned n_streams;
    struct gw_h2_list due;     /* have something to do when nghttp2 is done receiving */
    struct gw_h2_list waiting; /* have response bytes to show again */
    struct gw_h2_limits limits;
    union gw_peer peer;
    uint16_t client_slot; /* as in struct gw_client */

    /* The header block being received. */
    struct gw_h2_block block;
    bool head_open;

    uint8_t state;     /* enum gw_h2_state */
    uint8_t wait;      /* enum gw_h2_wait */
    uint8_t busy;      /* on the stack */
    bool inside;       /* nghttp2 is on the stack */
    bool receiving;    /* and calls back about what it received */
    bool failing;      /* the connection ends with fail_code */
    bool broken;       /* the socket does not take any more */
    bool window_moved; /* streams that wait may go on */
    bool draining, last_goaway;
    uint32_t fail_code;
    const char *fail_why;
};

struct gw_h2_stream {
    struct gw_h2_client *c;
    struct gw_exchange *x;            /* NULL before it began and after it ended */
    struct gw_h2_stream *prev, *next; /* of the connection; next: of the free list */
    struct gw_h2_stream *due_next;
    struct gw_h2_stream *wait_prev, *wait_next;
    struct gw_timer timer; /* the client is to send body, or to take some */
    int32_t id;

    /* The request waits until nghttp2 is done receiving: one that is taken back in the same breath
     * costs no app anything. */
    struct gw_h2_block head;
    bool head_due;
    bool head_ended; /* no body follows */

    /* Request body */
    struct gw_buf *in;       /* what the back has not taken yet; its window was not given back */
    struct gw_buf *trailers; /* as collected; NULL: none */
    uint64_t window_from;    /* x->bytes_in when timer was started for the client's body */
    bool remote_ended;       /* END_STREAM came */
    bool end_passed;         /* the back was told, or needs not be */
    bool blocked;            /* the back is full */
    bool discard;            /* the back does not take the body any more */
    bool flush_due;          /* the head may have to go before any body */

    /* Response */
    const char *data; /* shown by the back just now */
    size_t data_len;
    bool last;           /* the body ends with data */
    struct gw_buf *page; /* a copied body */
    bool ended;          /* all of the response was handed to nghttp2 */
    bool answered;       /* and sent, before the request's end; x may be gone */
    uint32_t late;       /* request body bytes that came after that */
    bool mute;           /* the body is not for the client */
    bool closed;         /* gone in nghttp2 */
    bool orderly;        /* both sides ended; the tunnel has the rest still */
    bool is_due, is_waiting, held;
    struct gw_tunnel_peer tunnel;
    char accept[32]; /* what Sec-WebSocket-Accept must say; "": no WebSocket */
};

/* h2_client.c */
/* Something is to be sent or looked at: at the end of this turn. */
void gw_h2_touch(struct gw_h2_client *c);
/* Take frames from nghttp2 as long as there is room. */
void gw_h2_pump(struct gw_h2_client *c);
/* Write what is there. Afterwards out is empty, or the socket is full or broken. */
void gw_h2_write(struct gw_h2_client *c);
/* The connection ends for a reason that the client is told: GOAWAY with code, from the turn's end.
 * Callbacks of nghttp2 return the result. */
int gw_h2_fail(struct gw_h2_client *c, uint32_t code, const char *why);

/* h2_stream.c */
struct gw_h2_stream *gw_h2_stream_new(struct gw_h2_client *c, int32_t id);
/* The header block of a request is complete. */
void gw_h2_stream_begin(struct gw_h2_stream *s, bool end);
/* The same for trailers, which end the stream. */
void gw_h2_stream_trailers(struct gw_h2_stream *s);
/* Received body; 0 or an error of nghttp2. */
int gw_h2_stream_data(struct gw_h2_stream *s, const uint8_t *data, size_t len);
/* END_STREAM was received. */
void gw_h2_stream_ended(struct gw_h2_stream *s);
/* The response's END_STREAM was sent before the request's came. The rest is not wanted (RFC 9113
 * section 8.1); but a short one is taken and dropped, since not every client can bear a reset then.
 */
void gw_h2_stream_answered(struct gw_h2_stream *s);
/* The client broke the stream; nghttp2 resets it, if it has not been. */
void gw_h2_stream_lost(struct gw_h2_stream *s);
/* The stream is closed in nghttp2. */
void gw_h2_stream_closed(struct gw_h2_stream *s, uint32_t code);
/* After receiving: pass bodies on. */
void gw_h2_run_due(struct gw_h2_client *c);
/* The connection is over: so is every stream. */
void gw_h2_streams_gone(struct gw_h2_client *c);
/* There is room for received body again. */
void gw_h2_stream_resume(struct gw_h2_stream *s);
/* Have gw_h2_run_due() look at it. */
void gw_h2_stream_due(struct gw_h2_stream *s);
/* Bytes for the client are shown again once there is room; or not any more. */
void gw_h2_stream_wait(struct gw_h2_stream *s);
void gw_h2_stream_go_on(struct gw_h2_stream *s);
/* RST_STREAM; its exchange or tunnel is over. */
void gw_h2_stream_reset(struct gw_h2_stream *s, uint32_t code);
/* Received bytes that nobody wants: the window is everybody's. */
void gw_h2_stream_drop_in(struct gw_h2_stream *s);
/* Free it unless something knows it still. */
void gw_h2_stream_release(struct gw_h2_stream *s);
void gw_h2_stream_timeout(struct gw_timer *timer);

/* h2_response.c */
extern const struct gw_front_ops gw_h2_front;
/* The final head; body: something follows. */
TR_MUST_CHECK int gw_h2_stream_submit(struct gw_h2_stream *s, const struct gw_response *resp,
                                      bool body);
/* Bytes for the client: how many were taken. When less than all, the stream waits. */
TR_MUST_CHECK ssize_t gw_h2_stream_send(struct gw_h2_stream *s, const char *data, size_t len,
                                        bool last);
/* END_STREAM, if it was not sent yet. */
TR_MUST_CHECK int gw_h2_stream_finish(struct gw_h2_stream *s, const struct gw_field *trailers,
                                      size_t n_trailers);
/* There may be room for response bodies again. */
void gw_h2_run_waiting(struct gw_h2_client *c);
/* Callbacks of nghttp2. */
ssize_t gw_h2_read_body(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
                        nghttp2_data_source *source, void *arg);
int gw_h2_send_body(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t len,
                    nghttp2_data_source *source, void *arg);

/* h2_tunnel.c */
int gw_h2_stream_upgrade(struct gw_exchange *x, const struct gw_response *resp,
                         struct gw_tunnel_end *end);
/* Pass on what was received. */
void gw_h2_tunnel_deliver(struct gw_h2_stream *s);

/* h2_request.c */
void gw_h2_head_begin(struct gw_h2_client *c);
void gw_h2_head_drop(struct gw_h2_client *c);
/* One field of the block. 0 or NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE. */
int gw_h2_head_add(struct gw_h2_client *c, const uint8_t *name, size_t name_len,
                   const uint8_t *value, size_t value_len);
/* The request of a complete block; end: no body follows. Strings point into the block, fields are
 * the worker's. accept gets what the app must answer to a WebSocket handshake, else "". Returns 0,
 * or a status to answer with; *why is then a short constant. */
TR_MUST_CHECK int gw_h2_head_request(struct gw_worker *w, struct gw_h2_block *block, bool end,
                                     struct gw_request *out, char accept[32], const char **why);
/* Trailer fields out of a block, into the worker's fields; block may be NULL. Returns how many, or
 * -1 when they are malformed or too many. */
TR_MUST_CHECK long gw_h2_head_trailers(struct gw_worker *w, struct gw_buf *block);

/* h2_limits.c */
/* Each returns false when the connection has done it too often. */
bool gw_h2_count_reset(struct gw_h2_client *c);
bool gw_h2_count_noise(struct gw_h2_client *c);
/* Body bytes moved: some frames around them are only natural. freely: sent without having to wait
 * for a window. */
void gw_h2_count_progress(struct gw_h2_client *c, size_t bytes, bool freely);

#endif
