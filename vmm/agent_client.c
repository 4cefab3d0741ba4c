/* SPDX-License-Identifier: MIT */
/* Path: connect -> channel in step -> HTTP/2 -> hello -> secrets -> ready, event stream. Any fault
 * ends the channel; when that is closed, the next try is due after a pause. */
#include "vmm/agent_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/channel.h"
#include "transom/h2_uv.h"
#include "transom/log.h"

#define PAUSE_MIN_MS    50
#define PAUSE_MAX_MS    1000
#define PING_MS         30000
#define HELLO_LIMIT_MS  15000     /* from the connection to the answer of hello */
#define REPLY_MAX_BYTES (1 << 20) /* of a small JSON answer: the guest is not trusted */
#define EVENT_MAX_BYTES 65536
#define WINDOW          (128 * 1024)
#define SESSION_WINDOW  (64 * 1024 * 1024) /* a slow reader must not hold up the others */

struct vmm_agent {
    uv_loop_t *loop;
    const struct vmm_agent_cbs *cbs;
    void *arg;
    char ids[40]; /* for the log */
    uv_timer_t timer;
    struct tr_channel *channel; /* NULL: the pause before the next try */
    struct tr_h2_conn *conn;    /* NULL: the channel is not in step */
    bool conn_over;             /* the channel told conn that it is closed */
    bool ready, closing;
    json_t *hello_reply; /* while the secrets are under way */
    uint64_t pause_ms, lost_since, hello_deadline_ms, retry_at_ms;
    char why[160]; /* the last fault, logged once while it repeats */
    struct vmm_agent_wait *waits;
    char *line; /* event stream: the line so far */
    size_t line_len;
    bool line_too_long;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- small calls ---- */

struct call {
    vmm_agent_reply_cb cb;
    void *arg;
    struct tr_h2_stream *st;
    struct vmm_agent_wait deadline; /* not of hello and secrets, which have one together */
    bool late;
    int status;
    char *body;
    size_t len;
    bool complete;
};

static void call_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct call *c = arg;

    (void)st;
    (void)end;
    if (head->status >= 200)
        c->status = head->status;
}

static void call_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct call *c = arg;
    char *grown;

    tr_h2_stream_consume(st, len);
    if (c->len + len > REPLY_MAX_BYTES || (grown = realloc(c->body, c->len + len)) == NULL) {
        tr_h2_reset(st, 8 /* CANCEL */);
        return;
    }
    memcpy(grown + c->len, data, len);
    c->body = grown;
    c->len += len;
}

static void call_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct call *c = arg;

    (void)st;
    (void)trailers;
    c->complete = true;
}

static void call_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct call *c = arg;
    json_t *reply = NULL;
    int status = c->late ? UV_ETIMEDOUT : UV_ECONNRESET;

    (void)st;
    (void)code;
    vmm_agent_wait_cancel(&c->deadline);
    if (c->complete && c->status != 0)
        status = c->status;
    if (c->complete && c->len > 0)
        reply = json_loadb(c->body, c->len, JSON_REJECT_DUPLICATES, NULL);
    if (c->cb != NULL)
        c->cb(status, reply, c->arg);
    json_decref(reply);
    free(c->body);
    free(c);
}

/* *out: valid until its cb runs, which is not before this returns. */
static int call_on(struct tr_h2 *h2, const char *method, const char *path, const json_t *body,
                   vmm_agent_reply_cb cb, void *arg, struct call **out)
{
    static const struct tr_h2_stream_cbs cbs = {
        .on_head = call_head, .on_data = call_data, .on_end = call_end, .on_close = call_close};
    struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", method),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "agent"),
        TR_H2_FIELD(":path", path),
        TR_H2_FIELD("content-type", "application/json"),
    };
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    size_t len = text == NULL ? 0 : strlen(text);
    struct call *c = calloc(1, sizeof(*c));
    int r = UV_ENOMEM;

    if (c == NULL || (body != NULL && text == NULL))
        goto fault;
    c->cb = cb;
    c->arg = arg;
    r = tr_h2_request(h2, fields, body == NULL ? 4 : 5, body == NULL, &cbs, c, &c->st);
    if (r != 0)
        goto fault;
    if (body != NULL) {
        if (tr_h2_write(c->st, text, len) < 0)
            tr_h2_reset(c->st, 8 /* CANCEL */); /* on_close reports it */
        else
            tr_h2_end(c->st, NULL, 0);
        explicit_bzero(text, len); /* may be secrets */
    }
    free(text);
    *out = c;
    return 0;
fault:
    free(c);
    free(text);
    return r;
}

