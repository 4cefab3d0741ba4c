/* SPDX-License-Identifier: MIT */
/* The HTTP/2 front with arbitrary bytes from a client, over a real socket and loop. In the place of
 * backs stands one that answers in many ways and holds every request to what may be written to an
 * app. Byte 0: what it does. Unless its high bit is set the client's preface comes first. */
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/h2_internal.h"
#include "gateway/live.h"
#include "gateway/tunnel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __wrap_gw_exchange_start(struct gw_exchange *x, struct gw_request *req,
                              const struct sockaddr *peer);

#define APPS_MAX  64
#define BACKS_MAX 256

struct back {
    struct gw_exchange *x; /* NULL: free */
    size_t got;
    int step;
    bool ended, full;
};

static struct gw_gateway gw;
static struct gw_worker w;
static struct gw_live live;
static struct back backs[BACKS_MAX];
static int apps[APPS_MAX], n_apps;
static uint8_t mode;

static bool clean(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] == '\r' || p[i] == '\n' || p[i] == '\0')
            return false;
    return true;
}

/* What goes to an app can be written as HTTP/1.1, and nothing else be read from it. */
static void check_request(const struct gw_request *r)
{
    size_t n_host = 0, n_length = 0, n_cookie = 0;

    assert(r->http2 && r->n_fields <= w.opt->limits.n_fields + GW_FIELDS_EXTRA);
    assert(gw_http1_is_token(r->method.p, r->method.len));
    assert(gw_http1_is_target(r->target.p, r->target.len));
    assert(r->target.p[0] == '/' || (r->target.len == 1 && r->target.p[0] == '*'));
    assert(r->host.len > 0);
    for (size_t i = 0; i < r->n_fields; i++) {
        const struct gw_field *f = &r->fields[i];

        assert(gw_http1_is_token(f->name, f->name_len) && clean(f->value, f->value_len));
        assert(f->id == gw_http1_classify(f->name, f->name_len));
        n_host += f->id == GW_FIELD_HOST;
        n_length += f->id == GW_FIELD_CONTENT_LENGTH;
        n_cookie += f->id == GW_FIELD_COOKIE;
        assert(f->id != GW_FIELD_CONNECTION && f->id != GW_FIELD_TRANSFER_ENCODING &&
               f->id != GW_FIELD_UPGRADE && f->id != GW_FIELD_KEEP_ALIVE);
    }
    assert(n_host == 1 && n_length <= 1 && n_cookie <= 1);
    assert(r->framing != GW_BODY_LENGTH || n_length == 1);
    assert(r->framing != GW_BODY_CHUNKED || n_length == 0);
}

static ssize_t back_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct back *b = x->back;
    size_t n = len;

    assert(!b->ended && data != NULL);
    if ((mode & 1) != 0 && len > 1)
        n = len / 2;
    if ((mode & 2) != 0 && b->got == 0 && !b->full && len > 0)
        n = 0;
    b->full = n < len;
    b->got += n;
    if (last && n == len)
        b->ended = true;
    if (x->request_framing == GW_BODY_LENGTH)
        assert(b->got <= x->request_length && (!b->ended || b->got == x->request_length));
    return b->got == 13 ? -1 : (ssize_t)n;
}

static int back_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n)
{
    struct back *b = x->back;

    assert(!b->ended);
    b->ended = true;
    for (size_t i = 0; i < n; i++) {
        assert(gw_http1_is_lower_token(trailers[i].name, trailers[i].name_len));
        assert(clean(trailers[i].value, trailers[i].value_len));
        assert(trailers[i].id != GW_FIELD_CONTENT_LENGTH && trailers[i].id != GW_FIELD_HOST);
    }
    return 0;
}

static int back_flush(struct gw_exchange *x)
{
    (void)x;
    return 0;
}

static void let_go(struct gw_exchange *x)
{
    struct back *b = x->back;

    x->back = NULL;
    x->back_ops = NULL;
    b->x = NULL;
}

