/* SPDX-License-Identifier: MIT */
/* GET .../windows/{w}/attach: a window as a WebSocket (RFC 6455; over HTTP/2 by RFC 8441).
 *
 * Path: agent reached -> window there (made when it is not) -> its output asked for -> handshake
 * answered, hello -> frames both ways -> close frame -> both sides end.
 *
 * Binary frames are the terminal's bytes, both ways. Text frames are JSON: from the client
 * {"type":"resize","rows","cols"}; to it
 *   {"type":"hello","from","replay","rows","cols"}  first: so many bytes show a late viewer what
 * the window holds, then come its own from this offset
 *   {"type":"gap","from","to"}                      bytes that were overtaken in the ring
 *   {"type":"closed"}                               the window is closed; status 1000 follows
 *   {"type":"run_start","run_id"}, {"type":"run_end","run_id","status",...}
 *                                                   when they are heard of: their output may come
 *                                                   before or after
 *
 * Flow control: what the client does not take is not read from the agent, whose ring then overtakes
 * it; what the window does not take is not read from the client. Neither waits for the other.
 *
 * A page of any origin may do this: nothing is granted by what a browser adds by itself (there are
 * no cookies here), only by a key that the page has to know. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/machine.h"
#include "vmm/reach.h"
#include "vmm/vmm.h"
#include "vmm/ws.h"

#define SIDE_MAX    1000         /* rows, columns */
#define BEAT_MS     30000        /* a ping so often; no sign of life until the next one ends it */
#define REST_MS     10000        /* for what was typed to be taken, and for the client's end */
#define BACKLOG_MAX (512 * 1024) /* for a client that asks and does not read the answers */
#define IDLE_TRIES  3            /* streams of output in a row that bring nothing */

#define CODE_INTERNAL 2
#define CODE_CANCEL   8

struct attach {
    struct vmm_request *req; /* with a reference; its st is NULL once the client is gone */
    struct vmm_ws *ws;       /* NULL until the handshake is answered */
    struct vmm_reach reach;
    struct vmm_listener events; /* from the hello to the end */
    uint64_t event_at;          /* id of the last event looked at */
    uv_timer_t timer;
    struct tr_h2_stream *out, *in; /* at the agent; NULL: not open */
    char *path;                    /* of the window at the agent */
    int rows, cols;                /* of the window, as far as is known; 0: not */
    uint64_t at;                   /* next byte of the window for the client */
    uint64_t replay;               /* bytes that come before it */
    uint64_t opened_at;            /* at when out was opened */
    size_t out_owes;               /* bytes to give back to the agent when the client drains */
    size_t in_owes;                /* and the other way */
    int n_users;                   /* client, timer, streams, calls under way: who may call */
    int n_idle;
    bool with_screen; /* it begins with a replay, not with an offset */
    bool reaching;    /* on_reached() is due */
    bool out_ended;   /* all of out's body came */
    bool out_due;     /* to be opened again once the client has drained */
    bool client_full; /* it takes no more for now */
    bool window_full; /* nor does the window */
    bool resizing, resize_due;
    bool alive;  /* something was heard since the last beat */
    bool ending; /* nothing more passes; the rest only goes away */
};

static void request_output(struct attach *a);

/* ---- the end ---- */

static void drop(struct attach *a)
{
    if (--a->n_users > 0)
        return;
    a->req->arg = NULL;
    vmm_request_unref(a->req);
    vmm_ws_free(a->ws);
    free(a->path);
    free(a);
}

static void on_timer_close(uv_handle_t *handle)
{
    drop(handle->data);
}

static void close_timer(struct attach *a)
{
    if (!uv_is_closing((uv_handle_t *)&a->timer))
        uv_close((uv_handle_t *)&a->timer, on_timer_close);
}

static void on_rest(uv_timer_t *timer)
{
    struct attach *a = timer->data;

    if (a->in != NULL)
        tr_h2_reset(a->in, CODE_CANCEL); /* in_close() goes on */
}

/* Let go of the window. What was typed still goes there. */
static void end(struct attach *a)
{
    if (a->ending)
        return;
    a->ending = true;
    if (a->events.wake != NULL)
        vmm_events_unlisten(&a->req->vmm->events, &a->events);
    if (a->out != NULL)
        tr_h2_reset(a->out, CODE_CANCEL);
    if (a->in == NULL) {
        close_timer(a);
        return;
    }
    tr_h2_end(a->in, NULL, 0);
    if (uv_timer_start(&a->timer, on_rest, REST_MS, 0) != 0)
        abort(); /* fails only without a callback */
}

