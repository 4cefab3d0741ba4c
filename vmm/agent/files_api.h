/* SPDX-License-Identifier: MIT */
/* Requests about files. */
#ifndef VMM_AGENT_FILES_API_H
#define VMM_AGENT_FILES_API_H

#include "vmm/agent/request.h"

void agent_files_handle_get(struct agent_request *req);  /* GET /v1/files?path=P */
void agent_files_handle_put(struct agent_request *req);  /* PUT /v1/files?path=P[&mode=0644] */
void agent_files_handle_list(struct agent_request *req); /* GET /v1/files/list?path=P */
void agent_files_handle_delete(
    struct agent_request *req); /* DELETE /v1/files?path=P[&recursive=1] */

#endif
