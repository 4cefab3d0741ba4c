/* SPDX-License-Identifier: MIT */
#include "vmm/agent/window_api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/utf8.h"
#include "vmm/agent/window.h"
#include "vmm/agent/window_stream.h"

#define DEFAULT_WAIT_MS 30000
#define MAX_WAIT_MS     INT64_C(86400000)
#define MAX_SIZE        1000  /* rows, columns */
#define INPUT_HIGH      65536 /* typed bytes that may wait in a window */

/* The name in the path, or NULL: answered. */
static const char *window_name(struct agent_request *req)
{
    const struct agent_text *name = &req->target.params[0];

    if (agent_window_name_ok(name->at, name->len))
        return name->at;
    agent_request_error(req, 400, "bad_window_name",
                        "a window's name is 1 to 128 bytes of UTF-8 without control characters");
    return NULL;
}

static struct agent_window *find(struct agent_request *req)
{
    const char *name = window_name(req);
    struct agent_window *w = name != NULL ? agent_window_find(req->agent->windows, name) : NULL;

    if (name != NULL && w == NULL)
        agent_request_error(req, 404, NULL, "no such window: %.64s", name);
    return w;
}

/* ---- runs ---- */

json_t *agent_listen_json(const struct agent *a, uint16_t port)
{
    bool shown = port == AGENT_PREVIEW_PORT && a->id.public_url[0] != '\0';

    return json_pack("{s:i,s:s*}", "port", (int)port, "preview_url",
                     shown ? a->id.public_url : NULL);
}

json_t *agent_run_json(struct agent *a, struct agent_run *run, const char *window)
{
    struct agent_run_view v;
    json_t *obj;

    agent_run_view(run, &v);
    obj = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I}", "run_id", v.id, "window", window, "status",
                    agent_run_status_name(v.status), "from", (json_int_t)v.from, "to",
                    (json_int_t)v.to, "bytes", (json_int_t)(v.to - v.from));
    if (obj == NULL)
        return NULL;
    if (v.has_code && v.status != AGENT_RUNNING)
        agent_exit_json(obj, v.by_exit, v.code);
    if (v.previews && a->id.public_url[0] != '\0')
        json_object_set_new(obj, "preview_url", json_string(a->id.public_url));
    if (v.shell_taken)
        json_object_set_new(obj, "shell_taken", json_true());
    if (v.shell_replaced)
        json_object_set_new(obj, "shell_replaced", json_true());
    if (v.started_at != 0)
        json_object_set_new(obj, "started_at", agent_time_json(v.started_at));
    if (v.ended_at != 0)
        json_object_set_new(obj, "ended_at", agent_time_json(v.ended_at));
    return obj;
}

/* Put the bytes [from, to) of the ring in, as far as they are kept. */
static void add_output(json_t *obj, const struct agent_ring *ring, uint64_t from, uint64_t to,
                       bool b64)
{
    uint64_t begin = agent_ring_begin(ring), at = from > begin ? from : begin;
    size_t len = to > at ? (size_t)(to - at) : 0, text_len = 0;
    uint8_t *bytes = malloc(len + 1);
    char *text;

    if (bytes == NULL)
        return;
    if (at < to)
        agent_ring_copy(ring, at, to, bytes);
    if (at > from)
        json_object_set_new(obj, "gap",
                            json_pack("{s:I,s:I}", "from", (json_int_t)from, "to",
                                      (json_int_t)(at < to ? at : to)));
    text = agent_utf8_repair((const char *)bytes, len, &text_len);
    if (text != NULL)
        json_object_set_new(obj, "output", json_stringn(text, text_len));
    free(text);
    if (b64) {
        text = agent_base64_encode(bytes, len);
        if (text != NULL)
            json_object_set_new(obj, "output_b64", json_string(text));
        free(text);
    }
    free(bytes);
}

/* A request that waits for a run's end. */
struct wait {
    struct agent_request *req;   /* NULL once answered or gone */
    struct agent_window *window; /* NULL once it is closed */
    struct agent_window_listener listener;
    struct agent_run *run;
    char name[132];
    uv_timer_t timer;
    bool b64, done;
};

