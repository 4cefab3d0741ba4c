/* SPDX-License-Identifier: MIT */
/* The manager as a whole: what its parts need to reach each other. One loop, one thread. */
#ifndef VMM_VMM_H
#define VMM_VMM_H

#include <uv.h>
#include "vmm/audit.h"
#include "vmm/auth.h"
#include "vmm/events.h"
#include "vmm/figures.h"
#include "vmm/options.h"
#include "vmm/replay.h"
#include "vmm/secret.h"
#include "vmm/session.h"

struct vmm_bind;
struct vmm_hidden;
struct vmm_live;
struct vmm_node;
struct vmm_machines;
struct vmm_metrics;
struct vmm_server;
struct vmm_stores;
struct vmm_webhooks;

/* How many starts visitors may still cause, see api_wake.c. */
struct vmm_wakes {
    bool used;       /* once; else the rest counts for nothing */
    uint64_t at_ms;  /* when budget was right, by the loop's clock */
    uint64_t budget; /* thousandths of a start */
};

struct vmm {
    uv_loop_t *loop;
    const struct vmm_options *options;
    const struct vmm_node *node;
    struct vmm_auth *auth;
    struct vmm_secrets *secrets; /* NULL in tests without them */
    struct vmm_hidden *hidden;   /* of active.c: values that our log hides */
    struct vmm_sessions sessions;
    uint8_t preview_master[TR_ROUTE_KEY_SIZE]; /* see preview_key.h */
    struct vmm_events events;
    struct vmm_live *live;         /* NULL in tests without Redis */
    struct vmm_machines *machines; /* NULL in tests without machines */
    struct vmm_stores *stores;     /* of the sessions' files; NULL in tests without them */
    struct vmm_bind *binds;        /* folders from afar, see bind.h */
    struct vmm_server *server;
    struct vmm_wakes wakes;
    struct vmm_replays replays;
    struct vmm_audit audit;
    struct vmm_webhooks *webhooks;
    struct vmm_figures figures;
    struct vmm_metrics *metrics; /* NULL: none are served */
    bool ending;                 /* a graceful end has begun: nothing new is started */
};

#endif