/* The close frame is out, or there is nobody to send one to. */
static void end_stream(struct attach *a)
{
    if (a->ending)
        return;
    if (a->req->st != NULL) {
        tr_h2_end(a->req->st, NULL, 0);
        if (!a->req->ended && a->req->deadline_ms == 0)
            a->req->deadline_ms = uv_now(a->req->vmm->loop) + REST_MS;
    }
    end(a);
}

static void close_with(struct attach *a, enum vmm_ws_code code, const char *reason)
{
    if (a->ending)
        return;
    vmm_ws_close(a->ws, code, reason);
    if (vmm_ws_is_over(a->ws)) /* not yet from inside vmm_ws_feed(): on_data() looks again */
        end_stream(a);
}

static void window_closed(struct attach *a)
{
    vmm_ws_text(a->ws, "{\"type\":\"closed\"}");
    close_with(a, VMM_WS_NORMAL, "the window was closed");
}

/* The agent cannot be spoken to any more. */
static void agent_lost(struct attach *a)
{
    const struct vmm_sandbox *sb = vmm_reach_sandbox(&a->reach);

    if (a->ending)
        return;
    if (a->ws == NULL) {
        vmm_reply_error(a->req, 502, "the connection to the sandbox's agent was lost");
        end(a);
    } else if (sb == NULL || sb->state == TR_SANDBOX_STOPPING || sb->state == TR_SANDBOX_ASLEEP) {
        window_closed(a); /* with its machine */
    } else {
        close_with(a, VMM_WS_INTERNAL, "the connection to the sandbox's agent was lost");
    }
}

/* ---- to the client ---- */

static int ws_send(const uint8_t *data, size_t len, void *arg)
{
    struct attach *a = arg;
    int r = a->req->st == NULL ? -1 : tr_h2_write(a->req->st, data, len);

    if (r == 0)
        a->client_full = true;
    return r;
}

/* An event of a sandbox: is it a run's of this window? */
static void tell_run(struct attach *a, const struct vmm_event *ev)
{
    static const char *const members[] = {"run_id", "status", "exit_code", "signal"};
    json_t *event = json_loads(ev->text, 0, NULL), *told;
    const json_t *agent = json_object_get(event, "agent");
    const char *label = json_string_value(json_object_get(event, "label"));
    const char *window = json_string_value(json_object_get(agent, "window"));
    char *text = NULL;

    if (label != NULL && window != NULL && strcmp(label, a->reach.label) == 0 &&
        strcmp(window, a->req->params[2]) == 0) {
        told = json_pack("{s:s}", "type", strchr(ev->type, '.') + 1);
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
            if (json_object_get(agent, members[i]) != NULL)
                json_object_set(told, members[i], json_object_get(agent, members[i]));
        text = told == NULL ? NULL : json_dumps(told, JSON_COMPACT);
        json_decref(told);
    }
    if (text != NULL)
        vmm_ws_text(a->ws, text);
    free(text);
    json_decref(event);
}

static void tell_runs(struct attach *a)
{
    const struct vmm_events *events = &a->req->vmm->events;
    const struct vmm_event *ev;

    while (!a->ending && !a->client_full &&
           (ev = vmm_events_next(events, a->event_at, NULL)) != NULL) {
        a->event_at = ev->id;
        if (strcmp(ev->type, "sandbox.run_start") == 0 || strcmp(ev->type, "sandbox.run_end") == 0)
            tell_run(a, ev);
        if (vmm_ws_is_over(a->ws))
            end_stream(a);
    }
}

static void on_event(struct vmm_listener *listener)
{
    tell_runs((struct attach *)((char *)listener - offsetof(struct attach, events)));
}

static void on_beat(uv_timer_t *timer)
{
    struct attach *a = timer->data;

    if (!a->alive) {
        close_with(a, VMM_WS_POLICY, "no answer to a ping");
        return;
    }
    a->alive = false;
    vmm_ws_ping(a->ws);
}

/* ---- from the client ---- */