static void on_wait_timer_close(uv_handle_t *handle)
{
    struct wait *wait = handle->data;

    free(wait);
}

static void end_wait(struct wait *wait)
{
    if (wait->done)
        return;
    wait->done = true;
    agent_run_on_end(wait->run, NULL, NULL);
    agent_run_unref(wait->run);
    if (wait->window != NULL)
        agent_window_unlisten(wait->window, &wait->listener);
    if (wait->req != NULL)
        wait->req->cbs = NULL;
    uv_close((uv_handle_t *)&wait->timer, on_wait_timer_close);
}

static void answer_wait(struct wait *wait)
{
    json_t *obj = agent_run_json(wait->req->agent, wait->run, wait->name);
    struct agent_run_view v;

    agent_run_view(wait->run, &v);
    if (obj != NULL && wait->window != NULL)
        add_output(obj, agent_window_ring(wait->window), v.from, v.to, wait->b64);
    else if (obj != NULL)
        json_object_set_new(obj, "output", json_string(""));
    agent_request_answer(wait->req, 200, obj);
    end_wait(wait);
}

static void on_run_end(struct agent_run *run, void *arg)
{
    (void)run;
    answer_wait(arg);
}

static void on_wait_timer(uv_timer_t *timer)
{
    answer_wait(timer->data);
}

static void on_wait_output(struct agent_window_listener *l)
{
    (void)l;
}

/* The window closes: its run ends in a moment, when the ring may be gone. */
static void on_wait_window_close(struct agent_window_listener *l)
{
    struct wait *wait = (struct wait *)((char *)l - offsetof(struct wait, listener));

    answer_wait(wait);
}

static void on_wait_close(struct agent_request *req, uint32_t code)
{
    struct wait *wait = req->ctx;

    (void)code;
    wait->req = NULL; /* the run goes on without us */
    end_wait(wait);
}

static const struct agent_request_cbs wait_cbs = {.on_close = on_wait_close};

struct run_order {
    const char *command; /* borrowed, or from decoded */
    size_t len;
    uint8_t *decoded;
    int64_t wait_ms, rows, cols;
    json_t *env;
    bool b64;
};

static bool parse_run(struct agent_request *req, json_t *body, struct run_order *o)
{
    const char *encoded = NULL;

    *o = (struct run_order){.wait_ms = DEFAULT_WAIT_MS};
    if (!agent_json_string(req, body, "command", &o->command) ||
        !agent_json_string(req, body, "command_b64", &encoded) ||
        !agent_json_int(req, body, "wait_ms", 0, MAX_WAIT_MS, &o->wait_ms) ||
        !agent_json_int(req, body, "rows", 1, MAX_SIZE, &o->rows) ||
        !agent_json_int(req, body, "cols", 1, MAX_SIZE, &o->cols) ||
        !agent_json_bool(req, body, "output_b64", &o->b64) ||
        !agent_json_env(req, body, "env", &o->env))
        return false;
    if ((o->command == NULL) == (encoded == NULL)) {
        agent_request_error(req, 400, NULL, "either command or command_b64 is needed");
        return false;
    }
    if (encoded != NULL) {
        if (agent_base64_decode(encoded, &o->decoded, &o->len) != 0 ||
            memchr(o->decoded, '\0', o->len) != NULL) {
            agent_request_error(req, 400, NULL, "command_b64 must be base 64 of bytes without NUL");
            return false;
        }
        o->command = (const char *)o->decoded;
    } else {
        o->len = strlen(o->command);
    }
    if (strspn(o->command, " \t\n") == o->len) {
        agent_request_error(req, 400, NULL, "the command is empty");
        return false;
    }
    return true;
}

static bool wants_b64(struct agent_request *req)
{
    const struct agent_text *text = agent_target_query(&req->target, "b64");

    return text != NULL && strcmp(text->at, "1") == 0;
}

