/* SPDX-License-Identifier: MIT */
#include "gateway/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "gateway/address.h"
#include "gateway/client.h"
#include "gateway/control.h"
#include "transom/log.h"

#define BACKLOG          4096
#define ACCEPTS_PER_TURN 32
#define CLOSE_ACCEPTS    1024 /* of what waits when a listener is closed */
#define SOCKETS_MAX      256  /* of one address: workers, now or before */
#define FREE_WAIT_MS     1000

static void on_acceptable(struct gw_sock *sock);

static void resume(struct gw_timer *timer)
{
    struct gw_listener *l =
        (struct gw_listener *)((char *)timer - offsetof(struct gw_listener, timer));

    gw_sock_read_start(&l->sock, on_acceptable);
}

/* Leave new connections in the kernel's queue for a moment. */
static void pause_listener(struct gw_listener *l)
{
    gw_sock_read_stop(&l->sock);
    gw_timer_start(&l->w->t_accept, &l->timer, resume);
}

static void on_acceptable(struct gw_sock *sock)
{
    struct gw_listener *l =
        (struct gw_listener *)((char *)sock - offsetof(struct gw_listener, sock));
    struct gw_worker *w = l->w;
    int n = l->shared ? 1 : ACCEPTS_PER_TURN;

    while (n-- > 0) {
        struct gw_sock fresh;
        int r;

        if (atomic_load_explicit(&w->gw->n_connections, memory_order_relaxed) >=
            w->opt->max_connections) {
            pause_listener(l);
            return;
        }
        r = gw_sock_accept(sock, &fresh);
        if (r == UV_EAGAIN)
            return;
        if (r == UV_ECONNABORTED || r == UV_EINTR)
            continue;
        if (r != 0) { /* out of descriptors or memory: trying at once would only spin */
            log_warn("accept: %s", strerror(-r));
            pause_listener(l);
            return;
        }
        gw_client_start(w, &fresh, l->tls);
    }
}

/* Connections inherit it. A peer that left without a word, as laptops do, is noticed also where
 * silence is allowed for hours. */
