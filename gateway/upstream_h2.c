/* SPDX-License-Identifier: MIT */
/* Path: start -> (WAITING for a connection or for room on one) -> open -> done or lost.
 *
 * An app is one port of a machine with its connections; it exists while it has calls or
 * connections. Lost calls are dealt with when the connection's turn ends, since only then is it
 * known whether the stream was lost alone or with the connection, and why. A call is sent again
 * when the app has certainly not seen it (REFUSED_STREAM, or beyond the last stream of a GOAWAY),
 * or when it is safe to repeat and an old connection broke. */
#include "gateway/upstream_h2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/dial.h"
#include "gateway/h2_call.h"
#include "gateway/h2_link.h"
#include "gateway/upstream.h"
#include "gateway/worker.h"

#define CONNS_MAX 8 /* per app: more only share what the app can do */
#define TRIES_MAX 3

/* RFC 9113 section 7 */
enum { REFUSED_STREAM = 7, CANCEL = 8, ENHANCE_YOUR_CALM = 11, HTTP_1_1_REQUIRED = 13 };

struct request;

struct request_list {
    struct request *first, *last;
};

/* A call and where it stands: on the app's list while it waits, on its connection's lost list
 * after its stream was closed too early, else on none. */
struct request {
    struct gw_h2_call call;
    struct gw_h2_app *app; /* NULL: has its answer */
    struct conn *conn;     /* whose stream it has; NULL: none */
    struct request_list *list;
    struct request *prev, *next;
    uint32_t code; /* lost: why */
    uint8_t n_tries;
};

struct conn {
    struct gw_h2_link link;
    struct gw_h2_app *app;
    struct conn *next;
    struct gw_timer idle;
    struct request_list lost;
    unsigned n_calls; /* with a stream */
    bool reused;      /* a call was answered on it before */
};

struct gw_h2_app {
    struct gw_h2_app *next; /* of the set */
    struct gw_upstream_set *set;
    struct gw_worker *w;
    struct conn *conns;
    unsigned n_conns;
    struct request_list waiting;
    struct gw_dial *dial;  /* NULL unless it runs */
    struct gw_timer timer; /* of the dial, or until the next one */
    struct gw_route route; /* where to connect; its extra is not used */
    unsigned n_requests;
    bool busy; /* on the stack: not freed */
};

static void serve(struct gw_h2_app *a);

/* ---- lists ---- */

static void list_add(struct request_list *list, struct request *r)
{
    r->list = list;
    r->next = NULL;
    r->prev = list->last;
    if (list->last != NULL)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
}

static void list_del(struct request *r)
{
    struct request_list *list = r->list;

    if (list == NULL)
        return;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        list->last = r->prev;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        list->first = r->next;
    r->list = NULL;
}

/* ---- apps ---- */

static struct gw_h2_app *app_get(struct gw_worker *w, const struct gw_route *route)
{
    struct gw_upstream_set *set = gw_pool_get(&w->pool, route->label, route->instance);
    struct gw_h2_app *a;

    if (set == NULL)
        return NULL;
    for (a = set->apps; a != NULL; a = a->next)
        if (a->route.port == route->port)
            break;
    if (a == NULL) {
        a = calloc(1, sizeof(*a));
        if (a == NULL) {
            gw_pool_drop(&w->pool, set);
            return NULL;
        }
        a->w = w;
        a->set = set;
        a->next = set->apps;
        set->apps = a;
        set->n++;
    }
    a->route = *route; /* the newest word on where the agent is */
    a->route.extra = NULL;
    return a;
}

/* Free it when there is nothing left of it. */
static void app_drop(struct gw_h2_app *a)
{
    struct gw_h2_app **link = &a->set->apps;

    if (a->busy || a->n_requests > 0 || a->n_conns > 0)
        return;
    gw_timer_stop(&a->timer);
    gw_dial_cancel(a->dial);
    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
    a->set->n--;
    gw_pool_drop(&a->w->pool, a->set);
    free(a);
}

