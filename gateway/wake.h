/* SPDX-License-Identifier: MIT */
/* Waking sandboxes on request: the manager is asked at most once per label in 5 s, whatever comes
 * in. Shared by all workers; only requests to sandboxes that sleep come here. */
#ifndef GATEWAY_WAKE_H
#define GATEWAY_WAKE_H

#include <pthread.h>
#include <stdint.h>
#include "transom/route.h"

struct gw_worker;

#define GW_WAKE_SLOTS 1024 /* labels at a time */

struct gw_wakes {
    pthread_mutex_t lock;
    struct gw_wake {
        char label[TR_LABEL_LEN + 1]; /* "": free */
        int16_t status; /* the manager's answer; 0: none yet, -1: none that could be had */
        uint64_t at_ms; /* asked then */
    } slots[GW_WAKE_SLOTS];
};

void gw_wakes_init(struct gw_wakes *wakes);
void gw_wakes_fini(struct gw_wakes *wakes);

/* Ask, unless that was done just now. Returns what to tell the visitor (a constant). */
const char *gw_wake_ask(struct gw_worker *w, const char *label);
/* From gw_manager_wake(): what came of it. status 0: no answer. */
void gw_wake_done(struct gw_wakes *wakes, const char *label, int status);

/* Should the manager be asked at now_ms? Notes it if so. *status: of the last time. For tests. */
bool gw_wake_due(struct gw_wakes *wakes, const char *label, uint64_t now_ms, int *status);

#endif