static void start_run(struct agent_request *req, const char *name, const struct run_order *o)
{
    struct agent *a = req->agent;
    struct agent_window *w = agent_window_find(a->windows, name);
    bool known = w != NULL;
    struct agent_run *run;
    struct err err = {0};
    struct wait *wait;
    int r;

    r = agent_window_open(a->windows, name, o->rows > 0 ? (int)o->rows : AGENT_DEFAULT_ROWS,
                          o->cols > 0 ? (int)o->cols : AGENT_DEFAULT_COLS, &w, &err);
    if (r == 0 && known && o->rows > 0 && o->cols > 0)
        r = agent_window_resize(w, (int)o->rows, (int)o->cols);
    if (r == 0)
        r = agent_run_start(w, o->command, o->len, o->env, &run, &err);
    if (r != 0) {
        agent_request_fail(req, r == UV_EBUSY ? r : UV_EIO, &err);
        return;
    }
    if (req->form != AGENT_FORM_JSON) {
        agent_window_stream_start(req, w, run, 0, o->b64 || wants_b64(req));
        agent_run_unref(run);
        return;
    }
    wait = calloc(1, sizeof(*wait));
    if (wait == NULL || uv_timer_init(a->loop, &wait->timer) != 0) {
        free(wait);
        agent_run_unref(run);
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    wait->timer.data = wait;
    wait->req = req;
    wait->window = w;
    wait->run = run;
    wait->b64 = o->b64;
    snprintf(wait->name, sizeof(wait->name), "%s", name);
    wait->listener.on_output = on_wait_output;
    wait->listener.on_close = on_wait_window_close;
    agent_window_listen(w, &wait->listener);
    req->ctx = wait;
    req->cbs = &wait_cbs;
    agent_run_on_end(run, on_run_end, wait);
    if (uv_timer_start(&wait->timer, on_wait_timer, (uint64_t)o->wait_ms, 0) != 0)
        abort(); /* fails only without a callback */
}

void agent_window_handle_run(struct agent_request *req)
{
    const char *name = window_name(req);
    json_t *body = name != NULL ? agent_request_json(req) : NULL;
    struct run_order order = {0};

    if (body != NULL && parse_run(req, body, &order) && agent_request_may_act(req))
        start_run(req, name, &order);
    if (order.decoded != NULL)
        explicit_bzero(order.decoded, order.len);
    free(order.decoded);
    json_decref(body);
}

/* ---- looking ---- */

void agent_window_handle_list(struct agent_request *req)
{
    json_t *list = json_array();

    for (struct agent_window *w = agent_window_first(req->agent->windows); w != NULL;
         w = agent_window_next(w))
        json_array_append_new(list, agent_window_json(w));
    agent_request_answer(req, 200, json_pack("{s:o}", "windows", list));
}

void agent_window_handle_get(struct agent_request *req)
{
    struct agent_window *w = find(req);
    struct agent_run_view view = {.placed = false};
    json_t *obj;

    if (w == NULL)
        return;
    if (agent_window_run(w) != NULL)
        agent_run_view(agent_window_run(w), &view);
    obj = agent_window_json(w);
    if (obj != NULL && view.placed) /* for this moment it is only named as what keeps it busy */
        json_object_set_new(obj, "last_run",
                            agent_run_json(req->agent, agent_window_run(w), agent_window_name(w)));
    agent_request_answer(req, 200, obj);
}

static json_t *record_json(struct agent *a, struct agent_run *run, const char *window)
{
    json_t *obj = agent_run_json(a, run, window);
    struct agent_run_view v;

    agent_run_view(run, &v);
    if (obj != NULL)
        json_object_set_new(obj, "command", json_string(v.command));
    agent_secrets_hide_json(a->secrets, obj); /* also those that became active since */
    return obj;
}

void agent_window_handle_runs(struct agent_request *req)
{
    struct agent_window *w = find(req);
    json_t *list = w != NULL ? json_array() : NULL;
    struct agent_run *run;

    if (w == NULL)
        return;
    for (size_t i = 0; (run = agent_window_nth_run(w, i)) != NULL; i++)
        json_array_append_new(list, record_json(req->agent, run, agent_window_name(w)));
    agent_request_answer(req, 200, json_pack("{s:o}", "runs", list));
}

void agent_window_handle_get_run(struct agent_request *req)
{
    struct agent_window *w = find(req);
    struct agent_run *run = w != NULL ? agent_window_find_run(w, req->target.params[1].at) : NULL;

    if (run != NULL)
        agent_request_answer(req, 200, record_json(req->agent, run, agent_window_name(w)));
    else if (w != NULL)
        agent_request_error(req, 404, NULL, "the window remembers no such run");
}

/* ---- output ---- */

struct viewer {
    struct agent_window_listener listener;
    struct agent_request *req;
    struct agent_window *window;
    struct agent_run *run; /* the output ends with it; NULL: with the window */
    uint64_t at;
    bool full, follow;
    bool told; /* the head was sent; until then the run has not begun */
};

static void free_viewer(struct viewer *v)
{
    if (v->window != NULL)
        agent_window_unlisten(v->window, &v->listener);
    if (v->run != NULL)
        agent_run_unref(v->run);
    v->req->cbs = NULL;
    free(v);
}

static void tell_head(struct viewer *v)
{
    uint64_t begin = agent_ring_begin(agent_window_ring(v->window));
    struct agent_run_view view = {.placed = true};
    char text[32];

    if (v->run != NULL)
        agent_run_view(v->run, &view);
    if (!view.placed)
        return;
    if (v->at < view.from)
        v->at = view.from;
    if (v->at < begin)
        v->at = begin;
    v->told = true;
    snprintf(text, sizeof(text), "%" PRIu64, v->at);
    agent_request_head(v->req, 200, "application/octet-stream", "transom-from", text);
}

/* Where the output to be sent ends by now; *last: for good. The end of a run's output is marked
 * before anything that follows it (the prompt) is in the ring. */
static uint64_t viewer_end(const struct viewer *v, bool *last)
{
    uint64_t end = agent_window_ring(v->window)->end;
    struct agent_run_view view;

    *last = !v->follow;
    if (v->run == NULL)
        return end;
    agent_run_view(v->run, &view);
    if (!view.to_final)
        return end;
    *last = true;
    return view.to < end ? view.to : end;
}

/* Returns false when the viewer is done for (and freed). */
static bool send_output(struct viewer *v)
{
    const struct agent_ring *ring = agent_window_ring(v->window);
    const uint8_t *piece;
    bool last;
    uint64_t end;

    if (!v->told)
        tell_head(v);
    if (!v->told)
        return true;
    end = viewer_end(v, &last);
    if (v->at < agent_ring_begin(ring)) {
        /* Overtaken: what comes next would not follow what was sent. The client asks again and is
         * told by transom-from where that begins. */
        agent_request_finish(v->req);
        free_viewer(v);
        return false;
    }
    while (!v->full && v->at < end) {
        size_t n = agent_ring_peek(ring, v->at, &piece);
        int r;

        if (n > 65536)
            n = 65536;
        if (n > end - v->at)
            n = (size_t)(end - v->at);
        r = agent_request_write(v->req, piece, n);
        if (r < 0) {
            free_viewer(v);
            return false;
        }
        v->at += n;
        v->full = r == 0;
    }
    if (v->at >= end && last) { /* also when the whole output was overtaken */
        agent_request_finish(v->req);
        free_viewer(v);
        return false;
    }
    return true;
}

static void on_viewer_output(struct agent_window_listener *l)
{
    struct viewer *v = (struct viewer *)l;

    if (!v->full)
        send_output(v);
}

/* What is left is sent as far as the stream takes it at once. */
static void on_viewer_window_close(struct agent_window_listener *l)
{
    struct viewer *v = (struct viewer *)l;

    v->follow = false;
    v->full = false;
    if (send_output(v)) {
        agent_request_finish(v->req);
        free_viewer(v);
    }
}

static void on_viewer_drain(struct agent_request *req)
{
    struct viewer *v = req->ctx;

    v->full = false;
    send_output(v);
}

static void on_viewer_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    free_viewer(req->ctx);
}

