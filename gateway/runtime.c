/* SPDX-License-Identifier: MIT */
/* What is used of libh2o: its epoll loop, its sockets as poll handles, its TLS handshake. What is
 * not: its reads (they go on until EAGAIN, without bound) and its writes (they copy, and report
 * late). Bytes are moved here, straight between the descriptor and the caller; after the handshake
 * OpenSSL reads and writes the descriptor through a BIO of ours. Timers are our own, because
 * libh2o's follow the wall clock. */
#include "gateway/runtime.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <uv.h>
#include <h2o/memory.h>
#include <h2o/socket.h>

#include "gateway/runtime_tls.h"

#if H2O_USE_LIBUV
#error                                                                                             \
    "compile with -DH2O_USE_LIBUV=0: the library is the evloop flavour, the headers default to uv"
#endif

#ifdef __SANITIZE_ADDRESS__
/* libh2o recycles memory per thread and has no call that gives it back when a thread ends: a few
 * chunks per worker, at the end of the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) /* NOLINT(bugprone-reserved-identifier) */
{
    return "leak:h2o_mem_alloc_recycle\n";
}
#endif

/* Errors of the system are ours: UV_E* match negative errno on Linux. */
static int sys_error(void)
{
    return errno != 0 ? -errno : UV_EIO;
}