/* ---- the end of calls ---- */

static void fail(struct request *r, int status, const char *code, const char *message)
{
    gw_count(&r->call.w->stats.upstream_failures, 1);
    gw_h2_call_fail(&r->call, status, code, message);
}

static void fail_waiting(struct gw_h2_app *a, int status, const char *code, const char *message)
{
    bool busy = a->busy;

    a->busy = true;
    while (a->waiting.first != NULL)
        fail(a->waiting.first, status, code, message);
    a->busy = busy;
    app_drop(a);
}

static struct request *request_of(struct gw_h2_call *c)
{
    return (struct request *)((char *)c - offsetof(struct request, call));
}

static void leave_conn(struct request *r)
{
    struct conn *conn = r->conn;

    if (conn == NULL)
        return;
    r->conn = NULL;
    conn->n_calls--;
    conn->reused |= r->call.heard;
}

static void on_free(struct gw_h2_call *c)
{
    struct request *r = request_of(c);
    struct gw_h2_app *a = r->app;

    leave_conn(r);
    list_del(r);
    free(r);
    if (a == NULL)
        return;
    a->n_requests--;
    app_drop(a);
}

/* What is left is between the client and us: the app may go. */
static void on_received(struct gw_h2_call *c)
{
    struct request *r = request_of(c);

    leave_conn(r);
    r->app->n_requests--; /* it has a connection, so it stays for now */
    r->app = NULL;
}

static void on_lost(struct gw_h2_call *c, uint32_t code)
{
    struct request *r = request_of(c);

    r->code = code;
    list_add(&r->conn->lost, r);
}

static void on_bad_response(struct gw_h2_call *c, const char *why)
{
    fail(request_of(c), 502, "bad_response", why);
}

static void on_timeout(struct gw_h2_call *c)
{
    fail(request_of(c), 504, "answer_timeout", "The app did not answer in time.");
}

static const struct gw_h2_call_ops call_ops = {.on_lost = on_lost,
                                               .on_received = on_received,
                                               .on_bad_response = on_bad_response,
                                               .on_timeout = on_timeout,
                                               .on_free = on_free,
                                               .from_app = true};

static void fail_lost(struct request *r, const struct conn *conn, int status, const char *reason)
{
    char text[192];

    if (gw_h2_link_is_http1(&conn->link) || r->code == HTTP_1_1_REQUIRED) {
        fail(r, 502, "wrong_protocol",
             "The app speaks HTTP/1.1 on this port, its route says HTTP/2 without TLS (h2c).");
    } else if (status == UV_EPROTO) {
        snprintf(text, sizeof(text), "The app broke the HTTP/2 protocol: %s", reason);
        fail(r, 502, "bad_response", text);
    } else if (status != 0) {
        fail(r, 502, "app_died", "The app closed the connection without an answer.");
    } else if (r->code == REFUSED_STREAM) {
        fail(r, 503, "app_refused", "The app refused the request.");
    } else if (r->code == CANCEL || r->code == 0) {
        fail(r, 502, "app_died", "The app ended the request without an answer.");
    } else if (r->code == ENHANCE_YOUR_CALM) {
        fail(r, 502, "bad_response",
             "The app's response head is too large, or it takes no more requests.");
    } else {
        snprintf(text, sizeof(text), "The app reset the request (HTTP/2 error code %u).", r->code);
        fail(r, 502, "bad_response", text);
    }
}

/* May a lost request be sent once more? died: the connection is gone. */
static bool may_retry(struct request *r, const struct conn *conn, bool died)
{
    struct gw_exchange *x = r->call.x;
    bool safe = x->method != GW_METHOD_OTHER && x->request_framing == GW_BODY_NONE;

    if (!gw_h2_call_is_whole(&r->call) || r->n_tries >= TRIES_MAX)
        return false;
    if (r->code == REFUSED_STREAM)
        return true;
    if (!died || !conn->reused || !safe || x->retried || gw_h2_link_is_http1(&conn->link))
        return false;
    x->retried = true;
    return true;
}