static const struct agent_request_cbs viewer_cbs = {.on_drain = on_viewer_drain,
                                                    .on_close = on_viewer_close};

static bool parse_offset(struct agent_request *req, const char *name, uint64_t *out)
{
    const struct agent_text *text = agent_target_query(&req->target, name);
    char *end;

    if (text == NULL)
        return true;
    *out = strtoull(text->at, &end, 10);
    if (text->len > 0 && *end == '\0' && text->at[0] >= '0' && text->at[0] <= '9')
        return true;
    agent_request_error(req, 400, NULL, "%s must be a number", name);
    return false;
}

/* ?run=ID. Returns false after answering. */
static bool find_run(struct agent_request *req, struct agent_window *w, struct agent_run **out)
{
    const struct agent_text *text = agent_target_query(&req->target, "run");

    *out = text != NULL ? agent_window_find_run(w, text->at) : NULL;
    if (text == NULL || *out != NULL)
        return true;
    agent_request_error(req, 404, "not_found", "the window remembers no such run");
    return false;
}

/* ?screen=1: what a late viewer's terminal needs, then what comes. Returns false after answering.
 */
static bool begin_with_screen(struct viewer *v)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    char from[32], replay[32];
    int r = agent_window_replay(v->window, &bytes, &len);

    if (r != 0) {
        agent_request_error(v->req, 500, NULL, "out of memory");
        free_viewer(v);
        return false;
    }
    v->at = agent_window_ring(v->window)->end;
    v->told = true;
    snprintf(from, sizeof(from), "%" PRIu64, v->at);
    snprintf(replay, sizeof(replay), "%zu", len);
    agent_request_fields(
        v->req, 200,
        (struct tr_h2_field[]){TR_H2_FIELD("content-type", "application/octet-stream"),
                               TR_H2_FIELD("transom-from", from),
                               TR_H2_FIELD("transom-replay", replay)},
        3, false);
    r = agent_request_write(v->req, bytes, len);
    free(bytes);
    v->full = r == 0;
    if (r < 0)
        free_viewer(v);
    return r >= 0;
}

