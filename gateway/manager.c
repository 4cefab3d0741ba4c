/* SPDX-License-Identifier: MIT */
/* Path: start -> (connect) -> a stream (h2_call.h) -> done or lost.
 * What is asked while there is no connection waits for it. A wake is a stream of its own, without
 * an exchange. */
#include "gateway/manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <uv.h>

#include "gateway/address.h"
#include "gateway/h2_call.h"
#include "gateway/h2_link.h"
#include "gateway/wake.h"
#include "gateway/worker.h"

#define H2_CANCEL      8
/* The manager takes requests under /v1/edge/ only with this field, which clients cannot send. */
#define EDGE_FIELD     "transom-edge"
#define EDGE_FIELD_LEN (sizeof(EDGE_FIELD) - 1)

/* A request. On a list while it waits for the connection, or was lost. */
struct job {
    struct gw_h2_call call;
    struct gw_manager *m;
    struct job **list; /* NULL: on none */
    struct job *prev, *next;
};

struct wake {
    struct gw_manager *m;
    struct wake *next;       /* while it waits */
    struct tr_h2_stream *st; /* NULL: waits */
    struct gw_timer timer;   /* for the answer */
    int status;
    char label[TR_LABEL_LEN + 1];
};

struct gw_manager {
    struct gw_worker *w;
    struct gw_sock sock; /* while connecting */
    struct gw_h2_link link;
    struct job *waiting, *lost;
    struct wake *wakes; /* that wait */
};

/* ---- requests ---- */

static void list_add(struct job **list, struct job *j)
{
    j->list = list;
    j->prev = NULL;
    j->next = *list;
    if (j->next != NULL)
        j->next->prev = j;
    *list = j;
}

static void list_del(struct job *j)
{
    if (j->list == NULL)
        return;
    if (j->next != NULL)
        j->next->prev = j->prev;
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        *j->list = j->next;
    j->list = NULL;
}

static struct job *job_of(struct gw_h2_call *c)
{
    return (struct job *)((char *)c - offsetof(struct job, call));
}

static void fail(struct job *j, int status, const char *message)
{
    list_del(j);
    gw_h2_call_fail(&j->call, status, "no_manager", message);
}

static void on_free(struct gw_h2_call *c)
{
    list_del(job_of(c));
    free(job_of(c));
}

static void on_lost(struct gw_h2_call *c, uint32_t code)
{
    struct job *j = job_of(c);

    (void)code;
    list_add(&j->m->lost, j);
}

static void on_bad_response(struct gw_h2_call *c, const char *why)
{
    (void)why; /* it is one of our own programs */
    fail(job_of(c), 502, "The manager's answer cannot be read.");
}

static void on_timeout(struct gw_h2_call *c)
{
    fail(job_of(c), 504, "The manager did not answer in time.");
}

static const struct gw_h2_call_ops call_ops = {.on_lost = on_lost,
                                               .on_bad_response = on_bad_response,
                                               .on_timeout = on_timeout,
                                               .on_free = on_free};

static void fail_all(struct job **list, int status, const char *message)
{
    while (*list != NULL)
        fail(*list, status, message); /* NOLINT(clang-analyzer-unix.Malloc): it leaves the list */
}

/* Returns whether it has a stream now; else it is gone. */
static bool open_job(struct job *j)
{
    int r = gw_h2_call_open(&j->call, j->m->link.h2);

    list_del(j);
    if (r == UV_EINVAL)
        gw_h2_call_fail(&j->call, 400, "bad_request", "A header field cannot be passed on.");
    else if (r != 0)
        fail(j, 503, "The manager has too much to do just now.");
    return r == 0;
}

/* ---- wakes ---- */

static void end_wake(struct wake *k)
{
    gw_timer_stop(&k->timer);
    gw_wake_done(&k->m->w->gw->wakes, k->label, k->status);
    free(k);
}

