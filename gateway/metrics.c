/* SPDX-License-Identifier: MIT */
#include "gateway/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/address.h"
#include "gateway/control.h"
#include "gateway/http1.h"

#define REQUEST_MAX 4096
#define N_FIELDS    64
#define TIMEOUT_MS  5000
#define CLIENTS_MAX 64

struct gw_metrics {
    uv_tcp_t tcp;
    struct gw_gateway *gw;
    const struct gw_feed *feed;
    struct scrape *scrapes;
    unsigned n_scrapes;
};

/* One connection: one request, one answer. */
struct scrape {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    struct gw_metrics *m;
    struct scrape *prev, *next;
    struct gw_http1_scan scan;
    char in[REQUEST_MAX];
    size_t n_in;
    char *out;
    int n_open;
};

struct total {
    uint64_t accepted, tls_failed, tls_handshakes, tls_resumed, requests, bad_requests, bytes_in,
        bytes_out, status[6];
    uint64_t connects, reuses, retries, failures, tunnels, pages, denied, woken, clients_limited,
        sandboxes_limited;
    uint64_t h2_accepted, h2_requests, h2_resets, h2_cut;
    uint64_t durations[GW_DURATIONS + 1], duration_ms, slow_clients;
    int64_t connections, h2_connections, open_tunnels, exchanges, pool_idle, pool_machines;
};

#define SUM(field, from) (t->field += atomic_load_explicit(&(from), memory_order_relaxed))

static void add_up(const struct gw_gateway *gw, struct total *t)
{
    memset(t, 0, sizeof(*t));
    for (unsigned i = 0; i < gw->n_workers; i++) {
        struct gw_stats *s = &gw->workers[i].stats;

        SUM(accepted, s->accepted);
        SUM(tls_failed, s->tls_failed);
        SUM(tls_handshakes, s->tls_handshakes);
        SUM(tls_resumed, s->tls_resumed);
        SUM(requests, s->requests);
        SUM(bad_requests, s->bad_requests);
        SUM(bytes_in, s->bytes_in);
        SUM(bytes_out, s->bytes_out);
        for (int c = 0; c < 6; c++)
            SUM(status[c], s->status[c]);
        SUM(connects, s->upstream_connects);
        SUM(reuses, s->upstream_reuses);
        SUM(retries, s->upstream_retries);
        SUM(failures, s->upstream_failures);
        SUM(tunnels, s->tunnels);
        SUM(pages, s->pages);
        SUM(denied, s->denied);
        SUM(woken, s->woken);
        SUM(clients_limited, s->clients_limited);
        SUM(sandboxes_limited, s->sandboxes_limited);
        SUM(h2_accepted, s->h2_accepted);
        SUM(h2_requests, s->h2_requests);
        SUM(h2_resets, s->h2_resets);
        SUM(h2_cut, s->h2_cut);
        SUM(h2_connections, s->h2_connections);
        SUM(connections, s->connections);
        SUM(open_tunnels, s->open_tunnels);
        SUM(exchanges, s->exchanges);
        SUM(slow_clients, s->slow_clients);
        SUM(pool_idle, s->pool_idle);
        SUM(pool_machines, s->pool_machines);
        SUM(duration_ms, s->duration_ms);
        for (int d = 0; d <= GW_DURATIONS; d++)
            SUM(durations[d], s->durations[d]);
    }
}

static void print(FILE *f, const char *type, const char *name, const char *help, long long value)
{
    fprintf(f,
            "# HELP transom_gateway_%s %s\n# TYPE transom_gateway_%s %s\ntransom_gateway_%s %lld\n",
            name, help, name, type, name, value);
}

static void print_durations(FILE *f, const struct total *t)
{
    const char *name = "transom_gateway_request_duration_seconds";
    uint64_t n = 0;

    fprintf(f,
            "# HELP %s From a request's head to the end of its answer; tunnels until they open.\n"
            "# TYPE %s histogram\n",
            name, name);
    for (int i = 0; i < GW_DURATIONS; i++) {
        n += t->durations[i];
        fprintf(f, "%s_bucket{le=\"%g\"} %llu\n", name, gw_duration_ms[i] / 1000.0,
                (unsigned long long)n);
    }
    n += t->durations[GW_DURATIONS];
    fprintf(f, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %llu.%03llu\n%s_count %llu\n", name,
            (unsigned long long)n, name, (unsigned long long)(t->duration_ms / 1000),
            (unsigned long long)(t->duration_ms % 1000), name, (unsigned long long)n);
}

