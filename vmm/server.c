/* SPDX-License-Identifier: MIT */
/* Path of a request: on_request -> who is it -> route -> scope -> whose session -> body -> handler.
 * Faults are answered where they are found; on_close ends every request. */
#include "vmm/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transom/daemon.h"
#include "transom/h2_uv.h"
#include "transom/log.h"
#include "vmm/replay.h"
#include "vmm/router.h"
#include "vmm/trace.h"
#include "vmm/ws.h"

#define BODY_TIMEOUT_MS 30000
#define CODE_CANCEL     8 /* RFC 9113 section 7 */
#define PING_MS         60000
#define BACKLOG         128

struct listener {
    uv_pipe_t pipe;
    struct vmm_server *server;
    const char *name;
    bool trusted; /* peers of our user need no key */
    bool open;
    unsigned n_connections;
    char path[108];
};

struct connection {
    struct vmm_server *server;
    struct listener *listener;
    struct tr_h2_conn *conn;
    uid_t uid;       /* of the peer; -1: not known */
    bool is_local;   /* the peer is root or our own user, on the admin socket */
    bool is_gateway; /* the peer is the gateway's user, root or our own, on the edge socket */
    struct connection *prev, *next;
};

struct vmm_server {
    struct vmm *vmm;
    struct listener admin, edge;
    uid_t gateway_uid;
    uv_timer_t sweep; /* once a second: deadlines */
    struct connection *connections;
    struct vmm_request *requests;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
    bool closing;
    uint64_t close_deadline_ms;
    int n_open; /* handles */
};

/* ---- one request ---- */

static int find_target(struct vmm_request *req)
{
    const char *path = req->endpoint->path;
    const struct vmm_gone *gone;

    req->session = NULL;
    req->sandbox = NULL;
    if (strstr(path, "{s}") == NULL)
        return 0;
    req->session = vmm_session_find(&req->vmm->sessions, req->params[0]);
    if (req->session != NULL && req->who.scope != VMM_SCOPE_ADMIN &&
        strcmp(req->session->owner, req->who.owner) != 0)
        req->session = NULL; /* a foreign session looks exactly like none */
    if (req->session == NULL) {
        gone = vmm_sessions_gone(&req->vmm->sessions, req->params[0]);
        if (gone != NULL && strcmp(req->endpoint->method, "DELETE") == 0 && req->n_params == 1 &&
            (req->who.scope == VMM_SCOPE_ADMIN || strcmp(gone->owner, req->who.owner) == 0)) {
            vmm_reply_empty(req, 204);
            return -1;
        }
        vmm_reply_error(req, 404, "there is no session %.64s", req->params[0]);
        return -1;
    }
    if (strstr(path, "{n}") == NULL)
        return 0;
    req->sandbox = vmm_session_sandbox(req->session, req->params[1]);
    if (req->sandbox == NULL) {
        vmm_reply_error(req, 404, "the session has no sandbox named %.64s", req->params[1]);
        return -1;
    }
    return 0;
}

void vmm_server_dispatch(struct vmm_request *req)
{
    if (find_target(req) != 0)
        return;
    req->endpoint->handle(req);
}

/* The whole body of a JSON request is there. */
static void parse_body(struct vmm_request *req)
{
    struct err err = {0};
    json_error_t fault;

    req->deadline_ms = 0;
    if (!vmm_utf8_valid(req->raw, req->raw_len)) {
        vmm_reply_error(req, 400, "the body is not UTF-8");
        return;
    }
    if (req->raw_len == 0) {
        req->body = json_object();
    } else {
        req->body = json_loadb(req->raw, req->raw_len, JSON_REJECT_DUPLICATES, &fault);
        if (req->body == NULL) {
            vmm_reply_error(req, 400, "the body is not JSON: line %d, column %d: %s", fault.line,
                            fault.column, fault.text);
            return;
        }
    }
    if (!json_is_object(req->body)) {
        vmm_reply_error(req, 400, "the body must be a JSON object");
        return;
    }
    if (vmm_check_members(req->body, req->endpoint->members, &err) != 0) {
        vmm_reply_error(req, 422, "%s", err.msg);
        return;
    }
    if (req->endpoint->creates && !vmm_replay_begin(req))
        return;
    vmm_server_dispatch(req);
}

