/* SPDX-License-Identifier: MIT */
/* An API stream carried on to an agent's stream and back, with nothing in between but what flow
 * control lets through.
 *
 * Path: the sandbox starts (or runs) -> its agent is ready -> a stream to it -> bytes both ways ->
 * both sides end. Until there is a stream, the client's body waits in its own window. Client gone:
 * the agent's stream is cancelled. Agent's stream lost: 502 before the head, a reset after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/machine.h"
#include "vmm/reach.h"
#include "vmm/router.h"
#include "vmm/server.h"
#include "vmm/vmm.h"

#define REST_MAX_MS 10000 /* for a client to end its body after the answer */
#define FIELDS_MAX  32

#define CODE_NO_ERROR 0
#define CODE_INTERNAL 2
#define CODE_CANCEL   8

enum stage {
    STAGE_REACH, /* the agent is not ready yet; on_reached() goes on */
    STAGE_OPEN,  /* up is valid */
    STAGE_OVER,  /* the agent's side is done with */
};

struct forward {
    struct vmm *vmm;
    struct vmm_request *req; /* with a reference; its st is NULL once the client is gone */
    enum stage stage;
    char *path; /* at the agent */
    struct vmm_reach reach;
    struct tr_h2_stream *up;
    uint8_t *held; /* body that came before there was a stream; at most one window */
    size_t held_len, held_size;
    size_t client_owes; /* bytes to give back to the client when the agent drains */
    size_t agent_owes;  /* and the other way */
    bool ended;         /* the agent's response is complete */
};

static void touch(const struct forward *f)
{
    const struct vmm_sandbox *sb;

    if (!f->req->endpoint->activity)
        return;
    sb = vmm_reach_sandbox(&f->reach);
    if (sb != NULL)
        vmm_machine_touch(sb);
}

/* Free it when neither side can call any more. */
static void maybe_free(struct forward *f)
{
    if (f->req->st != NULL || f->stage != STAGE_OVER)
        return;
    f->req->arg = NULL;
    vmm_request_unref(f->req);
    free(f->path);
    free(f->held);
    free(f);
}

/* The end without a stream to the agent; the request was answered. */
static void give_up(struct forward *f)
{
    f->stage = STAGE_OVER;
    free(f->held);
    f->held = NULL;
    maybe_free(f);
}

/* ---- from the agent ---- */

static size_t copy_fields(const struct tr_h2_head *head, struct tr_h2_field *out, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; head != NULL && i < head->n_fields && n < max; i++)
        out[n++] = head->fields[i];
    return n;
}

static void up_head(struct tr_h2_stream *up, const struct tr_h2_head *head, bool end, void *arg)
{
    struct forward *f = arg;
    struct tr_h2_field fields[FIELDS_MAX];
    size_t n = copy_fields(head, fields, FIELDS_MAX);

    if (f->req->st == NULL)
        return;
    if (head->status >= 200)
        vmm_request_answered(f->req, head->status);
    if (tr_h2_respond(f->req->st, head->status, fields, n, end) != 0) {
        tr_h2_reset(f->req->st, CODE_INTERNAL);
        tr_h2_reset(up, CODE_CANCEL);
    }
}

static void up_data(struct tr_h2_stream *up, const uint8_t *data, size_t len, void *arg)
{
    struct forward *f = arg;
    int r = f->req->st == NULL ? -1 : tr_h2_write(f->req->st, data, len);

    if (r == 0)
        f->agent_owes += len;
    else
        tr_h2_stream_consume(up, len); /* also when the client is gone: the stream is ending */
}

static void up_end(struct tr_h2_stream *up, const struct tr_h2_head *trailers, void *arg)
{
    struct forward *f = arg;
    struct tr_h2_field fields[FIELDS_MAX];
    size_t n = copy_fields(trailers, fields, FIELDS_MAX);

    (void)up;
    f->ended = true;
    if (f->req->st == NULL)
        return;
    tr_h2_end(f->req->st, fields, n);
    if (!f->req->ended && f->req->deadline_ms == 0)
        f->req->deadline_ms = uv_now(f->vmm->loop) + REST_MAX_MS; /* nobody reads it any more */
}