static void print_feed(FILE *f, const struct gw_feed_figures *feed)
{
    uint64_t answered = atomic_load(&feed->answered_ms), now = uv_hrtime() / 1000000;

    print(f, "gauge", "redis_up", "Is Redis connected?", atomic_load(&feed->up));
    print(f, "counter", "route_changes_total", "Route changes read from Redis.",
          (long long)atomic_load(&feed->changes));
    print(f, "counter", "route_loads_total", "Full loads of the route table.",
          (long long)atomic_load(&feed->loads));
    print(f, "counter", "route_records_bad_total", "Route records that could not be read.",
          (long long)atomic_load(&feed->bad_records));
    if (answered == 0)
        return; /* no age yet */
    fprintf(f,
            "# HELP transom_gateway_route_feed_age_seconds Since Redis last answered; some "
            "seconds while nothing changes.\n# TYPE transom_gateway_route_feed_age_seconds "
            "gauge\ntransom_gateway_route_feed_age_seconds %.3f\n",
            (double)(now - answered) / 1000);
    fprintf(f,
            "# HELP transom_gateway_route_feed_lag_seconds Of the last route change: from Redis' "
            "clock to its effect here.\n# TYPE transom_gateway_route_feed_lag_seconds "
            "gauge\ntransom_gateway_route_feed_lag_seconds %.3f\n",
            (double)atomic_load(&feed->lag_ms) / 1000);
}

