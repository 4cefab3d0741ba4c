/* SPDX-License-Identifier: MIT */
/* Creations that may be asked for again: whoever sends "idempotency-key: ANYTHING" and loses the
 * answer sends the same request once more and gets the first one's answer, instead of a second
 * thing. Kept for a day, in memory; a manager that starts anew has forgotten. */
#ifndef VMM_REPLAY_H
#define VMM_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include "vmm/table.h"

#define VMM_REPLAYS_MAX   4096
#define VMM_REPLAY_MS     (24 * 3600 * 1000LL)
#define VMM_REPLAY_NAME   255   /* bytes of a key */
#define VMM_REPLAY_ANSWER 65536 /* longest answer that is kept */

struct vmm_request;
struct vmm_replay;

/* Zeroed memory is an empty one. */
struct vmm_replays {
    struct vmm_table by_id;
    struct vmm_replay *first, *last; /* oldest first */
};

void vmm_replays_fini(struct vmm_replays *all);

/* The body of a request for a creation is there. Returns true when the handler should run;
 * req->replay is set then if the answer is to be kept. False: answered, with the first one's
 * answer, 400 (no such key can be), 409 (the first one is under way) or 422 (the key came with
 * another body). */
bool vmm_replay_begin(struct vmm_request *req);
/* The answer of a request with req->replay, which is NULL after this. Only a creation that worked
 * is kept: after a fault the next try is a new one. */
void vmm_replay_end(struct vmm_request *req, int status, const void *data, size_t len);
/* There was none. */
void vmm_replay_drop(struct vmm_request *req);

#endif
