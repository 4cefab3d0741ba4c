/* SPDX-License-Identifier: MIT */
/* Path: start -> (connect) -> stream -> on_head -> on_data ... -> on_end -> done.
 * A call is one exchange on one stream. Its request head is copied, since it may have to wait for
 * the connection. Response bytes that the client does not take yet are kept in the call; the
 * stream's window bounds them. */
#include "gateway/manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <uv.h>

#include "gateway/address.h"
#include "gateway/http1.h"
#include "gateway/pages.h"
#include "gateway/wake.h"
#include "gateway/worker.h"
#include "transom/h2.h"

#define OUT_MAX        ((size_t)256 * 1024)
#define STREAM_WINDOW  ((uint32_t)128 * 1024)
#define H2_CANCEL      8
/* The manager takes requests under /v1/edge/ only with this field, which clients cannot send. */
#define EDGE_FIELD     "transom-edge"
#define EDGE_FIELD_LEN (sizeof(EDGE_FIELD) - 1)

struct call {
    struct gw_manager *m;
    struct gw_exchange *x;      /* NULL once the exchange has ended */
    struct tr_h2_stream *st;    /* NULL: waiting for the connection */
    struct call *prev, *next;   /* while waiting */
    struct gw_timer timer;      /* until the response head */
    struct tr_h2_field *fields; /* of the request; their text lies behind them */
    size_t n_fields;
    struct gw_buf *queue;        /* response body not taken yet */
    bool end_due;                /* the request has ended before there was a stream */
    bool full;                   /* the stream's queue is full */
    bool ended;                  /* all of the response was received */
    bool request_ended;          /* the stream was told */
    int status;                  /* of the response */
    char wake[TR_LABEL_LEN + 1]; /* not an exchange's: a label to wake */
};

struct gw_manager {
    struct gw_worker *w;
    struct gw_sock sock;
    struct tr_h2 *h2; /* NULL: not connected */
    struct call *waiting;
    struct gw_timer run_timer;
    struct gw_buf *out; /* on its way to the socket */
    bool connecting;
};

static const struct gw_back_ops manager_ops;

static void unlink_waiting(struct call *c)
{
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else if (c->m->waiting == c)
        c->m->waiting = c->next;
    c->prev = c->next = NULL;
}

static void free_call(struct call *c)
{
    if (c->wake[0] != '\0')
        gw_wake_done(&c->m->w->gw->wakes, c->wake, c->status);
    gw_timer_stop(&c->timer);
    gw_buf_put(&c->m->w->bufs, c->queue);
    free(c->fields);
    free(c);
}

/* Let go of the exchange. */
static struct gw_exchange *detach(struct call *c)
{
    struct gw_exchange *x = c->x;

    if (x != NULL) {
        x->back = NULL;
        x->back_ops = NULL;
    }
    c->x = NULL;
    gw_timer_stop(&c->timer);
    return x;
}

static void fail(struct call *c, int status, const char *message)
{
    struct gw_exchange *x = detach(c);

    if (x != NULL)
        gw_exchange_back_failed(x, status, "no_manager", message);
}

/* The stream's part is over but its on_close is still to come. */
static void give_up(struct call *c, const char *message)
{
    tr_h2_reset(c->st, H2_CANCEL);
    fail(c, 502, message);
}

/* Response */

static void to_response(const struct tr_h2_head *head, bool end, struct gw_exchange *x,
                        struct gw_field *fields, size_t max, struct gw_response *resp)
{
    memset(resp, 0, sizeof(*resp));
    resp->status = head->status;
    resp->minor = 1;
    resp->reason.p = gw_status_reason(head->status);
    resp->reason.len = strlen(resp->reason.p);
    resp->fields = fields;
    for (size_t i = 0; i < head->n_fields && resp->n_fields < max; i++) {
        const struct tr_h2_field *f = &head->fields[i];
        struct gw_field *g = &fields[resp->n_fields++];

        g->name = f->name;
        g->name_len = (uint32_t)f->name_len;
        g->value = f->value;
        g->value_len = (uint32_t)f->value_len;
        g->id = gw_http1_classify(f->name, f->name_len);
        g->hop_by_hop = false;
        if (g->id == GW_FIELD_CONTENT_LENGTH) {
            resp->has_length = true;
            resp->length = strtoull(f->value, NULL, 10);
        }
    }
    if (resp->status < 200 || resp->status == 204 || resp->status == 304 ||
        x->method == GW_METHOD_HEAD) {
        resp->framing = GW_BODY_NONE;
    } else if (end) {
        resp->framing = GW_BODY_NONE;
        resp->has_length = true;
        resp->length = 0;
    } else {
        resp->framing = resp->has_length ? GW_BODY_LENGTH : GW_BODY_CHUNKED;
    }
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct call *c = arg;
    struct gw_exchange *x = c->x;
    struct gw_response resp;
    int r;

