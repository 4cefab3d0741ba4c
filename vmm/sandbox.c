/* SPDX-License-Identifier: MIT */
/* Path: start -> move(starting) -> on_up -> move(running) -> stop -> move(stopping) -> on_down ->
 * move(asleep). Faults enter at on_lost(), which takes the same way down. */
#include "vmm/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"

#define STOP_TIMEOUT_MS 20000

struct vmm_waiter {
    struct vmm_waiter *next;
    bool wants_running; /* else asleep */
    bool doomed;        /* its start failed; told when the remains are gone */
    vmm_sandbox_cb cb;
    void *arg;
};

#define BIT(state) (1u << (state))
static const unsigned allowed[] = {
    /* asleep -> running: adoption */
    [TR_SANDBOX_ASLEEP] = BIT(TR_SANDBOX_STARTING) | BIT(TR_SANDBOX_RUNNING),
    [TR_SANDBOX_STARTING] = BIT(TR_SANDBOX_RUNNING) | BIT(TR_SANDBOX_STOPPING),
    [TR_SANDBOX_RUNNING] = BIT(TR_SANDBOX_STOPPING),
    [TR_SANDBOX_STOPPING] = BIT(TR_SANDBOX_ASLEEP) | BIT(TR_SANDBOX_FAILED),
    [TR_SANDBOX_FAILED] = BIT(TR_SANDBOX_STARTING) | BIT(TR_SANDBOX_ASLEEP),
};

static const char *state_name(enum tr_sandbox_state state)
{
    return tr_sandbox_state_name(state);
}

static void move(struct vmm_sandbox *sb, enum tr_sandbox_state to, const char *reason)
{
    char ids[64];

    assert(allowed[sb->state] & BIT(to));
    snprintf(ids, sizeof(ids), "vm=%s instance=%llu", sb->label, (unsigned long long)sb->instance);
    tr_log(to == TR_SANDBOX_FAILED ? TR_LOG_WARN : TR_LOG_INFO, ids, "%s -> %s%s%s",
           state_name(sb->state), state_name(to), *reason ? ": " : "", reason);
    if (reason != sb->reason)
        snprintf(sb->reason, sizeof(sb->reason), "%s", reason);
    sb->state = to;
    sb->deadline_ms = 0; /* the next tick sets it */
    sb->limit_ms = to == TR_SANDBOX_STARTING   ? sb->start_timeout_ms
                   : to == TR_SANDBOX_STOPPING ? STOP_TIMEOUT_MS
                                               : 0;
    if (to != TR_SANDBOX_RUNNING) {
        sb->address[0] = '\0';
        sb->agent_port = 0;
        sb->started_ms = 0;
    }
    sb->ops->changed(sb);
}

static int add_waiter(struct vmm_sandbox *sb, bool wants_running, vmm_sandbox_cb cb, void *arg,
                      struct err *err)
{
    struct vmm_waiter *w, **end = &sb->waiters;

    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    w->wants_running = wants_running;
    w->cb = cb;
    w->arg = arg;
    while (*end != NULL)
        end = &(*end)->next;
    *end = w;
    return 0;
}

/* Tell those waiters for whom done(w) holds; a callback may add new ones. */
static void tell(struct vmm_sandbox *sb, bool running, bool only_doomed, int status,
                 const char *why)
{
    struct vmm_waiter *due = NULL, **due_end = &due, **p = &sb->waiters, *w;
    char text[VMM_REASON_SIZE];

    snprintf(text, sizeof(text), "%s", why);
    while ((w = *p) != NULL) {
        if (w->wants_running == running && (!only_doomed || w->doomed)) {
            *p = w->next;
            w->next = NULL;
            *due_end = w;
            due_end = &w->next;
        } else {
            p = &w->next;
        }
    }
    while ((w = due) != NULL) {
        due = w->next;
        if (w->cb != NULL)
            w->cb(sb, status, text, w->arg);
        free(w);
    }
}

static void doom_starters(struct vmm_sandbox *sb)
{
    for (struct vmm_waiter *w = sb->waiters; w != NULL; w = w->next) {
        if (w->wants_running)
            w->doomed = true;
    }
}

static bool has_starter(const struct vmm_sandbox *sb)
{
    for (const struct vmm_waiter *w = sb->waiters; w != NULL; w = w->next) {
        if (w->wants_running)
            return true;
    }
    return false;
}

/* asleep or failed -> starting. */
static int begin(struct vmm_sandbox *sb, struct err *err)
{
    int r = sb->ops->admit == NULL ? 0 : sb->ops->admit(sb, err);

    if (r != 0)
        return r;
    sb->instance++;
    r = sb->ops->save(sb, err);
    if (r != 0) {
        (void)tr_err_wrap(err, "the sandbox's record could not be kept");
        return r;
    }
    move(sb, TR_SANDBOX_STARTING, "");
    r = sb->ops->start(sb, err);
    if (r != 0) {
        move(sb, TR_SANDBOX_STOPPING, err->msg);
        move(sb, TR_SANDBOX_FAILED, sb->reason);
    }
    return r;
}

