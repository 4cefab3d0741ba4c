/* SPDX-License-Identifier: MIT */
/* The client's end of an HTTP/2 connection: a tr_h2 session over one of the worker's sockets. What
 * many callbacks asked for leaves in one write. */
#ifndef GATEWAY_H2_LINK_H
#define GATEWAY_H2_LINK_H

#include "gateway/buf.h"
#include "gateway/runtime.h"
#include "transom/h2.h"

struct gw_worker;

struct gw_h2_link_cbs {
    /* Something happened, and all callbacks of the session have returned: there may be room for
     * streams again; the link may be closed and its owner freed. */
    void (*on_turn)(void *arg);
    /* Instead: the session is over and every stream was closed, and so is the link; its owner may
     * be freed. status is 0 after a graceful end. */
    void (*on_over)(int status, const char *reason, void *arg);
};

/* Embedded in its owner; all zero when closed. */
struct gw_h2_link {
    struct gw_worker *w;
    struct tr_h2 *h2; /* NULL: closed */
    struct gw_sock sock;
    struct gw_timer run_timer;
    struct gw_buf *out; /* on its way to the socket */
    const struct gw_h2_link_cbs *cbs;
    void *arg;
    char first[5]; /* what the peer began with */
    uint8_t n_first;
    bool over; /* on_over is due, with these */
    int status;
    char reason[96];
};

/* Takes the connected socket over (moved). cbs and arg must outlive the link. Returns 0, or
 * UV_ENOMEM, and the socket is closed. */
TR_MUST_CHECK int gw_h2_link_open(struct gw_h2_link *l, struct gw_worker *w, struct gw_sock *sock,
                                  const struct tr_h2_options *options,
                                  const struct gw_h2_link_cbs *cbs, void *arg);
/* End at once: streams get their on_close, on_over does not run. Does nothing when closed. Not from
 * a callback of the session. */
void gw_h2_link_close(struct gw_h2_link *l);
/* Has the peer said anything? An HTTP/2 server begins with its settings. */
static inline bool gw_h2_link_heard(const struct gw_h2_link *l)
{
    return l->n_first > 0;
}
/* Did the peer begin as an HTTP/1 server does? */
bool gw_h2_link_is_http1(const struct gw_h2_link *l);

#endif
