/* SPDX-License-Identifier: MIT */
/* /v1/events: server-sent events. A reader that is slower than the events is told what it missed,
 * and slows nobody. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/vmm.h"

struct watcher {
    struct vmm_listener listener;
    struct vmm_request *req; /* borrowed: lives until on_gone() */
    uint64_t at;             /* id of the last event sent */
    bool full;               /* wait for on_drain() */
};

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct watcher *w = req->arg;

    (void)code;
    vmm_events_unlisten(&req->vmm->events, &w->listener);
    free(w);
}

static void send_text(struct watcher *w, const char *text)
{
    int r = tr_h2_write(w->req->st, text, strlen(text));

    if (r == 0)
        w->full = true;
    else if (r < 0)
        tr_h2_reset(w->req->st, 2 /* INTERNAL_ERROR */);
    if (r < 0)
        w->full = true;
}

static void pump(struct watcher *w)
{
    const struct vmm_events *events = &w->req->vmm->events;
    const char *owner = w->req->who.scope == VMM_SCOPE_ADMIN ? NULL : w->req->who.owner;
    uint64_t horizon = vmm_events_horizon(events);
    const struct vmm_event *ev;
    char text[256];

    if (w->at < horizon && !w->full) {
        snprintf(text, sizeof(text),
                 "id: %" PRIu64 "\nevent: gap\ndata: {\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}\n\n",
                 horizon, w->at, horizon);
        w->at = horizon;
        send_text(w, text);
    }
    while (!w->full && (ev = vmm_events_next(events, w->at, owner)) != NULL) {
        size_t size = strlen(ev->text) + 128;
        char *line = malloc(size);

        if (line == NULL)
            return; /* the next event tries again */
        snprintf(line, size, "id: %" PRIu64 "\nevent: %s\ndata: %s\n\n", ev->id, ev->type,
                 ev->text);
        w->at = ev->id;
        send_text(w, line);
        free(line);
    }
}

static void on_drain(struct vmm_request *req)
{
    struct watcher *w = req->arg;

    w->full = false;
    pump(w);
}

static void on_wake(struct vmm_listener *listener)
{
    struct watcher *w = (struct watcher *)listener;

    if (w->req->st != NULL)
        pump(w);
}

static void on_beat(struct vmm_listener *listener)
{
    struct watcher *w = (struct watcher *)listener;

    if (w->req->st != NULL && !w->full)
        send_text(w, ":\n\n");
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    (void)data;
    tr_h2_stream_consume(req->st, len);
}

static const struct vmm_request_cbs watcher_cbs = {
    .on_data = on_data, .on_drain = on_drain, .on_gone = on_gone};

void vmm_api_events(struct vmm_request *req)
{
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD("content-type", "text/event-stream"),
        TR_H2_FIELD("cache-control", "no-store"),
    };
    char *since = vmm_query_get(req->query, "since");
    const char *last = tr_h2_head_get(req->head, "last-event-id"); /* a browser that comes back */
    const char *text = since != NULL ? since : last;
    uint64_t at = req->vmm->events.last_id;
    struct watcher *w;
    char *end = NULL;

    if (text != NULL && *text) {
        at = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end) {
            vmm_reply_error(req, 400, "\"since\" must be the id of an event");
            free(since);
            return;
        }
    }
    free(since);
    w = calloc(1, sizeof(*w));
    if (w == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    vmm_request_answered(req, 200);
    if (tr_h2_respond(req->st, 200, fields, 2, false) != 0) {
        free(w);
        tr_h2_reset(req->st, 2 /* INTERNAL_ERROR */);
        return;
    }
    w->listener.wake = on_wake;
    w->listener.beat = on_beat;
    w->req = req;
    w->at = at;
    req->cbs = &watcher_cbs;
    req->arg = w;
    vmm_events_listen(&req->vmm->events, &w->listener);
    send_text(w, ": transom\n\n"); /* so that the head leaves at once everywhere */
    pump(w);
}