static void up_drain(struct tr_h2_stream *up, void *arg)
{
    struct forward *f = arg;
    size_t n = f->client_owes;

    (void)up;
    f->client_owes = 0;
    if (f->req->st != NULL && n > 0)
        tr_h2_stream_consume(f->req->st, n);
}

static void up_close(struct tr_h2_stream *up, uint32_t code, void *arg)
{
    struct forward *f = arg;
    const struct vmm_sandbox *sb = vmm_reach_sandbox(&f->reach);

    (void)up;
    f->up = NULL;
    touch(f);
    if (f->req->st != NULL && !f->req->answered) {
        if (sb != NULL && sb->state != TR_SANDBOX_RUNNING)
            vmm_reply_error(f->req, 502, "the machine ended%s%s", *sb->reason ? ": " : "",
                            sb->reason);
        else
            vmm_reply_error(f->req, 502, "the connection to the sandbox's agent was lost (code %u)",
                            code);
    } else if (f->req->st != NULL && !f->ended) {
        tr_h2_reset(f->req->st, code == CODE_NO_ERROR ? CODE_INTERNAL : code);
    }
    give_up(f);
}

static const struct tr_h2_stream_cbs up_cbs = {.on_head = up_head,
                                               .on_data = up_data,
                                               .on_end = up_end,
                                               .on_drain = up_drain,
                                               .on_close = up_close};

/* ---- from the client ---- */

static void hold(struct forward *f, const uint8_t *data, size_t len)
{
    size_t size = f->held_size ? f->held_size : 4096;
    uint8_t *grown;

    while (size < f->held_len + len)
        size *= 2;
    grown = size == f->held_size ? f->held : realloc(f->held, size);
    if (grown == NULL) {
        vmm_reply_error(f->req, 503, "out of memory");
        return;
    }
    f->held = grown;
    f->held_size = size;
    memcpy(f->held + f->held_len, data, len);
    f->held_len += len;
}

static void send_up(struct forward *f, const uint8_t *data, size_t len)
{
    int r = tr_h2_write(f->up, data, len);

    if (r == 0)
        f->client_owes += len;
    else if (r > 0)
        tr_h2_stream_consume(f->req->st, len);
    else
        vmm_request_drop(f->req, len); /* the agent wants no more */
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    struct forward *f = req->arg;

    if (f->stage == STAGE_OPEN)
        send_up(f, data, len);
    else if (f->stage == STAGE_OVER || req->answered)
        vmm_request_drop(req, len);
    else
        hold(f, data, len); /* not given back: the client may send one window, no more */
}

static void on_end(struct vmm_request *req, const struct tr_h2_head *trailers)
{
    struct forward *f = req->arg;
    struct tr_h2_field fields[FIELDS_MAX];

    if (f->stage == STAGE_OPEN)
        tr_h2_end(f->up, fields, copy_fields(trailers, fields, FIELDS_MAX));
}

static void on_drain(struct vmm_request *req)
{
    struct forward *f = req->arg;
    size_t n = f->agent_owes;

    f->agent_owes = 0;
    if (f->up != NULL && n > 0)
        tr_h2_stream_consume(f->up, n);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct forward *f = req->arg;

    (void)code;
    switch (f->stage) {
    case STAGE_REACH:
        if (vmm_reach_cancel(&f->reach))
            give_up(f);
        return; /* else on_reached() does */
    case STAGE_OPEN:
        if (!f->ended)
            tr_h2_reset(f->up, CODE_CANCEL); /* up_close() frees */
        return;
    case STAGE_OVER:
        maybe_free(f);
        return;
    }
}

static const struct vmm_request_cbs client_cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_gone = on_gone};

/* ---- opening ---- */