/* Of a connection: the session is over with status and reason, or goes on (0). */
static void settle_lost(struct conn *conn, bool died, int status, const char *reason)
{
    struct request *r;

    while ((r = conn->lost.first) != NULL) {
        struct gw_h2_app *a = r->app;
        bool again = may_retry(r, conn, died);

        leave_conn(r);
        list_del(r);
        if (again) {
            gw_count(&a->w->stats.upstream_retries, 1);
            list_add(&a->waiting, r);
        } else {
            fail_lost(r, conn, status, reason);
        }
    }
}

/* ---- connections ---- */

static void conn_free(struct conn *conn)
{
    struct gw_h2_app *a = conn->app;
    struct conn **link = &a->conns;

    gw_timer_stop(&conn->idle);
    while (*link != conn)
        link = &(*link)->next;
    *link = conn->next;
    a->n_conns--;
    free(conn);
}

static void on_idle(struct gw_timer *timer)
{
    struct conn *conn = (struct conn *)((char *)timer - offsetof(struct conn, idle));
    struct gw_h2_app *a = conn->app;

    gw_h2_link_close(&conn->link);
    conn_free(conn);
    app_drop(a);
}

/* No stream is open on it: it goes soon, or at once where it is of no more use. */
static void rest(struct conn *conn)
{
    struct gw_h2_app *a = conn->app;

    if (conn->n_calls > 0)
        return;
    if (a->w->draining || !tr_h2_can_request(conn->link.h2)) {
        gw_h2_link_close(&conn->link);
        conn_free(conn);
    } else if (!gw_timer_is_running(&conn->idle)) {
        gw_timer_start(&a->w->t_pool, &conn->idle, on_idle);
    }
}

static void on_turn(void *arg)
{
    struct conn *conn = arg;
    struct gw_h2_app *a = conn->app;

    a->busy = true;
    settle_lost(conn, false, 0, "");
    serve(a);
    rest(conn);
    a->busy = false;
    app_drop(a);
}

static void on_over(int status, const char *reason, void *arg)
{
    struct conn *conn = arg;
    struct gw_h2_app *a = conn->app;

    a->busy = true;
    settle_lost(conn, true, status, reason);
    conn_free(conn);
    serve(a);
    a->busy = false;
    app_drop(a);
}

static void on_redial(struct gw_timer *timer)
{
    serve((struct gw_h2_app *)((char *)timer - offsetof(struct gw_h2_app, timer)));
}

/* Refused: those who came right after the machine's start wait a little, as with HTTP/1.1. */
static void refused(struct gw_h2_app *a)
{
    uint64_t now = gw_loop_now(a->w->loop);
    struct request *r = a->waiting.first;

    while (r != NULL) {
        if (r->call.x->connect_until > now) {
            r = r->next;
            continue;
        }
        fail(r, 502, "nothing_listens", "Nothing listens on this port of the sandbox yet.");
        r = a->waiting.first; /* others may have come or gone */
    }
    if (a->waiting.first != NULL && a->dial == NULL)
        gw_timer_start(&a->w->t_retry, &a->timer, on_redial);
}