static void take_body(struct vmm_request *req, const uint8_t *data, size_t len)
{
    bool is_json = req->endpoint->body == VMM_BODY_JSON;
    size_t max = is_json ? (size_t)req->vmm->options->max_json_bytes : req->endpoint->raw_max;

    if (len > max - req->raw_len) {
        vmm_reply_error(req, 413, "the body is longer than %zu bytes%s", max,
                        is_json ? " (vmm.max_json_bytes)" : "");
        return;
    }
    if (req->raw_len + len > req->raw_size) {
        /* Raw bodies never move: no copy of a secret is left behind. */
        size_t size = req->raw_size ? req->raw_size : is_json ? 1024 : max;
        char *grown;

        while (size < req->raw_len + len)
            size *= 2;
        grown = realloc(req->raw, size);
        if (grown == NULL) {
            vmm_reply_error(req, 503, "out of memory");
            return;
        }
        req->raw = grown;
        req->raw_size = size;
    }
    memcpy(req->raw + req->raw_len, data, len);
    req->raw_len += len;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct vmm_request *req = arg;

    if (req->cbs != NULL && req->cbs->on_data != NULL) {
        req->cbs->on_data(req, data, len);
        return;
    }
    if (req->answered) {
        vmm_request_drop(req, len);
        return;
    }
    if (req->endpoint->body == VMM_BODY_JSON || req->endpoint->body == VMM_BODY_RAW)
        take_body(req, data, len);
    tr_h2_stream_consume(st, len);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct vmm_request *req = arg;

    (void)st;
    req->ended = true;
    if (req->cbs != NULL) {
        if (req->cbs->on_end != NULL)
            req->cbs->on_end(req, trailers);
    } else if (!req->answered && req->endpoint->body == VMM_BODY_JSON) {
        parse_body(req);
    } else if (!req->answered && req->endpoint->body == VMM_BODY_RAW) {
        req->deadline_ms = 0;
        vmm_server_dispatch(req);
    }
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct vmm_request *req = arg;

    (void)st;
    if (req->cbs != NULL && req->cbs->on_drain != NULL)
        req->cbs->on_drain(req);
}

static void on_stream_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct vmm_request *req = arg;
    struct vmm_server *server = req->vmm->server;

    (void)st;
    if (!req->answered)
        vmm_request_answered(req, 499); /* the client did not wait for it */
    req->st = NULL;
    req->head = NULL;
    if (req->prev != NULL)
        req->prev->next = req->next;
    else
        server->requests = req->next;
    if (req->next != NULL)
        req->next->prev = req->prev;
    if (req->cbs != NULL && req->cbs->on_gone != NULL)
        req->cbs->on_gone(req, code);
    vmm_request_unref(req);
}

static const struct tr_h2_stream_cbs stream_cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_close = on_stream_close};

/* Who asks? Returns 0, or the request was answered. */
static int identify(struct vmm_request *req, const struct connection *c)
{
    const char *field = tr_h2_head_get(req->head, "authorization");
    const char *key = vmm_auth_bearer(field);
    struct vmm_ws_offer offer = {.any = false};
    int r = -1;

    if (req->endpoint != NULL && req->endpoint->scope == VMM_SCOPE_NONE)
        return 0;
    if (field == NULL && req->websocket) {
        vmm_ws_read_offer(req->head, &offer);
        if (*offer.key)
            field = key = offer.key;
    }
    if (key != NULL)
        r = vmm_auth_check(req->vmm->auth, key, &req->who);
    explicit_bzero(offer.key, sizeof(offer.key));
    if (r == 0)
        return 0;
    if (field == NULL && c->is_local) {
        snprintf(req->who.owner, sizeof(req->who.owner), "local");
        req->who.scope = VMM_SCOPE_ADMIN;
        return 0;
    }
    vmm_reply_error(req, 401, "%s",
                    field == NULL ? "an API key is needed: send \"authorization: Bearer KEY\""
                    : key == NULL ? "the authorization must be \"Bearer KEY\""
                                  : "this API key is not known");
    return -1;
}

/* May this key ask now? Returns 0, or the request was answered. */
static int check_rate(struct vmm_request *req)
{
    const struct vmm_options *o = req->vmm->options;
    uint64_t wait_ms;

    if (req->who.rate == NULL || o->requests_per_s == 0)
        return 0;
    wait_ms = vmm_rate_take(req->who.rate, (uint64_t)o->requests_per_s, (uint64_t)o->requests_burst,
                            uv_now(req->vmm->loop));
    if (wait_ms == 0)
        return 0;
    req->retry_after_s = (unsigned)((wait_ms + 999) / 1000);
    req->vmm->figures.limited++;
    vmm_reply_error(req, 429, "this key asks more than %lld times a second (vmm.requests_per_s)",
                    (long long)o->requests_per_s);
    return -1;
}