static void touch(const struct attach *a)
{
    const struct vmm_sandbox *sb = vmm_reach_sandbox(&a->reach);

    if (sb != NULL)
        vmm_machine_touch(sb);
}

static void give_back_client(struct attach *a)
{
    size_t n = a->in_owes;

    if (n == 0 || a->req->st == NULL || a->window_full ||
        tr_h2_stream_queued(a->req->st) > BACKLOG_MAX)
        return;
    a->in_owes = 0;
    tr_h2_stream_consume(a->req->st, n);
}

static void in_drain(struct tr_h2_stream *st, void *arg)
{
    struct attach *a = arg;

    (void)st;
    a->window_full = false;
    give_back_client(a);
}

/* The window is gone, which its output tells in a moment; or the agent is. */
static void in_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct attach *a = arg;

    (void)st;
    (void)code;
    a->in = NULL;
    a->window_full = false;
    if (a->ending)
        close_timer(a);
    else
        give_back_client(a);
    drop(a);
}

static void in_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)arg;
    tr_h2_stream_consume(st, len);
}

static struct tr_h2 *agent_session(const struct attach *a)
{
    const struct vmm_agent *agent = vmm_reach_agent(&a->reach);

    return agent == NULL ? NULL : vmm_agent_session(agent);
}

/* A request to the agent about the window. Returns 0 or why not. */
static int ask(struct attach *a, const char *method, const char *rest, bool end_now,
               const struct tr_h2_stream_cbs *cbs, struct tr_h2_stream **out)
{
    struct tr_h2 *h2 = agent_session(a);
    struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", method),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "agent"),
        TR_H2_FIELD(":path", ""),
    };
    char *path = NULL;
    int r = UV_ENOTCONN;

    if (h2 != NULL && asprintf(&path, "%s%s", a->path, rest) < 0)
        return UV_ENOMEM;
    if (h2 != NULL) {
        fields[3].value = path;
        fields[3].value_len = strlen(path);
        r = tr_h2_request(h2, fields, 4, end_now, cbs, a, out);
    }
    free(path);
    if (r == 0)
        a->n_users++;
    return r;
}

static void on_binary(const uint8_t *data, size_t len, void *arg)
{
    static const struct tr_h2_stream_cbs cbs = {
        .on_data = in_data, .on_drain = in_drain, .on_close = in_close};
    struct attach *a = arg;
    int r = 0;

    if (a->ending)
        return;
    touch(a);
    if (a->in == NULL)
        r = ask(a, "POST", "/input", false, &cbs, &a->in);
    if (r == 0)
        r = tr_h2_write(a->in, data, len);
    if (r == 0)
        a->window_full = true;
    else if (r < 0)
        close_with(a, VMM_WS_INTERNAL, "the input cannot be passed on");
}

static void send_size(struct attach *a);

static void on_resized(int status, const json_t *reply, void *arg)
{
    struct attach *a = arg;

    (void)status; /* a window that is gone says so by its output */
    (void)reply;
    a->resizing = false;
    if (a->resize_due && !a->ending)
        send_size(a);
    drop(a);
}

static void send_size(struct attach *a)
{
    struct vmm_agent *agent = vmm_reach_agent(&a->reach);
    json_t *body = json_pack("{s:i, s:i}", "rows", a->rows, "cols", a->cols);
    char *path = NULL;

    a->resize_due = false;
    if (agent != NULL && body != NULL && asprintf(&path, "%s/resize", a->path) >= 0 &&
        vmm_agent_call(agent, "POST", path, body, on_resized, a) == 0) {
        a->resizing = true;
        a->n_users++;
    }
    json_decref(body);
    free(path);
}

static bool is_size(const json_t *n)
{
    return json_is_integer(n) && json_integer_value(n) >= 1 && json_integer_value(n) <= SIDE_MAX;
}

