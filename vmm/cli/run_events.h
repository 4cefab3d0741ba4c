/* SPDX-License-Identifier: MIT */
/* The events of a run, as lines of JSON arrive in pieces. */
#ifndef VMM_CLI_RUN_EVENTS_H
#define VMM_CLI_RUN_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_EVENT_MAX (1u << 20) /* bytes of a line */

struct run_events {
    char *line; /* incomplete */
    size_t len, size;
};

/* event is borrowed. Returns false to stop. */
typedef bool (*run_event_cb)(const json_t *event, void *arg);

/* Returns false when cb did, or when the bytes are no such lines. */
bool run_events_feed(struct run_events *e, const uint8_t *data, size_t len, run_event_cb cb,
                     void *arg);
/* Forget an incomplete line. */
void run_events_reset(struct run_events *e);

/* Base 64 (RFC 4648 section 4, padded) decoded in place: returns the length, or -1. */
long run_base64_decode(char *text);

#endif