static void back_resume(struct gw_exchange *x)
{
    (void)x; /* it goes on by itself */
}

static const struct gw_back_ops ops = {
    .body = back_body,
    .end = back_end,
    .flush = back_flush,
    .resume = back_resume,
    .cancel = let_go,
};

void __wrap_gw_exchange_start(struct gw_exchange *x, struct gw_request *req,
                              const struct sockaddr *peer)
{
    (void)peer;
    check_request(req);
    x->method = req->method_id;
    x->request_framing = req->framing;
    x->request_length = req->length;
    x->upgrade = req->upgrade;
    if (req->target.len == 3) {
        gw_exchange_back_failed(x, 502, "app_died", "The app is gone.");
        return;
    }
    for (size_t i = 0; i < BACKS_MAX; i++) {
        if (backs[i].x != NULL)
            continue;
        backs[i] = (struct back){.x = x};
        x->back = &backs[i];
        x->back_ops = &ops;
        return;
    }
    gw_exchange_back_failed(x, 503, "busy", "Too many.");
}

static struct gw_field field(const char *name, const char *value)
{
    return (struct gw_field){.name = name,
                             .value = value,
                             .name_len = (uint32_t)strlen(name),
                             .value_len = (uint32_t)strlen(value),
                             .id = gw_http1_classify(name, strlen(name))};
}