    (void)st;
    c->status = head->status;
    if (x == NULL)
        return;
    to_response(head, end, x, x->worker->fields, x->worker->opt->limits.n_fields, &resp);
    if (resp.status < 200) {
        if (x->front_ops->interim(x, &resp) != 0)
            give_up(c, "The client is gone.");
        return;
    }
    gw_timer_stop(&c->timer);
    r = gw_exchange_head(x, &resp);
    if (r == 0 && !end)
        r = x->front_ops->flush(x); /* event streams: the head does not wait for the first event */
    if (r != 0)
        give_up(c, "The client is gone.");
}

/* The response is complete and was handed over. */
static void finish(struct call *c)
{
    struct gw_exchange *x = c->x;

    if (x->front_ops->end(x, NULL, 0) != 0) {
        fail(c, 502, "The client is gone.");
        return;
    }
    detach(c);
    if (c->st != NULL && !c->request_ended)
        tr_h2_reset(c->st, H2_CANCEL); /* answered early: the rest will not come */
    gw_exchange_back_done(x);
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct call *c = arg;
    ssize_t taken = 0;
    char *room;

    if (c->x == NULL) {
        tr_h2_stream_consume(st, len);
        return;
    }
    if (c->queue == NULL) {
        taken = c->x->front_ops->body(c->x, (const char *)data, len, false);
        if (taken < 0) {
            give_up(c, "The client is gone.");
            return;
        }
        tr_h2_stream_consume(st, (size_t)taken);
    }
    if ((size_t)taken == len)
        return;
    room = gw_buf_room(&c->m->w->bufs, &c->queue, len - (size_t)taken);
    if (room == NULL) {
        give_up(c, "The edge is out of memory.");
        return;
    }
    memcpy(room, data + taken, len - (size_t)taken);
    c->queue->len += (uint32_t)(len - (size_t)taken);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct call *c = arg;

    (void)st;
    (void)trailers; /* the manager sends none */
    c->ended = true;
    if (c->x != NULL && c->queue == NULL)
        finish(c);
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct call *c = arg;

    (void)st;
    c->full = false;
    if (c->x != NULL)
        c->x->front_ops->resume(c->x);
}

static void on_stream_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct call *c = arg;

    (void)st;
    c->st = NULL;
    if (c->x != NULL && c->ended && code == 0)
        return; /* the rest of its response is still with us: back_resume() ends it */
    fail(c, 502, "The manager ended the request without an answer.");
    free_call(c);
}

/* Also ends a call whose stream is closed already. */
static void back_resume(struct gw_exchange *x)
{
    struct call *c = x->back;

    while (c->queue != NULL) {
        ssize_t n = x->front_ops->body(x, gw_buf_begin(c->queue), c->queue->len, false);

        if (n < 0) {
            if (c->st != NULL) {
                give_up(c, "The client is gone.");
            } else {
                fail(c, 502, "The client is gone.");
                free_call(c);
            }
            return;
        }
        if (n == 0)
            return;
        if (c->st != NULL)
            tr_h2_stream_consume(c->st, (size_t)n);
        gw_buf_consume(&c->m->w->bufs, &c->queue, (size_t)n);
    }
    if (c->ended) {
        bool closed = c->st == NULL;

        finish(c);
        if (closed)
            free_call(c);
    }
}

/* Request */

static ssize_t back_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct call *c = x->back;
    int r;

    if (c->st == NULL && !c->ended)
        return 0; /* until connected */
    if (c->st == NULL)
        return UV_EPIPE;
    if (c->full && len > 0)
        return 0;
    if (len > 0) {
        r = tr_h2_write(c->st, data, len);
        if (r < 0)
            return r;
        c->full = r == 0;
    }
    if (last) {
        tr_h2_end(c->st, NULL, 0);
        c->request_ended = true;
    }
    return (ssize_t)len;
}

