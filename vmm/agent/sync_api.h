/* SPDX-License-Identifier: MIT */
/* Requests about the home folder as a tree to be kept in step: sync/wire.h says what bodies and
 * answers look like, sync/serve.h which messages belong where. All act with the sandbox user's
 * rights. */
#ifndef VMM_AGENT_SYNC_API_H
#define VMM_AGENT_SYNC_API_H

#include "vmm/agent/request.h"

/* sync_api.c */
void agent_sync_handle_list(struct agent_request *req);  /* POST /v1/sync/list */
void agent_sync_handle_hash(struct agent_request *req);  /* POST /v1/sync/hash */
void agent_sync_handle_read(struct agent_request *req);  /* POST /v1/sync/read */
void agent_sync_handle_apply(struct agent_request *req); /* POST /v1/sync/apply */
/* sync_watch_api.c: the body goes on with WATCH and UNWATCH as long as the answer, which ends by a
 * reset only. */
void agent_sync_handle_watch(struct agent_request *req); /* POST /v1/sync/watch */

#endif
