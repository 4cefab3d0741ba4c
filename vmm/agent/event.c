/* SPDX-License-Identifier: MIT */
/* Each subscriber has a number it stands at; lines are written while its stream takes them, so a
 * slow one costs nothing but its place. */
#include "vmm/agent/event.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/stats.h"

#define MAX_KEPT 4096

struct subscriber {
    struct subscriber *next;
    struct agent_request *req;
    struct agent_events *events;
    uint64_t at; /* next number to send */
    bool full;   /* the stream said stop */
};

struct agent_events {
    struct agent *agent;
    uint64_t next;         /* number of the next event; the first is 1 */
    char *lines[MAX_KEPT]; /* line of event n at n % MAX_KEPT */
    struct subscriber *subscribers;
};

int agent_events_new(struct agent *a, struct agent_events **out)
{
    struct agent_events *ev = calloc(1, sizeof(*ev));

    if (ev == NULL)
        return UV_ENOMEM;
    ev->agent = a;
    ev->next = 1;
    *out = ev;
    return 0;
}

void agent_events_free(struct agent_events *ev)
{
    for (size_t i = 0; i < MAX_KEPT; i++)
        free(ev->lines[i]);
    free(ev);
}

static uint64_t oldest(const struct agent_events *ev)
{
    return ev->next > MAX_KEPT ? ev->next - MAX_KEPT : 1;
}

static void send_lines(struct subscriber *s)
{
    struct agent_events *ev = s->events;

    if (s->at < oldest(ev)) {
        char gap[128];

        snprintf(gap, sizeof(gap), "{\"type\":\"gap\",\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}\n",
                 s->at, oldest(ev) - 1);
        s->at = oldest(ev);
        s->full = agent_request_write(s->req, gap, strlen(gap)) != 1;
    }
    while (!s->full && s->at < ev->next) {
        const char *line = ev->lines[s->at++ % MAX_KEPT];

        if (line != NULL)
            s->full = agent_request_write(s->req, line, strlen(line)) != 1;
    }
}

bool agent_events_are_read(const struct agent_events *ev)
{
    return ev->subscribers != NULL;
}

void agent_event(struct agent *a, const char *type, json_t *fields)
{
    struct agent_events *ev = a->events;
    uint64_t seq = ev->next++;
    char **slot = &ev->lines[seq % MAX_KEPT];
    json_t *obj = json_pack("{s:I,s:I,s:I,s:s}", "seq", (json_int_t)seq, "t_ms",
                            (json_int_t)agent_uptime_ms(), "time_ms", (json_int_t)agent_wall_ms(),
                            "type", type);
    char *text = NULL;

    agent_secrets_hide_json(a->secrets, fields);
    if (obj != NULL && (fields == NULL || json_object_update(obj, fields) == 0))
        text = json_dumps(obj, JSON_COMPACT);
    json_decref(obj);
    json_decref(fields);
    free(*slot);
    *slot = NULL;
    if (text != NULL) {
        size_t len = strlen(text);
        char *line = realloc(text, len + 2);

        if (line != NULL) {
            memcpy(line + len, "\n", 2);
            *slot = line;
        } else {
            free(text);
        }
    }
    if (*slot == NULL)
        log_error("event %s lost: out of memory", type);
    for (struct subscriber *s = ev->subscribers; s != NULL; s = s->next)
        send_lines(s);
}

static void on_drain(struct agent_request *req)
{
    struct subscriber *s = req->ctx;

    s->full = false;
    send_lines(s);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    struct subscriber *s = req->ctx, **p = &s->events->subscribers;

    (void)code;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    free(s);
}

static const struct agent_request_cbs subscriber_cbs = {.on_drain = on_drain, .on_close = on_close};

void agent_events_handle(struct agent_request *req)
{
    struct agent_events *ev = req->agent->events;
    const struct agent_text *since = agent_target_query(&req->target, "since");
    struct subscriber *s;
    uint64_t at = ev->next;

    if (since != NULL) {
        char *end;

        at = strtoull(since->at, &end, 10);
        if (since->len == 0 || *end != '\0' || since->at[0] == '-' || at == UINT64_MAX) {
            agent_request_error(req, 400, NULL, "since must be the number of an event");
            return;
        }
        at++;
        if (at > ev->next) /* of an earlier boot: all that is kept is news */
            at = 1;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    s->req = req;
    s->events = ev;
    s->at = at;
    s->next = ev->subscribers;
    ev->subscribers = s;
    req->ctx = s;
    req->cbs = &subscriber_cbs;
    agent_request_head(req, 200, "application/x-ndjson", NULL, NULL);
    agent_stats_wake(req->agent->stats);
    send_lines(s);
}