static void on_text(const char *text, size_t len, void *arg)
{
    struct attach *a = arg;
    json_t *msg = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(msg, "type"));
    const json_t *rows = json_object_get(msg, "rows"), *cols = json_object_get(msg, "cols");

    if (type == NULL) {
        close_with(a, VMM_WS_POLICY, "a text message must be a JSON object with a \"type\"");
    } else if (strcmp(type, "resize") != 0) {
        close_with(a, VMM_WS_POLICY, "the only type of message is \"resize\"");
    } else if (!is_size(rows) || !is_size(cols)) {
        close_with(a, VMM_WS_POLICY, "\"rows\" and \"cols\" must be from 1 to 1000");
    } else {
        a->rows = (int)json_integer_value(rows);
        a->cols = (int)json_integer_value(cols);
        if (a->resizing)
            a->resize_due = true;
        else
            send_size(a);
    }
    json_decref(msg);
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    struct attach *a = req->arg;

    if (a->ending || (a->ws == NULL && req->answered)) {
        vmm_request_drop(req, len);
        return;
    }
    if (a->ws == NULL) {
        vmm_reply_error(req, 400, "the handshake is not answered yet");
        vmm_request_drop(req, len);
        end(a);
        return;
    }
    a->alive = true;
    a->in_owes += len;
    vmm_ws_feed(a->ws, data, len);
    if (vmm_ws_is_over(a->ws))
        end_stream(a);
    give_back_client(a);
}

static void on_end(struct vmm_request *req, const struct tr_h2_head *trailers)
{
    struct attach *a = req->arg;

    (void)trailers;
    if (a->ending)
        return;
    if (a->ws == NULL)
        tr_h2_reset(req->st, CODE_CANCEL);
    else
        end_stream(a);
}

static void on_drain(struct vmm_request *req)
{
    struct attach *a = req->arg;
    size_t n = a->out_owes;

    a->alive = true;
    a->client_full = false;
    a->out_owes = 0;
    if (a->out != NULL && n > 0)
        tr_h2_stream_consume(a->out, n);
    give_back_client(a);
    if (a->ws != NULL)
        tell_runs(a);
    if (a->out_due && !a->ending)
        request_output(a);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct attach *a = req->arg;

    (void)code;
    if (a->reaching && vmm_reach_cancel(&a->reach)) {
        a->reaching = false;
        a->n_users--;
    }
    end(a);
    drop(a);
}

static void on_dismiss(struct vmm_request *req, enum vmm_dismissal why)
{
    struct attach *a = req->arg;

    if (why == VMM_DISMISS_REVOKED && a->ws == NULL)
        tr_h2_reset(req->st, CODE_CANCEL);
    else if (why == VMM_DISMISS_REVOKED)
        close_with(a, VMM_WS_POLICY, "the API key was deleted");
    else if (a->ws != NULL)
        close_with(a, VMM_WS_GOING_AWAY, "the manager ends");
}

static const struct vmm_request_cbs client_cbs = {.on_data = on_data,
                                                  .on_end = on_end,
                                                  .on_drain = on_drain,
                                                  .on_gone = on_gone,
                                                  .on_dismiss = on_dismiss};
static const struct vmm_ws_cbs ws_cbs = {
    .send = ws_send, .on_binary = on_binary, .on_text = on_text};

/* ---- from the window ---- */

/* The handshake's answer and the hello. */
static int welcome(struct attach *a)
{
    struct tr_h2_field protocol = TR_H2_FIELD("sec-websocket-protocol", VMM_WS_PROTOCOL);
    struct vmm_ws_offer offer;
    char hello[160];
    int r = vmm_ws_new(&ws_cbs, a, &a->ws);

    if (r != 0) {
        vmm_reply_error(a->req, 503, "out of memory");
        return r;
    }
    vmm_ws_read_offer(a->req->head, &offer);
    explicit_bzero(offer.key, sizeof(offer.key));
    vmm_request_answered(a->req, 101);
    r = tr_h2_respond(a->req->st, 200, &protocol, offer.ours ? 1 : 0, false);
    if (r != 0) {
        tr_h2_reset(a->req->st, CODE_INTERNAL);
        return r;
    }
    a->alive = true;
    if (uv_timer_start(&a->timer, on_beat, BEAT_MS, BEAT_MS) != 0)
        abort(); /* fails only without a callback */
    snprintf(hello, sizeof(hello),
             "{\"type\":\"hello\",\"from\":%" PRIu64 ",\"replay\":%" PRIu64
             ",\"rows\":%d,\"cols\":%d}",
             a->at, a->replay, a->rows, a->cols);
    vmm_ws_text(a->ws, hello);
    a->event_at = a->req->vmm->events.last_id;
    a->events.wake = on_event;
    vmm_events_listen(&a->req->vmm->events, &a->events);
    return 0;
}

