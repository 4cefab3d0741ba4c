/* SPDX-License-Identifier: MIT */
/* Path: head -> (the run begins) start -> output, gap, listen -> (it has ended, all is sent) end.
 * The ring is read as fast as the client takes it. The window waits for one that takes steadily, as
 * a pipe would; one that stops costs nothing but gaps. */
#include "vmm/agent/window_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/utf8.h"
#include "vmm/agent/window_api.h"

#define MAX_PIECE   16384 /* bytes of one output event */
#define PATIENCE_MS 2000  /* for a client to take the next of what is queued for it */

struct stream {
    struct agent_window_listener listener;
    struct agent_request *req;
    struct agent_window *window;
    struct agent_run *run;
    uint64_t at;       /* next byte to send */
    uint64_t taken_at; /* loop's clock: when the client last took what was queued */
    bool started, full, b64;
    bool closing; /* the window goes: all that is left is sent now */
};

static void free_stream(struct stream *s)
{
    agent_window_unlisten(s->window, &s->listener);
    agent_run_unref(s->run);
    s->req->cbs = NULL;
    free(s);
}

/* r: of the last write. Returns false when the client is gone: the stream is freed. */
static bool written(struct stream *s, int r)
{
    if (r < 0) {
        agent_request_error(s->req, 500, NULL, "the stream cannot be continued"); /* a reset */
        free_stream(s);
        return false;
    }
    s->full = r == 0;
    return true;
}

static enum agent_run_frame frame_kind(const char *type)
{
    return strcmp(type, "start") == 0    ? AGENT_RUN_FRAME_START
           : strcmp(type, "end") == 0    ? AGENT_RUN_FRAME_END
           : strcmp(type, "listen") == 0 ? AGENT_RUN_FRAME_LISTEN
                                         : AGENT_RUN_FRAME_GAP;
}

static int write_frame(struct stream *s, enum agent_run_frame kind, const void *data, size_t len)
{
    const uint8_t head[] = {(uint8_t)kind, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
                            (uint8_t)(len >> 8), (uint8_t)len};
    int r = agent_request_write(s->req, head, sizeof(head));

    return r < 0 ? r : agent_request_write(s->req, data, len);
}

/* As a line, or as a server-sent event. */
static int write_text(struct stream *s, const char *type, const char *text)
{
    bool sse = s->req->form == AGENT_FORM_SSE;
    char head[96];
    int r = 1;

    snprintf(head, sizeof(head), "event: %s\nid: %" PRIu64 "\ndata: ", type, s->at);
    if (sse)
        r = agent_request_write(s->req, head, strlen(head));
    if (r >= 0)
        r = agent_request_write(s->req, text, strlen(text));
    return r < 0 ? r : agent_request_write(s->req, "\n\n", sse ? 2 : 1);
}

/* obj is stolen. Returns false when the client is gone: the stream is freed. */
static bool emit(struct stream *s, const char *type, json_t *obj)
{
    char *text = NULL;
    int r = UV_ENOMEM;

    if (obj != NULL && json_object_set_new(obj, "type", json_string(type)) == 0)
        text = json_dumps(obj, JSON_COMPACT);
    json_decref(obj);
    if (text != NULL)
        r = s->req->form == AGENT_FORM_FRAMES ? write_frame(s, frame_kind(type), text, strlen(text))
                                              : write_text(s, type, text);
    free(text);
    return written(s, r);
}

size_t agent_whole_characters(const uint8_t *bytes, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint8_t c = bytes[len - back];
        size_t needed = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if ((c & 0xc0) != 0x80)
            return needed > back && c < 0xf5 ? len - back : len;
    }
    return len;
}

static json_t *output_json(const struct stream *s, const uint8_t *bytes, size_t n)
{
    size_t len = 0;
    char *text = agent_utf8_repair((const char *)bytes, n, &len);
    char *b64 = s->b64 ? agent_base64_encode(bytes, n) : NULL;
    json_t *obj = NULL;

    if (text != NULL && (b64 != NULL || !s->b64))
        obj = json_pack("{s:I,s:I,s:o,s:s*}", "from", (json_int_t)s->at, "to",
                        (json_int_t)s->at + (json_int_t)n, "data", json_stringn(text, len),
                        "data_b64", b64);
    free(text);
    free(b64);
    return obj;
}

