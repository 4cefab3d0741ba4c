/* SPDX-License-Identifier: MIT */
/* Folders from afar that are kept in step with a session's files: `transom up`.
 *
 * One request, POST /v1/sessions/{s}/bindings, whose body and whose answer are one byte stream, for
 * as long as it lasts. On it the two speak HTTP/2 once more, with the manager as its client: the
 * client of the API serves its folder as an agent serves a home (sync/serve.h), and the manager's
 * engine keeps it in step with the store. One more request of the manager, POST /v1/up, goes on all
 * the while and carries JSON, a line each: what is to be shown, and what the user wants.
 *
 * To the folder:   {"type":"hello","session"}                first
 *                  {"type":"status",...}                     counters, left_out_by, at times
 * left_out
 *                  {"type":"conflict","path","kind","winner"}
 *                  {"type":"failed","message"}               it ends by itself
 *                  {"type":"end",...}                        as status; the last after "finish"
 * From the folder: {"type":"finish"}                         once more, then end
 *
 * A folder is known by an id that its user's client made up. What it had in common with the session
 * last, its ancestor, stays in state_dir/sessions/ID/bindings, so that a folder that comes back is
 * known, and what was removed from it meanwhile counts as removed. */
#ifndef VMM_BIND_H
#define VMM_BIND_H

#include "vmm/request.h"
#include "vmm/vmm.h"

struct tr_mask;
struct vmm_bind;

#define VMM_BIND_ID_LEN 32 /* hexadecimal digits */

/* api: POST and GET .../bindings. */
void vmm_api_bind(struct vmm_request *req);
void vmm_api_bind_list(struct vmm_request *req);

/* About once a second. */
void vmm_binds_tick(struct vmm *vmm, uint64_t now_ms);
/* Somebody changed the session's files. */
void vmm_binds_look(struct vmm *vmm, const char *session_id);
/* The session's active secrets are these now (borrowed; NULL: none): they stay out of its files. */
void vmm_binds_secrets(struct vmm *vmm, const char *session_id, struct tr_mask *mask);

#endif
