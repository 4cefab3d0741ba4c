/* SPDX-License-Identifier: MIT */
/* Path: accept -> line -> connect (127.0.0.1, then ::1) -> "+" -> copy until both sides ended.
 * Faults: a peer that is not the edge, a line that is none, a deadline, an error of either side ->
 * both are reset. Each direction holds one buffer at most, and only while bytes wait in it. */
#include "vmm/agent/splice.h"

#include <stdlib.h>
#include <string.h>

#include "transom/log.h"

#define CHUNK         ((size_t)64 * 1024)
#define LINE_MAX_LEN  6
#define LINE_LIMIT_MS 10000
#define BACKLOG       512
#define KEEPALIVE_S   60

/* LINE:    the peer is read from, deadline runs.
 * CONNECT: app is open and connecting, deadline runs.
 * COPY:    both ways are open. */
enum splice_state { LINE, CONNECT, COPY };

/* One direction. */
struct way {
    uv_tcp_t *from, *to;
    uv_write_t write;
    uv_shutdown_t shutdown;
    char *buf;  /* from on_alloc until its bytes have left */
    bool ended; /* from has sent its end, and to was told of it */
};

struct splice {
    struct agent_splices *set;
    struct splice *prev, *next;
    uv_tcp_t peer, app;
    uv_timer_t deadline;
    uv_connect_t connect;
    uv_write_t answer;
    struct way up, down; /* peer to app, app to peer */
    enum splice_state state;
    uint16_t port;
    char line[LINE_MAX_LEN];
    size_t line_len;
    const char *early; /* what came behind the newline already: the app's */
    int n_open;        /* handles whose close callback is still due */
    bool app_open, app_closing, tried_v6, closing;
};

struct agent_splices {
    struct agent *agent;
    uv_tcp_t listener;
    struct splice *splices;
    unsigned n;
    struct in_addr edge;
    uint16_t port;
    bool listening, waiting; /* waiting: connections are left to the kernel until one has ended */
};

static void connect_app(struct splice *sp);
static void on_connection(uv_stream_t *listener, int status);

uint16_t agent_splice_parse(const char *line, size_t len)
{
    unsigned long port = 0;

    if (len == 0 || len > 5 || line[0] == '0')
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (line[i] < '0' || line[i] > '9')
            return 0;
        port = port * 10 + (unsigned long)(line[i] - '0');
    }
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct splice *sp = handle->data;
    struct agent_splices *set = sp->set;

    if (--sp->n_open > 0)
        return;
    if (sp->next != NULL)
        sp->next->prev = sp->prev;
    if (sp->prev != NULL)
        sp->prev->next = sp->next;
    else
        set->splices = sp->next;
    set->n--;
    free(sp->up.buf);
    free(sp->down.buf);
    free(sp);
    if (set->waiting && set->listening) {
        set->waiting = false;
        on_connection((uv_stream_t *)&set->listener, 0);
    }
}

/* So that the other side sees a broken connection as one. */
static void close_tcp(uv_tcp_t *tcp, bool reset)
{
    if (!reset || uv_tcp_close_reset(tcp, on_closed) != 0)
        uv_close((uv_handle_t *)tcp, on_closed);
}

static void finish(struct splice *sp, bool reset)
{
    if (sp->closing)
        return;
    sp->closing = true;
    close_tcp(&sp->peer, reset);
    if (sp->app_open && !sp->app_closing)
        close_tcp(&sp->app, reset);
    uv_close((uv_handle_t *)&sp->deadline, on_closed);
}

static void on_deadline(uv_timer_t *timer)
{
    finish(timer->data, true);
}

/* ---- copying ---- */

static struct way *way_from(struct splice *sp, const uv_stream_t *from)
{
    return from == (uv_stream_t *)&sp->peer ? &sp->up : &sp->down;
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct splice *sp = handle->data;
    struct way *way = way_from(sp, (uv_stream_t *)handle);

