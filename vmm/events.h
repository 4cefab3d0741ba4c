/* SPDX-License-Identifier: MIT */
/* What happened lately: a bounded ring of events with their owners, for GET /v1/events and Redis.
 * Ids only grow, also over restarts: they are microseconds of Unix time, or one more than the last.
 */
#ifndef VMM_EVENTS_H
#define VMM_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include "vmm/auth.h"

#define VMM_EVENTS_KEPT 2048

struct vmm_event {
    uint64_t id;
    char owner[VMM_OWNER_MAX + 1];
    char type[40];
    char key[VMM_ID_LEN + 1]; /* see vmm_events_add_last(); "": none */
    char *text;               /* JSON, one line */
};

/* Who wants to know at once. Embedded by the caller; may remove itself from wake(). */
struct vmm_listener {
    struct vmm_listener *prev, *next;
    void (*wake)(struct vmm_listener *listener);
    /* Now and then, events or not: a sign of life for what is in between. May be NULL. */
    void (*beat)(struct vmm_listener *listener);
};

struct vmm_events {
    struct vmm_event ring[VMM_EVENTS_KEPT];
    size_t first, n;
    uint64_t last_id;
    struct vmm_listener *listeners;
    char node[64];
};

void vmm_events_fini(struct vmm_events *events);

/* Add an event; members (taken, also on a fault) become part of its text beside id, time, type,
 * owner and node. Returns it (borrowed until the next add), or NULL when out of memory. */
const struct vmm_event *vmm_events_add(struct vmm_events *events, const char *type,
                                       const char *owner, json_t *members);
/* The same, but an earlier one of this type and key is forgotten: who is slow to read gets the last
 * one only, and what comes often does not push out what comes seldom. */
const struct vmm_event *vmm_events_add_last(struct vmm_events *events, const char *type,
                                            const char *owner, const char *key, json_t *members);
/* The first kept event after id that this owner may see (everything for NULL); NULL: none. */
const struct vmm_event *vmm_events_next(const struct vmm_events *events, uint64_t after,
                                        const char *owner);
/* Id before the oldest kept event: whoever is behind it has missed some. */
uint64_t vmm_events_horizon(const struct vmm_events *events);

/* Call everybody's beat. */
void vmm_events_beat(struct vmm_events *events);

void vmm_events_listen(struct vmm_events *events, struct vmm_listener *listener);
void vmm_events_unlisten(struct vmm_events *events, struct vmm_listener *listener);

#endif