void agent_window_handle_output(struct agent_request *req)
{
    struct agent_window *w = find(req);
    const struct agent_ring *ring;
    struct agent_run *run = NULL;
    uint64_t from = 0, follow = 0, screen = 0;
    struct viewer *v;

    if (w == NULL || !parse_offset(req, "from", &from) || !parse_offset(req, "follow", &follow) ||
        !parse_offset(req, "screen", &screen))
        return;
    if (!find_run(req, w, &run))
        return;
    ring = agent_window_ring(w);
    if (from > ring->end) {
        agent_request_error(req, 416, "out_of_range", "the window's output ends at %" PRIu64,
                            ring->end);
        return;
    }
    if (req->form != AGENT_FORM_JSON && run != NULL) {
        agent_window_stream_start(req, w, run, from, wants_b64(req));
        return;
    }
    v = calloc(1, sizeof(*v));
    if (v == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    v->req = req;
    v->window = w;
    v->run = run;
    if (run != NULL)
        agent_run_ref(run);
    v->follow = follow != 0;
    v->at = from;
    v->listener.on_output = on_viewer_output;
    v->listener.on_close = on_viewer_window_close;
    agent_window_listen(w, &v->listener);
    req->ctx = v;
    req->cbs = &viewer_cbs;
    if (screen != 1 || run != NULL || begin_with_screen(v))
        send_output(v);
}

/* ---- input ---- */

struct typist {
    struct agent_window_listener listener;
    struct agent_request *req;
    struct agent_window *window; /* NULL once it is closed */
    size_t owed;                 /* bytes not yet given back to the stream */
};

static void give_back(struct typist *t)
{
    size_t n = t->owed;

    t->owed = 0;
    if (n > 0)
        agent_request_consume(t->req, n);
}

static void on_typist_output(struct agent_window_listener *l)
{
    (void)l;
}

static void on_typist_drain(struct agent_window_listener *l)
{
    give_back((struct typist *)l);
}

static void on_typist_window_close(struct agent_window_listener *l)
{
    struct typist *t = (struct typist *)l;

    t->window = NULL;
    give_back(t);
}

static void on_typed(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct typist *t = req->ctx;
    size_t waiting = t->window != NULL ? agent_window_input(t->window, data, len) : 0;

    t->owed += len;
    if (waiting < INPUT_HIGH)
        give_back(t);
}

static void free_typist(struct typist *t)
{
    if (t->window != NULL)
        agent_window_unlisten(t->window, &t->listener);
    t->req->cbs = NULL;
    free(t);
}

static void on_typist_end(struct agent_request *req)
{
    struct typist *t = req->ctx;
    bool closed = t->window == NULL;

    free_typist(t);
    if (closed)
        agent_request_error(req, 409, NULL, "the window was closed");
    else
        agent_request_empty(req, 204);
}

static void on_typist_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    free_typist(req->ctx);
}