/* The next output or gap up to end; last: nothing comes behind it. Returns 0: there is none. */
static int emit_next(struct stream *s, uint64_t end, bool last)
{
    const struct agent_ring *ring = agent_window_ring(s->window);
    uint64_t begin = agent_ring_begin(ring), from = s->at;
    uint8_t bytes[MAX_PIECE];
    size_t n, whole;
    json_t *obj;
    int r;

    if (s->at >= end)
        return 0;
    if (s->at < begin) {
        s->at = begin < end ? begin : end;
        return emit(s, "gap",
                    json_pack("{s:I,s:I}", "from", (json_int_t)from, "to", (json_int_t)s->at))
                   ? 1
                   : -1;
    }
    n = end - s->at < MAX_PIECE ? (size_t)(end - s->at) : MAX_PIECE;
    agent_ring_copy(ring, s->at, s->at + n, bytes);
    if (s->req->form == AGENT_FORM_FRAMES) {
        r = write_frame(s, AGENT_RUN_FRAME_OUTPUT, bytes, n);
        s->at += n;
        return written(s, r) ? 1 : -1;
    }
    whole = last && s->at + n == end ? n : agent_whole_characters(bytes, n);
    if (whole == 0)
        return 0;
    obj = output_json(s, bytes, whole);
    s->at += whole;
    return emit(s, "output", obj) ? 1 : -1;
}

static bool emit_start(struct stream *s, const struct agent_run_view *v)
{
    if (s->at < v->from)
        s->at = v->from;
    s->started = true;
    if (!emit(s, "start",
              json_pack("{s:s,s:s,s:I}", "run_id", v->id, "window", agent_window_name(s->window),
                        "from", (json_int_t)v->from)))
        return false;
    return !v->previews || emit(s, "listen", agent_listen_json(s->req->agent, AGENT_PREVIEW_PORT));
}

/* Send what there is. */
static void go_on(struct stream *s)
{
    struct agent_run_view v;
    bool ended;
    int r = 1;

    agent_run_view(s->run, &v);
    ended = v.status != AGENT_RUNNING;
    if (!v.placed || (s->full && !s->closing) || (!s->started && !emit_start(s, &v)))
        return;
    while (r > 0 && (!s->full || s->closing))
        r = emit_next(s, v.to, ended);
    if (r < 0 || !ended || s->at < v.to)
        return;
    if (!emit(s, "end", agent_run_json(s->req->agent, s->run, agent_window_name(s->window))))
        return;
    agent_request_finish(s->req);
    free_stream(s);
}

static void on_output(struct agent_window_listener *l)
{
    go_on((struct stream *)l);
}

static void on_listen(struct agent_window_listener *l, const struct agent_run *run, uint16_t port)
{
    struct stream *s = (struct stream *)l;

    if (run == s->run && s->started)
        (void)emit(s, "listen", agent_listen_json(s->req->agent, port));
}

/* Its runs have ended. */
static void on_window_close(struct agent_window_listener *l)
{
    struct stream *s = (struct stream *)l;

    s->closing = true;
    go_on(s);
}

static uint64_t lag(const struct agent_window_listener *l)
{
    const struct stream *s = (const struct stream *)l;
    struct agent_run_view v;

    if (!s->full || uv_now(s->req->agent->loop) - s->taken_at > PATIENCE_MS)
        return 0;
    agent_run_view(s->run, &v);
    return v.to > s->at ? v.to - s->at : 0;
}

static void on_drain(struct agent_request *req)
{
    struct stream *s = req->ctx;
    struct agent_window *w = s->window;

    s->full = false;
    s->taken_at = uv_now(req->agent->loop);
    go_on(s); /* may free it */
    agent_window_caught_up(w);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    free_stream(req->ctx);
}

static const struct agent_request_cbs stream_cbs = {.on_drain = on_drain, .on_close = on_close};

void agent_window_stream_start(struct agent_request *req, struct agent_window *w,
                               struct agent_run *run, uint64_t from, bool b64)
{
    struct stream *s = calloc(1, sizeof(*s));
    struct agent_run_view v;

    if (s == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    s->listener.on_output = on_output;
    s->listener.on_listen = on_listen;
    s->listener.lag = lag;
    s->listener.on_close = on_window_close;
    s->req = req;
    s->window = w;
    s->run = run;
    s->at = from;
    s->taken_at = uv_now(req->agent->loop);
    s->b64 = b64;
    agent_run_ref(run);
    agent_window_listen(w, &s->listener);
    req->ctx = s;
    req->cbs = &stream_cbs;
    agent_run_view(run, &v);
    agent_request_head(req, 200,
                       req->form == AGENT_FORM_SSE      ? "text/event-stream"
                       : req->form == AGENT_FORM_FRAMES ? AGENT_RUN_TYPE
                                                        : "application/x-ndjson",
                       "transom-run", v.id);
    go_on(s);
}
