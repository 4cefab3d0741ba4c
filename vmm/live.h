/* SPDX-License-Identifier: MIT */
/* The live view in Redis: routes, sandboxes, sessions, API keys, sealed secrets, events, idle
 * deadlines, figures, this node. Each change is one Lua script. While Redis is down nothing is
 * queued: everything is written again when it comes back, and what it holds of ours that no longer
 * exists is removed. */
#ifndef VMM_LIVE_H
#define VMM_LIVE_H

#include "vmm/vmm.h"

struct vmm_live;

/* url as for tr_redis_open(). */
TR_MUST_CHECK int vmm_live_open(struct vmm *vmm, const char *url, struct vmm_live **out,
                                struct err *err);
/* leave: end this node's heartbeat first (its machines are gone). cb runs when the connection is
 * closed; at most 2 s are spent. */
void vmm_live_close(struct vmm_live *live, bool leave, void (*cb)(void *arg), void *arg);
/* One command of Redis. Returns 0: cb (may be NULL) runs once, later; UV_ENOTCONN: Redis is not
 * there. */
TR_MUST_CHECK int vmm_live_command(struct vmm *vmm, int argc, const char **argv,
                                   void (*cb)(struct redisReply *reply, void *arg), void *arg);
bool vmm_live_is_up(const struct vmm_live *live);
/* Where it connects; no password in it. */
const char *vmm_live_url(const struct vmm_live *live);

/* All of these work with vmm->live NULL, too (the event is made all the same). */
void vmm_live_sandbox(struct vmm *vmm, const struct vmm_sandbox *sb);
/* Settings of its preview changed: write the route, with an event of that type unless NULL.
 * Returns 0: cb runs once, after this returns, with 0 when Redis has it or went away meanwhile,
 * else with why it refused. UV_ENOTCONN: Redis is away and gets it when it is back. Other < 0: it
 * was not sent. In both cases cb does not run. */
typedef void (*vmm_live_cb)(int status, const char *why, void *arg);
TR_MUST_CHECK int vmm_live_preview(struct vmm *vmm, struct vmm_sandbox *sb, const char *event,
                                   vmm_live_cb cb, void *arg);
void vmm_live_session(struct vmm *vmm, const struct vmm_session *session, const char *event);
void vmm_live_session_gone(struct vmm *vmm, const struct vmm_session *session);
/* An API key was made, or deleted. */
void vmm_live_key(struct vmm *vmm, const struct vmm_key *key);
void vmm_live_key_gone(struct vmm *vmm, const char *hash);
/* A secret was set, or is about to be deleted. Only what is sealed is written. */
void vmm_live_secret(struct vmm *vmm, const struct vmm_secret *secret);
void vmm_live_secret_gone(struct vmm *vmm, const struct vmm_secret *secret);
/* A sample of a sandbox's figures (borrowed): an event, of which the last one of each sandbox is
 * kept, and in Redis an entry of its numbers in the sandbox's series, but none in the events. */
void vmm_live_stats(struct vmm *vmm, const struct vmm_sandbox *sb, const json_t *sample);
/* An event that changes no state. members as for vmm_events_add(). */
void vmm_live_event(struct vmm *vmm, const char *type, const char *owner, json_t *members);
/* When the idle rule will stop it (wall clock, for display); 0: not at all. */
void vmm_live_idle(struct vmm *vmm, const char *label, int64_t deadline_wall_ms);

#endif
