/* SPDX-License-Identifier: MIT */
/* Requests over the manager's unix socket: one HTTP/2 connection, opened with the first request.
 * libcurl 7.88 is not used here: it loses the end of streams now and then, and breaks a
 * prior-knowledge connection that it uses a second time. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "transom/h2.h"
#include "vmm/cli/cli.h"
#include "vmm/cli/http_internal.h"

#define OUT_MAX     (256 * 1024)          /* bytes that wait for the socket: HTTP/2 makes no more */
#define OUT_SIZE    (OUT_MAX + 64 * 1024) /* what it makes at a time fits on top */
#define READ_BYTES  (64 * 1024)
#define MAX_FDS     8
#define H2_CANCEL   8
#define MAX_HEADERS 12

struct transport {
    const struct http_target *target;
    int fd; /* -1: no connection */
    struct tr_h2 *h2;
    uint8_t *out; /* OUT_SIZE bytes; [out_at, out_len) waits for the socket */
    size_t out_at, out_len;
};

/* A request's stream; goes with the later of request and stream. */
struct part {
    struct transport *t;
    struct http_req *req; /* NULL: forgotten */
    struct tr_h2_stream *stream;
    bool blocked; /* the stream's queue is full: wait for on_drain */
    bool sent;    /* the body is complete */
};

static void *open_transport(const struct http_target *target)
{
    struct transport *t = calloc(1, sizeof(*t));

    if (t == NULL || (t->out = malloc(OUT_SIZE)) == NULL)
        abort();
    t->target = target;
    t->fd = -1;
    return t;
}

static void drop_connection(struct transport *t)
{
    struct tr_h2 *h2 = t->h2;

    t->h2 = NULL;
    tr_h2_free(h2); /* streams close by way of on_close */
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->out_at = t->out_len = 0;
}

static void close_transport(void *self)
{
    struct transport *t = self;

    drop_connection(t);
    free(t->out);
    free(t);
}

static void flush_out(struct transport *t)
{
    while (t->out_at < t->out_len) {
        ssize_t n =
            send(t->fd, t->out + t->out_at, t->out_len - t->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* full, or broken, which reading will tell */
        t->out_at += (size_t)n;
    }
    t->out_at = t->out_len = 0;
}

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    struct transport *t = arg;

    if (len > OUT_SIZE - t->out_len)
        flush_out(t);
    if (len > OUT_SIZE - t->out_len && t->out_at > 0) {
        memmove(t->out, t->out + t->out_at, t->out_len - t->out_at);
        t->out_len -= t->out_at;
        t->out_at = 0;
    }
    assert(len <= OUT_SIZE - t->out_len); /* what is offered has to be taken */
    memcpy(t->out + t->out_len, data, len);
    t->out_len += len;
    return t->out_len - t->out_at < OUT_MAX;
}

static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct transport *t = arg;

    (void)h2;
    (void)status;
    (void)reason;
    drop_connection(t);
}

/* Returns 0 or a positive errno. */
static int open_connection(struct transport *t)
{
    static const struct tr_h2_cbs cbs = {.send = on_send, .on_over = on_over};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};

    if (strlen(t->target->socket) >= sizeof(sa.sun_path))
        return ENAMETOOLONG;
    strncpy(sa.sun_path, t->target->socket, sizeof(sa.sun_path) - 1);
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return errno;
    if (connect(t->fd, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
        int why = errno;

        drop_connection(t);
        return why;
    }
    if (tr_h2_new(false, NULL, &cbs, t, &t->h2) != 0)
        abort();
    return 0;
}

/* ---- one stream ---- */

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct part *part = arg;

    (void)st;
    (void)end;
    if (part->req == NULL || head->status < 200)
        return;
    part->req->status = head->status;
    for (size_t i = 0; i < head->n_fields; i++)
        http_take_header(part->req, head->fields[i].name, head->fields[i].name_len,
                         head->fields[i].value, head->fields[i].value_len);
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct part *part = arg;

    if (part->req != NULL && !part->req->done &&
        !http_take_body(part->req, (const char *)data, len)) {
        http_finish(part->req, HTTP_STOPPED, NULL);
        tr_h2_reset(st, H2_CANCEL);
    }
    tr_h2_stream_consume(st, len);
}

/* Send body bytes as long as there are any and the stream takes them. */
static void pump(struct part *part)
{
    uint8_t buf[16384];

    while (part->req != NULL && !part->sent && !part->blocked && part->stream != NULL) {
        long n = part->req->on_read(part->req, buf, sizeof(buf));
        int r;

        if (n == -1)
            return;
        if (n == -2) {
            http_finish(part->req, HTTP_STOPPED, NULL);
            tr_h2_reset(part->stream, H2_CANCEL);
            return;
        }
        if (n == 0) {
            part->sent = true;
            tr_h2_end(part->stream, NULL, 0);
            return;
        }
        r = tr_h2_write(part->stream, buf, (size_t)n);
        if (r < 0)
            return; /* the stream is closing; on_close follows */
        part->blocked = r == 0;
    }
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct part *part = arg;

    (void)st;
    part->blocked = false;
    if (part->req != NULL && part->req->streamed)
        pump(part);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct part *part = arg;
    char reason[64];

    (void)st;
    part->stream = NULL;
    if (part->req == NULL) {
        free(part);
        return;
    }
    snprintf(reason, sizeof(reason), code == 0 ? "no answer" : "HTTP/2 error %u", code);
    if (code == 0 && part->req->status != 0)
        http_finish(part->req, HTTP_WHOLE, NULL);
    else
        http_finish(part->req, HTTP_CUT, reason);
}

static const struct tr_h2_stream_cbs stream_cbs = {
    .on_head = on_head, .on_data = on_data, .on_drain = on_drain, .on_close = on_close};

static void add(struct tr_h2_field *fields, size_t *n, const char *name, const char *value)
{
    fields[(*n)++] = (struct tr_h2_field){
        .name = name, .name_len = strlen(name), .value = value, .value_len = strlen(value)};
}

/* Open the stream. Returns 0 or a negative errno. */
static int send_request(struct transport *t, struct part *part)
{
    struct http_req *req = part->req;
    struct tr_h2_field fields[MAX_HEADERS];
    char length[32], *key = NULL;
    bool has_body = req->streamed || req->sent_len > 0;
    size_t n = 0;
    int r;

    add(fields, &n, ":method", req->method);
    add(fields, &n, ":scheme", "http");
    add(fields, &n, ":authority", "transom");
    add(fields, &n, ":path", req->path);
    add(fields, &n, "user-agent", "transom/" TRANSOM_VERSION);
    if (req->content_type != NULL)
        add(fields, &n, "content-type", req->content_type);
    snprintf(length, sizeof(length), "%lld",
             req->streamed ? (long long)req->stream_len : (long long)req->sent_len);
    if (has_body && (!req->streamed || req->stream_len >= 0))
        add(fields, &n, "content-length", length);
    for (size_t i = 0; i < req->n_extra; i++)
        add(fields, &n, req->extra[i].name, req->extra[i].value);
    if (t->target->key != NULL) {
        key = cli_printf("Bearer %s", t->target->key);
        add(fields, &n, "authorization", key);
    }
    r = tr_h2_request(t->h2, fields, n, !has_body, &stream_cbs, part, &part->stream);
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
    if (r == 0 && has_body && !req->streamed) {
        if (tr_h2_write(part->stream, req->sent_body, req->sent_len) < 0)
            abort(); /* a new stream takes what there is; memory is all that can lack */
        tr_h2_end(part->stream, NULL, 0);
    }
    return r;
}

static void start(void *self, struct http_req *req)
{
    struct transport *t = self;
    struct part *part = calloc(1, sizeof(*part));

    if (part == NULL)
        abort();
    part->t = t;
    part->req = req;
    req->transport = part;
    if (t->h2 == NULL) {
        req->os_error = open_connection(t);
        if (req->os_error != 0) {
            http_finish(req, HTTP_NO_CONNECTION, NULL);
            return;
        }
    }
    if (send_request(t, part) != 0) {
        http_finish(req, HTTP_OTHER, "too many requests at a time");
        return;
    }
    if (req->streamed)
        pump(part);
    tr_h2_writable(t->h2);
}

static void resume(void *self, struct http_req *req)
{
    struct transport *t = self;

    pump(req->transport);
    if (t->h2 != NULL)
        tr_h2_writable(t->h2);
}

static void forget(void *self, struct http_req *req)
{
    struct transport *t = self;
    struct part *part = req->transport;

    if (part == NULL)
        return;
    part->req = NULL;
    if (part->stream == NULL) {
        free(part);
        return;
    }
    tr_h2_reset(part->stream, H2_CANCEL); /* on_close frees the part */
    if (t->h2 != NULL)
        tr_h2_writable(t->h2);
    if (t->fd >= 0)
        flush_out(t);
}

/* Bytes from the manager. */
static void receive(struct transport *t)
{
    uint8_t buf[READ_BYTES];
    ssize_t n = recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n > 0)
        tr_h2_feed(t->h2, buf, (size_t)n);
    else if (n == 0)
        tr_h2_abort(t->h2, -ECONNRESET, "the manager closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        tr_h2_abort(t->h2, -errno, strerror(errno));
}

static void step(void *self, struct pollfd *fds, unsigned int n_fds, int timeout_ms)
{
    struct transport *t = self;
    struct pollfd all[MAX_FDS + 1];

    if (t->fd >= 0)
        flush_out(t);
    for (unsigned int i = 0; i < n_fds && i < MAX_FDS; i++)
        all[i + 1] = fds[i];
    all[0] = (struct pollfd){.fd = t->fd, .events = POLLIN};
    if (t->out_at < t->out_len)
        all[0].events |= POLLOUT;
    if (poll(all, n_fds + 1, timeout_ms) < 0) {
        for (unsigned int i = 0; i <= n_fds; i++)
            all[i].revents = 0;
    }
    for (unsigned int i = 0; i < n_fds && i < MAX_FDS; i++)
        fds[i].revents = all[i + 1].revents;
    if (t->h2 != NULL && all[0].revents & POLLOUT) {
        flush_out(t);
        tr_h2_writable(t->h2);
    }
    if (t->h2 != NULL && all[0].revents & (POLLIN | POLLHUP | POLLERR))
        receive(t);
    if (t->h2 != NULL && t->out_len == 0)
        tr_h2_writable(t->h2);
    if (t->fd >= 0)
        flush_out(t);
}

const struct http_transport http_unix_transport = {.open = open_transport,
                                                   .close = close_transport,
                                                   .start = start,
                                                   .resume = resume,
                                                   .forget = forget,
                                                   .step = step};