static int back_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    struct call *c = x->back;

    (void)trailers; /* nothing in the API reads them */
    (void)n_trailers;
    c->request_ended = true;
    if (c->st != NULL)
        tr_h2_end(c->st, NULL, 0);
    else
        c->end_due = true;
    return 0;
}

static int back_flush(struct gw_exchange *x)
{
    (void)x; /* everything is sent as soon as it can be */
    return 0;
}

static void back_cancel(struct gw_exchange *x)
{
    struct call *c = x->back;

    detach(c);
    if (c->st != NULL) {
        tr_h2_reset(c->st, H2_CANCEL); /* on_stream_close() frees it */
        return;
    }
    unlink_waiting(c);
    free_call(c);
}

static const struct gw_back_ops manager_ops = {
    .body = back_body,
    .end = back_end,
    .flush = back_flush,
    .resume = back_resume,
    .cancel = back_cancel,
};

static void on_answer_timeout(struct gw_timer *timer)
{
    struct call *c = (struct call *)((char *)timer - offsetof(struct call, timer));

    if (c->st != NULL) {
        tr_h2_reset(c->st, H2_CANCEL);
        fail(c, 504, "The manager did not answer in time.");
        return;
    }
    unlink_waiting(c);
    fail(c, 504, "The manager did not answer in time.");
    free_call(c);
}

static void send_label(struct call *c)
{
    char body[64];
    int n = snprintf(body, sizeof(body), "{\"label\":\"%s\"}", c->wake);

    if (tr_h2_write(c->st, body, (size_t)n) >= 0)
        tr_h2_end(c->st, NULL, 0);
    else
        tr_h2_reset(c->st, H2_CANCEL);
}

/* Returns whether the call lives on. */
static bool open_stream(struct call *c)
{
    static const struct tr_h2_stream_cbs cbs = {.on_head = on_head,
                                                .on_data = on_data,
                                                .on_end = on_end,
                                                .on_drain = on_drain,
                                                .on_close = on_stream_close};
    struct gw_manager *m = c->m;
    int r = tr_h2_request(m->h2, c->fields, c->n_fields, c->end_due, &cbs, c, &c->st);

    if (r == 0 && c->wake[0] != '\0')
        send_label(c);
    if (r == 0)
        return true;
    if (r == UV_EINVAL && c->x != NULL) {
        struct gw_exchange *x = detach(c);

        gw_exchange_back_failed(x, 400, "bad_request", "A header field cannot be passed on.");
    } else {
        fail(c, 503, "The manager has too much to do just now.");
    }
    free_call(c);
    return false;
}

/* Connection */

static void flush_out(struct gw_manager *m);

static void on_writable(struct gw_sock *sock)
{
    struct gw_manager *m = (struct gw_manager *)((char *)sock - offsetof(struct gw_manager, sock));

    flush_out(m);
    if (m->out == NULL && m->h2 != NULL) {
        tr_h2_writable(m->h2);
        flush_out(m);
    }
}

static void flush_out(struct gw_manager *m)
{
    while (m->out != NULL && gw_sock_is_open(&m->sock)) {
        struct iovec iov = {gw_buf_begin(m->out), m->out->len};
        ssize_t n = gw_sock_writev(&m->sock, &iov, 1);

        if (n < 0) {
            gw_buf_put(&m->w->bufs, m->out);
            m->out = NULL;
            if (m->h2 != NULL)
                tr_h2_abort_later(m->h2, (int)n, "the manager closed the connection");
            return;
        }
        if (n == 0) {
            gw_sock_write_start(&m->sock, on_writable);
            return;
        }
        gw_buf_consume(&m->w->bufs, &m->out, (size_t)n);
    }
}

static bool h2_send(const uint8_t *data, size_t len, void *arg)
{
    struct gw_manager *m = arg;
    char *room = gw_buf_room(&m->w->bufs, &m->out, len);

    if (room == NULL) {
        tr_h2_abort_later(m->h2, UV_ENOMEM, "out of memory");
        return false;
    }
    memcpy(room, data, len);
    m->out->len += (uint32_t)len;
    return m->out->len < OUT_MAX;
}

static void on_run(struct gw_timer *timer)
{
    struct gw_manager *m =
        (struct gw_manager *)((char *)timer - offsetof(struct gw_manager, run_timer));

    if (m->h2 != NULL)
        tr_h2_run(m->h2);
    flush_out(m);
}