/* A guest that answers pings and nothing else must not hold up who asks. */
static void on_late(struct vmm_agent_wait *wait, int status)
{
    struct call *c = (struct call *)((char *)wait - offsetof(struct call, deadline));

    if (status != UV_ETIMEDOUT)
        return; /* the agent is being closed, which ends the call */
    c->late = true;
    tr_h2_reset(c->st, 8 /* CANCEL */); /* on_close reports it */
}

int vmm_agent_call_within(struct vmm_agent *agent, uint64_t timeout_ms, const char *method,
                          const char *path, const json_t *body, vmm_agent_reply_cb cb, void *arg)
{
    struct tr_h2 *h2 = vmm_agent_session(agent);
    struct call *c;
    int r = h2 == NULL ? UV_ENOTCONN : call_on(h2, method, path, body, cb, arg, &c);

    if (r != 0)
        return r;
    c->deadline.cb = on_late;
    vmm_agent_wait(agent, &c->deadline, timeout_ms);
    return 0;
}

int vmm_agent_call(struct vmm_agent *agent, const char *method, const char *path,
                   const json_t *body, vmm_agent_reply_cb cb, void *arg)
{
    return vmm_agent_call_within(agent, VMM_AGENT_CALL_MS, method, path, body, cb, arg);
}

/* ---- waiting ---- */

static void on_timer(uv_timer_t *timer);

/* The timer runs while there is anything to wait for; not in a machine's long quiet hours. */
static void arm(struct vmm_agent *agent)
{
    if (!agent->closing && !uv_is_active((uv_handle_t *)&agent->timer))
        (void)uv_timer_start(&agent->timer, on_timer, PAUSE_MIN_MS, PAUSE_MIN_MS);
}

void vmm_agent_wait(struct vmm_agent *agent, struct vmm_agent_wait *wait, uint64_t timeout_ms)
{
    wait->agent = agent;
    wait->deadline_ms = uv_now(agent->loop) + timeout_ms;
    wait->prev = NULL;
    wait->next = agent->waits;
    if (wait->next != NULL)
        wait->next->prev = wait;
    agent->waits = wait;
    arm(agent);
}

void vmm_agent_wait_cancel(struct vmm_agent_wait *wait)
{
    if (wait->agent == NULL)
        return;
    if (wait->prev != NULL)
        wait->prev->next = wait->next;
    else
        wait->agent->waits = wait->next;
    if (wait->next != NULL)
        wait->next->prev = wait->prev;
    wait->agent = NULL;
}

/* all: everybody; else those whose time is up. A callback may cancel others: begin again. */
static void tell_waits(struct vmm_agent *agent, bool all, int status)
{
    uint64_t now = uv_now(agent->loop);
    struct vmm_agent_wait *wait = agent->waits;

    while (wait != NULL) {
        if (!all && now < wait->deadline_ms) {
            wait = wait->next;
            continue;
        }
        vmm_agent_wait_cancel(wait);
        wait->cb(wait, status);
        wait = agent->waits;
    }
}

/* ---- the event stream ---- */

static void take_line(struct vmm_agent *agent)
{
    json_t *event = NULL;

    if (!agent->line_too_long && agent->line_len > 0)
        event = json_loadb(agent->line, agent->line_len, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(event))
        agent->cbs->on_event(event, agent->arg);
    json_decref(event);
    agent->line_len = 0;
    agent->line_too_long = false;
}

static void events_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct vmm_agent *agent = arg;

    tr_h2_stream_consume(st, len);
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            take_line(agent);
        else if (agent->line_len < EVENT_MAX_BYTES)
            agent->line[agent->line_len++] = (char)data[i];
        else
            agent->line_too_long = true;
    }
}

static void events_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)st;
    /* The channel's end is dealt with where it is noticed; an event stream that ends by itself is
     * asked for again with the next connection. */
    if (agent->ready)
        tr_log(TR_LOG_DEBUG, agent->ids, "event stream ended (code %u)", code);
}

/* From where the last conversation ended. Returns out. */
static const char *events_path(const struct vmm_agent *agent, char out[64])
{
    int64_t since = agent->cbs->events_since == NULL
                        ? -1
                        : agent->cbs->events_since(agent->hello_reply, agent->arg);

    if (since < 0)
        snprintf(out, 64, "/v1/events");
    else
        snprintf(out, 64, "/v1/events?since=%" PRId64, since);
    return out;
}

static void open_events(struct vmm_agent *agent)
{
    static const struct tr_h2_stream_cbs cbs = {.on_data = events_data, .on_close = events_close};
    char buffer[64];
    const char *path = events_path(agent, buffer);
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", "GET"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "agent"),
        TR_H2_FIELD(":path", path),
    };
    struct tr_h2_stream *st;

    agent->line_len = 0;
    agent->line_too_long = false;
    if (tr_h2_request(tr_h2_conn_session(agent->conn), fields, 4, true, &cbs, agent, &st) != 0)
        tr_log(TR_LOG_WARN, agent->ids, "the agent's events cannot be read");
}

