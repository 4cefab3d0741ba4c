/* SPDX-License-Identifier: MIT */
/* The worker's runtime: event loop, timers, sockets with TLS. All of libh2o is behind this header,
 * so that another runtime can take its place. One loop per thread; nothing here may be called from
 * another thread, except gw_loop_wake().
 *
 * Sockets are non-blocking in the plain sense: read and write do what they can at once and say so.
 * Nothing is buffered here but what TLS has already sealed (at most one write's records), so memory
 * stays bounded by what callers hold. */
#ifndef GATEWAY_RUNTIME_H
#define GATEWAY_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "transom/err.h"

struct gw_loop;
struct gw_sock;
struct ssl_ctx_st;

/* Loop */

TR_MUST_CHECK int gw_loop_new(struct gw_loop **out);
/* All sockets must be closed and all timers stopped. */
void gw_loop_free(struct gw_loop *loop);
/* One turn: waits at most max_ms for events or timers, then runs their callbacks. */
void gw_loop_run(struct gw_loop *loop, int max_ms);
/* Monotonic milliseconds, read once per turn. */
uint64_t gw_loop_now(const struct gw_loop *loop);
/* From any thread: wake_cb runs on the loop's thread soon. */
void gw_loop_on_wake(struct gw_loop *loop, void (*wake_cb)(void *arg), void *arg);
void gw_loop_wake(struct gw_loop *loop);
/* A place for bytes in transit, shared by all callbacks of the loop: valid until the running
 * callback returns. Only code that was called by the loop itself may take it. */
char *gw_loop_scratch(struct gw_loop *loop);
/* Large reads halve the cost of large bodies; whoever has to wait for a slow peer reads less, so
 * that what has to be kept meanwhile is small. */
#define GW_SCRATCH_LEN ((size_t)128 * 1024)
#define GW_SLOW_LEN    ((size_t)32 * 1024)

/* Timers. Those of one duration stand in one list, so starting and stopping costs the same however
 * many there are. Time is monotonic: a step of the wall clock ends nothing. */

struct gw_timer {
    struct gw_timer *prev, *next; /* NULL: not running */
    uint64_t at;
    void (*cb)(struct gw_timer *timer);
};

struct gw_timeout {
    struct gw_timer list;
    uint64_t ms;
    struct gw_loop *loop;
};

/* timeout must outlive the loop's last turn. At most GW_TIMEOUTS_MAX per loop (assert). */
#define GW_TIMEOUTS_MAX 16
void gw_timeout_init(struct gw_loop *loop, struct gw_timeout *timeout, uint64_t ms);
/* Another duration, also for the timers that run. */
void gw_timeout_set(struct gw_timeout *timeout, uint64_t ms);
/* (Re)start. cb runs once, from the loop. */
void gw_timer_start(struct gw_timeout *timeout, struct gw_timer *timer,
                    void (*cb)(struct gw_timer *timer));
void gw_timer_stop(struct gw_timer *timer);
static inline bool gw_timer_is_running(const struct gw_timer *timer)
{
    return timer->prev != NULL;
}

/* Sockets */

typedef void (*gw_sock_cb)(struct gw_sock *sock);
typedef void (*gw_sock_status_cb)(struct gw_sock *sock, int status);

/* Embedded in its owner; all zero when closed. */
struct gw_sock {
    void *impl;                  /* of the runtime; NULL when closed */
    struct gw_tls *tls;          /* NULL on plain sockets */
    gw_sock_cb on_read;          /* readable: call gw_sock_read() once */
    gw_sock_cb on_write;         /* writable again (one-shot) */
    gw_sock_status_cb on_status; /* connected, or the TLS handshake ended */
};

static inline bool gw_sock_is_open(const struct gw_sock *sock)
{
    return sock->impl != NULL;
}

/* Take a descriptor over (set non-blocking). */
void gw_sock_open(struct gw_loop *loop, struct gw_sock *sock, int fd);
/* Accept from a listening socket. 0, or UV_EAGAIN and the like. */
TR_MUST_CHECK int gw_sock_accept(struct gw_sock *listener, struct gw_sock *out);
/* Start to connect; cb runs later with 0 or an error. Returns < 0 at once where the kernel does
 * (cb never runs). */
TR_MUST_CHECK int gw_sock_connect(struct gw_loop *loop, struct gw_sock *sock,
                                  const struct sockaddr *addr, socklen_t len, gw_sock_status_cb cb);
/* Server handshake; cb runs later with 0 or UV_EPROTO. ctx went through gw_tls_ctx_prepare().
 * Returns UV_ENOMEM when it could not begin. */
TR_MUST_CHECK int gw_sock_tls_accept(struct gw_loop *loop, struct gw_sock *sock,
                                     struct ssl_ctx_st *ctx, gw_sock_status_cb cb);
/* Hooks that sockets need in a context, and the protocols offered by ALPN, in order of preference
 * (length-prefixed as in RFC 7301; borrowed for the context's life). */
void gw_tls_ctx_prepare(struct ssl_ctx_st *ctx, const unsigned char *alpn);
/* After the handshake: was an earlier session resumed? */
bool gw_sock_tls_resumed(const struct gw_sock *sock);
/* The protocol agreed by ALPN, "" for none. */
const char *gw_sock_tls_alpn(const struct gw_sock *sock, size_t *len);

int gw_sock_fd(const struct gw_sock *sock);
/* Ask for on_read while readable (level-triggered), or stop. */
void gw_sock_read_start(struct gw_sock *sock, gw_sock_cb on_read);
void gw_sock_read_stop(struct gw_sock *sock);
bool gw_sock_is_reading(const struct gw_sock *sock);
/* Returns bytes > 0, 0 at the peer's end, UV_EAGAIN, or another error. */
TR_MUST_CHECK ssize_t gw_sock_read(struct gw_sock *sock, void *buf, size_t len);
/* Returns how many bytes were taken (0: none now), or an error. When less than all was taken, call
 * gw_sock_write_start() to be told when to go on. */
TR_MUST_CHECK ssize_t gw_sock_writev(struct gw_sock *sock, const struct iovec *iov, int n);
void gw_sock_write_start(struct gw_sock *sock, gw_sock_cb on_write);
/* Taken bytes that have not reached the kernel (TLS records): write_start() tells their end. */
bool gw_sock_has_unsent(const struct gw_sock *sock);
/* No more will be written: the peer sees the end after what was taken. */
void gw_sock_shutdown(struct gw_sock *sock);
void gw_sock_close(struct gw_sock *sock);
/* Close so that the peer sees a reset, not an orderly end. */
void gw_sock_reset(struct gw_sock *sock);
/* Move to another owner's memory; from is closed afterwards. Callbacks are cleared. */
void gw_sock_move(struct gw_sock *from, struct gw_sock *to);

#endif
