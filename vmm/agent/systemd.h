/* SPDX-License-Identifier: MIT */
/* How far the distribution's init is. It has no bus of its own early on, so its own tool is asked,
 * at most once a second, until the state is final. */
#ifndef VMM_AGENT_SYSTEMD_H
#define VMM_AGENT_SYSTEMD_H

#include <stdbool.h>

#include "vmm/agent/agent.h"

struct agent_systemd;

TR_MUST_CHECK int agent_systemd_new(struct agent *a, struct agent_systemd **out);
/* Begin asking; each final state becomes an event. Again: nothing while it goes on. */
void agent_systemd_start(struct agent_systemd *s);
void agent_systemd_stop(struct agent_systemd *s);
void agent_systemd_free(struct agent_systemd *s);

/* "starting", "running" or "degraded"; "none" on a test host. Borrowed. */
const char *agent_systemd_state(const struct agent_systemd *s);
/* Is process 1 systemd by now? */
bool agent_systemd_is_init(void);

#endif
