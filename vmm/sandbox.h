/* SPDX-License-Identifier: MIT */
/* The life of one sandbox: a state machine that knows nothing of processes, sockets or clocks.
 * What a machine needs is behind struct vmm_sandbox_ops; time comes in by vmm_sandbox_tick().
 *
 *   asleep -> starting -> running -> stopping -> asleep
 *   starting -> stopping -> failed -> starting
 *
 * One operation at a time; later callers join the one under way. */
#ifndef VMM_SANDBOX_H
#define VMM_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include "transom/state.h"
#include "vmm/preview.h"
#include "vmm/text.h"

#define VMM_SANDBOX_NAME_MAX 32
#define VMM_REASON_SIZE      256

struct vmm_machine;
struct vmm_sandbox;
struct vmm_session;
struct vmm_ssh_key;
struct vmm_waiter;

/* All of them return before any vmm_sandbox_on_*() runs. */
struct vmm_sandbox_ops {
    /* May one more machine start here? 0, or a negative errno with the reason. May be NULL. */
    int (*admit)(struct vmm_sandbox *sb, struct err *err);
    /* Keep the record (the new instance number) before it is used. */
    int (*save)(struct vmm_sandbox *sb, struct err *err);
    /* Begin; vmm_sandbox_on_up() or on_lost() follows. Or < 0 with the reason: nothing was begun.
     */
    int (*start)(struct vmm_sandbox *sb, struct err *err);
    /* End it and clean up; vmm_sandbox_on_down() follows, once. Not force: the guest may shut down
     * by itself first. May come again with force. Also after a start that failed half-way. */
    void (*stop)(struct vmm_sandbox *sb, bool force);
    /* The state changed: tell the world. */
    void (*changed)(struct vmm_sandbox *sb);
};

struct vmm_sandbox {
    struct vmm_session *session; /* borrowed: the session owns the sandbox */
    struct vmm_sandbox *next;    /* of the session */
    const struct vmm_sandbox_ops *ops;
    void *ops_arg;

    /* The record, kept on disk. */
    char name[VMM_SANDBOX_NAME_MAX + 1];
    char label[VMM_ID_LEN + 1];
    uint64_t instance; /* of the present or last machine; 0: none yet */
    int64_t vcpus, memory_mb, disk_mb;
    int64_t created_ms;
    struct vmm_preview preview;

    /* Life. Only sandbox.c changes state. */
    enum tr_sandbox_state state;
    bool failing;                 /* stopping: will end in failed */
    bool closed;                  /* the session is being deleted: no more starts */
    char reason[VMM_REASON_SIZE]; /* why it is where it is; "" when there is nothing to say */
    char address[46];             /* running only */
    uint16_t agent_port;          /* of the machine, to its loopback; 0: none; running only */
    int64_t started_ms;           /* wall clock; running only */
    int64_t limit_ms;             /* longest stay in this state; 0: none */
    uint64_t deadline_ms;         /* when that is over, by the ticks' clock; 0: not known yet */
    int64_t start_timeout_ms;
    struct vmm_waiter *waiters;

    uint64_t woken_ms; /* when a request last asked for it, by the loop's clock; 0: never */
    struct vmm_ssh_key *ssh_keys; /* see ssh_keys.h */
    bool unsent;                  /* Redis may not know the preview's settings */

    /* Owned by machine.c; NULL when there is no machine. */
    struct vmm_machine *machine;
};

/* status 0: the wanted state was reached; else a negative errno and why. Runs once. */
typedef void (*vmm_sandbox_cb)(struct vmm_sandbox *sb, int status, const char *why, void *arg);

/* Bring it up. Returns 0: it is running (cb never runs); 1: cb runs later; < 0: refused, with the
 * reason (-ENOSPC: the node is full, -ESHUTDOWN: being deleted). cb may be NULL. */
TR_MUST_CHECK int vmm_sandbox_start(struct vmm_sandbox *sb, vmm_sandbox_cb cb, void *arg,
                                    struct err *err);
/* Put it to sleep; reason is shown. Returns as vmm_sandbox_start(); 0: it is asleep. */
TR_MUST_CHECK int vmm_sandbox_stop(struct vmm_sandbox *sb, const char *reason, bool force,
                                   vmm_sandbox_cb cb, void *arg, struct err *err);
/* End the machine at once and start a new instance. Returns as vmm_sandbox_start(), never 0. */
TR_MUST_CHECK int vmm_sandbox_reset(struct vmm_sandbox *sb, vmm_sandbox_cb cb, void *arg,
                                    struct err *err);
/* After a restart of the manager: its machine was found running. asleep -> running. */
void vmm_sandbox_adopt(struct vmm_sandbox *sb, const char *address, int64_t started_ms);

/* From the machine. */
void vmm_sandbox_on_up(struct vmm_sandbox *sb, const char *address);
/* It is on its way up or down, and has this much time from now. */
void vmm_sandbox_on_progress(struct vmm_sandbox *sb, int64_t more_ms);
/* It cannot start (failed), or it ended by itself: vmm_sandbox_ops.stop follows for cleaning. */
void vmm_sandbox_on_lost(struct vmm_sandbox *sb, bool failed, const char *reason);
/* Nothing of it is left. */
void vmm_sandbox_on_down(struct vmm_sandbox *sb);

/* Check deadlines; to be called about once a second. */
void vmm_sandbox_tick(struct vmm_sandbox *sb, uint64_t now_ms);
/* Forget all waiters (their cb runs with -ECANCELED). Before the sandbox is freed. */
void vmm_sandbox_fini(struct vmm_sandbox *sb);

static inline bool vmm_sandbox_is_active(const struct vmm_sandbox *sb)
{
    return sb->state == TR_SANDBOX_STARTING || sb->state == TR_SANDBOX_RUNNING ||
           sb->state == TR_SANDBOX_STOPPING;
}

#endif