static bool is_json_type(const char *type)
{
    if (type == NULL)
        return true;
    /* What curl --data sends when nothing is said. */
    if (strncasecmp(type, "application/x-www-form-urlencoded", 33) == 0)
        return true;
    return strncasecmp(type, "application/json", 16) == 0 &&
           (type[16] == '\0' || type[16] == ';' || type[16] == ' ');
}

/* The head is complete: answer, or wait for the body. */
static void begin(struct vmm_request *req, const struct connection *c)
{
    const char *length = tr_h2_head_get(req->head, "content-length");
    const struct vmm_endpoint *e;
    int found;
    char *query;

    /* The gateway marks what it asks for itself, takes that mark off what it passes on, and says
     * there for whom. Such a request has none of the gateway's rights. */
    req->from_gateway = c->is_gateway && tr_h2_head_get(req->head, "transom-edge") != NULL &&
                        tr_h2_head_get(req->head, "x-forwarded-for") == NULL &&
                        tr_h2_head_get(req->head, "authorization") == NULL;
    req->websocket = strcmp(req->head->method, "CONNECT") == 0 && req->head->protocol != NULL &&
                     strcmp(req->head->protocol, "websocket") == 0;
    found = vmm_route(req, req->websocket ? "GET" : req->head->method);
    if (identify(req, c) != 0 || check_rate(req) != 0)
        return;
    if (found == 404)
        vmm_reply_error(req, 404, "the API has no such path; see /v1/openapi.json");
    else if (found == 405)
        vmm_reply_error(req, 405, "this path takes %s only", req->allow);
    else if (found != 200)
        vmm_reply_error(req, 400, "the path holds a broken percent-escape");
    if (found != 200)
        return;
    e = req->endpoint;
    if (req->websocket && !e->websocket) {
        vmm_reply_error(req, 400, "this is not a WebSocket");
        return;
    }
    for (size_t i = 0; i < req->n_params; i++) {
        if (e->tail && i + 1 == req->n_params)
            continue;
        if (!vmm_utf8_valid(req->params[i], strlen(req->params[i]))) {
            vmm_reply_error(req, 400, "the path is not UTF-8");
            return;
        }
    }
    if (req->who.scope < e->scope) {
        vmm_reply_error(req, 403, "this needs a key with scope \"%s\"",
                        e->scope == VMM_SCOPE_ADMIN ? "admin" : "session");
        return;
    }
    if (find_target(req) != 0)
        return;
    if (e->needs_query != NULL) {
        query = vmm_query_get(req->query, e->needs_query);
        if (query == NULL || !*query) {
            free(query);
            vmm_reply_error(req, 400, "the query needs \"%s\", percent-encoded", e->needs_query);
            return;
        }
        free(query);
    }
    if (e->body != VMM_BODY_JSON && e->body != VMM_BODY_RAW) {
        vmm_server_dispatch(req);
        return;
    }
    req->deadline_ms = uv_now(req->vmm->loop) + BODY_TIMEOUT_MS;
    /* on_end() follows also when there is no body. */
    if (e->body == VMM_BODY_RAW)
        return;
    if (req->has_body && !is_json_type(tr_h2_head_get(req->head, "content-type"))) {
        vmm_reply_error(req, 415, "the body must be application/json");
        return;
    }
    if (length != NULL &&
        strtoull(length, NULL, 10) > (unsigned long long)req->vmm->options->max_json_bytes) {
        vmm_reply_error(req, 413, "the body is longer than %lld bytes (vmm.max_json_bytes)",
                        (long long)req->vmm->options->max_json_bytes);
        return;
    }
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    struct connection *c = arg;
    struct vmm_server *server = c->server;
    struct vmm_request *req = calloc(1, sizeof(*req));
    size_t path_len;

    (void)h2;
    if (head->path == NULL || req == NULL) { /* CONNECT has no path; it is not in the API */
        free(req);
        tr_h2_reset(st, 7 /* REFUSED_STREAM */);
        return;
    }
    path_len = strcspn(head->path, "?#");
    req->path = strndup(head->path, path_len);
    req->query = strdup(head->path[path_len] == '?' ? head->path + path_len + 1 : "");
    req->refs = 1;
    if (req->path == NULL || req->query == NULL) {
        vmm_request_unref(req);
        tr_h2_reset(st, 7);
        return;
    }
    req->vmm = server->vmm;
    req->st = st;
    req->head = head;
    req->uid = c->uid;
    server->vmm->figures.requests++;
    vmm_trace_read(req);
    req->has_body = !end;
    req->next = server->requests;
    if (req->next != NULL)
        req->next->prev = req;
    server->requests = req;
    tr_h2_stream_set(st, &stream_cbs, req);
    begin(req, c);
}

