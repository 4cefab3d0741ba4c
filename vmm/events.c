/* SPDX-License-Identifier: MIT */
#include "vmm/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vmm_event *at(const struct vmm_events *events, size_t i)
{
    return (struct vmm_event *)&events->ring[(events->first + i) % VMM_EVENTS_KEPT];
}

void vmm_events_fini(struct vmm_events *events)
{
    for (size_t i = 0; i < events->n; i++)
        free(at(events, i)->text);
    events->n = 0;
}

static const struct vmm_event *add(struct vmm_events *events, const char *type, const char *owner,
                                   const char *key, json_t *members)
{
    int64_t now = vmm_wall_ms();
    uint64_t id = (uint64_t)now * 1000;
    char time[VMM_TIME_SIZE];
    struct vmm_listener *next;
    struct vmm_event *ev;
    json_t *object;
    char *text;

    if (id <= events->last_id)
        id = events->last_id + 1;
    vmm_time_text(now, time);
    object = json_pack("{sI, ss, ss, ss, ss}", "id", (json_int_t)id, "time", time, "type", type,
                       "owner", owner, "node", events->node);
    if (object == NULL || (members != NULL && json_object_update(object, members) != 0)) {
        json_decref(object);
        json_decref(members);
        return NULL;
    }
    text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    json_decref(members);
    if (text == NULL)
        return NULL;
    if (events->n == VMM_EVENTS_KEPT) {
        free(at(events, 0)->text);
        events->first = (events->first + 1) % VMM_EVENTS_KEPT;
        events->n--;
    }
    ev = at(events, events->n++);
    ev->id = events->last_id = id;
    snprintf(ev->owner, sizeof(ev->owner), "%s", owner);
    snprintf(ev->type, sizeof(ev->type), "%s", type);
    snprintf(ev->key, sizeof(ev->key), "%s", key);
    ev->text = text;
    for (struct vmm_listener *l = events->listeners; l != NULL; l = next) {
        next = l->next;
        l->wake(l);
    }
    return ev;
}

const struct vmm_event *vmm_events_add(struct vmm_events *events, const char *type,
                                       const char *owner, json_t *members)
{
    return add(events, type, owner, "", members);
}

/* The oldest stays even then: its id is the horizon. */
static void forget(struct vmm_events *events, const char *type, const char *key)
{
    for (size_t i = 1; i < events->n; i++) {
        if (strcmp(at(events, i)->key, key) != 0 || strcmp(at(events, i)->type, type) != 0)
            continue;
        free(at(events, i)->text);
        for (size_t j = i + 1; j < events->n; j++)
            *at(events, j - 1) = *at(events, j);
        events->n--;
        return;
    }
}

const struct vmm_event *vmm_events_add_last(struct vmm_events *events, const char *type,
                                            const char *owner, const char *key, json_t *members)
{
    forget(events, type, key);
    return add(events, type, owner, key, members);
}

const struct vmm_event *vmm_events_next(const struct vmm_events *events, uint64_t after,
                                        const char *owner)
{
    size_t low = 0, high = events->n; /* ids grow along the ring: find the first one after */

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (at(events, mid)->id <= after)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < events->n; low++) {
        const struct vmm_event *ev = at(events, low);

        if (owner == NULL || strcmp(ev->owner, owner) == 0)
            return ev;
    }
    return NULL;
}

uint64_t vmm_events_horizon(const struct vmm_events *events)
{
    return events->n == 0 ? events->last_id : at(events, 0)->id - 1;
}

void vmm_events_beat(struct vmm_events *events)
{
    struct vmm_listener *next;

    for (struct vmm_listener *l = events->listeners; l != NULL; l = next) {
        next = l->next;
        if (l->beat != NULL)
            l->beat(l);
    }
}

void vmm_events_listen(struct vmm_events *events, struct vmm_listener *listener)
{
    listener->prev = NULL;
    listener->next = events->listeners;
    if (events->listeners != NULL)
        events->listeners->prev = listener;
    events->listeners = listener;
}

void vmm_events_unlisten(struct vmm_events *events, struct vmm_listener *listener)
{
    if (listener->prev != NULL)
        listener->prev->next = listener->next;
    else if (events->listeners == listener)
        events->listeners = listener->next;
    if (listener->next != NULL)
        listener->next->prev = listener->prev;
    listener->prev = listener->next = NULL;
}
