/* SPDX-License-Identifier: MIT */
/* Path: connect (127.0.0.1, then ::1 where nobody listens on the first) -> 200 -> copy until both
 * directions ended. Faults: refused -> 502; stream reset or socket error -> the other one, too. */
#include "vmm/agent/tunnel.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES       65536
#define CONNECT_LIMIT_MS 10000

struct tunnel {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_tcp_t tcp;
    uv_timer_t deadline;
    uv_connect_t connect;
    uv_shutdown_t shutdown;
    uint16_t port;
    bool try_v6; /* another address is left */
    bool connected;
    bool peer_ended; /* the stream's body is complete */
    bool closing;
    int n_open;
    char buf[READ_BYTES];
};

struct write_op {
    uv_write_t req;
    struct tunnel *tunnel;
    size_t len;
    uint8_t data[];
};

static void connect_next(struct tunnel *t, bool v6);

uint16_t agent_tunnel_port(const char *authority, bool *v6)
{
    static const char *const hosts[] = {"127.0.0.1:", "localhost:", "[::1]:"};

    for (size_t i = 0; i < 3; i++) {
        size_t len = strlen(hosts[i]);
        char *end;
        unsigned long port;

        if (strncmp(authority, hosts[i], len) != 0)
            continue;
        if (authority[len] < '1' || authority[len] > '9')
            return 0;
        port = strtoul(authority + len, &end, 10);
        *v6 = i == 2;
        return *end == '\0' && port <= 65535 ? (uint16_t)port : 0;
    }
    return 0;
}

static void on_handle_close(uv_handle_t *handle)
{
    struct tunnel *t = handle->data;

    if (--t->n_open == 0)
        free(t);
}

static void finish(struct tunnel *t)
{
    if (t->closing)
        return;
    t->closing = true;
    if (t->req != NULL) {
        t->req->cbs = NULL;
        t->req = NULL;
    }
    uv_close((uv_handle_t *)&t->tcp, on_handle_close);
    uv_close((uv_handle_t *)&t->deadline, on_handle_close);
}

static void fail(struct tunnel *t, int status)
{
    struct agent_request *req = t->req;

    if (req == NULL || t->closing) {
        /* The stream is gone already. */
    } else if (t->connected) {
        tr_h2_reset(req->stream, 10); /* CONNECT_ERROR */
    } else if (status == UV_ECONNREFUSED) {
        agent_request_error(req, 502, "refused", "nothing listens on port %u", t->port);
    } else {
        agent_request_error(req, 502, NULL, "port %u: %s", t->port, uv_strerror(status));
    }
    finish(t);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct tunnel *t = handle->data;

    (void)size;
    *buf = uv_buf_init(t->buf, sizeof(t->buf));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct tunnel *t = stream->data;
    int r;

    if (n == 0 || t->req == NULL)
        return;
    if (n == UV_EOF) {
        uv_read_stop(stream);
        agent_request_finish(t->req);
        return;
    }
    if (n < 0) {
        fail(t, (int)n);
        return;
    }
    r = agent_request_write(t->req, buf->base, (size_t)n);
    if (r == 0)
        uv_read_stop(stream);
    else if (r < 0)
        finish(t);
}

static void on_shutdown(uv_shutdown_t *op, int status)
{
    (void)op;
    (void)status;
}

static void end_socket(struct tunnel *t)
{
    if (!t->closing && uv_shutdown(&t->shutdown, (uv_stream_t *)&t->tcp, on_shutdown) != 0)
        fail(t, UV_EPIPE);
}

static void on_written(uv_write_t *req, int status)
{
    struct write_op *op = (struct write_op *)req;
    struct tunnel *t = op->tunnel;

    if (t->req != NULL)
        agent_request_consume(t->req, op->len);
    free(op);
    if (status < 0 && status != UV_ECANCELED)
        fail(t, status);
}

