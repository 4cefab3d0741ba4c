/* SPDX-License-Identifier: MIT */
/* Path: accept -> HEAD -> BODY -> WAIT -> (FLUSH) -> HEAD ... -> close.
 * Bytes are read into the loop's scratch and used from there; only what cannot be used yet is
 * copied into a buffer of the connection. process() is the one place that moves through the
 * states of a request; what ends an exchange meanwhile only sets the state for it. */
#include "gateway/client.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/h2.h"
#include "gateway/log.h"
#include "gateway/pages.h"
#include "gateway/proxy_protocol.h"
#include "gateway/tunnel.h"
#include "gateway/worker.h"

/* What a client may send ahead while its request is being answered. */
#define AHEAD_MAX ((size_t)16 * 1024)

static void process(struct gw_client *c, char *p, size_t n);
static void watch_body(struct gw_client *c);
static void on_read(struct gw_sock *sock);

static struct gw_client *client_of(struct gw_sock *sock)
{
    return (struct gw_client *)((char *)sock - offsetof(struct gw_client, sock));
}

static struct gw_client *client_of_timer(struct gw_timer *timer)
{
    return (struct gw_client *)((char *)timer - offsetof(struct gw_client, timer));
}

static void release(struct gw_client *c)
{
    if (c->busy == 0)
        free(c);
}

/* Everything but the memory and the exchange. */
static void shut(struct gw_client *c, bool reset)
{
    struct gw_worker *w = c->w;

    if (c->state == GW_CLIENT_CLOSED)
        return;
    c->state = GW_CLIENT_CLOSED;
    gw_timer_stop(&c->timer);
    gw_buf_put(&w->bufs, c->in.buf);
    c->in.buf = NULL;
    gw_out_reset(&w->bufs, &c->out);
    if (reset)
        gw_sock_reset(&c->sock);
    else
        gw_sock_close(&c->sock);
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        w->clients = c->next;
    gw_gauge(&w->stats.connections, -1);
    atomic_fetch_sub_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
    gw_limits_leave(&w->gw->limits, c->client_slot);
}

static void abandon(struct gw_client *c)
{
    struct gw_exchange *x = c->x;

    c->x = NULL;
    shut(c, false);
    if (x != NULL)
        gw_exchange_front_gone(x);
}

void gw_client_close(struct gw_client *c)
{
    abandon(c);
    release(c);
}

/* The exchange is over already; the peer is to see that something went wrong. */
void gw_client_reset(struct gw_client *c)
{
    shut(c, true);
    release(c);
}

static void on_timeout(struct gw_timer *timer)
{
    struct gw_client *c = client_of_timer(timer);
    bool idle = c->state == GW_CLIENT_HEAD && !c->head_timed;

    if (!idle && c->state != GW_CLIENT_LINGER)
        gw_count(&c->w->stats.slow_clients, 1);
    gw_client_close(c);
}

/* The client owes us body bytes: it has this long for so many of them, then again. Not one timer is
 * touched for each piece that comes. */
static void on_body_timeout(struct gw_timer *timer)
{
    struct gw_client *c = client_of_timer(timer);
    const struct gw_options *o = c->w->opt;
    uint64_t came = c->x->bytes_in - c->window_from;

    if (came > 0 && came >= o->min_body_rate * o->body_idle_timeout_ms / 1000) {
        watch_body(c);
        return;
    }
    gw_count(&c->w->stats.slow_clients, 1);
    c->keep_alive = false;
    c->busy++;
    gw_exchange_front_failed(c->x, 408, "too_slow", "The request body did not come in time.");
    c->busy--;
    if (c->state == GW_CLIENT_CLOSED)
        release(c);
}

static void watch_body(struct gw_client *c)
{
    c->window_from = c->x->bytes_in;
    gw_timer_start(&c->w->t_body, &c->timer, on_body_timeout);
}

/* Has the connection ended altogether? Asked while an exchange runs and reading would tell nothing:
 * the client has shut down its side, or the app takes no more of the body. */
