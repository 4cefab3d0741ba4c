/* SPDX-License-Identifier: MIT */
/* The manager as a whole: what its parts need to reach each other. One loop, one thread. */
#ifndef VMM_VMM_H
#define VMM_VMM_H

#include <uv.h>
#include "vmm/auth.h"
#include "vmm/events.h"
#include "vmm/options.h"
#include "vmm/session.h"

struct vmm_live;
struct vmm_node;
struct vmm_machines;
struct vmm_server;

struct vmm {
    uv_loop_t *loop;
    const struct vmm_options *options;
    const struct vmm_node *node;
    struct vmm_auth *auth;
    struct vmm_sessions sessions;
    struct vmm_events events;
    struct vmm_live *live;         /* NULL in tests without Redis */
    struct vmm_machines *machines; /* NULL in tests without machines */
    struct vmm_server *server;
    bool ending; /* a graceful end has begun: nothing new is started */
};

#endif
