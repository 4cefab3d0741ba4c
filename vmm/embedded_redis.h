/* SPDX-License-Identifier: MIT */
/* The embedded Redis: a redis-server of our own on run_dir/redis.sock, with its append-only file in
 * state_dir/redis and no TCP port. It outlives a manager that is killed, and is adopted by the
 * next; it is started again when it ends. */
#ifndef VMM_EMBEDDED_REDIS_H
#define VMM_EMBEDDED_REDIS_H

#include <uv.h>
#include "vmm/options.h"

struct vmm_redis;

/* Adopt or start. Returns 0: it is on its way (connect with retries), or < 0 with the reason. */
TR_MUST_CHECK int vmm_redis_open(uv_loop_t *loop, const struct vmm_options *options,
                                 struct vmm_redis **out, struct err *err);
/* stop: end it (TERM, after 5 s KILL) and remove its socket; else leave it running. cb runs when
 * done; r is freed. */
void vmm_redis_close(struct vmm_redis *r, bool stop, void (*cb)(void *arg), void *arg);

#endif