static void on_half_closed(struct gw_timer *timer)
{
    struct gw_client *c = client_of_timer(timer);
    struct tcp_info info;
    socklen_t len = sizeof(info);

    if (getsockopt(gw_sock_fd(&c->sock), IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
        info.tcpi_state == TCP_CLOSE)
        gw_client_close(c);
    else
        gw_timer_start(&c->w->t_half, &c->timer, on_half_closed);
}

/* A client that has closed altogether looks the same as one that has only shut down, until it is
 * sent something: the next body bytes, or a probe. Its kernel answers probes like a living one for
 * net.ipv4.tcp_fin_timeout (60 s), and with a reset after that. */
static void watch_half_closed(struct gw_client *c)
{
    int fd = gw_sock_fd(&c->sock), on = 1, seconds = 5;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    gw_timer_start(&c->w->t_half, &c->timer, on_half_closed);
}

/* The client has sent FIN. */
static void on_eof(struct gw_client *c)
{
    if (c->state != GW_CLIENT_WAIT && c->state != GW_CLIENT_FLUSH) {
        gw_client_close(c); /* between requests, or in the middle of one */
        return;
    }
    c->eof = true;
    gw_sock_read_stop(&c->sock);
    if (c->state == GW_CLIENT_WAIT)
        watch_half_closed(c);
}

/* Where to read to: behind what waits already, or the scratch. NULL: no room (or no memory). */
static char *read_room(struct gw_client *c, size_t *room)
{
    size_t have = gw_buf_len(c->in.buf), max = c->w->opt->limits.head_bytes;
    char *p;

    if (c->state == GW_CLIENT_LINGER || have == 0) {
        *room = c->state == GW_CLIENT_WAIT ? AHEAD_MAX : c->slow ? GW_SLOW_LEN : GW_SCRATCH_LEN;
        return gw_loop_scratch(c->w->loop);
    }
    if (c->state == GW_CLIENT_WAIT || c->state == GW_CLIENT_FLUSH)
        max = AHEAD_MAX;
    if (have >= max)
        return NULL;
    *room = max - have < 4096 ? max - have : 4096;
    p = gw_buf_room(&c->w->bufs, &c->in.buf, *room);
    if (p != NULL) {
        size_t all = c->in.buf->cap - c->in.buf->off - have;

        *room = all < max - have ? all : max - have;
    }
    return p;
}

static void on_read(struct gw_sock *sock)
{
    struct gw_client *c = client_of(sock);
    char *scratch = gw_loop_scratch(c->w->loop), *p;
    size_t room;
    ssize_t n;

    p = read_room(c, &room);
    if (p == NULL) { /* asks again when the response is out */
        gw_sock_read_stop(sock);
        return;
    }
    n = gw_sock_read(sock, p, room);
    if (n == UV_EAGAIN)
        return;
    if (n == 0) {
        on_eof(c);
        return;
    }
    if (n < 0 || c->state == GW_CLIENT_LINGER) {
        if (n < 0)
            gw_client_close(c);
        return;
    }
    if (p == scratch) {
        process(c, p, (size_t)n);
    } else {
        c->in.buf->len += (uint32_t)n;
        process(c, gw_buf_begin(c->in.buf), c->in.buf->len);
    }
}

/* Answer a request that cannot be read, and close. */
static void refuse(struct gw_client *c, int status, const char *why)
{
    struct gw_worker *w = c->w;

    gw_count(&w->stats.bad_requests, 1);
    c->keep_alive = false;
    c->body.done = false; /* who knows what follows */
    if (gw_page_refusal(&w->bufs, &c->out, status, why) != 0) {
        gw_client_close(c);
        return;
    }
    gw_count(&w->stats.status[status / 100], 1);
    gw_log_refusal(w, &c->peer.sa, status, why);
    c->state = GW_CLIENT_FLUSH;
    if (gw_out_write(&w->bufs, &c->out, &c->sock, NULL, 0, false) < 0)
        gw_client_close(c);
    else
        gw_client_finish(c);
}

/* Fill an exchange from a request and begin it. */
static void begin(struct gw_client *c, struct gw_request *req)
{
    struct gw_exchange *x = gw_exchange_new(c->w);

    if (x == NULL) {
        gw_client_close(c);
        return;
    }
    x->front_ops = &gw_client_front;
    x->front = c;
    x->request_done = req->framing == GW_BODY_NONE;
    x->tls = c->sock.tls != NULL;
    c->x = x;
    c->keep_alive = req->keep_alive && !c->w->draining;
    c->said_keep_alive = req->minor == 0 && req->has_connection_keep_alive;
    c->discard = c->blocked = c->slow = false;
    c->state = x->request_done ? GW_CLIENT_WAIT : GW_CLIENT_BODY;
    gw_body_start(&c->body, req->framing, req->length);
    memset(&c->out, 0, sizeof(c->out));
    gw_exchange_start(x, req, &c->peer.sa);
    if (c->x == NULL || x->back_ops == NULL)
        return;
    if (req->framing == GW_BODY_NONE)
        (void)x->back_ops->end(x, NULL, 0); /* a fault comes as an event */
    else if (req->expect_continue)
        (void)x->back_ops->flush(x);
    if (req->framing != GW_BODY_NONE && c->state == GW_CLIENT_BODY)
        watch_body(c);
}

/* The client speaks HTTP/2: the connection goes to that front, with what came already. */
static void become_http2(struct gw_client *c, const char *p, size_t n)
{
    /* It counts as a connection from here on. */
    atomic_fetch_add_explicit(&c->w->gw->n_connections, 1, memory_order_relaxed);
    gw_sock_read_stop(&c->sock);
    gw_h2_start(c->w, &c->sock, &c->peer, c->client_slot, p, n);
    c->client_slot = 0;
    shut(c, false);
    release(c);
}

/* Does p[0..n) begin with HTTP/2's preface, as far as it goes? */
static bool is_preface(const char *p, size_t n)
{
    return memcmp(p, GW_H2_PREFACE, n < GW_H2_PREFACE_LEN ? n : GW_H2_PREFACE_LEN) == 0;
}

/* Keep an incomplete head. */
static size_t keep_head(struct gw_client *c, char *p, size_t n)
{
    if (!c->head_timed) {
        c->head_timed = true;
        gw_timer_start(&c->w->t_head, &c->timer, on_timeout);
    }
    if (gw_in_keep(&c->w->bufs, &c->in, p, n, 0) != 0)
        gw_client_close(c);
    return 0;
}

/* Look for a head in p[0..n). Returns how many bytes were used; 0: more are needed (kept). */
static size_t take_head(struct gw_client *c, char *p, size_t n)
{
    struct gw_worker *w = c->w;
    struct gw_request req;
    const char *why;
    long end;
    int status;

    if (c->may_be_http2) {
        c->may_be_http2 = is_preface(p, n);
        if (c->may_be_http2 && n < GW_H2_PREFACE_LEN)
            return keep_head(c, p, n);
        if (c->may_be_http2) {
            become_http2(c, p, n);
            return n;
        }
    }
    /* An empty line before a request line is skipped (RFC 9112 section 2.2). */
    if (c->scan.at == 0 && n >= 2 && p[0] == '\r' && p[1] == '\n')
        return 2;
    end = gw_http1_find_end(&c->scan, p, n);
    if (end < 0 || (end == 0 && n >= w->opt->limits.head_bytes) ||
        end > (long)w->opt->limits.head_bytes) {
        refuse(c, end < 0 ? 400 : 431, end < 0 ? "malformed line end" : "request head too large");
        return n;
    }
    if (end == 0)
        return keep_head(c, p, n);
    gw_timer_stop(&c->timer);
    c->head_timed = false;
    memset(&c->scan, 0, sizeof(c->scan));
    status = gw_http1_parse_request(p, (size_t)end, &w->opt->limits, w->fields, &req, &why);
    if (status != 0) {
        refuse(c, status, why);
        return n;
    }
    begin(c, &req);
    return (size_t)end;
}

/* The end of the request body, with its trailers. */
static void end_body(struct gw_client *c, const struct gw_body_part *part)
{
    struct gw_exchange *x = c->x;
    size_t n = 0;

    x->request_done = true;
    c->state = GW_CLIENT_WAIT;
    gw_timer_stop(&c->timer);
    if (part->trailers_len == 0 || c->discard || x->back_ops == NULL)
        return;
    if (gw_http1_parse_trailers(part->trailers, part->trailers_len, &c->w->opt->limits,
                                c->w->fields, &n) != 0)
        n = 0; /* trailers are optional: without them the message is whole */
    if (x->back_ops->end(x, c->w->fields, n) < 0)
        c->discard = true;
}

/* Pass body bytes on. plain: how many at p are decoded already. Returns false when the rest was
 * kept for later; else *used bytes are done with. */
static bool take_body(struct gw_client *c, char *p, size_t n, size_t plain, size_t *used)
{
    struct gw_worker *w = c->w;
    struct gw_exchange *x = c->x;
    struct gw_body_part part = {.plain = plain, .used = plain};
    enum gw_body_result result = c->body.done ? GW_BODY_DONE : GW_BODY_MORE;
    ssize_t taken;
    bool last;

    if (plain == 0)
        result = gw_body_decode(&c->body, p, n, w->opt->limits.head_bytes, &part);
    if (result == GW_BODY_ERROR) {
        c->keep_alive = false;
        gw_exchange_front_failed(x, 400, "bad_request", "malformed chunked body");
        *used = n;
        return true;
    }
    last = result == GW_BODY_DONE && part.trailers_len == 0;
    taken = (ssize_t)part.plain;
    if ((part.plain > 0 || last) && !c->discard && x->back_ops != NULL) {
        taken = x->back_ops->body(x, p, part.plain, last);
        if (taken < 0) { /* it will say why; its answer may be on the way */
            c->discard = true;
            taken = (ssize_t)part.plain;
        }
    }
    x->bytes_in += (uint64_t)taken;
    if ((size_t)taken < part.plain) {
        if (gw_in_keep_part(&w->bufs, &c->in, p, n, &part, (size_t)taken) != 0) {
            gw_client_close(c);
            return false;
        }
        c->blocked = c->slow = true;
        gw_sock_read_stop(&c->sock);
        /* The back's clock runs; here we only look whether the client is still there. */
        gw_timer_start(&w->t_half, &c->timer, on_half_closed);
        return false;
    }
    *used = part.used;
    if (result == GW_BODY_DONE) {
        end_body(c, &part);
        return true;
    }
    if (part.used > 0 && part.used < n)
        return true; /* look at the trailers */
    if (gw_in_keep(&w->bufs, &c->in, p + part.used, n - part.used, 0) != 0)
        gw_client_close(c);
    return false;
}

/* No body came with the head: it goes on without, for the app may have an answer already. */
static void pass_head_alone(struct gw_client *c)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): busy, as below */
    if (c->state == GW_CLIENT_BODY && c->x->back_ops != NULL)
        (void)c->x->back_ops->flush(c->x); /* a fault comes as an event */
}