static uint64_t monotonic_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void on_wake(h2o_socket_t *sock, const char *err)
{
    struct gw_loop *loop = sock->data;
    uint64_t n;

    (void)err;
    if (read(loop->wake_fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
        return;
    if (loop->on_wake != NULL)
        loop->on_wake(loop->wake_arg);
}

int gw_loop_new(struct gw_loop **out)
{
    struct gw_loop *loop = calloc(1, sizeof(*loop));

    if (loop == NULL)
        return UV_ENOMEM;
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->scratch = malloc(GW_SCRATCH_LEN);
    loop->sealed = malloc(GW_SEALED_LEN);
    loop->merge = malloc(GW_RECORD_LEN);
    if (loop->wake_fd < 0 || loop->scratch == NULL || loop->sealed == NULL || loop->merge == NULL) {
        int r = loop->wake_fd < 0 ? sys_error() : UV_ENOMEM;

        if (loop->wake_fd >= 0)
            close(loop->wake_fd);
        free(loop->scratch);
        free(loop->sealed);
        free(loop->merge);
        free(loop);
        return r;
    }
    loop->ev = h2o_evloop_create();
    loop->now = monotonic_ms();
    loop->wake_sock = h2o_evloop_socket_create(loop->ev, loop->wake_fd, 0);
    loop->wake_sock->data = loop;
    h2o_socket_dont_read(loop->wake_sock, 1);
    h2o_socket_read_start(loop->wake_sock, on_wake);
    *out = loop;
    return 0;
}

void gw_loop_free(struct gw_loop *loop)
{
    h2o_socket_close(loop->wake_sock); /* closes wake_fd */
    h2o_evloop_run(loop->ev, 0);       /* frees closed sockets */
    /* h2o_evloop_destroy() leaves its epoll descriptor open and cannot be told it; one per worker
     * at the end of the process. */
    h2o_evloop_destroy(loop->ev);
    free(loop->scratch);
    free(loop->sealed);
    free(loop->merge);
    free(loop);
}

uint64_t gw_loop_now(const struct gw_loop *loop)
{
    struct gw_loop *l = (struct gw_loop *)loop;

    if (l->now_stale) { /* first question since the loop slept */
        l->now = monotonic_ms();
        l->now_stale = false;
    }
    return l->now;
}

void gw_loop_on_wake(struct gw_loop *loop, void (*wake_cb)(void *arg), void *arg)
{
    loop->on_wake = wake_cb;
    loop->wake_arg = arg;
}

void gw_loop_wake(struct gw_loop *loop)
{
    uint64_t one = 1;
    ssize_t n = write(loop->wake_fd, &one, sizeof(one));

    (void)n; /* fails only when a wake-up is due already */
}

char *gw_loop_scratch(struct gw_loop *loop)
{
    return loop->scratch;
}

/* Milliseconds until the next timer, at most max_ms. */
static int next_wait(struct gw_loop *loop, int max_ms)
{
    uint64_t now = gw_loop_now(loop), wait = (uint64_t)max_ms;

    for (size_t i = 0; i < loop->n_timeouts; i++) {
        const struct gw_timer *list = &loop->timeouts[i]->list;

        if (list->next == list)
            continue;
        if (list->next->at <= now)
            return 0;
        if (list->next->at - now < wait)
            wait = list->next->at - now;
    }
    return (int)wait;
}

static void run_timers(struct gw_loop *loop)
{
    uint64_t now = gw_loop_now(loop);

    for (size_t i = 0; i < loop->n_timeouts; i++) {
        struct gw_timer *list = &loop->timeouts[i]->list;

        while (list->next != list && list->next->at <= now) {
            struct gw_timer *timer = list->next;

            gw_timer_stop(timer);
            timer->cb(timer);
        }
    }
}

void gw_loop_run(struct gw_loop *loop, int max_ms)
{
    int wait = loop->ready != NULL ? 0 : next_wait(loop, max_ms);

    loop->now_stale = true;
    h2o_evloop_run(loop->ev, wait); /* -1 after a signal: nothing to do */
    gw_tls_run_ready(loop);
    run_timers(loop);
}

void gw_timeout_init(struct gw_loop *loop, struct gw_timeout *timeout, uint64_t ms)
{
    assert(loop->n_timeouts < GW_TIMEOUTS_MAX);
    loop->timeouts[loop->n_timeouts++] = timeout;
    timeout->list.next = timeout->list.prev = &timeout->list;
    timeout->ms = ms;
    timeout->loop = loop;
}

void gw_timeout_set(struct gw_timeout *timeout, uint64_t ms)
{
    uint64_t more = ms - timeout->ms; /* may wrap; so does the sum */

    for (struct gw_timer *t = timeout->list.next; t != &timeout->list; t = t->next)
        t->at += more; /* all by the same: their order stays */
    timeout->ms = ms;
}

void gw_timer_start(struct gw_timeout *timeout, struct gw_timer *timer,
                    void (*cb)(struct gw_timer *timer))
{
    struct gw_timer *list = &timeout->list;

    gw_timer_stop(timer);
    timer->at = gw_loop_now(timeout->loop) + timeout->ms;
    timer->cb = cb;
    timer->next = list;
    timer->prev = list->prev;
    list->prev->next = timer;
    list->prev = timer;
}

void gw_timer_stop(struct gw_timer *timer)
{
    if (timer->next == NULL)
        return;
    timer->next->prev = timer->prev;
    timer->prev->next = timer->next;
    timer->next = timer->prev = NULL;
}

/* Sockets */

static h2o_socket_t *impl_of(const struct gw_sock *sock)
{
    return sock->impl;
}

static void adopt(struct gw_sock *sock, h2o_socket_t *impl)
{
    memset(sock, 0, sizeof(*sock));
    sock->impl = impl;
    impl->data = sock;
    h2o_socket_dont_read(impl, 1);
}

void gw_sock_open(struct gw_loop *loop, struct gw_sock *sock, int fd)
{
    adopt(sock, h2o_evloop_socket_create(loop->ev, fd, 0));
}

int gw_sock_accept(struct gw_sock *listener, struct gw_sock *out)
{
    h2o_socket_t *impl = h2o_evloop_socket_accept(impl_of(listener));

    if (impl == NULL)
        return sys_error();
    adopt(out, impl);
    return 0;
}

static void on_connected(h2o_socket_t *impl, const char *err)
{
    struct gw_sock *sock = impl->data;
    int so_err = 0;
    socklen_t len = sizeof(so_err);
    gw_sock_status_cb cb = sock->on_status;

    (void)err;
    if (getsockopt(h2o_socket_get_fd(impl), SOL_SOCKET, SO_ERROR, &so_err, &len) != 0)
        so_err = errno;
    sock->on_status = NULL;
    cb(sock, -so_err);
}

int gw_sock_connect(struct gw_loop *loop, struct gw_sock *sock, const struct sockaddr *addr,
                    socklen_t len, gw_sock_status_cb cb)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0)
        return sys_error();
    if (connect(fd, addr, len) != 0 && errno != EINPROGRESS) {
        int r = sys_error();

        close(fd);
        return r;
    }
    if (addr->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    gw_sock_open(loop, sock, fd);
    sock->on_status = cb;
    h2o_socket_notify_write(sock->impl, on_connected);
    return 0;
}

int gw_sock_fd(const struct gw_sock *sock)
{
    return h2o_socket_get_fd(sock->impl);
}

static void on_readable(h2o_socket_t *impl, const char *err)
{
    struct gw_sock *sock = impl->data;

    (void)err; /* none: libh2o did not read */
    sock->on_read(sock);
}

void gw_sock_read_start(struct gw_sock *sock, gw_sock_cb on_read)
{
    sock->on_read = on_read;
    if (!h2o_socket_is_reading(sock->impl))
        h2o_socket_read_start(sock->impl, on_readable);
    if (sock->tls != NULL)
        gw_tls_read_started(sock->tls);
}

void gw_sock_read_stop(struct gw_sock *sock)
{
    if (h2o_socket_is_reading(sock->impl))
        h2o_socket_read_stop(sock->impl);
}

bool gw_sock_is_reading(const struct gw_sock *sock)
{
    return h2o_socket_is_reading(sock->impl);
}

ssize_t gw_sock_read(struct gw_sock *sock, void *buf, size_t len)
{
    ssize_t n;

    if (sock->tls != NULL)
        return gw_tls_read(sock->tls, buf, len);
    do {
        n = recv(h2o_socket_get_fd(sock->impl), buf, len, 0);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : sys_error();
}

ssize_t gw_sock_writev(struct gw_sock *sock, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t r;

    if (sock->tls != NULL)
        return gw_tls_writev(sock->tls, iov, n);
    do {
        if (n == 1)
            r = send(h2o_socket_get_fd(sock->impl), iov->iov_base, iov->iov_len, MSG_NOSIGNAL);
        else
            r = sendmsg(h2o_socket_get_fd(sock->impl), &msg, MSG_NOSIGNAL);
    } while (r < 0 && errno == EINTR);
    if (r >= 0)
        return r;
    return errno == EAGAIN ? 0 : sys_error();
}

static void on_writable(h2o_socket_t *impl, const char *err)
{
    struct gw_sock *sock = impl->data;
    gw_sock_cb cb;

    (void)err;
    if (sock->tls != NULL && !gw_tls_flush(sock->tls)) {
        h2o_socket_notify_write(impl, on_writable);
        return;
    }
    cb = sock->on_write;
    sock->on_write = NULL;
    if (cb != NULL)
        cb(sock);
}

void gw_sock_write_start(struct gw_sock *sock, gw_sock_cb on_write)
{
    sock->on_write = on_write;
    if (!h2o_socket_is_writing(sock->impl))
        h2o_socket_notify_write(sock->impl, on_writable);
}

bool gw_sock_has_unsent(const struct gw_sock *sock)
{
    return sock->tls != NULL && sock->tls->out_len > 0;
}

void gw_sock_shutdown(struct gw_sock *sock)
{
    if (sock->tls != NULL && !gw_tls_shutdown(sock->tls)) {
        if (!h2o_socket_is_writing(sock->impl)) /* the rest must leave first */
            h2o_socket_notify_write(sock->impl, on_writable);
        return;
    }
    shutdown(h2o_socket_get_fd(sock->impl), SHUT_WR);
}

void gw_sock_close(struct gw_sock *sock)
{
    h2o_socket_t *impl = sock->impl;
    struct gw_tls *tls = sock->tls;

    if (impl == NULL)
        return;
    if (tls != NULL)
        gw_tls_closing(tls);
    memset(sock, 0, sizeof(*sock));
    impl->data = NULL;
    h2o_socket_close(impl);
    free(tls);
}

void gw_sock_reset(struct gw_sock *sock)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    if (sock->impl == NULL)
        return;
    setsockopt(gw_sock_fd(sock), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    if (sock->tls != NULL)
        sock->tls->abort = true;
    gw_sock_close(sock);
}

void gw_sock_move(struct gw_sock *from, struct gw_sock *to)
{
    *to = *from;
    memset(from, 0, sizeof(*from));
    to->on_read = to->on_write = NULL;
    to->on_status = NULL;
    impl_of(to)->data = to;
    if (to->tls != NULL)
        to->tls->sock = to;
}

/* TLS handshake, on libh2o's own reads and writes (bounded by a handshake's size). */

static void on_handshake(h2o_socket_t *impl, const char *err)
{
    struct gw_sock *sock = impl->data;
    gw_sock_status_cb cb;

    if (sock == NULL)
        return;
    cb = sock->on_status;
    sock->on_status = NULL;
    h2o_socket_read_stop(impl);
    h2o_socket_dont_read(impl, 1);
    if (err == NULL && (sock->tls->ssl == NULL || gw_tls_take_over(sock->tls, impl) != 0))
        err = "no memory";
    cb(sock, err == NULL ? 0 : UV_EPROTO);
}

int gw_sock_tls_accept(struct gw_loop *loop, struct gw_sock *sock, SSL_CTX *ctx,
                       gw_sock_status_cb cb)
{
    struct gw_tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL)
        return UV_ENOMEM;
    tls->loop = loop;
    tls->sock = sock;
    sock->tls = tls;
    sock->on_status = cb;
    h2o_socket_dont_read(sock->impl, 0);
    h2o_socket_ssl_handshake(sock->impl, ctx, NULL, on_handshake);
    return 0;
}
