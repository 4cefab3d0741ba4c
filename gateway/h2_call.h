/* SPDX-License-Identifier: MIT */
/* The back half of an exchange as a stream of an HTTP/2 connection (h2_link.h). Bodies pass both
 * ways with the stream's windows as backpressure: what the client does not take is kept here, and
 * the peer is given room only for what it has taken.
 *
 * A WebSocket (RFC 8441) is a call, too: once it is answered, the stream is the app's end of a
 * tunnel. */
#ifndef GATEWAY_H2_CALL_H
#define GATEWAY_H2_CALL_H

#include "gateway/exchange.h"
#include "gateway/runtime.h"
#include "gateway/tunnel.h"
#include "gateway/ws_accept.h"
#include "transom/h2.h"

struct gw_h2_call;
struct gw_h2_kept;

/* Windows of a connection whose streams are calls. */
#define GW_H2_CALL_WINDOW ((uint32_t)64 * 1024)
extern const struct tr_h2_options gw_h2_call_options;

struct gw_h2_call_ops {
    /* The stream was closed before its response was complete, with an RFC 9113 section 7 code; the
     * exchange still waits. Called by the session: note it, and open the call again or fail it when
     * the link's turn ends. */
    void (*on_lost)(struct gw_h2_call *c, uint32_t code);
    /* The stream is closed and the response complete, but the client has yet to take the rest of
     * it. The connection is of no concern to the call any more. May be NULL. */
    void (*on_received)(struct gw_h2_call *c);
    /* As on_lost, for a response that makes no sense; why is a constant. */
    void (*on_bad_response)(struct gw_h2_call *c, const char *why);
    /* No answer in time. The call has no stream any more. Fail it. */
    void (*on_timeout)(struct gw_h2_call *c);
    /* The last event: neither exchange, tunnel nor stream are left. The owner frees the call. */
    void (*on_free)(struct gw_h2_call *c);
    /* The answer comes from an app: rewrite.h. */
    bool from_app;
};

/* Embedded in its owner. */
struct gw_h2_call {
    struct gw_worker *w;
    struct gw_exchange *x;   /* NULL once the exchange has ended, or is a tunnel */
    struct tr_h2_stream *st; /* NULL: not open (yet, or any more) */
    const struct gw_h2_call_ops *ops;
    struct gw_timer timer;
    struct tr_h2_field *fields; /* of the request; owned, their text is the owner's */
    size_t n_fields;
    struct gw_h2_kept *request_trailers; /* came before there was a stream */
    struct gw_buf *queue;                /* response body not taken yet */
    struct gw_h2_kept *trailers;         /* of the response, behind the queue */
    struct gw_tunnel_peer tunnel;
    char accept[GW_WS_ACCEPT_LEN + 1]; /* for a client that asked for a WebSocket, else "" */
    bool held;                         /* on the stack: not freed */
    bool end_due;                      /* the request ended before there was a stream */
    bool request_ended;                /* the stream was told */
    bool full;                         /* the stream takes no more for now */
    bool body_taken;                   /* some of the request's body cannot be had again */
    bool heard;                        /* something of the response came */
    bool head_done;                    /* its final head did */
    bool streams;                      /* which told no length */
    bool ended;                        /* all of it did */
    bool end_passed;                   /* and the tunnel was told */
};

/* Becomes x's back. When the client asks for a WebSocket, accept is set afterwards, and fields are
 * those of an extended CONNECT. fields is taken over (malloc); what it points to must stay until
 * the response begins. The clock for an answer runs from here. */
void gw_h2_call_init(struct gw_h2_call *c, struct gw_exchange *x, const struct gw_h2_call_ops *ops,
                     struct tr_h2_field *fields, size_t n_fields);
/* Send the request on a stream. Returns 0; UV_EAGAIN when the connection has no room; UV_EINVAL for
 * a field that HTTP/2 cannot carry; UV_ENOMEM. */
TR_MUST_CHECK int gw_h2_call_open(struct gw_h2_call *c, struct tr_h2 *h2);
/* May the request be sent again, as far as its own state goes? */
bool gw_h2_call_is_whole(const struct gw_h2_call *c);
/* Answer with a page, or end the response visibly. on_free follows, perhaps before this returns. */
void gw_h2_call_fail(struct gw_h2_call *c, int status, const char *code, const char *message);

#endif