static void on_dialled(struct gw_sock *sock, int status, void *arg)
{
    static const struct gw_h2_link_cbs cbs = {.on_turn = on_turn, .on_over = on_over};
    struct gw_h2_app *a = arg;
    struct conn *conn = NULL;

    a->dial = NULL;
    gw_timer_stop(&a->timer);
    a->busy = true;
    if (status == 0)
        conn = calloc(1, sizeof(*conn));
    if (conn != NULL) {
        conn->app = a;
        if (gw_h2_link_open(&conn->link, a->w, sock, &gw_h2_call_options, &cbs, conn) == 0) {
            conn->next = a->conns;
            a->conns = conn;
            a->n_conns++;
            serve(a);
            rest(conn); /* whoever asked for it may have left */
        } else {
            free(conn);
            conn = NULL;
        }
    }
    if (conn == NULL && status == 0)
        fail_waiting(a, 502, "no_memory", "The edge is out of memory.");
    else if (status == UV_ECONNREFUSED)
        refused(a);
    else if (status != 0)
        fail_waiting(a, status == UV_ETIMEDOUT ? 504 : 502, "unreachable",
                     "The machine cannot be reached.");
    a->busy = false;
    app_drop(a);
}

static void on_dial_timeout(struct gw_timer *timer)
{
    struct gw_h2_app *a = (struct gw_h2_app *)((char *)timer - offsetof(struct gw_h2_app, timer));

    gw_dial_cancel(a->dial);
    a->dial = NULL;
    fail_waiting(a, 504, "connect_timeout", "The machine did not accept a connection in time.");
}

static void dial(struct gw_h2_app *a)
{
    gw_timer_start(&a->w->t_connect, &a->timer, on_dial_timeout);
    if (gw_dial_start(a->w, a->set, &a->route, on_dialled, a, &a->dial) == 0)
        return;
    gw_timer_stop(&a->timer);
    fail_waiting(a, 502, "unreachable", "The machine cannot be reached.");
}

/* ---- requests ---- */

/* How many streams the app allows is not known before its settings came: until then, one. */
static bool has_room(const struct conn *conn)
{
    return conn->link.h2 != NULL && tr_h2_can_request(conn->link.h2) &&
           (conn->n_calls == 0 || gw_h2_link_heard(&conn->link));
}

/* Onto a connection with room. */
enum opened { OPENED, NO_ROOM, FAILED /* and freed */ };

static enum opened open_on_any(struct request *r)
{
    struct conn *conn;
    int e;

    for (conn = r->app->conns; conn != NULL; conn = conn->next)
        if (has_room(conn))
            break;
    if (conn == NULL)
        return NO_ROOM;
    e = gw_h2_call_open(&r->call, conn->link.h2);
    if (e == UV_EAGAIN)
        return NO_ROOM;
    list_del(r);
    if (e != 0) {
        fail(r, e == UV_EINVAL ? 400 : 502, e == UV_EINVAL ? "bad_request" : "no_memory",
             e == UV_EINVAL ? "A header field cannot be passed on in HTTP/2."
                            : "The edge is out of memory.");
        return FAILED;
    }
    gw_timer_stop(&conn->idle);
    r->n_tries++;
    r->conn = conn;
    conn->n_calls++;
    return OPENED;
}

/* Not while one is on its way, or has yet to say how many streams it takes. */
static bool needs_conn(const struct gw_h2_app *a)
{
    if (a->dial != NULL || gw_timer_is_running(&a->timer) || a->n_conns >= CONNS_MAX)
        return false;
    for (const struct conn *conn = a->conns; conn != NULL; conn = conn->next)
        if (!gw_h2_link_heard(&conn->link))
            return false;
    return true;
}

/* As many of those who wait as there is room for; another connection for the rest. */
static void serve(struct gw_h2_app *a)
{
    enum opened opened = FAILED;
    bool busy = a->busy;

    a->busy = true;
    while (a->waiting.first != NULL && opened != NO_ROOM) {
        struct request *r = a->waiting.first;

        opened = open_on_any(r);
        if (opened == OPENED)
            r->call.x->front_ops->resume(r->call.x);
    }
    if (a->waiting.first != NULL && needs_conn(a))
        dial(a);
    a->busy = busy;
    app_drop(a);
}