/* ---- hello ---- */

static void drop_channel(struct vmm_agent *agent, const char *why)
{
    if (strcmp(agent->why, why) != 0 && !agent->closing) {
        tr_log(TR_LOG_INFO, agent->ids, "agent channel: %s", why);
        snprintf(agent->why, sizeof(agent->why), "%s", why);
    }
    if (agent->ready) {
        agent->ready = false;
        agent->lost_since = uv_now(agent->loop);
    }
    if (agent->channel != NULL)
        tr_channel_close(agent->channel);
}

static void on_secrets(int status, const json_t *reply, void *arg)
{
    struct vmm_agent *agent = arg;
    json_t *hello;
    char why[80];

    (void)reply;
    if (agent->closing || agent->conn == NULL)
        return; /* another fault was first */
    if (status != 204) {
        snprintf(why, sizeof(why), "secrets were answered %d", status);
        drop_channel(agent, why);
        return;
    }
    agent->hello_deadline_ms = 0;
    agent->ready = true;
    agent->lost_since = 0;
    agent->pause_ms = PAUSE_MIN_MS;
    agent->why[0] = '\0';
    open_events(agent);
    hello = agent->hello_reply;
    agent->hello_reply = NULL; /* a guest may have made it large */
    agent->cbs->on_ready(hello, agent->arg);
    json_decref(hello);
    tell_waits(agent, true, 0);
}

/* Before anything runs there. */
static void send_secrets(struct vmm_agent *agent)
{
    json_t *secrets = agent->cbs->secrets(agent->arg);
    struct call *c;
    int r = secrets == NULL ? UV_ENOMEM
                            : call_on(tr_h2_conn_session(agent->conn), "PUT", "/v1/secrets",
                                      secrets, on_secrets, agent, &c);

    json_decref(secrets);
    if (r != 0)
        drop_channel(agent, uv_strerror(r));
}

static void on_hello(int status, const json_t *reply, void *arg)
{
    struct vmm_agent *agent = arg;
    const char *message = json_string_value(json_object_get(reply, "message"));
    char why[200];

    if (agent->closing || agent->conn == NULL)
        return; /* another fault was first */
    if (status == 200) {
        json_decref(agent->hello_reply);
        agent->hello_reply = json_deep_copy(reply);
        send_secrets(agent);
        return;
    }
    snprintf(why, sizeof(why), "hello was answered %d: %s", status,
             message != NULL ? message
             : status < 0    ? uv_strerror(status)
                             : "");
    drop_channel(agent, why);
    if (status >= 400 && status < 500)
        agent->cbs->on_refused(why, agent->arg);
}

static void say_hello(struct vmm_agent *agent)
{
    json_t *hello = agent->cbs->hello(agent->arg);
    struct call *c;
    int r = hello == NULL ? UV_ENOMEM
                          : call_on(tr_h2_conn_session(agent->conn), "POST", "/v1/hello", hello,
                                    on_hello, agent, &c);

    json_decref(hello);
    if (r != 0)
        drop_channel(agent, uv_strerror(r));
}

/* ---- the channel ---- */

static void maybe_retry(struct vmm_agent *agent);

static void on_conn_close(struct tr_h2_conn *conn, int status, const char *reason, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)conn;
    agent->conn = NULL;
    if (!agent->conn_over)
        drop_channel(agent, reason != NULL && *reason ? reason : uv_strerror(status));
    maybe_retry(agent);
}

static void on_open(struct tr_channel *ch, void *arg)
{
    static const struct tr_h2_conn_cbs cbs = {.on_close = on_conn_close};
    const struct tr_h2_options options = {.stream_window = WINDOW,
                                          .session_window = SESSION_WINDOW};
    struct vmm_agent *agent = arg;
    int r;

    agent->conn_over = false;
    r = tr_h2_conn_open_channel(ch, false, &options, PING_MS, &cbs, agent, &agent->conn);
    if (r != 0)
        drop_channel(agent, uv_strerror(r));
    else
        say_hello(agent);
}

static void on_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)ch;
    if (agent->conn != NULL && !agent->conn_over)
        tr_h2_conn_channel_data(agent->conn, data, len);
}

static void on_drain(struct tr_channel *ch, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)ch;
    if (agent->conn != NULL && !agent->conn_over)
        tr_h2_conn_channel_drain(agent->conn);
}

static void on_end(struct tr_channel *ch, int status, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)ch;
    if (agent->ready) {
        agent->ready = false;
        agent->lost_since = uv_now(agent->loop);
    }
    if (agent->conn != NULL && !agent->conn_over) {
        agent->conn_over = true;
        tr_h2_conn_channel_closed(agent->conn, status);
    }
}