static void upgrade(struct gw_exchange *x)
{
    struct gw_h2_stream *s = x->front;
    struct gw_field accept = field("Sec-WebSocket-Accept", s->accept);
    struct gw_response resp = {.status = 101, .fields = &accept, .n_fields = 1};
    struct gw_upstream_set *set = gw_pool_get(&w.pool, "aaaaaaaaaaaaaaaa", 1);
    struct gw_tunnel_end client = {0}, app = {0};
    int fds[2];

    if (n_apps == APPS_MAX || set == NULL ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        abort();
    set->n++;
    let_go(x);
    if (x->front_ops->upgrade(x, &resp, &client) != 0) {
        close(fds[0]);
        close(fds[1]);
        set->n--;
        gw_pool_drop(&w.pool, set);
        gw_exchange_back_failed(x, 502, "bad_response", "No.");
        return;
    }
    gw_sock_open(w.loop, &app.sock, fds[0]);
    apps[n_apps++] = fds[1];
    gw_tunnel_start(&w, &client, &app, set, x);
}

/* One step of an answer. */
static void step(struct back *b)
{
    static char body[100000];
    struct gw_field fields[] = {field("Connection", "x-hop"), field("Set-Cookie", "a=b"),
                                field("X-Long", "0123456789012345678901234567890123456789")};
    struct gw_response resp = {.status = 200, .fields = fields, .n_fields = 3, .minor = 1};
    struct gw_exchange *x = b->x;
    ssize_t n;
    int r = 0;

    if (b->full) {
        x->front_ops->resume(x);
        return;
    }
    switch (b->step++) {
    case 0:
        if (x->upgrade && n_apps < APPS_MAX && (mode & 4) == 0) {
            upgrade(x);
            return;
        }
        resp.status = 103;
        r = (mode & 8) != 0 ? x->front_ops->interim(x, &resp) : 0;
        break;
    case 1:
        resp.framing = x->method == GW_METHOD_HEAD ? GW_BODY_NONE : GW_BODY_CHUNKED;
        r = gw_exchange_head(x, &resp);
        break;
    case 2:
    case 3:
        if (x->method == GW_METHOD_HEAD)
            break;
        n = x->front_ops->body(x, body, b->step == 3 ? sizeof(body) : 5, false);
        r = n < 0 ? (int)n : 0;
        if (n >= 0 && n < 5)
            b->step--; /* again */
        break;
    case 4:
        if ((mode & 16) != 0) {
            let_go(x);
            gw_exchange_back_failed(x, 502, "app_died", "The app is gone.");
            return;
        }
        r = x->front_ops->end(x, fields + 1, (mode & 32) != 0 ? 2 : 0);
        if (r == 0) {
            let_go(x);
            gw_exchange_back_done(x);
            return;
        }
        break;
    default:
        break;
    }
    if (r < 0) {
        let_go(x);
        gw_exchange_back_failed(x, 502, "app_died", "The client is gone.");
    }
}

static void drive(int fd)
{
    static char buf[65536];

    for (size_t i = 0; i < BACKS_MAX; i++)
        if (backs[i].x != NULL)
            step(&backs[i]);
    for (int i = 0; i < n_apps; i++) {
        ssize_t n = apps[i] >= 0 ? read(apps[i], buf, sizeof(buf)) : -1;

        if (n > 0 && write(apps[i], buf, (size_t)n) < 0)
            continue;
        if (n == 0 || (n == 7 && (mode & 64) != 0)) {
            close(apps[i]);
            apps[i] = -1;
        }
    }
    gw_loop_run(w.loop, 0);
    while ((mode & 64) == 0 && read(fd, buf, sizeof(buf)) > 0)
        ;
}

static void set_up(void)
{
    static char fields[] = "a";

    (void)fields;
    live.refs = 1;
    live.opt.limits = (struct gw_http1_limits){.head_bytes = 4096, .n_fields = 20};
    live.opt.http2 = true;
    live.opt.http2_streams = 20;
    live.opt.min_body_rate = 1;
    live.opt.head_timeout_ms = live.opt.idle_timeout_ms = live.opt.body_idle_timeout_ms = 10000;
    live.opt.connect_timeout_ms = live.opt.answer_timeout_ms = live.opt.tunnel_idle_ms = 10000;
    gw.workers = &w;
    gw.n_workers = 1;
    if (gw_worker_init(&w, &gw, 0, &live) != 0)
        abort();
}

static void feed(int fd, const void *data, size_t len)
{
    if (write(fd, data, len) < 0)
        return; /* it has hung up, or is full */
    gw_loop_run(w.loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = GW_H2_PREFACE "\0\0\0\4\0\0\0\0\0";
    union gw_peer peer = {.sa = {.sa_family = AF_UNSPEC}};
    struct gw_sock sock;
    int fds[2];

    if (w.loop == NULL)
        set_up();
    if (size < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        return 0;
    mode = data[0];
    gw_sock_open(w.loop, &sock, fds[0]);
    atomic_fetch_add(&gw.n_connections, 1);
    gw_h2_start(&w, &sock, &peer, 0, NULL, 0);
    if ((mode & 0x80) == 0)
        feed(fds[1], preface, sizeof(preface) - 1);
    data++;
    size--;
    while (size > 0 && w.h2_clients != NULL) {
        size_t n = 1 + data[size / 2] * 9u < size ? 1 + data[size / 2] * 9u : size;

        feed(fds[1], data, n);
        drive(fds[1]);
        data += n;
        size -= n;
    }
    for (int i = 0; i < 8; i++)
        drive(fds[1]);
    if ((mode & 3) == 3 && w.h2_clients != NULL)
        gw_h2_drain(w.h2_clients);
    drive(fds[1]);
    if ((mode & 12) == 12 && w.h2_clients != NULL)
        gw_h2_close(w.h2_clients);
    close(fds[1]);
    for (int i = 0; i < 4; i++)
        gw_loop_run(w.loop, 0);
    while (w.h2_clients != NULL)
        gw_h2_close(w.h2_clients);
    while (w.tunnels != NULL)
        gw_tunnel_close(w.tunnels, "end");
    for (int i = 0; i < n_apps; i++)
        if (apps[i] >= 0)
            close(apps[i]);
    n_apps = 0;
    gw_loop_run(w.loop, 0);
    for (size_t i = 0; i < BACKS_MAX; i++)
        assert(backs[i].x == NULL);
    assert(gw.n_connections == 0 && w.stats.exchanges == 0 && w.stats.h2_connections == 0 &&
           w.stats.open_tunnels == 0 && w.stats.connections == 0);
    return 0;
}