static void h2_wake(void *arg)
{
    struct gw_manager *m = arg;

    gw_timer_start(&m->w->t_now, &m->run_timer, on_run);
}

static void h2_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct gw_manager *m = arg;

    (void)status;
    (void)reason;
    m->h2 = NULL;
    gw_timer_stop(&m->run_timer);
    gw_sock_close(&m->sock);
    gw_buf_put(&m->w->bufs, m->out);
    m->out = NULL;
    tr_h2_free(h2);
}

static void on_read(struct gw_sock *sock)
{
    struct gw_manager *m = (struct gw_manager *)((char *)sock - offsetof(struct gw_manager, sock));
    char *p = gw_loop_scratch(m->w->loop);
    ssize_t n = gw_sock_read(sock, p, GW_SCRATCH_LEN);

    if (n == UV_EAGAIN)
        return;
    if (n <= 0)
        tr_h2_abort(m->h2, n == 0 ? UV_EOF : (int)n, "the manager closed the connection");
    else
        tr_h2_feed(m->h2, (const uint8_t *)p, (size_t)n);
    if (m->h2 != NULL) /* what the callbacks asked for leaves in one write */
        tr_h2_run(m->h2);
    flush_out(m);
}

static void fail_waiting(struct gw_manager *m)
{
    while (m->waiting != NULL) {
        struct call *c = m->waiting;

        unlink_waiting(c); /* NOLINT(clang-analyzer-unix.Malloc): those freed left the list */
        fail(c, 503, "The node's manager (transom-vmm) does not answer.");
        free_call(c);
    }
}

static void on_connected(struct gw_sock *sock, int status)
{
    static const struct tr_h2_cbs cbs = {.send = h2_send, .wake = h2_wake, .on_over = h2_over};
    static const struct tr_h2_options options = {.stream_window = STREAM_WINDOW};
    struct gw_manager *m = (struct gw_manager *)((char *)sock - offsetof(struct gw_manager, sock));

    m->connecting = false;
    if (status == 0)
        status = tr_h2_new(false, &options, &cbs, m, &m->h2);
    if (status != 0) {
        gw_sock_close(&m->sock);
        fail_waiting(m);
        return;
    }
    gw_sock_read_start(&m->sock, on_read);
    tr_h2_writable(m->h2);
    while (m->waiting != NULL && m->h2 != NULL) {
        struct call *c = m->waiting;
        struct gw_exchange *x = c->x; /* NOLINT(clang-analyzer-unix.Malloc): as above */

        unlink_waiting(c);
        if (open_stream(c) && x != NULL)
            x->front_ops->resume(x);
    }
    h2_wake(m);
}

static void connect_manager(struct gw_manager *m)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", m->w->opt->edge_socket);
    m->connecting = true;
    if (gw_sock_connect(m->w->loop, &m->sock, (struct sockaddr *)&addr, sizeof(addr),
                        on_connected) != 0) {
        m->connecting = false;
        fail_waiting(m);
    }
}

/* Copies of names (lower case) and values, one after the other. */
struct copier {
    struct tr_h2_field *f;
    char *p;
};

static void add(struct copier *c, const char *name, size_t name_len, const char *value,
                size_t value_len)
{
    c->f->name = c->p;
    c->f->name_len = name_len;
    for (size_t i = 0; i < name_len; i++)
        *c->p++ = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
    c->f->value = c->p;
    c->f->value_len = value_len;
    if (value_len > 0)
        memcpy(c->p, value, value_len);
    c->p += value_len;
    c->f++;
}

static bool is_passed(const struct gw_field *f)
{
    switch (f->id) {
    case GW_FIELD_OTHER:
        if (f->name_len == EDGE_FIELD_LEN && strncasecmp(f->name, EDGE_FIELD, EDGE_FIELD_LEN) == 0)
            return false;
        return !f->hop_by_hop;
    case GW_FIELD_ACCEPT:
    case GW_FIELD_CONTENT_LENGTH:
    case GW_FIELD_COOKIE:
    case GW_FIELD_EXPECT:
    case GW_FIELD_LOCATION:
    case GW_FIELD_SEC_FETCH_MODE:
    case GW_FIELD_SET_COOKIE:
    case GW_FIELD_X_REQUEST_ID:
        return !f->hop_by_hop;
    default:
        return false;
    }
}

