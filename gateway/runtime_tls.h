/* SPDX-License-Identifier: MIT */
/* Inside the runtime: the loop's own fields, and TLS after the handshake. */
#ifndef GATEWAY_RUNTIME_TLS_H
#define GATEWAY_RUNTIME_TLS_H

#include <openssl/ssl.h>
#include "gateway/runtime.h"

struct st_h2o_evloop_t;
struct st_h2o_socket_t;

#define GW_RECORD_LEN ((size_t)16 * 1024)
#define GW_WRITE_MAX  ((size_t)144 * 1024) /* of one write: a full scratch and its framing */
#define GW_SEALED_LEN ((size_t)160 * 1024) /* that, as records */

struct gw_loop {
    struct st_h2o_evloop_t *ev;
    struct st_h2o_socket_t *wake_sock;
    int wake_fd;
    void (*on_wake)(void *arg);
    void *wake_arg;
    uint64_t now;
    bool now_stale;
    struct gw_timeout *timeouts[GW_TIMEOUTS_MAX];
    size_t n_timeouts;
    char *scratch;
    struct gw_tls *ready; /* TLS sockets with bytes that epoll does not know of */
    /* While a write seals records, they gather here; empty between calls. */
    struct gw_tls *corked;
    unsigned char *sealed;
    size_t sealed_len;
    unsigned char *merge; /* short pieces of one write, on their way into one record */
};

struct gw_tls {
    SSL *ssl; /* borrowed from libh2o's socket */
    struct gw_loop *loop;
    struct gw_sock *sock;
    unsigned char *out; /* sealed records that the kernel did not take */
    size_t out_len, out_off, out_cap;
    struct gw_tls *ready_next, **ready_link; /* ready_link is NULL when not in loop->ready */
    bool up;       /* the handshake is over and OpenSSL works on the descriptor */
    bool pending;  /* read without asking epoll: bytes are waiting in libh2o or OpenSSL */
    bool shut;     /* close_notify was sent */
    bool shut_due; /* shut down the descriptor once out is empty */
    bool abort;    /* close without close_notify */
    bool broken;
};

/* After the handshake: OpenSSL now works on the descriptor directly. 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_tls_take_over(struct gw_tls *tls, struct st_h2o_socket_t *impl);
TR_MUST_CHECK ssize_t gw_tls_read(struct gw_tls *tls, void *buf, size_t len);
TR_MUST_CHECK ssize_t gw_tls_writev(struct gw_tls *tls, const struct iovec *iov, int n);
void gw_tls_read_started(struct gw_tls *tls);
/* Call on_read of sockets whose bytes wait above the kernel. */
void gw_tls_run_ready(struct gw_loop *loop);
/* Push sealed bytes to the kernel; true when none are left (or never will be). */
bool gw_tls_flush(struct gw_tls *tls);
/* Send close_notify; false: the descriptor may be shut down later only (done by flush). */
bool gw_tls_shutdown(struct gw_tls *tls);
void gw_tls_closing(struct gw_tls *tls);

#endif
