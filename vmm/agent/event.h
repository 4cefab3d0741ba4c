/* SPDX-License-Identifier: MIT */
/* What happened in the machine, numbered, in a bounded queue; streamed as NDJSON and resumed by
 * number. Overtaken entries are named by a {"type":"gap","from","to"} line, which has no number. */
#ifndef VMM_AGENT_EVENT_H
#define VMM_AGENT_EVENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

struct agent_events;

TR_MUST_CHECK int agent_events_new(struct agent *a, struct agent_events **out);
void agent_events_free(struct agent_events *ev);

/* Does anybody read the stream? */
bool agent_events_are_read(const struct agent_events *ev);

/* Add one. fields (stolen, may be NULL) are put behind seq, t_ms (uptime), time_ms (wall), type. */
void agent_event(struct agent *a, const char *type, json_t *fields);

/* GET /v1/events[?since=SEQ]: everything kept after SEQ, then what comes. Without since: what
 * comes. */
void agent_events_handle(struct agent_request *req);

#endif