static void process(struct gw_client *c, char *p, size_t n)
{
    size_t plain = p != gw_loop_scratch(c->w->loop) ? c->in.plain : 0, used;

    c->busy++;
    while (c->state != GW_CLIENT_CLOSED) {
        if (c->state == GW_CLIENT_HEAD && n > 0) {
            used = take_head(c, p, n);
            if (used == 0)
                break;
            if (used == n)
                pass_head_alone(c);
        } else if (c->state == GW_CLIENT_BODY && (n > 0 || c->body.done)) {
            if (!take_body(c, p, n, plain, &used))
                break;
            plain = 0;
        } else {
            /* A response is under way, or there is nothing: keep what came early. */
            if (c->state == GW_CLIENT_LINGER)
                n = 0;
            if (gw_in_keep(&c->w->bufs, &c->in, p, n, 0) != 0)
                abandon(c);
            break;
        }
        if (c->state == GW_CLIENT_CLOSED) /* NOLINT(clang-analyzer-unix.Malloc): busy, as below */
            break;
        p += used;
        n -= used;
    }
    c->busy--; /* NOLINT(clang-analyzer-unix.Malloc): busy, it is not freed */
    if (c->state == GW_CLIENT_CLOSED)
        release(c);
}

/* The back has room again. */
void gw_client_resume(struct gw_client *c)
{
    if (!c->blocked)
        return;
    c->blocked = false;
    gw_sock_read_start(&c->sock, on_read);
    if (c->x != NULL && c->state == GW_CLIENT_BODY)
        watch_body(c);
    if (c->in.buf != NULL)
        process(c, gw_buf_begin(c->in.buf), c->in.buf->len);
}

