/* SPDX-License-Identifier: MIT */
/* Requests about files. P is a path; all take &user=root, else they act with the sandbox user's
 * rights. */
#ifndef VMM_AGENT_FILES_API_H
#define VMM_AGENT_FILES_API_H

#include "vmm/agent/request.h"

/* files_download.c */
void agent_files_handle_get(struct agent_request *req); /* GET and HEAD /v1/files?path=P */
/* files_put.c */
void agent_files_handle_put(struct agent_request *req); /* PUT /v1/files?path=P[&mode=0644] */
/* files_watch.c */
void agent_files_handle_watch(struct agent_request *req); /* GET /v1/files/watch?path=P */
/* files_api.c */
void agent_files_handle_list(struct agent_request *req);   /* GET /v1/files/list?path=P */
void agent_files_handle_stat(struct agent_request *req);   /* GET /v1/files/stat?path=P */
void agent_files_handle_move(struct agent_request *req);   /* POST /v1/files/move */
void agent_files_handle_mkdir(struct agent_request *req);  /* POST /v1/files/mkdir */
void agent_files_handle_delete(struct agent_request *req); /* DELETE /v1/files?path=P */

#endif