static void on_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct tunnel *t = req->ctx;
    struct write_op *op;
    uv_buf_t buf;

    op = malloc(sizeof(*op) + len);
    if (op == NULL) {
        fail(t, UV_ENOMEM);
        return;
    }
    op->tunnel = t;
    op->len = len;
    memcpy(op->data, data, len);
    buf = uv_buf_init((char *)op->data, (unsigned)len);
    if (uv_write(&op->req, (uv_stream_t *)&t->tcp, &buf, 1, on_written) != 0) {
        free(op);
        fail(t, UV_EPIPE);
    }
}

static void on_end(struct agent_request *req)
{
    struct tunnel *t = req->ctx;

    t->peer_ended = true;
    if (t->connected)
        end_socket(t);
}

static void on_drain(struct agent_request *req)
{
    struct tunnel *t = req->ctx;

    if (t->connected && !t->closing &&
        uv_read_start((uv_stream_t *)&t->tcp, on_alloc, on_read) != 0)
        fail(t, UV_EIO);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    struct tunnel *t = req->ctx;

    (void)code;
    t->req = NULL;
    finish(t);
}

static const struct agent_request_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_close = on_close};

static void on_connect(uv_connect_t *connect, int status)
{
    struct tunnel *t = connect->data;

    if (t->closing)
        return;
    if (status != 0) {
        if (t->try_v6 && status == UV_ECONNREFUSED)
            connect_next(t, true);
        else
            fail(t, status);
        return;
    }
    t->connected = true;
    uv_timer_stop(&t->deadline);
    uv_tcp_nodelay(&t->tcp, 1);
    agent_request_head(t->req, 200, NULL, NULL, NULL);
    if (uv_read_start((uv_stream_t *)&t->tcp, on_alloc, on_read) != 0)
        fail(t, UV_EIO);
    else if (t->peer_ended)
        end_socket(t);
}

static void on_reopen(uv_handle_t *handle)
{
    struct tunnel *t = handle->data;

    if (t->closing) {
        on_handle_close(handle);
        return;
    }
    connect_next(t, true);
}

/* A socket that was refused is done for: the second address takes a new one. */
static void connect_next(struct tunnel *t, bool v6)
{
    struct sockaddr_storage to;
    int r;

    if (v6 && t->try_v6) {
        t->try_v6 = false;
        uv_close((uv_handle_t *)&t->tcp, on_reopen);
        return;
    }
    r = uv_tcp_init(t->deadline.loop, &t->tcp);
    t->tcp.data = t;
    if (r == 0)
        r = v6 ? uv_ip6_addr("::1", t->port, (struct sockaddr_in6 *)&to)
               : uv_ip4_addr("127.0.0.1", t->port, (struct sockaddr_in *)&to);
    if (r == 0)
        r = uv_tcp_connect(&t->connect, &t->tcp, (struct sockaddr *)&to, on_connect);
    if (r != 0)
        fail(t, r);
}

static void on_deadline(uv_timer_t *timer)
{
    fail(timer->data, UV_ETIMEDOUT);
}

void agent_tunnel_handle(struct agent_request *req)
{
    bool v6 = false;
    uint16_t port = agent_tunnel_port(req->authority, &v6);
    struct tunnel *t;

    if (port == 0) {
        agent_request_error(req, 400, NULL,
                            "CONNECT goes to 127.0.0.1:PORT, localhost:PORT or [::1]:PORT only");
        return;
    }
    if (!agent_request_may_act(req))
        return;
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    t->req = req;
    t->port = port;
    t->try_v6 = !v6 && req->authority[0] != '1';
    t->n_open = 2;
    t->connect.data = t->deadline.data = t;
    req->ctx = t;
    req->cbs = &cbs;
    if (uv_timer_init(req->agent->loop, &t->deadline) != 0 ||
        uv_timer_start(&t->deadline, on_deadline, CONNECT_LIMIT_MS, 0) != 0)
        abort(); /* cannot fail on Unix */
    connect_next(t, v6);
}