static const struct agent_request_cbs typist_cbs = {
    .on_data = on_typed, .on_end = on_typist_end, .on_close = on_typist_close};

void agent_window_handle_input(struct agent_request *req)
{
    struct agent_window *w = find(req);
    struct typist *t;

    if (w == NULL)
        return;
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    t->req = req;
    t->window = w;
    t->listener.on_output = on_typist_output;
    t->listener.on_input_drain = on_typist_drain;
    t->listener.on_close = on_typist_window_close;
    agent_window_listen(w, &t->listener);
    req->ctx = t;
    req->cbs = &typist_cbs;
    if (req->body_ended)
        on_typist_end(req);
}

void agent_window_handle_open(struct agent_request *req)
{
    const char *name = window_name(req);
    json_t *body = name != NULL ? agent_request_json(req) : NULL;
    int64_t rows = 0, cols = 0;
    struct agent_window *w;
    struct err err = {0};
    bool known;
    int r;

    if (body == NULL)
        return;
    if (agent_json_int(req, body, "rows", 1, MAX_SIZE, &rows) &&
        agent_json_int(req, body, "cols", 1, MAX_SIZE, &cols) && agent_request_may_act(req)) {
        known = agent_window_find(req->agent->windows, name) != NULL;
        r = agent_window_open(req->agent->windows, name, rows > 0 ? (int)rows : AGENT_DEFAULT_ROWS,
                              cols > 0 ? (int)cols : AGENT_DEFAULT_COLS, &w, &err);
        if (r == 0 && known && rows > 0 && cols > 0)
            r = agent_window_resize(w, (int)rows, (int)cols);
        if (r == 0)
            agent_request_answer(req, known ? 200 : 201, agent_window_json(w));
        else
            agent_request_fail(req, r == UV_EBUSY ? r : UV_EIO, &err);
    }
    json_decref(body);
}

void agent_window_handle_resize(struct agent_request *req)
{
    struct agent_window *w = find(req);
    json_t *body = w != NULL ? agent_request_json(req) : NULL;
    int64_t rows = 0, cols = 0;
    int r;

    if (body == NULL)
        return;
    if (agent_json_int(req, body, "rows", 1, MAX_SIZE, &rows) &&
        agent_json_int(req, body, "cols", 1, MAX_SIZE, &cols)) {
        if (rows == 0 || cols == 0) {
            agent_request_error(req, 400, NULL, "rows and cols are needed");
        } else {
            r = agent_window_resize(w, (int)rows, (int)cols);
            if (r == 0)
                agent_request_empty(req, 204);
            else
                agent_request_fail(req, r, NULL);
        }
    }
    json_decref(body);
}

/* ---- closing ---- */

static void on_closer_gone(struct agent_request *req, uint32_t code)
{
    struct agent_request **slot = req->ctx;

    (void)code;
    *slot = NULL;
}

static const struct agent_request_cbs closer_cbs = {.on_close = on_closer_gone};

static void on_window_gone(struct agent_run *run, void *arg)
{
    struct agent_request **slot = arg;

    (void)run;
    if (*slot != NULL) {
        (*slot)->cbs = NULL;
        agent_request_empty(*slot, 204);
    }
    free(slot);
}

void agent_window_handle_close(struct agent_request *req)
{
    struct agent_window *w = find(req);
    struct agent_request **slot = w != NULL ? malloc(sizeof(struct agent_request *)) : NULL;

    if (w == NULL)
        return;
    if (slot != NULL) {
        *slot = req;
        req->ctx = slot;
        req->cbs = &closer_cbs;
    }
    agent_window_close(w, "request", slot != NULL ? on_window_gone : NULL, slot);
    if (slot == NULL)
        agent_request_empty(req, 204);
}