static void keep_alive(int fd)
{
    int on = 1, idle = 300, interval = 30, probes = 4;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static int add_listener(struct gw_worker *w, int fd, bool tls, bool shared)
{
    struct gw_listener *l = calloc(1, sizeof(*l));

    if (l == NULL)
        return -ENOMEM;
    l->w = w;
    l->tls = tls;
    l->shared = shared;
    keep_alive(fd);
    gw_sock_open(w->loop, &l->sock, fd);
    l->next = w->listeners;
    w->listeners = l;
    return 0;
}

static int open_one(const struct sockaddr *sa, socklen_t len, const char *text, struct err *err)
{
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, r;

    if (fd < 0)
        return tr_err_set(err, -errno, "%s: socket: %s", text, strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (sa->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, sa, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    r = -errno;
    close(fd);
    if (r == -EADDRINUSE)
        return tr_err_set(
            err, r, "%s: another program listens there; stop it or configure another port", text);
    if (r == -EACCES)
        return tr_err_set(err, r,
                          "%s: not allowed; start as root, with CAP_NET_BIND_SERVICE, or by socket "
                          "activation",
                          text);
    return tr_err_set(err, r, "%s: %s", text, strerror(-r));
}

static int try_bind(const struct sockaddr *sa, socklen_t len)
{
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, r;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (sa->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    r = bind(fd, sa, len) == 0 ? 0 : -errno;
    close(fd);
    return r;
}

/* A second gateway on the same port would share it silently (SO_REUSEPORT, same user): ask with a
 * socket that does not share. A predecessor that was killed may be ending still. */
static int check_free(const struct sockaddr *sa, socklen_t len, const char *text, struct err *err)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000000L};
    int r = try_bind(sa, len);

    for (int waited = 0; r == -EADDRINUSE && waited < FREE_WAIT_MS; waited += 20) {
        nanosleep(&pause, NULL);
        r = try_bind(sa, len);
    }
    if (r == -EADDRINUSE)
        return tr_err_set(
            err, r, "%s: another program listens there; stop it or configure another port", text);
    return 0; /* another fault is told when it is opened */
}

static void add_url(char *urls, size_t len, bool tls, int fd)
{
    struct sockaddr_storage sa;
    socklen_t sa_len = sizeof(sa);
    char text[64];
    size_t at = strlen(urls);

    if (getsockname(fd, (struct sockaddr *)&sa, &sa_len) != 0)
        return;
    gw_address_format((struct sockaddr *)&sa, text);
    snprintf(urls + at, len - at, "%s%s://%s", at > 0 ? " " : "", tls ? "https" : "http", text);
}

static int open_new(struct gw_kept *kept, const char *name, const struct sockaddr *sa,
                    socklen_t len, const char *text, struct err *err)
{
    int fd = open_one(sa, len, text, err), r;

    if (fd < 0)
        return fd;
    r = gw_kept_store(kept, name, fd, err);
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

/* One address, one socket per worker, kept or new; port 0 is settled by the first. */
static int open_address(struct gw_gateway *gw, struct gw_kept *kept, const char *text, bool tls,
                        char *urls, size_t len, struct err *err)
{
    struct sockaddr_storage sa;
    socklen_t sa_len, got = sizeof(sa);
    char name[128];
    int r = gw_address_parse(text, &sa, &sa_len);

    if (r != 0)
        return tr_err_set(err, r, "%s: not ADDRESS:PORT or [IPV6]:PORT", text);
    for (unsigned i = 0; r == 0 && i < SOCKETS_MAX; i++) {
        int fd;

        snprintf(name, sizeof(name), "%s/%s/%u", tls ? "https" : "http", text, i);
        fd = gw_kept_take(kept, name);
        if (fd < 0 && i >= gw->n_workers)
            break; /* nothing more from earlier, wider days */
        if (fd < 0 && i == 0)
            r = check_free((struct sockaddr *)&sa, sa_len, text, err);
        if (fd < 0 && r == 0)
            r = fd = open_new(kept, name, (struct sockaddr *)&sa, sa_len, text, err);
        if (fd < 0)
            return r;
        if (i == 0 && getsockname(fd, (struct sockaddr *)&sa, &got) == 0)
            add_url(urls, len, tls, fd);
        r = add_listener(&gw->workers[i % gw->n_workers], fd, tls, false);
        if (r != 0)
            close(fd);
    }
    return r;
}

/* Sockets passed by a service manager. One is TLS if its name begins with "https"
 * (FileDescriptorName=). Returns how many, or a fault. */
static int adopt_passed(struct gw_gateway *gw, struct gw_kept *kept, char *urls, size_t len,
                        struct err *err)
{
    char name[128];
    int fd, n = 0;

    while ((fd = gw_kept_take_any(kept, "systemd/", name, sizeof(name))) >= 0) {
        bool tls = strncmp(name, "https", 5) == 0;

        n++;
        if (tls && gw->workers[0].tls == NULL) {
            close(fd);
            return tr_err_set(err, -EINVAL,
                              "LISTEN_FDS: an https socket needs gateway.tls_certificate and "
                              "gateway.tls_key, or gateway.certificates");
        }
        gw->has_https |= tls;
        add_url(urls, len, tls, fd);
        for (unsigned w = 0; w < gw->n_workers; w++) {
            int copy = w == 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);

            if (copy < 0)
                return tr_err_set(err, -errno, "LISTEN_FDS: %s", strerror(errno));
            if (add_listener(&gw->workers[w], copy, tls, true) != 0)
                return tr_err_set(err, -ENOMEM, "out of memory");
        }
    }
    return n;
}

int gw_listeners_open(struct gw_gateway *gw, struct gw_kept *kept, char *urls, size_t len,
                      struct err *err)
{
    const struct gw_options *opt = gw->opt;
    int r;

    urls[0] = '\0';
    r = adopt_passed(gw, kept, urls, len, err);
    if (r != 0)
        return r > 0 ? 0 : r;
    for (size_t i = 0; r == 0 && i < opt->n_http; i++) {
        r = open_address(gw, kept, opt->http[i], false, urls, len, err);
        if (r != 0)
            tr_err_wrap(err, "gateway.http");
    }
    for (size_t i = 0; r == 0 && i < opt->n_https; i++) {
        r = open_address(gw, kept, opt->https[i], true, urls, len, err);
        if (r != 0)
            tr_err_wrap(err, "gateway.https");
    }
    gw->has_https = opt->n_https > 0;
    return r;
}

void gw_listeners_start(struct gw_worker *w)
{
    for (struct gw_listener *l = w->listeners; l != NULL; l = l->next)
        gw_sock_read_start(&l->sock, on_acceptable);
}

void gw_listeners_close(struct gw_worker *w)
{
    while (w->listeners != NULL) {
        struct gw_listener *l = w->listeners;
        struct gw_sock fresh;

        w->listeners = l->next;
        gw_timer_stop(&l->timer);
        /* Closing the last copy resets what waits in the queue. */
        for (int n = 0; n < CLOSE_ACCEPTS && !l->shared && w->started; n++) {
            if (gw_sock_accept(&l->sock, &fresh) != 0)
                break;
            gw_client_start(w, &fresh, l->tls);
        }
        gw_sock_close(&l->sock);
        free(l);
    }
}
