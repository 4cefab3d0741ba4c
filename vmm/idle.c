/* SPDX-License-Identifier: MIT */
#include "vmm/idle.h"

/* a + b, at most the largest value: a timeout of "for ever" must not wrap around. */
static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t vmm_idle_timeout(bool persist, uint64_t own_ms, uint64_t default_ms, uint64_t persist_ms)
{
    uint64_t ms = own_ms != 0 ? own_ms : persist ? persist_ms : default_ms;

    return persist && ms < persist_ms ? persist_ms : ms;
}

struct vmm_idle_verdict vmm_idle_judge(const struct vmm_idle *in)
{
    struct vmm_idle_verdict v = {.why = VMM_IDLE_TIMEOUT};
    /* An activity "in the future" has age 0: the clock of one event may be read later than now. */
    uint64_t last = in->last_activity_ms > in->now_ms ? in->now_ms : in->last_activity_ms;

    v.deadline_ms = add(last, in->timeout_ms);
    if (in->n_holds > 0) {
        if (in->holds_listen) {
            v.why = VMM_IDLE_SERVING;
        } else {
            uint64_t end = add(in->oldest_hold_ms, in->max_run_ms);

            v.why = VMM_IDLE_HELD;
            if (end > v.deadline_ms)
                v.deadline_ms = end;
        }
    }
    v.stop = in->now_ms >= v.deadline_ms;
    v.warn =
        !v.stop && v.deadline_ms - in->now_ms <=
                       (in->warning_ms < in->timeout_ms / 2 ? in->warning_ms : in->timeout_ms / 2);
    return v;
}

const char *vmm_idle_why_text(enum vmm_idle_why why)
{
    switch (why) {
    case VMM_IDLE_TIMEOUT:
        return "nothing runs";
    case VMM_IDLE_HELD:
        return "a run, exec or SSH connection has not ended";
    case VMM_IDLE_SERVING:
        return "what runs is a server, which does not hold the sandbox";
    }
    return "";
}