/* ---- connections ---- */

static void maybe_closed(struct vmm_server *server);

static void on_conn_close(struct tr_h2_conn *conn, int status, const char *reason, void *arg)
{
    struct connection *c = arg;
    struct vmm_server *server = c->server;

    (void)conn;
    log_debug("%s: connection closed: %s (%d)", c->listener->name, reason ? reason : "", status);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        server->connections = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    c->listener->n_connections--;
    free(c);
    maybe_closed(server);
}

static void on_refused(uv_handle_t *handle)
{
    free(handle);
}

/* False: not known. */
static bool peer_uid(uv_pipe_t *pipe, uid_t *uid)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    uv_os_fd_t fd;

    if (uv_fileno((uv_handle_t *)pipe, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    *uid = peer.uid;
    return true;
}

static int accept_one(struct listener *l, uv_pipe_t *pipe, struct connection **out)
{
    static const struct tr_h2_conn_cbs cbs = {.on_request = on_request, .on_close = on_conn_close};
    /* One stalled upload must not hold up the others: the session's window is the sum of theirs. */
    const struct tr_h2_options options = {.max_streams = VMM_STREAMS_MAX,
                                          .reset_rate = VMM_RESET_RATE,
                                          .stream_window = VMM_STREAM_WINDOW,
                                          .connect_protocol = true};
    struct connection *c;
    uid_t uid = 0;
    bool is_known, is_ours;
    int r = uv_accept((uv_stream_t *)&l->pipe, (uv_stream_t *)pipe);

    if (r != 0)
        return r;
    if (l->server->closing || l->n_connections >= VMM_CONNECTIONS_MAX)
        return UV_ECONNREFUSED;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return UV_ENOMEM;
    c->server = l->server;
    c->listener = l;
    is_known = peer_uid(pipe, &uid);
    c->uid = is_known ? uid : (uid_t)-1;
    is_ours = is_known && (uid == 0 || uid == getuid());
    c->is_local = l->trusted && is_ours;
    c->is_gateway = !l->trusted && (is_ours || (is_known && uid == l->server->gateway_uid));
    r = tr_h2_conn_open((uv_stream_t *)pipe, true, &options, PING_MS, &cbs, c, &c->conn);
    if (r != 0) {
        free(c);
        return r;
    }
    *out = c;
    return 0;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *l = stream->data;
    struct vmm_server *server = l->server;
    struct connection *c;
    uv_pipe_t *pipe;
    int r;

    if (status != 0) {
        log_warn("%s: accept: %s", l->name, uv_strerror(status));
        return;
    }
    pipe = malloc(sizeof(*pipe));
    if (pipe == NULL)
        return;
    if (uv_pipe_init(server->vmm->loop, pipe, 0) != 0)
        abort(); /* cannot fail on Unix */
    r = accept_one(l, pipe, &c);
    if (r != 0) {
        log_warn("%s: connection refused: %s", l->name, uv_strerror(r));
        uv_close((uv_handle_t *)pipe, on_refused);
        return;
    }
    l->n_connections++;
    c->next = server->connections;
    if (c->next != NULL)
        c->next->prev = c;
    server->connections = c;
}

/* ---- the server ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct vmm_server *server = timer->data;
    uint64_t now = uv_now(server->vmm->loop);

    for (struct vmm_request *req = server->requests, *next; req != NULL; req = next) {
        next = req->next;
        if (req->deadline_ms != 0 && now >= req->deadline_ms) {
            req->deadline_ms = 0;
            if (req->answered)
                tr_h2_stream_discard(req->st);
            else
                vmm_reply_error(req, 408, "the body did not arrive within %d s",
                                BODY_TIMEOUT_MS / 1000);
        }
    }
    if (server->closing && server->close_deadline_ms != 0 && now >= server->close_deadline_ms) {
        server->close_deadline_ms = 0;
        for (struct connection *c = server->connections; c != NULL; c = c->next)
            tr_h2_conn_close(c->conn);
    }
}

static int listen_on(struct vmm_server *server, struct listener *l, const char *name, mode_t mode,
                     bool trusted, struct err *err)
{
    int r;

    l->server = server;
    l->name = name;
    l->trusted = trusted;
    snprintf(l->path, sizeof(l->path), "%s/%s", server->vmm->options->run_dir, name);
    if (uv_pipe_init(server->vmm->loop, &l->pipe, 0) != 0)
        abort(); /* cannot fail on Unix */
    l->pipe.data = l;
    l->open = true;
    server->n_open++;
    (void)unlink(l->path); /* a dead manager's: we hold the lock on the folder */
    r = uv_pipe_bind(&l->pipe, l->path);
    if (r == 0 && chmod(l->path, mode) != 0)
        r = -errno;
    if (r == 0)
        r = uv_listen((uv_stream_t *)&l->pipe, BACKLOG, on_connection);
    return r == 0 ? 0 : tr_err_set(err, r, "cannot listen on %s: %s", l->path, uv_strerror(r));
}

