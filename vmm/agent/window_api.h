/* SPDX-License-Identifier: MIT */
/* Requests about windows. */
#ifndef VMM_AGENT_WINDOW_API_H
#define VMM_AGENT_WINDOW_API_H

#include "vmm/agent/request.h"

void agent_window_handle_list(struct agent_request *req);   /* GET /v1/windows */
void agent_window_handle_get(struct agent_request *req);    /* GET /v1/windows/{w} */
void agent_window_handle_run(struct agent_request *req);    /* POST /v1/windows/{w}/run */
void agent_window_handle_output(struct agent_request *req); /* GET /v1/windows/{w}/output */
void agent_window_handle_input(struct agent_request *req);  /* POST /v1/windows/{w}/input */
void agent_window_handle_resize(struct agent_request *req); /* POST /v1/windows/{w}/resize */
void agent_window_handle_close(struct agent_request *req);  /* DELETE /v1/windows/{w} */

#endif