/* Close so that the response arrives: input that nobody read would make the kernel send a reset,
 * which may overtake it. */
static void linger(struct gw_client *c)
{
    if (c->eof || (c->body.done && c->in.buf == NULL)) {
        gw_client_close(c);
        return;
    }
    c->state = GW_CLIENT_LINGER;
    gw_buf_put(&c->w->bufs, c->in.buf);
    c->in.buf = NULL;
    gw_sock_shutdown(&c->sock);
    gw_sock_read_start(&c->sock, on_read);
    gw_timer_start(&c->w->t_linger, &c->timer, on_timeout);
}

/* The response was handed over; go on when its last byte has left. */
void gw_client_finish(struct gw_client *c)
{
    c->state = GW_CLIENT_FLUSH;
    if (gw_out_is_pending(&c->out) || gw_sock_has_unsent(&c->sock)) {
        gw_client_write_wait(c);
        return;
    }
    gw_timer_stop(&c->timer);
    if (!c->keep_alive || c->eof || (c->w->draining && !c->w->gentle)) {
        linger(c);
        return;
    }
    c->state = GW_CLIENT_HEAD;
    gw_timer_start(&c->w->t_idle, &c->timer, on_timeout);
    if (!gw_sock_is_reading(&c->sock))
        gw_sock_read_start(&c->sock, on_read);
    if (c->busy == 0 && c->in.buf != NULL)
        process(c, gw_buf_begin(c->in.buf), c->in.buf->len);
}