/* A header field that is a number; guests may say anything. */
static bool get_number(const struct tr_h2_head *head, const char *name, uint64_t *out)
{
    const char *text = tr_h2_head_get(head, name);
    char *rest;

    if (text == NULL || *text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &rest, 10);
    return *rest == '\0' && *out <= INT64_MAX;
}

static void refuse_output(struct attach *a, int status)
{
    if (a->ws != NULL) {
        window_closed(a); /* 416: and made anew */
        return;
    }
    if (status == 416)
        vmm_reply_fault(a->req, 416, "out_of_range", "the window has not put out so many bytes");
    else
        vmm_reply_error(a->req, 502, "the agent refuses the window's output (%d)", status);
    end(a);
}

static void out_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end_now,
                     void *arg)
{
    struct attach *a = arg;
    char gap[96];
    uint64_t from = 0, replay = 0;

    (void)st;
    (void)end_now;
    if (a->ending || a->req->st == NULL || head->status < 200)
        return;
    if (head->status != 200) {
        refuse_output(a, head->status);
        return;
    }
    if (!get_number(head, "transom-from", &from) ||
        (a->with_screen && !get_number(head, "transom-replay", &replay))) {
        agent_lost(a);
        return;
    }
    if (a->with_screen)
        a->at = a->opened_at = from;
    a->replay = replay;
    if (a->ws == NULL && welcome(a) != 0) {
        end(a);
    } else if (from > a->at) {
        snprintf(gap, sizeof(gap), "{\"type\":\"gap\",\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}",
                 a->at, from);
        a->at = from;
        vmm_ws_text(a->ws, gap);
    }
}

static void out_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct attach *a = arg;
    size_t replayed = a->replay < len ? (size_t)a->replay : len;

    if (a->ending || a->ws == NULL) {
        tr_h2_stream_consume(st, len);
        return;
    }
    a->replay -= replayed;
    a->at += len - replayed;
    vmm_ws_binary(a->ws, data, len);
    if (vmm_ws_is_over(a->ws))
        end_stream(a);
    if (a->client_full)
        a->out_owes += len;
    else
        tr_h2_stream_consume(st, len);
}

static void out_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct attach *a = arg;

    (void)st;
    (void)trailers;
    a->out_ended = true;
}

/* It ends when the client was overtaken, or with the window: which of the two, the next one tells.
 */
static void out_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct attach *a = arg;

    (void)st;
    a->out = NULL;
    a->out_owes = 0;
    a->n_idle = a->at == a->opened_at ? a->n_idle + 1 : 0;
    if (!a->ending) {
        if (code != 0 || !a->out_ended || a->ws == NULL || a->n_idle > IDLE_TRIES)
            agent_lost(a);
        else if (a->client_full)
            a->out_due = true;
        else
            request_output(a);
    }
    drop(a);
}

static void request_output(struct attach *a)
{
    static const struct tr_h2_stream_cbs cbs = {
        .on_head = out_head, .on_data = out_data, .on_end = out_end, .on_close = out_close};
    char rest[64];

    a->out_due = a->out_ended = false;
    if (a->ws != NULL)
        a->with_screen = false;
    if (a->with_screen)
        snprintf(rest, sizeof(rest), "/output?follow=1&screen=1");
    else
        snprintf(rest, sizeof(rest), "/output?follow=1&from=%" PRIu64, a->at);
    a->opened_at = a->at;
    if (ask(a, "GET", rest, true, &cbs, &a->out) != 0)
        agent_lost(a);
}

/* ---- opening ---- */

/* The window is there. */
static void on_opened(int status, const json_t *reply, void *arg)
{
    struct attach *a = arg;
    const json_t *rows = json_object_get(reply, "rows"), *cols = json_object_get(reply, "cols");
    const char *message = json_string_value(json_object_get(reply, "message"));

    if (!a->ending && (status == 200 || status == 201) && is_size(rows) && is_size(cols)) {
        a->rows = (int)json_integer_value(rows);
        a->cols = (int)json_integer_value(cols);
        request_output(a);
    } else if (!a->ending) {
        if (status >= 400 && status < 600 && message != NULL)
            vmm_reply_error(a->req, status, "%.300s", message);
        else
            vmm_reply_error(a->req, status == UV_ETIMEDOUT ? 504 : 502,
                            "the sandbox's agent did not open the window");
        end(a);
    }
    drop(a);
}