int vmm_sandbox_start(struct vmm_sandbox *sb, vmm_sandbox_cb cb, void *arg, struct err *err)
{
    int r;

    if (sb->closed)
        return tr_err_set(err, -ESHUTDOWN, "the session is being deleted");
    if (sb->state == TR_SANDBOX_RUNNING)
        return 0;
    if (sb->state == TR_SANDBOX_ASLEEP || sb->state == TR_SANDBOX_FAILED) {
        r = begin(sb, err);
        if (r != 0)
            return r;
    }
    r = add_waiter(sb, true, cb, arg, err);
    return r == 0 ? 1 : r;
}

static void go_down(struct vmm_sandbox *sb, const char *reason, bool force)
{
    move(sb, TR_SANDBOX_STOPPING, reason);
    sb->ops->stop(sb, force);
}

int vmm_sandbox_stop(struct vmm_sandbox *sb, const char *reason, bool force, vmm_sandbox_cb cb,
                     void *arg, struct err *err)
{
    int r;

    if (sb->state == TR_SANDBOX_FAILED)
        move(sb, TR_SANDBOX_ASLEEP, reason);
    if (sb->state == TR_SANDBOX_ASLEEP)
        return 0;
    r = add_waiter(sb, false, cb, arg, err);
    if (r != 0)
        return r;
    doom_starters(sb);
    if (sb->state != TR_SANDBOX_STOPPING)
        go_down(sb, reason, force);
    else if (force)
        sb->ops->stop(sb, true);
    return 1;
}

int vmm_sandbox_reset(struct vmm_sandbox *sb, vmm_sandbox_cb cb, void *arg, struct err *err)
{
    int r;

    if (sb->closed)
        return tr_err_set(err, -ESHUTDOWN, "the session is being deleted");
    if (sb->state != TR_SANDBOX_RUNNING && sb->state != TR_SANDBOX_STARTING)
        return vmm_sandbox_start(sb, cb, arg, err);
    r = add_waiter(sb, true, cb, arg, err);
    if (r != 0)
        return r;
    go_down(sb, "reset", true);
    return 1;
}

void vmm_sandbox_adopt(struct vmm_sandbox *sb, const char *address, int64_t started_ms)
{
    snprintf(sb->address, sizeof(sb->address), "%s", address);
    sb->started_ms = started_ms;
    move(sb, TR_SANDBOX_RUNNING, "");
}

void vmm_sandbox_on_up(struct vmm_sandbox *sb, const char *address)
{
    if (sb->state != TR_SANDBOX_STARTING)
        return; /* a stop was asked for meanwhile */
    snprintf(sb->address, sizeof(sb->address), "%s", address);
    sb->started_ms = vmm_wall_ms();
    move(sb, TR_SANDBOX_RUNNING, "");
    tell(sb, true, false, 0, "");
}

void vmm_sandbox_on_progress(struct vmm_sandbox *sb, int64_t more_ms)
{
    if (sb->state != TR_SANDBOX_STARTING && sb->state != TR_SANDBOX_STOPPING)
        return;
    sb->limit_ms = more_ms;
    sb->deadline_ms = 0; /* the next tick sets it */
}

void vmm_sandbox_on_lost(struct vmm_sandbox *sb, bool failed, const char *reason)
{
    if (sb->state != TR_SANDBOX_STARTING && sb->state != TR_SANDBOX_RUNNING)
        return; /* on its way down anyhow */
    doom_starters(sb);
    sb->failing = failed;
    go_down(sb, reason, true);
}

void vmm_sandbox_on_down(struct vmm_sandbox *sb)
{
    struct err err = {0};
    bool failed = sb->failing;
    int r;

    assert(sb->state == TR_SANDBOX_STOPPING);
    sb->failing = false;
    move(sb, failed ? TR_SANDBOX_FAILED : TR_SANDBOX_ASLEEP, sb->reason);
    tell(sb, true, true, failed ? -EIO : -ECANCELED, sb->reason);
    tell(sb, false, false, 0, "");
    if (vmm_sandbox_is_active(sb) || !has_starter(sb))
        return;
    /* Callers that came while it went down, or a reset. */
    r = sb->closed ? tr_err_set(&err, -ESHUTDOWN, "the session is being deleted") : begin(sb, &err);
    if (r != 0)
        tell(sb, true, false, r, err.msg);
}

void vmm_sandbox_tick(struct vmm_sandbox *sb, uint64_t now_ms)
{
    char reason[VMM_REASON_SIZE];

    if (sb->limit_ms == 0)
        return;
    if (sb->deadline_ms == 0)
        sb->deadline_ms = now_ms + (uint64_t)sb->limit_ms;
    if (now_ms < sb->deadline_ms)
        return;
    if (sb->state == TR_SANDBOX_STARTING) {
        snprintf(reason, sizeof(reason), "not up within %lld s (vmm.start_timeout_ms)",
                 (long long)sb->start_timeout_ms / 1000);
        vmm_sandbox_on_lost(sb, true, reason);
    } else if (sb->state == TR_SANDBOX_STOPPING) {
        sb->deadline_ms = now_ms + STOP_TIMEOUT_MS;
        log_warn("vm=%s: still stopping; forced once more", sb->label);
        sb->ops->stop(sb, true);
    }
}

void vmm_sandbox_fini(struct vmm_sandbox *sb)
{
    tell(sb, true, false, -ECANCELED, "the session was deleted");
    tell(sb, false, false, 0, "");
}