static void on_writable(struct gw_sock *sock)
{
    struct gw_client *c = client_of(sock);

    if (gw_out_write(&c->w->bufs, &c->out, sock, NULL, 0, false) < 0) {
        gw_client_close(c);
        return;
    }
    if (gw_out_is_pending(&c->out) || gw_sock_has_unsent(sock)) {
        gw_client_write_wait(c);
        return;
    }
    if (c->state == GW_CLIENT_FLUSH) {
        gw_client_finish(c);
        return;
    }
    if (c->state == GW_CLIENT_BODY && !c->blocked)
        watch_body(c);
    else if (c->state == GW_CLIENT_WAIT || c->state == GW_CLIENT_BODY)
        gw_timer_stop(&c->timer);
    if (c->eof)
        watch_half_closed(c);
    else if (c->blocked)
        gw_timer_start(&c->w->t_half, &c->timer, on_half_closed);
    if (c->x != NULL && c->x->back_ops != NULL)
        c->x->back_ops->resume(c->x);
}

/* The client reads slowly: go on when it has taken some, or give up when it takes nothing. */
void gw_client_write_wait(struct gw_client *c)
{
    gw_sock_write_start(&c->sock, on_writable);
    gw_timer_start(&c->w->t_body, &c->timer, on_timeout);
}

static void on_handshake(struct gw_sock *sock, int status)
{
    struct gw_client *c = client_of(sock);
    const char *alpn;
    size_t len;

    if (status != 0) {
        gw_count(&c->w->stats.tls_failed, 1);
        gw_client_close(c);
        return;
    }
    gw_count(&c->w->stats.tls_handshakes, 1);
    gw_count(&c->w->stats.tls_resumed, gw_sock_tls_resumed(sock));
    alpn = gw_sock_tls_alpn(sock, &len);
    if (len == 2 && memcmp(alpn, "h2", 2) == 0) {
        become_http2(c, NULL, 0);
        return;
    }
    c->state = GW_CLIENT_HEAD;
    gw_timer_start(&c->w->t_idle, &c->timer, on_timeout);
    gw_sock_read_start(sock, on_read);
}

/* Count the connection, now that it is known whose it is. Returns whether it may go on. */
static bool admit(struct gw_client *c)
{
    struct gw_worker *w = c->w;
    uint32_t max = w->opt->max_connections_per_client;

    if (max == 0 || c->peer.sa.sa_family == AF_UNSPEC || gw_options_trusts(w->opt, &c->peer.sa))
        return true;
    c->client_slot = gw_limits_enter(&w->gw->limits, &c->peer.sa, max);
    if (c->client_slot != 0)
        return true;
    gw_count(&w->stats.clients_limited, 1);
    if (!c->tls) {
        refuse(c, 429, "too many connections of this client");
    } else { /* a handshake is what it should not cost us */
        gw_log_refusal(w, &c->peer.sa, 0, "too many connections of this client");
        gw_client_close(c);
    }
    return false;
}

/* The first byte of TLS or HTTP comes next. */
static void begin_protocol(struct gw_client *c)
{
    struct gw_worker *w = c->w;

    if (!admit(c))
        return;
    if (c->tls) {
        c->state = GW_CLIENT_TLS;
        gw_timer_start(&w->t_head, &c->timer, on_timeout);
        if (gw_sock_tls_accept(w->loop, &c->sock, w->tls, on_handshake) != 0)
            gw_client_close(c);
        return;
    }
    c->state = GW_CLIENT_HEAD;
    c->may_be_http2 = w->opt->http2;
    gw_timer_start(&w->t_idle, &c->timer, on_timeout);
    gw_sock_read_start(&c->sock, on_read);
}