static void on_wake_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end,
                         void *arg)
{
    (void)st;
    (void)end;
    ((struct wake *)arg)->status = head->status;
}

static void on_wake_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    end_wake(arg);
}

static void on_wake_timeout(struct gw_timer *timer)
{
    struct wake *k = (struct wake *)((char *)timer - offsetof(struct wake, timer)), **link;

    if (k->st != NULL) {
        tr_h2_reset(k->st, H2_CANCEL);
        return;
    }
    for (link = &k->m->wakes; *link != k; link = &(*link)->next)
        ;
    *link = k->next;
    end_wake(k);
}

static void open_wake(struct wake *k)
{
    static const struct tr_h2_stream_cbs cbs = {.on_head = on_wake_head, .on_close = on_wake_close};
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", "POST"),       TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "manager"), TR_H2_FIELD(":path", "/v1/edge/wake"),
        TR_H2_FIELD(EDGE_FIELD, "wake"),      TR_H2_FIELD("content-type", "application/json"),
    };
    char body[64];
    int n = snprintf(body, sizeof(body), "{\"label\":\"%s\"}", k->label);

    if (tr_h2_request(k->m->link.h2, fields, sizeof(fields) / sizeof(fields[0]), false, &cbs, k,
                      &k->st) != 0)
        end_wake(k);
    else if (tr_h2_write(k->st, body, (size_t)n) >= 0)
        tr_h2_end(k->st, NULL, 0);
    else
        tr_h2_reset(k->st, H2_CANCEL);
}

static void end_wakes(struct gw_manager *m)
{
    while (m->wakes != NULL) {
        struct wake *k = m->wakes;

        m->wakes = k->next;
        end_wake(k);
    }
}

/* ---- the connection ---- */

static void fail_waiting(struct gw_manager *m)
{
    fail_all(&m->waiting, 503, "The node's manager (transom-vmm) does not answer.");
    end_wakes(m);
}

static void on_turn(void *arg)
{
    struct gw_manager *m = arg;

    fail_all(&m->lost, 502, "The manager ended the request without an answer.");
}

static void on_over(int status, const char *reason, void *arg)
{
    (void)status;
    (void)reason;
    on_turn(arg);
}

static void on_connected(struct gw_sock *sock, int status)
{
    static const struct gw_h2_link_cbs cbs = {.on_turn = on_turn, .on_over = on_over};
    struct gw_manager *m = (struct gw_manager *)((char *)sock - offsetof(struct gw_manager, sock));

    if (status == 0)
        status = gw_h2_link_open(&m->link, m->w, sock, &gw_h2_call_options, &cbs, m);
    if (status != 0) {
        gw_sock_close(sock);
        fail_waiting(m);
        return;
    }
    while (m->wakes != NULL) {
        struct wake *k = m->wakes;

        m->wakes = k->next;
        open_wake(k);
    }
    while (m->waiting != NULL) {
        struct job *j = m->waiting;

        if (open_job(j)) /* NOLINT(clang-analyzer-unix.Malloc): those freed left the list */
            j->call.x->front_ops->resume(j->call.x);
    }
}

static void connect_manager(struct gw_manager *m)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (gw_sock_is_open(&m->sock))
        return; /* under way */
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", m->w->opt->edge_socket);
    if (gw_sock_connect(m->w->loop, &m->sock, (struct sockaddr *)&addr, sizeof(addr),
                        on_connected) != 0)
        fail_waiting(m);
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

