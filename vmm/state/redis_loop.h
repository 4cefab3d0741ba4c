/* SPDX-License-Identifier: MIT */
/* hiredis on a libuv loop. The adapter that comes with hiredis 0.14 drops poll errors, so that a
 * refused or reset TCP connection is never noticed; this one passes them on. */
#ifndef VMM_STATE_REDIS_LOOP_H
#define VMM_STATE_REDIS_LOOP_H

#include <hiredis/async.h>
#include <uv.h>
#include "transom/err.h"

/* Watch ac's descriptor on the loop until hiredis frees ac. Call before setting the connect
 * callback. Returns 0 or what libuv said; then ac is not watched. */
TR_MUST_CHECK int redis_loop_attach(uv_loop_t *loop, redisAsyncContext *ac);

#endif
