/* SPDX-License-Identifier: MIT */
/* One request and its response. An exchange stands between two halves that never see each other:
 *
 *   front: who asked (HTTP/1 client connection, HTTP/2 stream)
 *   back:  who answers (HTTP/1 connection to a machine, HTTP/2 stream to the manager)
 *
 * Flow control: body() takes what can be written now and returns how much. The caller keeps the
 * rest, stops its own source, and shows the rest again when the other side calls resume().
 *
 * Life: none of the functions below destroys the caller. A half that breaks says so from an event
 * of its own: the back with gw_exchange_back_failed(), the front with gw_exchange_front_gone(). A
 * call into a broken half returns an error, and the caller lets go of it. */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include <sys/types.h>
#include "gateway/buf.h"
#include "gateway/host.h"
#include "gateway/message.h"
#include "gateway/request_id.h"
#include "gateway/table.h"

struct gw_exchange;
struct gw_tunnel_end;
struct gw_worker;

struct gw_front_ops {
    /* 1xx; sent at once. */
    int (*interim)(struct gw_exchange *x, const struct gw_response *resp);
    /* The final head; goes out with the first body bytes, end or flush. */
    int (*head)(struct gw_exchange *x, const struct gw_response *resp);
    ssize_t (*body)(struct gw_exchange *x, const char *data, size_t len, bool last);
    int (*end)(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers);
    int (*flush)(struct gw_exchange *x);
    /* A whole short response, copied. */
    int (*page)(struct gw_exchange *x, const struct gw_response *resp, const char *body,
                size_t len);
    /* The back has room for request body again. */
    void (*resume)(struct gw_exchange *x);
    /* The exchange is over; the response was handed over whole. x is freed after. */
    void (*done)(struct gw_exchange *x);
    /* The exchange is over; the response cannot be finished: make that visible. x is freed after.
     */
    void (*broken)(struct gw_exchange *x);
    /* The back answered 101 to a valid upgrade: the client's side of the tunnel moves to *end, the
     * front is gone afterwards (except on error). UV_EPROTO: the answer is not what was asked for.
     */
    int (*upgrade)(struct gw_exchange *x, const struct gw_response *resp,
                   struct gw_tunnel_end *end);
};

struct gw_back_ops {
    ssize_t (*body)(struct gw_exchange *x, const char *data, size_t len, bool last);
    int (*end)(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers);
    int (*flush)(struct gw_exchange *x);
    /* The front has room for response body again. */
    void (*resume)(struct gw_exchange *x);
    /* The exchange is over before the back was done: let go of x at once. */
    void (*cancel)(struct gw_exchange *x);
};

struct gw_exchange {
    struct gw_worker *worker;
    const struct gw_front_ops *front_ops;
    void *front;
    const struct gw_back_ops *back_ops; /* NULL: no back (yet, or any more) */
    void *back;
    struct gw_exchange *next_free;

    /* Of the request. */
    enum gw_method method;
    enum gw_framing request_framing;
    uint64_t request_length;
    uint8_t minor;
    bool upgrade;      /* asks for a WebSocket */
    bool wants_html;   /* pages for people, else JSON */
    bool request_done; /* the front has received all of it */
    bool http2;
    bool tls;
    bool guard;          /* the answer must not be a document: gw_admin_guard() */
    bool public_tls;     /* the client speaks https, be it to a trusted proxy before the edge */
    struct gw_buf *head; /* as sent upstream; kept until the response begins, for one retry */
    char request_id[GW_REQUEST_ID_LEN + 1]; /* made here, to be passed on; "": the client's own */
    struct gw_str host; /* as sent; lies in what the back keeps of the head, as long as that */

    /* Of the answer. */
    bool head_sent; /* the final head was given to the front */
    bool retried;
    int status;
    struct gw_route route;
    uint16_t host_port;      /* of the host name PORT-LABEL; 0: of the label alone */
    uint64_t admitted_until; /* Unix seconds, by the visitor's token; 0: for ever */
    uint16_t use;            /* where the sandbox's requests are counted; 0: not counted */
    uint64_t connect_until;  /* connection refused is tried again until then */

    /* For the log. */
    uint64_t start_ms, bytes_in, bytes_out;
    struct gw_buf *log; /* NULL when there is no access log */
};

/* Begin: find the route, answer with a page or start a back. The front's functions may run before
 * this returns, done() included. req may come back changed: with strings of the exchange's own
 * where something is not to reach the app (they are gone when this returns), and fields marked as
 * ending here. The front's own bytes stay as they are. */
void gw_exchange_start(struct gw_exchange *x, struct gw_request *req, const struct sockaddr *peer);
struct gw_exchange *gw_exchange_new(struct gw_worker *w);

/* Answer with a page; x has no back. The exchange is over. */
struct gw_page;
void gw_exchange_answer(struct gw_exchange *x, const struct gw_page *page);

/* From the back: the final head. Notes the status, then the front's head(). */
TR_MUST_CHECK int gw_exchange_head(struct gw_exchange *x, const struct gw_response *resp);
/* From the back: its part is over and it has let go of x. */
void gw_exchange_back_done(struct gw_exchange *x);
/* From the back: it failed and has let go of x. Answers with a page if the head is not out yet. */
void gw_exchange_back_failed(struct gw_exchange *x, int status, const char *code,
                             const char *message);
/* From the front: the request turned out to be malformed. Cancels the back; answers with a page if
 * the head is not out yet. */
void gw_exchange_front_failed(struct gw_exchange *x, int status, const char *code,
                              const char *message);
/* From the front: the client is gone. Cancels the back, frees x. */
void gw_exchange_front_gone(struct gw_exchange *x);
/* From the back, after 101: the client connection became a tunnel. Frees x. */
void gw_exchange_upgraded(struct gw_exchange *x);

#endif
