/* SPDX-License-Identifier: MIT */
/* An HTTP/1 client connection: the front half of its exchanges. */
#ifndef GATEWAY_CLIENT_H
#define GATEWAY_CLIENT_H

#include <netinet/in.h>
#include "gateway/body.h"
#include "gateway/exchange.h"
#include "gateway/out.h"
#include "gateway/runtime.h"

/* PROXY:  a PROXY header is awaited, from a configured peer, before anything else.
 * TLS:    the handshake runs.
 * HEAD:   waiting for, or reading, a request head. x is NULL.
 * BODY:   an exchange runs, its request body comes in.
 * WAIT:   the request is complete, its response is under way. What arrives is kept for later.
 * FLUSH:  the exchange is over, the response's last bytes are still going out.
 * LINGER: nothing more is sent; input is dropped until the client closes, so that it can read the
 *         response before the connection is reset.
 * CLOSED: the socket is closed; freed once nothing on the stack uses it. */
enum gw_client_state {
    GW_CLIENT_PROXY,
    GW_CLIENT_TLS,
    GW_CLIENT_HEAD,
    GW_CLIENT_BODY,
    GW_CLIENT_WAIT,
    GW_CLIENT_FLUSH,
    GW_CLIENT_LINGER,
    GW_CLIENT_CLOSED,
};

union gw_peer {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct gw_client {
    struct gw_sock sock;
    struct gw_worker *w;
    struct gw_client *prev, *next; /* of the worker */
    struct gw_exchange *x;
    struct gw_timer timer;
    struct gw_in in;
    struct gw_out out;
    struct gw_body body;       /* of the request under way */
    struct gw_http1_scan scan; /* of the head being read */
    union gw_peer peer;
    uint64_t window_from; /* body bytes that had come when the clock for more was started */
    uint16_t client_slot; /* in the table of clients' connections; 0: not counted */
    uint8_t state;        /* enum gw_client_state */
    uint8_t busy;         /* process() is on the stack */
    bool keep_alive;      /* go on after this response */
    bool said_keep_alive; /* an HTTP/1.0 client that wants to hear it */
    bool eof;             /* the client will send no more */
    bool discard;         /* the back does not take the body any more */
    bool blocked;         /* the back is full: reading has stopped */
    bool slow;            /* the back had to be waited for */
    bool head_timed;      /* the clock for a whole head runs */
    bool may_be_http2;    /* what came so far is the beginning of its preface */
    bool tls;             /* of the listener; used after PROXY */
    bool no_body;         /* the response under way has none */
};

/* Take over an accepted connection. */
void gw_client_start(struct gw_worker *w, struct gw_sock *sock, bool tls);
/* End at once, whatever is under way. */
void gw_client_close(struct gw_client *c);
/* End idle ones; others at their response's end. */
void gw_client_drain(struct gw_client *c);

/* For the two files of this module. */
extern const struct gw_front_ops gw_client_front;
void gw_client_finish(struct gw_client *c);
void gw_client_reset(struct gw_client *c);
void gw_client_resume(struct gw_client *c);
void gw_client_write_wait(struct gw_client *c);
struct gw_tunnel_end;
void gw_client_hand_over(struct gw_client *c, struct gw_tunnel_end *end);

#endif
