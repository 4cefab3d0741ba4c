/* SPDX-License-Identifier: MIT */
/* The machines behind sandboxes: image, network, disk, driver and agent put together.
 * Each machine has run_dir/vm/<label>/ (the driver's) and state_dir/machines/<label>/ with its disk
 * and machine.json, which says enough to adopt it or to remove what is left of it. */
#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

#include "vmm/vmm.h"

struct tr_mask;
struct vmm_agent;
struct vmm_machines;

extern const struct vmm_sandbox_ops vmm_machine_ops; /* ops_arg: struct vmm */

/* Check the network's options. Nothing is touched yet. */
TR_MUST_CHECK int vmm_machines_open(struct vmm *vmm, struct vmm_machines **out, struct err *err);
/* Bring the network up, adopt the machines that run, remove what belongs to nobody. cb runs once,
 * later. */
void vmm_machines_recover(struct vmm_machines *ms, void (*cb)(const struct err *err, void *arg),
                          void *arg);
/* stop: end all machines and remove network, else let go of them. cb runs once, later; ms is
 * freed. */
void vmm_machines_close(struct vmm_machines *ms, bool stop, void (*cb)(void *arg), void *arg);
/* Once a second: deadlines, idle rule. */
void vmm_machines_tick(struct vmm_machines *ms, uint64_t now_ms);

/* The machines' network namespace and its name server (net_inside()). False: they have none. */
bool vmm_machines_network(const struct vmm *vmm, char netns[33], char dns[16]);
/* The agent of a running sandbox (borrowed), or NULL. */
struct vmm_agent *vmm_machine_agent(const struct vmm_sandbox *sb);
/* Somebody uses it: the idle rule counts from now. */
void vmm_machine_touch(const struct vmm_sandbox *sb);
/* The session's settings changed: apply the idle rule anew, soon. */
void vmm_machine_judge(const struct vmm_sandbox *sb);
/* What the idle rule said last: {"deadline_at","why"} (new), or NULL when it does not run. */
json_t *vmm_machine_idle_json(const struct vmm_sandbox *sb);
/* Look what runs in it and apply the idle rule. cb runs once, perhaps before this returns: told is
 * borrowed, has the members of vmm_machine_idle_json() and "timeout_s" and "holders", the runs,
 * execs and SSH connections that have not ended (20 at most); or it is NULL: no answer. Returns 0,
 * -ENOTCONN when the machine does not run, or -EBUSY when many ask already. */
typedef void (*vmm_idle_cb)(const json_t *told, void *arg);
TR_MUST_CHECK int vmm_machine_ask_idle(const struct vmm_sandbox *sb, vmm_idle_cb cb, void *arg);
/* The session's active secrets are these now (borrowed; NULL: none): they stay out of its files. */
void vmm_machine_sync_secrets(const struct vmm_sandbox *sb, struct tr_mask *mask);
/* How its files stand with the session's (new), or NULL: they are not kept in step. */
json_t *vmm_machine_sync_json(const struct vmm_sandbox *sb);
/* The last sample of its figures (borrowed), or NULL: it does not run, or has told none yet. */
json_t *vmm_machine_stats(const struct vmm_sandbox *sb);

#endif