static void on_handle_close(uv_handle_t *handle)
{
    struct vmm_server *server =
        handle->type == UV_TIMER ? handle->data : ((struct listener *)handle->data)->server;

    server->n_open--;
    maybe_closed(server);
}

static void close_listener(struct listener *l)
{
    if (!l->open)
        return;
    l->open = false;
    (void)unlink(l->path);
    uv_close((uv_handle_t *)&l->pipe, on_handle_close);
}

static void maybe_closed(struct vmm_server *server)
{
    if (!server->closing || server->connections != NULL)
        return;
    if (!uv_is_closing((uv_handle_t *)&server->sweep))
        uv_close((uv_handle_t *)&server->sweep, on_handle_close);
    if (server->n_open > 0)
        return;
    if (server->on_closed != NULL)
        server->on_closed(server->on_closed_arg);
    free(server);
}

int vmm_server_open(struct vmm *vmm, struct vmm_server **out, struct err *err)
{
    struct vmm_server *server = calloc(1, sizeof(*server));
    const char *name;
    gid_t gid;
    int r;

    if (server == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    server->vmm = vmm;
    r = tr_daemon_gateway_user(vmm->options->gateway_user, &server->gateway_uid, &gid, &name, err);
    if (r != 0) {
        free(server);
        return r;
    }
    if (uv_timer_init(vmm->loop, &server->sweep) != 0)
        abort(); /* cannot fail on Unix */
    server->sweep.data = server;
    server->n_open = 1;
    r = uv_timer_start(&server->sweep, on_sweep, 1000, 1000);
    if (r == 0)
        r = listen_on(server, &server->admin, "admin.sock", 0600, true, err);
    if (r == 0)
        r = listen_on(server, &server->edge, "edge.sock", 0666, false, err);
    if (r != 0) {
        vmm_server_close(server, 0, NULL, NULL);
        return r;
    }
    *out = server;
    return 0;
}

void vmm_server_close(struct vmm_server *server, uint64_t grace_ms, void (*cb)(void *arg),
                      void *arg)
{
    if (server->closing)
        return;
    server->closing = true;
    server->on_closed = cb;
    server->on_closed_arg = arg;
    server->close_deadline_ms = uv_now(server->vmm->loop) + grace_ms;
    close_listener(&server->admin);
    close_listener(&server->edge);
    for (struct vmm_request *req = server->requests; req != NULL; req = req->next)
        if (req->cbs != NULL && req->cbs->on_dismiss != NULL)
            req->cbs->on_dismiss(req, VMM_DISMISS_SHUTDOWN); /* streams close later */
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        if (grace_ms == 0)
            tr_h2_conn_close(c->conn);
        else if (tr_h2_conn_session(c->conn) != NULL)
            tr_h2_shutdown(tr_h2_conn_session(c->conn));
    }
    if (server->connections == NULL)
        maybe_closed(server);
}

void vmm_server_key_gone(struct vmm_server *server, const char *id)
{
    for (struct vmm_request *req = server->requests, *next; req != NULL; req = next) {
        next = req->next;
        if (req->cbs == NULL || strcmp(req->who.key, id) != 0)
            continue; /* what does not stream may still have its answer */
        if (req->cbs->on_dismiss != NULL)
            req->cbs->on_dismiss(req, VMM_DISMISS_REVOKED);
        else
            tr_h2_reset(req->st, CODE_CANCEL);
    }
}