static void on_close(struct tr_channel *ch, int status, void *arg)
{
    struct vmm_agent *agent = arg;

    (void)ch;
    agent->channel = NULL;
    if (status != 0)
        drop_channel(agent, uv_strerror(status)); /* for its log line */
    maybe_retry(agent);
}

static void try_connect(struct vmm_agent *agent)
{
    static const struct tr_channel_cbs cbs = {.on_open = on_open,
                                              .on_data = on_data,
                                              .on_drain = on_drain,
                                              .on_end = on_end,
                                              .on_close = on_close};
    struct err err = {0};
    int fd = agent->cbs->connect(agent->arg, &err), r;

    agent->retry_at_ms = 0;
    if (fd < 0) {
        drop_channel(agent, err.msg);
        maybe_retry(agent);
        return;
    }
    r = tr_channel_open(agent->loop, fd, fd, true, false, &cbs, agent, &agent->channel);
    if (r != 0) {
        close(fd);
        drop_channel(agent, uv_strerror(r));
        maybe_retry(agent);
    }
}

static void on_timer_close(uv_handle_t *handle)
{
    struct vmm_agent *agent = handle->data;

    if (agent->on_closed != NULL)
        agent->on_closed(agent->on_closed_arg);
    json_decref(agent->hello_reply);
    free(agent->line);
    free(agent);
}

/* When channel and connection are both gone: the next try, or the end. */
static void maybe_retry(struct vmm_agent *agent)
{
    if (agent->channel != NULL || agent->conn != NULL)
        return;
    if (agent->closing) {
        if (!uv_is_closing((uv_handle_t *)&agent->timer))
            uv_close((uv_handle_t *)&agent->timer, on_timer_close);
        return;
    }
    agent->hello_deadline_ms = 0;
    arm(agent);
    agent->retry_at_ms = uv_now(agent->loop) + agent->pause_ms;
    agent->pause_ms = agent->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : agent->pause_ms * 2;
}

/* One timer serves the next try and all deadlines. */
static void on_timer(uv_timer_t *timer)
{
    struct vmm_agent *agent = timer->data;
    uint64_t now = uv_now(agent->loop);

    if (agent->retry_at_ms != 0 && now >= agent->retry_at_ms)
        try_connect(agent);
    if (agent->conn != NULL && !agent->ready) {
        /* Booting takes as long as it takes (the channel waits for that); once in step, the agent
         * must answer. */
        if (agent->hello_deadline_ms == 0)
            agent->hello_deadline_ms = now + HELLO_LIMIT_MS;
        else if (now >= agent->hello_deadline_ms)
            drop_channel(agent, "no answer to hello");
    }
    tell_waits(agent, false, UV_ETIMEDOUT);
    if (agent->ready && agent->waits == NULL)
        (void)uv_timer_stop(timer);
}

int vmm_agent_open(uv_loop_t *loop, const char *label, const struct vmm_agent_cbs *cbs, void *arg,
                   struct vmm_agent **out)
{
    struct vmm_agent *agent = calloc(1, sizeof(*agent));

    if (agent == NULL || (agent->line = malloc(EVENT_MAX_BYTES)) == NULL) {
        free(agent);
        return UV_ENOMEM;
    }
    agent->loop = loop;
    agent->cbs = cbs;
    agent->arg = arg;
    agent->pause_ms = PAUSE_MIN_MS;
    agent->lost_since = uv_now(loop);
    agent->retry_at_ms = uv_now(loop);
    snprintf(agent->ids, sizeof(agent->ids), "vm=%s", label);
    if (uv_timer_init(loop, &agent->timer) != 0)
        abort(); /* cannot fail on Unix */
    agent->timer.data = agent;
    if (uv_timer_start(&agent->timer, on_timer, 0, PAUSE_MIN_MS) != 0)
        abort();
    *out = agent;
    return 0;
}

void vmm_agent_close(struct vmm_agent *agent, void (*cb)(void *arg), void *arg)
{
    if (agent->closing)
        return;
    agent->closing = true;
    agent->on_closed = cb;
    agent->on_closed_arg = arg;
    agent->ready = false;
    (void)uv_timer_stop(&agent->timer);
    tell_waits(agent, true, UV_ECANCELED);
    if (agent->channel != NULL)
        tr_channel_close(agent->channel);
    maybe_retry(agent);
}

void vmm_agent_reconnect(struct vmm_agent *agent, const char *why)
{
    if (agent->ready && !agent->closing)
        drop_channel(agent, why);
}

struct tr_h2 *vmm_agent_session(const struct vmm_agent *agent)
{
    return agent->ready && agent->conn != NULL ? tr_h2_conn_session(agent->conn) : NULL;
}

uint64_t vmm_agent_lost_since(const struct vmm_agent *agent)
{
    return agent->ready ? 0 : agent->lost_since == 0 ? 1 : agent->lost_since;
}