static int copy_request(struct call *c, const struct gw_request *req, const struct sockaddr *peer,
                        const struct gw_exchange *x)
{
    size_t n = 8, text = req->method.len + req->target.len + req->host.len + 256;
    char address[GW_ADDRESS_TEXT];
    struct copier to;

    for (size_t i = 0; i < req->n_fields; i++) {
        n += is_passed(&req->fields[i]);
        text += req->fields[i].name_len + req->fields[i].value_len;
    }
    c->fields = malloc(n * sizeof(*c->fields) + text);
    if (c->fields == NULL)
        return UV_ENOMEM;
    to.f = c->fields;
    to.p = (char *)(c->fields + n);
    add(&to, ":method", 7, req->method.p, req->method.len);
    add(&to, ":scheme", 7, x->tls ? "https" : "http", x->tls ? 5 : 4);
    add(&to, ":authority", 10, req->host.p, req->host.len);
    add(&to, ":path", 5, req->target.p, req->target.len);
    for (size_t i = 0; i < req->n_fields; i++)
        if (is_passed(&req->fields[i]))
            add(&to, req->fields[i].name, req->fields[i].name_len, req->fields[i].value,
                req->fields[i].value_len);
    add(&to, "x-forwarded-for", 15, address, gw_address_text(peer, address));
    add(&to, "x-forwarded-proto", 17, x->tls ? "https" : "http", x->tls ? 5 : 4);
    if (x->request_id[0] != '\0')
        add(&to, "x-request-id", 12, x->request_id, GW_REQUEST_ID_LEN);
    c->n_fields = (size_t)(to.f - c->fields);
    return 0;
}

static struct gw_manager *manager_of(struct gw_worker *w)
{
    if (w->manager == NULL) {
        w->manager = calloc(1, sizeof(*w->manager));
        if (w->manager != NULL)
            w->manager->w = w;
    }
    return w->manager;
}

/* On the connection, or when there is one. */
static void begin(struct call *c)
{
    struct gw_manager *m = c->m;

    gw_timer_start(&m->w->t_answer, &c->timer, on_answer_timeout);
    if (m->h2 != NULL) {
        (void)open_stream(c);
        return;
    }
    c->next = m->waiting;
    if (c->next != NULL)
        c->next->prev = c;
    m->waiting = c;
    if (!m->connecting)
        connect_manager(m);
}

void gw_manager_start(struct gw_exchange *x, const struct gw_request *req,
                      const struct sockaddr *peer)
{
    struct gw_manager *m = manager_of(x->worker);
    struct call *c = calloc(1, sizeof(*c));

    if (m == NULL || c == NULL || copy_request(c, req, peer, x) != 0) {
        free(c);
        gw_exchange_back_failed(x, 503, "no_memory", "The edge is out of memory.");
        return;
    }
    c->m = m;
    c->x = x;
    c->end_due = c->request_ended = x->request_done;
    x->back = c;
    x->back_ops = &manager_ops;
    begin(c);
}

void gw_manager_wake(struct gw_worker *w, const char *label)
{
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", "POST"),       TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "manager"), TR_H2_FIELD(":path", "/v1/edge/wake"),
        TR_H2_FIELD(EDGE_FIELD, "wake"),      TR_H2_FIELD("content-type", "application/json"),
    };
    struct gw_manager *m = manager_of(w);
    struct call *c = calloc(1, sizeof(*c));

    if (c != NULL)
        c->fields = malloc(sizeof(fields));
    if (m == NULL || c == NULL || c->fields == NULL) {
        if (c != NULL)
            free(c->fields);
        free(c);
        gw_wake_done(&w->gw->wakes, label, 0);
        return;
    }
    c->m = m;
    memcpy(c->fields, fields, sizeof(fields));
    c->n_fields = sizeof(fields) / sizeof(fields[0]);
    memcpy(c->wake, label, TR_LABEL_LEN);
    begin(c);
}

void gw_manager_close(struct gw_worker *w)
{
    struct gw_manager *m = w->manager;

    if (m == NULL)
        return;
    fail_waiting(m);
    if (m->h2 != NULL)
        tr_h2_free(m->h2);
    m->h2 = NULL;
    gw_timer_stop(&m->run_timer);
    gw_sock_close(&m->sock);
    gw_buf_put(&w->bufs, m->out);
    free(m);
    w->manager = NULL;
}