static void print_all(FILE *f, const struct gw_gateway *gw, const struct gw_feed *feed,
                      const struct total *t)
{
    fprintf(f,
            "# HELP transom_gateway_info The program.\n# TYPE transom_gateway_info gauge\n"
            "transom_gateway_info{version=\"%s\"} 1\n",
            TRANSOM_VERSION);
    print(f, "gauge", "workers", "Worker threads.", gw->n_workers);
    print(f, "counter", "connections_accepted_total", "Client connections accepted.",
          (long long)t->accepted);
    print(f, "gauge", "connections", "Client connections open, tunnels included.", t->connections);
    print(f, "counter", "tls_failures_total", "TLS handshakes that failed.",
          (long long)t->tls_failed);
    print(f, "counter", "tls_handshakes_total", "TLS handshakes completed.",
          (long long)t->tls_handshakes);
    print(f, "counter", "tls_resumed_total", "Those that resumed an earlier session.",
          (long long)t->tls_resumed);
    print(f, "gauge", "certificates", "Certificates loaded.", (long long)gw->n_certificates);
    print(f, "gauge", "certificates_end_seconds",
          "When the first of them ends, in seconds since 1970; 0: there is none.",
          (long long)gw->certificates_end_s);
    print(f, "counter", "reloads_total", "Reloads of configuration and certificates.",
          (long long)atomic_load(&gw->reloads));
    print(f, "counter", "reloads_refused_total", "Reloads that found a fault and changed nothing.",
          (long long)atomic_load(&gw->reloads_refused));
    print(f, "gauge", "start_time_seconds", "When this process began, in seconds since 1970.",
          (long long)gw->start_s);
    print(f, "counter", "requests_total", "Requests begun.", (long long)t->requests);
    print(f, "gauge", "requests_active", "Requests under way.", t->exchanges);
    print(f, "counter", "requests_refused_total", "Requests that could not be read.",
          (long long)t->bad_requests);
    fprintf(f, "# HELP transom_gateway_responses_total Exchanges ended, by class of status.\n"
               "# TYPE transom_gateway_responses_total counter\n");
    for (int c = 0; c < 6; c++)
        fprintf(f, "transom_gateway_responses_total{class=\"%s\"} %llu\n",
                (const char *const[]){"none", "1xx", "2xx", "3xx", "4xx", "5xx"}[c],
                (unsigned long long)t->status[c]);
    print_durations(f, t);
    print(f, "counter", "slow_clients_total", "Clients ended for not sending, or not reading.",
          (long long)t->slow_clients);
    print(f, "gauge", "pool_idle_connections", "Connections to machines kept for the next request.",
          t->pool_idle);
    print(f, "gauge", "pool_machines", "Machines that workers have connections to.",
          t->pool_machines);
    print(f, "counter", "pages_total", "Answers made by the gateway itself.", (long long)t->pages);
    print(f, "counter", "denied_total", "Requests to private previews without a valid token.",
          (long long)t->denied);
    print(f, "counter", "wakes_total", "Sandboxes that the manager was asked to wake.",
          (long long)t->woken);
    print(f, "counter", "clients_limited_total", "Connections refused: the client has too many.",
          (long long)t->clients_limited);
    print(f, "counter", "sandboxes_limited_total", "Requests refused: the sandbox has too many.",
          (long long)t->sandboxes_limited);
    print(f, "counter", "request_bytes_total", "Request body bytes.", (long long)t->bytes_in);
    print(f, "counter", "response_bytes_total", "Response body bytes.", (long long)t->bytes_out);
    print(f, "counter", "upstream_connects_total", "Connections made to machines.",
          (long long)t->connects);
    print(f, "counter", "upstream_reuses_total", "Requests sent on a kept connection.",
          (long long)t->reuses);
    print(f, "counter", "upstream_retries_total", "Requests sent again after a stale connection.",
          (long long)t->retries);
    print(f, "counter", "upstream_failures_total", "Requests that a machine did not answer.",
          (long long)t->failures);
    print(f, "counter", "tunnels_total", "Tunnels opened.", (long long)t->tunnels);
    print(f, "gauge", "tunnels", "Tunnels open.", t->open_tunnels);
    print(f, "counter", "http2_connections_accepted_total", "Client connections with HTTP/2.",
          (long long)t->h2_accepted);
    print(f, "gauge", "http2_connections", "HTTP/2 connections open.", t->h2_connections);
    print(f, "counter", "http2_requests_total", "Requests that came over HTTP/2.",
          (long long)t->h2_requests);
    print(f, "counter", "http2_resets_total", "HTTP/2 streams that clients reset or broke.",
          (long long)t->h2_resets);
    print(f, "counter", "http2_connections_cut_total", "HTTP/2 connections ended for abuse.",
          (long long)t->h2_cut);
    print(f, "gauge", "routes", "Labels in the route table.", (long long)gw_table_count(gw->table));
    if (feed != NULL)
        print_feed(f, gw_feed_figures(feed));
}