static void on_reached(struct vmm_reach *reach, struct tr_h2 *h2)
{
    struct attach *a = (struct attach *)((char *)reach - offsetof(struct attach, reach));
    json_t *size = json_object();
    int r = UV_ENOMEM;

    a->reaching = false;
    if (h2 != NULL && !a->ending) {
        if (a->rows > 0 && size != NULL) {
            json_object_set_new(size, "rows", json_integer(a->rows));
            json_object_set_new(size, "cols", json_integer(a->cols));
        }
        touch(a);
        if (size != NULL)
            r = vmm_agent_call(vmm_reach_agent(reach), "PUT", a->path, size, on_opened, a);
        if (r == 0)
            a->n_users++;
        else
            vmm_reply_error(a->req, 503, "the sandbox's agent cannot be asked");
    }
    json_decref(size);
    if (r != 0)
        end(a);
    drop(a);
}

/* A number of the query, from min to max; *out stays when there is none. Returns false after
 * answering. */
static bool query_number(struct vmm_request *req, const char *name, uint64_t min, uint64_t max,
                         uint64_t *out, bool *given)
{
    char *text = vmm_query_get(req->query, name), *rest = NULL;
    uint64_t n = 0;
    bool ok;

    *given = text != NULL;
    if (text == NULL)
        return true;
    ok = *text >= '0' && *text <= '9' && strlen(text) < 20;
    if (ok)
        n = strtoull(text, &rest, 10);
    ok = ok && *rest == '\0' && n >= min && n <= max;
    free(text);
    if (ok)
        *out = n;
    else
        vmm_reply_error(req, 400, "\"%s\" must be a number from %" PRIu64 " to %" PRIu64, name, min,
                        max);
    return ok;
}

/* Is this a handshake that we can answer? Returns false after answering. */
static bool check_handshake(struct vmm_request *req)
{
    const char *version = tr_h2_head_get(req->head, "sec-websocket-version");
    struct vmm_ws_offer offer;
    bool other;

    if (!req->websocket || version == NULL || strcmp(version, "13") != 0) {
        vmm_reply_error(req, 426, "this is a WebSocket of version 13 (RFC 6455)");
        return false;
    }
    vmm_ws_read_offer(req->head, &offer);
    other = offer.any && !offer.ours;
    explicit_bzero(offer.key, sizeof(offer.key));
    if (other)
        vmm_reply_error(req, 400, "offer the subprotocol \"" VMM_WS_PROTOCOL "\", or none");
    return !other;
}

/* "/v1/sessions/S/sandboxes/N/windows/W/attach" -> "/v1/windows/W", escapes untouched. */
static char *window_path(const struct vmm_request *req)
{
    const char *rest = req->path;
    char *out;

    for (int i = 0; i < 5; i++)
        rest = strchr(rest + 1, '/');
    if (asprintf(&out, "/v1%.*s", (int)(strrchr(rest, '/') - rest), rest) < 0)
        return NULL;
    return out;
}

void vmm_api_attach(struct vmm_request *req)
{
    uint64_t rows = 0, cols = 0, from = 0;
    bool has_rows, has_cols, has_from;
    struct attach *a;

    if (!check_handshake(req) || !query_number(req, "rows", 1, SIDE_MAX, &rows, &has_rows) ||
        !query_number(req, "cols", 1, SIDE_MAX, &cols, &has_cols) ||
        !query_number(req, "from", 0, INT64_MAX, &from, &has_from))
        return;
    if (has_rows != has_cols) {
        vmm_reply_error(req, 400, "\"rows\" and \"cols\" belong together");
        return;
    }
    a = calloc(1, sizeof(*a));
    if (a == NULL || (a->path = window_path(req)) == NULL) {
        free(a);
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    a->req = vmm_request_ref(req);
    a->rows = (int)rows;
    a->cols = (int)cols;
    a->at = from;
    a->with_screen = !has_from;
    if (uv_timer_init(req->vmm->loop, &a->timer) != 0)
        abort(); /* cannot fail on Unix */
    a->timer.data = a;
    req->cbs = &client_cbs;
    req->arg = a;
    a->n_users = 3; /* the client, the timer, on_reached() */
    a->reaching = true;
    vmm_reach_start(&a->reach, req, on_reached);
}
