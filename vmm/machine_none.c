/* SPDX-License-Identifier: MIT */
/* XXX until machine.c lands: no machine can start. */
#include "vmm/machine.h"
#include "vmm/node.h"
#include "vmm/live.h"
#include <stdlib.h>
#include <string.h>
#include <errno.h>
struct vmm_machines { struct vmm *vmm; uv_timer_t t; void (*cb)(const struct err *, void *); void *arg; void (*done)(void *); void *done_arg; };
static int admit(struct vmm_sandbox *sb, struct err *err) { (void)sb; return tr_err_set(err, -EIO, "this build has no machines yet"); }
static int save(struct vmm_sandbox *sb, struct err *err) { (void)sb; (void)err; return 0; }
static void start(struct vmm_sandbox *sb) { (void)sb; }
static void stop(struct vmm_sandbox *sb, bool f) { (void)sb; (void)f; }
static void changed(struct vmm_sandbox *sb) { (void)sb; }
const struct vmm_sandbox_ops vmm_machine_ops = {admit, save, start, stop, changed};
int vmm_machines_open(struct vmm *vmm, struct vmm_machines **out, struct err *err) { (void)err; *out = calloc(1, sizeof **out); (*out)->vmm = vmm; uv_timer_init(vmm->loop, &(*out)->t); (*out)->t.data = *out; return 0; }
static void rec(uv_timer_t *t) { struct vmm_machines *m = t->data; struct err e = {0}; m->cb(&e, m->arg); }
void vmm_machines_recover(struct vmm_machines *ms, void (*cb)(const struct err *err, void *arg), void *arg) { ms->cb = cb; ms->arg = arg; (void)uv_timer_start(&ms->t, rec, 0, 0); }
static void closed(uv_handle_t *h) { struct vmm_machines *m = h->data; m->done(m->done_arg); free(m); }
void vmm_machines_close(struct vmm_machines *ms, bool stop_, void (*cb)(void *arg), void *arg) { (void)stop_; ms->done = cb; ms->done_arg = arg; uv_close((uv_handle_t *)&ms->t, closed); }
void vmm_machines_tick(struct vmm_machines *ms, uint64_t now_ms) { (void)ms; (void)now_ms; }
struct vmm_agent *vmm_machine_agent(const struct vmm_sandbox *sb) { (void)sb; return NULL; }
void vmm_machine_touch(const struct vmm_sandbox *sb) { (void)sb; }
json_t *vmm_machine_idle_json(const struct vmm_sandbox *sb) { (void)sb; return NULL; }