/* A header's bytes leave the kernel, and not one more: what follows may be a TLS handshake, which
 * is read elsewhere. */
static void on_proxy_read(struct gw_sock *sock)
{
    struct gw_client *c = client_of(sock);
    struct gw_worker *w = c->w;
    char *p = gw_loop_scratch(w->loop), *kept;
    size_t have = gw_buf_len(c->in.buf), used;
    union gw_peer source;
    const char *why;
    ssize_t n;
    int r;

    if (have > 0)
        memcpy(p, gw_buf_begin(c->in.buf), have);
    n = recv(gw_sock_fd(sock), p + have, GW_PROXY_HEADER_MAX - have, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* a health check connects and leaves */
        gw_client_close(c);
        return;
    }
    r = gw_proxy_parse((unsigned char *)p, have + (size_t)n, &source, &why);
    if (r < 0) {
        gw_count(&w->stats.bad_requests, 1);
        gw_log_refusal(w, &c->peer.sa, 0, why);
        gw_client_close(c);
        return;
    }
    used = r > 0 ? (size_t)r - have : (size_t)n;
    n = recv(gw_sock_fd(sock), p + have, used, MSG_DONTWAIT);
    kept = r == 0 && n == (ssize_t)used ? gw_buf_room(&w->bufs, &c->in.buf, used) : NULL;
    if (n != (ssize_t)used || (r == 0 && kept == NULL)) {
        gw_client_close(c);
        return;
    }
    if (r == 0) {
        memcpy(kept, p + have, used);
        c->in.buf->len += (uint32_t)used;
        return;
    }
    gw_buf_put(&w->bufs, c->in.buf);
    c->in.buf = NULL;
    gw_sock_read_stop(sock);
    if (source.sa.sa_family != AF_UNSPEC)
        c->peer = source;
    begin_protocol(c);
}

void gw_client_start(struct gw_worker *w, struct gw_sock *sock, bool tls)
{
    struct gw_client *c = calloc(1, sizeof(*c));
    socklen_t len = sizeof(c->peer);

    if (c == NULL) {
        gw_sock_close(sock);
        return;
    }
    c->w = w;
    gw_sock_move(sock, &c->sock);
    c->next = w->clients;
    if (c->next != NULL)
        c->next->prev = c;
    w->clients = c;
    gw_count(&w->stats.accepted, 1);
    gw_gauge(&w->stats.connections, 1);
    atomic_fetch_add_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
    if (getpeername(gw_sock_fd(&c->sock), &c->peer.sa, &len) != 0)
        c->peer.sa.sa_family = AF_UNSPEC;
    c->body.done = true;
    c->tls = tls;
    if (gw_options_expects_proxy(w->opt, &c->peer.sa)) {
        c->state = GW_CLIENT_PROXY;
        gw_timer_start(&w->t_head, &c->timer, on_timeout);
        gw_sock_read_start(&c->sock, on_proxy_read);
        return;
    }
    begin_protocol(c);
}

void gw_client_drain(struct gw_client *c)
{
    if (c->w->gentle)
        return; /* the next response head says that it is the last */
    c->keep_alive = false;
    if (c->state == GW_CLIENT_HEAD && c->in.buf == NULL) {
        c->busy++;
        on_read(&c->sock); /* a request may have come already: it is the last one */
        c->busy--;         /* NOLINT(clang-analyzer-unix.Malloc): busy, it is not freed */
        if (c->state == GW_CLIENT_CLOSED) {
            release(c);
            return;
        }
    }
    if (c->state <= GW_CLIENT_TLS || (c->state == GW_CLIENT_HEAD && c->in.buf == NULL))
        gw_client_close(c);
}

/* Give the connection away for a tunnel. */
void gw_client_hand_over(struct gw_client *c, struct gw_tunnel_end *end)
{
    memset(end, 0, sizeof(*end));
    gw_sock_read_stop(&c->sock);
    gw_sock_move(&c->sock, &end->sock);
    end->unsent = c->out.pending;
    c->out.pending = NULL;
    end->received = c->in.buf;
    c->in.buf = NULL;
    end->eof = c->eof;
    end->client_slot = c->client_slot;
    c->client_slot = 0;
    c->x = NULL;
    /* The tunnel counts as a connection from here on. */
    atomic_fetch_add_explicit(&c->w->gw->n_connections, 1, memory_order_relaxed);
    shut(c, false);
    release(c);
}