/* Fields with their text behind them, in one block. NULL: no memory. */
static struct tr_h2_field *copy_request(const struct gw_exchange *x, const struct gw_request *req,
                                        const struct sockaddr *peer, size_t *n_out)
{
    size_t n = 10, text = req->method.len + req->target.len + req->host.len + 256;
    char address[GW_ADDRESS_TEXT];
    struct tr_h2_field *fields;
    struct copier to;

    for (size_t i = 0; i < req->n_fields; i++) {
        n += is_passed(&req->fields[i]);
        text += req->fields[i].name_len + req->fields[i].value_len;
    }
    fields = malloc(n * sizeof(*fields) + text);
    if (fields == NULL)
        return NULL;
    to.f = fields;
    to.p = (char *)(fields + n);
    if (req->upgrade) { /* RFC 8441 */
        add(&to, ":method", 7, "CONNECT", 7);
        add(&to, ":protocol", 9, "websocket", 9);
    } else {
        add(&to, ":method", 7, req->method.p, req->method.len);
    }
    add(&to, ":scheme", 7, x->tls ? "https" : "http", x->tls ? 5 : 4);
    add(&to, ":authority", 10, req->host.p, req->host.len);
    add(&to, ":path", 5, req->target.p, req->target.len);
    for (size_t i = 0; i < req->n_fields; i++)
        if (is_passed(&req->fields[i]))
            add(&to, req->fields[i].name, req->fields[i].name_len, req->fields[i].value,
                req->fields[i].value_len);
    if (req->upgrade)
        add(&to, "sec-websocket-version", 21, "13", 2);
    add(&to, "x-forwarded-for", 15, address, gw_address_text(peer, address));
    add(&to, "x-forwarded-proto", 17, x->tls ? "https" : "http", x->tls ? 5 : 4);
    if (x->request_id[0] != '\0')
        add(&to, "x-request-id", 12, x->request_id, GW_REQUEST_ID_LEN);
    *n_out = (size_t)(to.f - fields);
    return fields;
}

/* The answer to the client's key. Returns false when that is none. */
static bool answer_key(const struct gw_request *req, char *accept)
{
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (f->id != GW_FIELD_SEC_WEBSOCKET_KEY)
            continue;
        if (f->value_len > GW_WS_KEY_MAX)
            return false;
        gw_ws_accept(f->value, f->value_len, accept);
        return true;
    }
    return false;
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

void gw_manager_start(struct gw_exchange *x, const struct gw_request *req,
                      const struct sockaddr *peer)
{
    struct gw_manager *m = manager_of(x->worker);
    struct job *j = calloc(1, sizeof(*j));
    struct tr_h2_field *fields = NULL;
    size_t n = 0;

    if (m != NULL && j != NULL)
        fields = copy_request(x, req, peer, &n);
    if (fields == NULL) {
        free(j);
        gw_exchange_back_failed(x, 503, "no_memory", "The edge is out of memory.");
        return;
    }
    j->m = m;
    gw_h2_call_init(&j->call, x, &call_ops, fields, n);
    if (req->upgrade && !answer_key(req, j->call.accept)) {
        gw_h2_call_fail(&j->call, 400, "bad_request", "The WebSocket's key is malformed.");
        return;
    }
    if (m->link.h2 != NULL) {
        (void)open_job(j);
        return;
    }
    list_add(&m->waiting, j);
    connect_manager(m);
}

void gw_manager_wake(struct gw_worker *w, const char *label)
{
    struct gw_manager *m = manager_of(w);
    struct wake *k = calloc(1, sizeof(*k));

    if (m == NULL || k == NULL) {
        free(k);
        gw_wake_done(&w->gw->wakes, label, 0);
        return;
    }
    k->m = m;
    memcpy(k->label, label, TR_LABEL_LEN);
    gw_timer_start(&w->t_answer, &k->timer, on_wake_timeout);
    if (m->link.h2 != NULL) {
        open_wake(k);
        return;
    }
    k->next = m->wakes;
    m->wakes = k;
    connect_manager(m);
}

void gw_manager_close(struct gw_worker *w)
{
    struct gw_manager *m = w->manager;

    if (m == NULL)
        return;
    fail_waiting(m);
    gw_h2_link_close(&m->link); /* ends what runs */
    on_turn(m);
    gw_sock_close(&m->sock);
    free(m);
    w->manager = NULL;
}