static void open_up(struct forward *f, struct tr_h2 *h2)
{
    static const char *const passed[] = {"content-type", "content-length", "content-range",
                                         "accept",       "range",          "if-range"};
    const struct vmm_endpoint *e = f->req->endpoint;
    struct tr_h2_field fields[12] = {
        TR_H2_FIELD(":method", e->method),       TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "agent"),      TR_H2_FIELD(":path", f->path),
        TR_H2_FIELD("x-request-id", f->req->id),
    };
    bool has_body = e->body != VMM_BODY_NONE;
    size_t n = 5;
    int r;

    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
        const char *value = tr_h2_head_get(f->req->head, passed[i]);

        if (value != NULL && (has_body || i > 2)) {
            fields[n].name = passed[i];
            fields[n].name_len = strlen(passed[i]);
            fields[n].value = value;
            fields[n++].value_len = strlen(value);
        }
    }
    if (*f->req->trace)
        fields[n++] = TR_H2_FIELD("traceparent", f->req->trace);
    r = tr_h2_request(h2, fields, n, !has_body, &up_cbs, f, &f->up);
    if (r != 0) {
        vmm_reply_error(f->req, 503, "%s",
                        r == UV_EAGAIN ? "too many requests are under way in this sandbox"
                                       : "the sandbox's agent cannot be asked");
        give_up(f);
        return;
    }
    f->stage = STAGE_OPEN;
    touch(f);
    if (e->body == VMM_BODY_JSON) {
        if (f->req->raw_len > 0)
            (void)!tr_h2_write(f->up, f->req->raw, f->req->raw_len);
        tr_h2_end(f->up, NULL, 0);
    } else if (has_body) {
        if (f->held_len > 0)
            send_up(f, f->held, f->held_len);
        free(f->held);
        f->held = NULL;
        if (f->req->ended)
            tr_h2_end(f->up, NULL, 0);
    }
}

static void on_reached(struct vmm_reach *reach, struct tr_h2 *h2)
{
    struct forward *f = (struct forward *)((char *)reach - offsetof(struct forward, reach));

    if (h2 != NULL)
        open_up(f, h2);
    else
        give_up(f);
}

/* "/v1/sessions/S/sandboxes/N/REST?QUERY" -> "/v1/REST?QUERY", escapes untouched. */
static char *agent_path(const struct vmm_request *req)
{
    const char *rest = req->path;
    char *out;

    for (int i = 0; i < 5; i++)
        rest = strchr(rest + 1, '/');
    if (asprintf(&out, "/v1%s%s%s", rest, *req->query ? "?" : "", req->query) < 0)
        return NULL;
    return out;
}

/* Endpoints that never start a sandbox, while it is not up. Returns true when answered. */
static bool answer_asleep(struct vmm_request *req)
{
    const struct vmm_endpoint *e = req->endpoint;
    enum tr_sandbox_state state = req->sandbox->state;

    if (state == TR_SANDBOX_RUNNING || state == TR_SANDBOX_STARTING)
        return false;
    switch (e->asleep) {
    case VMM_ASLEEP_EMPTY:
        vmm_reply_bytes(req, 200, "application/json", e->empty, strlen(e->empty));
        return true;
    case VMM_ASLEEP_404:
        vmm_reply_error(req, 404, "the sandbox is %s: there is no such thing in it",
                        tr_sandbox_state_name(state));
        return true;
    case VMM_ASLEEP_204:
        vmm_reply_empty(req, 204);
        return true;
    case VMM_ASLEEP_START:
        break;
    }
    if (req->who.scope < VMM_SCOPE_SESSION) {
        vmm_reply_error(req, 403, "the sandbox is %s, and this key may not start it",
                        tr_sandbox_state_name(state));
        return true;
    }
    return false;
}

void vmm_api_forward(struct vmm_request *req)
{
    struct forward *f;

    if (answer_asleep(req))
        return;
    f = calloc(1, sizeof(*f));
    if (f == NULL || (f->path = agent_path(req)) == NULL) {
        free(f);
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    f->vmm = req->vmm;
    f->req = vmm_request_ref(req);
    req->cbs = &client_cbs;
    req->arg = f;
    f->stage = STAGE_REACH;
    vmm_reach_start(&f->reach, req, on_reached);
}