    (void)size;
    if (way->buf == NULL)
        way->buf = malloc(CHUNK);
    *buf = uv_buf_init(way->buf, way->buf != NULL ? CHUNK : 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void drop_buffer(struct way *way)
{
    free(way->buf);
    way->buf = NULL;
}

static void on_written(uv_write_t *req, int status)
{
    struct splice *sp = req->data;
    struct way *way = req == &sp->up.write ? &sp->up : &sp->down;

    drop_buffer(way);
    if (status != 0 || uv_read_start((uv_stream_t *)way->from, on_alloc, on_read) != 0)
        finish(sp, true);
}

static void on_shut(uv_shutdown_t *req, int status)
{
    struct splice *sp = req->data;

    (req == &sp->up.shutdown ? &sp->up : &sp->down)->ended = true;
    if (status != 0 || (sp->up.ended && sp->down.ended))
        finish(sp, status != 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct splice *sp = stream->data;
    struct way *way = way_from(sp, stream);
    uv_buf_t rest;
    int sent;

    if (n == UV_EOF) {
        drop_buffer(way);
        uv_read_stop(stream);
        if (uv_shutdown(&way->shutdown, (uv_stream_t *)way->to, on_shut) != 0)
            finish(sp, true);
        return;
    }
    if (n < 0) {
        finish(sp, true);
        return;
    }
    rest = uv_buf_init(buf->base, (unsigned)n);
    sent = n > 0 ? uv_try_write((uv_stream_t *)way->to, &rest, 1) : 0;
    if (sent == n) {
        drop_buffer(way);
        return;
    }
    if (sent < 0 && sent != UV_EAGAIN) {
        finish(sp, true);
        return;
    }
    if (sent > 0) {
        rest.base += sent;
        rest.len -= (size_t)sent;
    }
    uv_read_stop(stream);
    if (uv_write(&way->write, (uv_stream_t *)way->to, &rest, 1, on_written) != 0)
        finish(sp, true);
}

/* ---- connecting ---- */

static void on_answered(uv_write_t *req, int status)
{
    struct splice *sp = req->data;

    if (status != 0)
        finish(sp, true);
    else if (sp->state != COPY)
        finish(sp, false); /* "-" has left */
}

static void answer(struct splice *sp, char *text)
{
    uv_buf_t buf = uv_buf_init(text, 2);

    uv_timer_stop(&sp->deadline);
    if (uv_write(&sp->answer, (uv_stream_t *)&sp->peer, &buf, 1, on_answered) != 0)
        finish(sp, true);
}

static void refuse(struct splice *sp)
{
    static char no[] = "-\n";

    answer(sp, no);
}

static void on_app_closed(uv_handle_t *handle)
{
    struct splice *sp = handle->data;

    sp->app_open = sp->app_closing = false;
    if (sp->closing) {
        on_closed(handle);
        return;
    }
    sp->n_open--;
    connect_app(sp);
}

static void on_connect(uv_connect_t *req, int status)
{
    struct splice *sp = req->data;
    static char yes[] = "+\n";
    uv_buf_t early;

    if (sp->closing)
        return;
    if (status != 0 && !sp->tried_v6) {
        sp->tried_v6 = sp->app_closing = true;
        uv_close((uv_handle_t *)&sp->app, on_app_closed);
        return;
    }
    if (status != 0) {
        refuse(sp);
        return;
    }
    sp->state = COPY;
    early = uv_buf_init((char *)sp->early, (unsigned)(sp->line + sp->line_len - sp->early));
    uv_tcp_nodelay(&sp->app, 1);
    if (early.len > 0 && uv_try_write((uv_stream_t *)&sp->app, &early, 1) != (int)early.len) {
        finish(sp, true); /* a fresh connection takes a few bytes */
        return;
    }
    answer(sp, yes);
    if (!sp->closing && (uv_read_start((uv_stream_t *)&sp->peer, on_alloc, on_read) != 0 ||
                         uv_read_start((uv_stream_t *)&sp->app, on_alloc, on_read) != 0))
        finish(sp, true);
}

static void connect_app(struct splice *sp)
{
    struct sockaddr_storage to;
    int r = sp->tried_v6 ? uv_ip6_addr("::1", sp->port, (struct sockaddr_in6 *)&to)
                         : uv_ip4_addr("127.0.0.1", sp->port, (struct sockaddr_in *)&to);

    if (r == 0)
        r = uv_tcp_init(sp->deadline.loop, &sp->app);
    if (r == 0) {
        sp->app.data = sp;
        sp->app_open = true;
        sp->n_open++;
        r = uv_tcp_connect(&sp->connect, &sp->app, (struct sockaddr *)&to, on_connect);
    }
    if (r != 0) /* no such loopback */
        refuse(sp);
}

/* ---- the line ---- */

static void on_line_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct splice *sp = handle->data;

    (void)size;
    *buf = uv_buf_init(sp->line + sp->line_len, (unsigned)(sizeof(sp->line) - sp->line_len));
}

static void on_line(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct splice *sp = stream->data;
    const char *end;

    (void)buf;
    if (n == 0)
        return;
    if (n < 0) {
        finish(sp, true);
        return;
    }
    sp->line_len += (size_t)n;
    end = memchr(sp->line, '\n', sp->line_len);
    if (end == NULL && sp->line_len < sizeof(sp->line))
        return;
    if (end != NULL)
        sp->port = agent_splice_parse(sp->line, (size_t)(end - sp->line));
    if (sp->port == 0) {
        finish(sp, true);
        return;
    }
    sp->early = end + 1;
    uv_read_stop(stream);
    sp->state = CONNECT;
    if (sp->port == sp->set->port)
        refuse(sp); /* that would be ourselves */
    else
        connect_app(sp);
}

/* ---- accepting ---- */

static bool is_edge(const struct agent_splices *s, const uv_tcp_t *peer)
{
    struct sockaddr_storage from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&from;
    int len = sizeof(from);

    if (uv_tcp_getpeername(peer, (struct sockaddr *)&from, &len) != 0)
        return false;
    if (from.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&from)->sin_addr.s_addr == s->edge.s_addr;
    return from.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
           memcmp(&v6->sin6_addr.s6_addr[12], &s->edge, 4) == 0;
}

static struct splice *splice_new(struct agent_splices *s)
{
    struct splice *sp = calloc(1, sizeof(*sp));

    if (sp == NULL)
        return NULL;
    if (uv_tcp_init(s->agent->loop, &sp->peer) != 0 ||
        uv_timer_init(s->agent->loop, &sp->deadline) != 0)
        abort(); /* cannot fail without a socket */
    sp->set = s;
    sp->peer.data = sp->deadline.data = sp;
    sp->connect.data = sp->answer.data = sp;
    sp->up = (struct way){.from = &sp->peer, .to = &sp->app};
    sp->down = (struct way){.from = &sp->app, .to = &sp->peer};
    sp->up.write.data = sp->up.shutdown.data = sp;
    sp->down.write.data = sp->down.shutdown.data = sp;
    sp->n_open = 2;
    sp->next = s->splices;
    if (sp->next != NULL)
        sp->next->prev = sp;
    s->splices = sp;
    s->n++;
    return sp;
}

/* libuv holds a connection that was not accepted, and asks for no other. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct agent_splices *s = listener->data;
    struct splice *sp;

    if (status != 0)
        return;
    s->waiting = s->n >= AGENT_SPLICES_MAX;
    if (s->waiting)
        return;
    sp = splice_new(s);
    if (sp == NULL) {
        s->waiting = s->n > 0; /* until memory is given back */
        return;
    }
    if (uv_accept(listener, (uv_stream_t *)&sp->peer) != 0 || !is_edge(s, &sp->peer)) {
        finish(sp, true);
        return;
    }
    uv_tcp_nodelay(&sp->peer, 1);
    uv_tcp_keepalive(&sp->peer, 1, KEEPALIVE_S);
    if (uv_timer_start(&sp->deadline, on_deadline, LINE_LIMIT_MS, 0) != 0 ||
        uv_read_start((uv_stream_t *)&sp->peer, on_line_alloc, on_line) != 0)
        finish(sp, true);
}