/* The head as HTTP/1.1 apps get it, turned into HTTP/2 fields whose text stays where it is. */
static struct tr_h2_field *to_fields(struct gw_exchange *x, const struct gw_request *req, size_t *n)
{
    char *p = gw_buf_begin(x->head), *end = p + x->head->len;
    struct tr_h2_field *fields = malloc((req->n_fields + 10) * sizeof(*fields)), *f = fields;
    char *target;

    if (fields == NULL)
        return NULL;
    target = memchr(p, ' ', (size_t)(end - p));
    *f++ = (struct tr_h2_field){":method", 7, p, (size_t)(target - p)};
    target++;
    p = memchr(target, ' ', (size_t)(end - target));
    *f++ = (struct tr_h2_field){":path", 5, target, (size_t)(p - target)};
    *f++ =
        (struct tr_h2_field){":scheme", 7, x->public_tls ? "https" : "http", x->public_tls ? 5 : 4};
    *f++ = (struct tr_h2_field){":authority", 10, x->host.p, x->host.len};
    if (req->te_trailers)
        *f++ = TR_H2_FIELD("te", "trailers");
    for (p = memchr(p, '\n', (size_t)(end - p)); end - ++p > 2;
         p = memchr(p, '\n', (size_t)(end - p))) {
        char *colon = memchr(p, ':', (size_t)(end - p)), *cr = memchr(p, '\r', (size_t)(end - p));

        for (char *q = p; q < colon; q++)
            if (*q >= 'A' && *q <= 'Z')
                *q = (char)(*q + ('a' - 'A'));
        *f = (struct tr_h2_field){p, (size_t)(colon - p), colon + 2, (size_t)(cr - colon) - 2};
        switch (gw_http1_classify(f->name, f->name_len)) {
        case GW_FIELD_HOST:
        case GW_FIELD_TRANSFER_ENCODING:
            break;
        default:
            f++;
        }
    }
    *n = (size_t)(f - fields);
    return fields;
}

void gw_upstream_h2_start(struct gw_exchange *x, const struct gw_request *req,
                          const struct sockaddr *peer)
{
    struct gw_h2_app *a = app_get(x->worker, &x->route);
    struct request *r = calloc(1, sizeof(*r));
    struct tr_h2_field *fields = NULL;
    size_t n = 0;

    if (a != NULL && r != NULL && gw_upstream_head(x, req, peer) == 0)
        fields = to_fields(x, req, &n);
    if (fields == NULL) {
        free(r);
        if (a != NULL)
            app_drop(a);
        gw_exchange_back_failed(x, 502, "no_memory", "The edge is out of memory.");
        return;
    }
    r->app = a;
    a->n_requests++;
    gw_h2_call_init(&r->call, x, &call_ops, fields, n);
    if (a->conns != NULL)
        gw_count(&x->worker->stats.upstream_reuses, 1);
    if (a->waiting.first == NULL && open_on_any(r) != NO_ROOM)
        return;
    list_add(&a->waiting, r);
    serve(a);
}

/* What is freed has left its list, and a busy app stays.
 * NOLINTBEGIN(clang-analyzer-unix.Malloc) */
void gw_upstream_h2_set_gone(struct gw_worker *w, struct gw_upstream_set *set,
                             const struct gw_gone *why)
{
    (void)w;
    while (set->apps != NULL) {
        struct gw_h2_app *a = set->apps;

        a->busy = true;
        fail_waiting(a, why->status, why->code, why->message);
        gw_timer_stop(&a->timer);
        gw_dial_cancel(a->dial);
        a->dial = NULL;
        while (a->conns != NULL) {
            struct conn *conn = a->conns;

            gw_h2_link_close(&conn->link); /* its calls are lost now */
            while (conn->lost.first != NULL) {
                struct request *r = conn->lost.first;

                leave_conn(r);
                list_del(r);
                fail(r, why->status, why->code, why->message);
            }
            conn_free(conn);
        }
        fail_waiting(a, why->status, why->code, why->message);
        a->busy = false;
        app_drop(a);
    }
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */
