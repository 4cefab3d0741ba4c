/* SPDX-License-Identifier: MIT */
/* One connection, one request, one answer: on_connection -> on_read -> on_written -> closed. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <uv.h>
#include "vmm/metrics.h"
#include "vmm/vmm.h"

#define REQUEST_MAX 4096
#define TIMEOUT_MS  5000
#define CLIENTS_MAX 16

struct scrape {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    struct vmm_metrics *m;
    struct scrape *prev, *next;
    char in[REQUEST_MAX];
    size_t n_in;
    char *out;
    int n_open;
};

struct vmm_metrics {
    uv_tcp_t tcp;
    struct vmm *vmm;
    struct scrape *scrapes;
    unsigned n_scrapes;
    bool closed; /* its own handle; it is freed with the last scrape */
};

/* ---- the request ---- */

/* An address or localhost, with or without a port. */
static bool host_is_private(const char *host, size_t len)
{
    unsigned char address[16];
    char name[64];
    size_t n;

    if (len > 0 && host[0] == '[')
        return true;
    n = len;
    for (size_t i = 0; i < len; i++) {
        if (host[i] == ':') {
            n = i;
            break;
        }
    }
    if (n == 0 || n >= sizeof(name))
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1;
}

/* Value of the header field Host in the lines from at to end; NULL: none. */
static const char *find_host(const char *at, const char *end, size_t *len)
{
    while (at < end) {
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        const char *value = at + 5;

        if (stop == NULL)
            stop = end;
        if (stop - at > 5 && strncasecmp(at, "host:", 5) == 0) {
            while (value < stop && (*value == ' ' || *value == '\t'))
                value++;
            while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
                stop--;
            *len = (size_t)(stop - value);
            return value;
        }
        at = stop + 2; /* past CR LF */
    }
    return NULL;
}

int vmm_metrics_judge(const char *text, size_t len)
{
    const char *end, *line_end, *path, *host;
    size_t path_len, host_len = 0;

    if (len == 0)
        return 0;
    end = memmem(text, len, "\r\n\r\n", 4);
    line_end = memmem(text, len, "\r\n", 2);
    if (memchr(text, '\0', len) != NULL)
        return 400;
    if (end == NULL)
        return len >= REQUEST_MAX ? 400 : 0;
    path = memchr(text, ' ', (size_t)(line_end - text));
    if (path == NULL || path == text)
        return 400;
    path++;
    path_len = 0;
    while (path + path_len < line_end && path[path_len] != ' ')
        path_len++;
    if (line_end - path - (ptrdiff_t)path_len != 9 || strncmp(path + path_len, " HTTP/1.", 8) != 0)
        return 400;
    host = find_host(line_end + 2, end, &host_len);
    if (host != NULL && !host_is_private(host, host_len))
        return 421;
    if (path - text != 4 || memcmp(text, "GET", 3) != 0)
        return 405;
    return path_len == 8 && memcmp(path, "/metrics", 8) == 0 ? 200 : 404;
}

/* ---- the connection ---- */

static void maybe_free(struct vmm_metrics *m)
{
    if (m->closed && m->n_scrapes == 0)
        free(m);
}

static void on_closed(uv_handle_t *handle)
{
    struct scrape *s = handle->data;
    struct vmm_metrics *m = s->m;

    if (--s->n_open > 0)
        return;
    if (s->next != NULL)
        s->next->prev = s->prev;
    *(s->prev != NULL ? &s->prev->next : &m->scrapes) = s->next;
    m->n_scrapes--;
    free(s->out);
    free(s);
    maybe_free(m);
}

static void end(struct scrape *s)
{
    if (uv_is_closing((uv_handle_t *)&s->tcp))
        return;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
    uv_close((uv_handle_t *)&s->timer, on_closed);
}

static void on_timeout(uv_timer_t *timer)
{
    end(timer->data);
}

static void on_written(uv_write_t *req, int status)
{
    (void)status;
    end(req->data);
}

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 421:
        return "Misdirected Request";
    default:
        return "Bad Request";
    }
}

static void answer(struct scrape *s, int status)
{
    char *text = status == 200   ? vmm_metrics_text(s->m->vmm)
                 : status == 404 ? strdup("see /metrics\n")
                                 : strdup("");
    int n = -1;
    uv_buf_t buf;

    if (text != NULL)
        n = asprintf(
            &s->out,
            "HTTP/1.1 %d %s\r\nContent-Type: text/plain; version=0.0.4\r\n%s"
            "Content-Length: %zu\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
            status, reason_of(status), status == 405 ? "Allow: GET\r\n" : "", strlen(text), text);
    free(text);
    if (n < 0) {
        s->out = NULL;
        end(s);
        return;
    }
    buf = uv_buf_init(s->out, (unsigned)n);
    s->write.data = s;
    uv_read_stop((uv_stream_t *)&s->tcp);
    if (uv_write(&s->write, (uv_stream_t *)&s->tcp, &buf, 1, on_written) != 0)
        end(s);
}

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    struct scrape *s = handle->data;

    (void)hint;
    *buf = uv_buf_init(s->in + s->n_in, (unsigned)(sizeof(s->in) - s->n_in));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct scrape *s = stream->data;
    int status;

    (void)buf;
    if (n < 0) {
        end(s);
        return;
    }
    s->n_in += (size_t)n;
    status = vmm_metrics_judge(s->in, s->n_in);
    if (status != 0)
        answer(s, status);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct vmm_metrics *m = server->data;
    struct scrape *s;

    if (status != 0)
        return;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return;
    s->m = m;
    s->n_open = 2;
    s->tcp.data = s->timer.data = s;
    if (uv_tcp_init(server->loop, &s->tcp) != 0 || uv_timer_init(server->loop, &s->timer) != 0)
        abort(); /* cannot fail on Unix */
    s->next = m->scrapes;
    if (s->next != NULL)
        s->next->prev = s;
    m->scrapes = s;
    m->n_scrapes++;
    if (uv_accept(server, (uv_stream_t *)&s->tcp) != 0 || m->n_scrapes > CLIENTS_MAX ||
        uv_timer_start(&s->timer, on_timeout, TIMEOUT_MS, 0) != 0 ||
        uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read) != 0)
        end(s);
}

/* ---- the listener ---- */

static int parse(const char *text, struct sockaddr_storage *out)
{
    const char *colon = strrchr(text, ':');
    bool six = text[0] == '[' && colon != NULL && colon > text && colon[-1] == ']';
    char host[64];
    size_t len;

    if (colon == NULL)
        return UV_EINVAL;
    len = (size_t)(colon - text) - (six ? 2 : 0);
    if (len >= sizeof(host))
        return UV_EINVAL;
    memcpy(host, text + six, len);
    host[len] = '\0';
    return six ? uv_ip6_addr(host, atoi(colon + 1), (struct sockaddr_in6 *)out)
               : uv_ip4_addr(host, atoi(colon + 1), (struct sockaddr_in *)out);
}

static void on_server_closed(uv_handle_t *handle)
{
    struct vmm_metrics *m = handle->data;

    m->closed = true;
    maybe_free(m);
}

void vmm_metrics_close(struct vmm_metrics *m)
{
    if (m == NULL)
        return;
    for (struct scrape *s = m->scrapes; s != NULL; s = s->next)
        end(s);
    uv_close((uv_handle_t *)&m->tcp, on_server_closed);
}

int vmm_metrics_open(struct vmm *vmm, const char *address, struct vmm_metrics **out,
                     struct err *err)
{
    struct sockaddr_storage sa = {0};
    struct vmm_metrics *m;
    int r = parse(address, &sa);

    if (r != 0)
        return tr_err_set(err, r, "vmm.metrics: %s: not ADDRESS:PORT", address);
    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    m->vmm = vmm;
    if (uv_tcp_init(vmm->loop, &m->tcp) != 0)
        abort(); /* cannot fail on Unix */
    m->tcp.data = m;
    r = uv_tcp_bind(&m->tcp, (struct sockaddr *)&sa, 0);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&m->tcp, 16, on_connection);
    if (r != 0) {
        vmm_metrics_close(m);
        return tr_err_set(err, r, "vmm.metrics: %s: %s", address,
                          r == UV_EADDRINUSE ? "another program listens there; configure another "
                                               "port, or \"\" for none"
                                             : uv_strerror(r));
    }
    *out = m;
    return 0;
}