/* ---- life ---- */

int agent_splices_new(struct agent *a, struct agent_splices **out)
{
    struct agent_splices *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return UV_ENOMEM;
    s->agent = a;
    *out = s;
    return 0;
}

static int bind_to(uv_tcp_t *tcp, const char *any, uint16_t port)
{
    struct sockaddr_storage at;
    int r = strchr(any, ':') != NULL ? uv_ip6_addr(any, port, (struct sockaddr_in6 *)&at)
                                     : uv_ip4_addr(any, port, (struct sockaddr_in *)&at);

    return r == 0 ? uv_tcp_bind(tcp, (struct sockaddr *)&at, 0) : r;
}

int agent_splices_listen(struct agent_splices *s, struct in_addr edge)
{
    uint16_t port = s->agent->options.host_test ? 0 : AGENT_SPLICE_PORT;
    struct sockaddr_storage at;
    int len = sizeof(at), r;

    s->edge = edge;
    if (s->listening)
        return s->port;
    r = uv_tcp_init(s->agent->loop, &s->listener);
    if (r != 0)
        goto out;
    s->listener.data = s;
    s->listening = true;
    r = bind_to(&s->listener, "::", port);
    if (r == UV_EAFNOSUPPORT || r == UV_EADDRNOTAVAIL) /* no IPv6 here */
        r = bind_to(&s->listener, "0.0.0.0", port);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&s->listener, BACKLOG, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&s->listener, (struct sockaddr *)&at, &len);
    if (r == 0)
        s->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                 : ((struct sockaddr_in *)&at)->sin_port);
    else
        uv_close((uv_handle_t *)&s->listener, NULL); /* once: a second hello does not try again */
out:
    if (r != 0)
        log_error("port %u for apps on loopback: %s", port, uv_strerror(r));
    return r == 0 ? s->port : r;
}

uint16_t agent_splices_port(const struct agent_splices *s)
{
    return s->port;
}

void agent_splices_stop(struct agent_splices *s)
{
    if (s->port != 0)
        uv_close((uv_handle_t *)&s->listener, NULL);
    s->port = 0;
    s->listening = s->waiting = false;
    for (struct splice *sp = s->splices; sp != NULL; sp = sp->next)
        finish(sp, true);
}

void agent_splices_free(struct agent_splices *s)
{
    free(s);
}