char *gw_metrics_text(const struct gw_gateway *gw, const struct gw_feed *feed)
{
    struct total t;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL)
        return NULL;
    add_up(gw, &t);
    print_all(f, gw, feed, &t);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void on_closed(uv_handle_t *handle)
{
    struct scrape *s = handle->data;

    if (--s->n_open > 0)
        return;
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        s->m->scrapes = s->next;
    s->m->n_scrapes--;
    free(s->out);
    free(s);
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

/* Only a Host that a web page cannot choose by its own name server: an address or localhost. */
static bool private_host(struct gw_str host)
{
    char name[64];
    unsigned char address[16];
    size_t n = 0;

    if (host.len == 0)
        return true; /* HTTP/1.0 */
    if (host.len >= sizeof(name))
        return false;
    if (host.p[0] == '[')
        return true;
    while (n < host.len && host.p[n] != ':') {
        name[n] = host.p[n];
        n++;
    }
    name[n] = '\0';
    return inet_pton(AF_INET, name, address) == 1 ||
           gw_str_ieq((struct gw_str){name, n}, "localhost", 9);
}

static void answer(struct scrape *s, const struct gw_request *req)
{
    const char *status = "200 OK", *type = "text/plain; version=0.0.4";
    char *text;
    uv_buf_t buf;
    int n;

    if (req == NULL || !private_host(req->host)) {
        status = req == NULL ? "400 Bad Request" : "421 Misdirected Request";
        text = strdup("");
    } else if (req->target.len != 8 || memcmp(req->target.p, "/metrics", 8) != 0) {
        status = "404 Not Found";
        text = strdup("see /metrics\n");
    } else {
        text = gw_metrics_text(s->m->gw, s->m->feed);
    }
    n = text == NULL ? -1
                     : asprintf(&s->out,
                                "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                                "Cache-Control: no-store\r\nConnection: close\r\n\r\n%s",
                                status, type, strlen(text), text);
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
    struct gw_http1_limits limits = {.head_bytes = REQUEST_MAX, .n_fields = N_FIELDS};
    struct gw_field fields[N_FIELDS];
    struct gw_request req;
    const char *why;
    long head;

    (void)buf;
    if (n < 0) {
        end(s);
        return;
    }
    s->n_in += (size_t)n;
    head = gw_http1_find_end(&s->scan, s->in, s->n_in);
    if (head == 0 && s->n_in < sizeof(s->in))
        return;
    if (head <= 0 || gw_http1_parse_request(s->in, (size_t)head, &limits, fields, &req, &why) != 0)
        answer(s, NULL);
    else
        answer(s, &req);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct gw_metrics *m = server->data;
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

/* Bind, or take what is kept. */
static int bind_tcp(struct gw_metrics *m, const char *address, const struct sockaddr *sa,
                    struct gw_kept *kept, struct err *err)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000000L};
    char name[128];
    uv_os_fd_t bound;
    int fd, r;

    snprintf(name, sizeof(name), "metrics/%s", address);
    fd = gw_kept_take(kept, name);
    if (fd >= 0) {
        r = uv_tcp_open(&m->tcp, fd);
        return r == 0 ? uv_listen((uv_stream_t *)&m->tcp, 16, on_connection) : r;
    }
    for (int i = 0;; i++) { /* a killed predecessor may be ending still */
        r = uv_tcp_bind(&m->tcp, sa, 0);
        if (r == 0)
            r = uv_listen((uv_stream_t *)&m->tcp, 16, on_connection);
        if (r != UV_EADDRINUSE || i == 50)
            break;
        nanosleep(&pause, NULL);
    }
    if (r == 0)
        r = uv_fileno((uv_handle_t *)&m->tcp, &bound);
    return r == 0 ? gw_kept_store(kept, name, bound, err) : r;
}

int gw_metrics_open(uv_loop_t *loop, const char *address, struct gw_kept *kept,
                    struct gw_gateway *gw, const struct gw_feed *feed, char *bound,
                    struct gw_metrics **out, struct err *err)
{
    struct gw_metrics *m;
    struct sockaddr_storage sa;
    socklen_t len;
    int got = sizeof(sa), r = gw_address_parse(address, &sa, &len);

    if (r != 0)
        return tr_err_set(err, r, "gateway.metrics: %s: not ADDRESS:PORT", address);
    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    m->gw = gw;
    m->feed = feed;
    if (uv_tcp_init(loop, &m->tcp) != 0)
        abort(); /* cannot fail on Unix */
    m->tcp.data = m;
    r = bind_tcp(m, address, (struct sockaddr *)&sa, kept, err);
    if (r == 0)
        r = uv_tcp_getsockname(&m->tcp, (struct sockaddr *)&sa, &got);
    if (r != 0) {
        gw_metrics_close(m);
        return tr_err_set(err, r, "gateway.metrics: %s: %s", address,
                          r == UV_EADDRINUSE ? "another program listens there; stop it, configure "
                                               "another port, or \"\" for none"
                                             : uv_strerror(r));
    }
    gw_address_format((struct sockaddr *)&sa, bound);
    *out = m;
    return 0;
}

static void on_server_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void gw_metrics_close(struct gw_metrics *m)
{
    if (m == NULL)
        return;
    for (struct scrape *s = m->scrapes; s != NULL; s = s->next)
        end(s);
    uv_close((uv_handle_t *)&m->tcp, on_server_closed);
}
