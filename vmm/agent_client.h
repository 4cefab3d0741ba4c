/* SPDX-License-Identifier: MIT */
/* The manager's side of one agent: HTTP/2 over the machine's channel, said hello to, and connected
 * again when the channel is lost, for as long as the machine lives. */
#ifndef VMM_AGENT_CLIENT_H
#define VMM_AGENT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "transom/h2.h"

struct vmm_agent;

struct vmm_agent_cbs {
    /* A new descriptor of the channel, or < 0 with the reason. */
    int (*connect)(void *arg, struct err *err);
    /* The body of POST /v1/hello, made anew each time (new reference), or NULL. */
    json_t *(*hello)(void *arg);
    /* The body of PUT /v1/secrets, which follows hello (new reference), or NULL. */
    json_t *(*secrets)(void *arg);
    /* Both were answered (again): requests can be sent. answer is borrowed. */
    void (*on_ready)(const json_t *answer, void *arg);
    /* The agent refused hello: it will not get better by itself. */
    void (*on_refused)(const char *why, void *arg);
    /* One event of the agent's event stream (borrowed). */
    void (*on_event)(const json_t *event, void *arg);
    /* The number of the last event taken from the boot that this answer to hello tells of; -1:
     * begin with what comes. May be NULL: always so. */
    int64_t (*events_since)(const json_t *answer, void *arg);
};

/* Begin to connect. cbs is borrowed; no callback runs before this returns. */
TR_MUST_CHECK int vmm_agent_open(uv_loop_t *loop, const char *label,
                                 const struct vmm_agent_cbs *cbs, void *arg,
                                 struct vmm_agent **out);
/* Requests under way end; waiters are told. cb runs when all is closed and the agent freed. */
void vmm_agent_close(struct vmm_agent *agent, void (*cb)(void *arg), void *arg);

/* The session to send requests on; NULL unless ready. */
struct tr_h2 *vmm_agent_session(const struct vmm_agent *agent);
/* Since when there has been no session (loop time); 0: there is one. */
uint64_t vmm_agent_lost_since(const struct vmm_agent *agent);

/* Give the channel up and begin with hello again; nothing when it is down or being closed. */
void vmm_agent_reconnect(struct vmm_agent *agent, const char *why);

/* Tell when it is ready. Embedded by the caller. cb runs once: 0, UV_ETIMEDOUT, or UV_ECANCELED
 * when the agent is closed; not from inside vmm_agent_wait(). */
struct vmm_agent_wait {
    struct vmm_agent_wait *prev, *next;
    struct vmm_agent *agent; /* NULL: not waiting */
    uint64_t deadline_ms;
    void (*cb)(struct vmm_agent_wait *wait, int status);
};
void vmm_agent_wait(struct vmm_agent *agent, struct vmm_agent_wait *wait, uint64_t timeout_ms);
void vmm_agent_wait_cancel(struct vmm_agent_wait *wait); /* cb does not run */

/* A small JSON request: cb runs once, later, with the status and the body (borrowed; NULL when it
 * is none), or a negative errno for status: UV_ETIMEDOUT after timeout_ms. body and cb may be
 * NULL. */
typedef void (*vmm_agent_reply_cb)(int status, const json_t *reply, void *arg);
TR_MUST_CHECK int vmm_agent_call_within(struct vmm_agent *agent, uint64_t timeout_ms,
                                        const char *method, const char *path, const json_t *body,
                                        vmm_agent_reply_cb cb, void *arg);
/* The same within what is enough for all that an agent does at once. */
#define VMM_AGENT_CALL_MS 10000
TR_MUST_CHECK int vmm_agent_call(struct vmm_agent *agent, const char *method, const char *path,
                                 const json_t *body, vmm_agent_reply_cb cb, void *arg);

#endif
