/* SPDX-License-Identifier: MIT */
/* Machines that were restored from the template, have answered, and are held still until a sandbox
 * takes one. They have no session's data. A manager's end removes them, and what a killed one left
 * is removed by the next, as anything that belongs to nobody. */
#ifndef VMM_POOL_H
#define VMM_POOL_H

#include <stdbool.h>
#include "vmm/driver/driver.h"
#include "vmm/machine.h"

struct vmm_pool; /* where it is borrowed, NULL stands for none */
struct vmm_machine;

TR_MUST_CHECK int vmm_pool_open(struct vmm_machines *ms, struct vmm_pool **out, struct err *err);
/* End all machines of it and free it; cb runs once, perhaps before this returns. */
void vmm_pool_close(struct vmm_pool *pool, void (*cb)(void *arg), void *arg);
/* Once a second: fill up, and end what is of an older template. */
void vmm_pool_tick(struct vmm_pool *pool, uint64_t now_ms);

/* Give this machine, which has nothing yet, one of the pool: its process, network and disk are its
 * own now, and it runs, or on_exit follows. The agent is to be opened in on_running. Returns false,
 * and nothing is changed, when there is none that fits. */
bool vmm_pool_take(struct vmm_pool *pool, struct vmm_machine *m, vm_done_cb on_running);

#endif
