/* SPDX-License-Identifier: MIT */
/* Requests about windows. */
#ifndef VMM_AGENT_WINDOW_API_H
#define VMM_AGENT_WINDOW_API_H

#include "vmm/agent/request.h"
#include "vmm/agent/window.h"

/* What is to be told of a run, output aside. New, or NULL. */
json_t *agent_run_json(struct agent *a, struct agent_run *run, const char *window);
/* {"port"[,"preview_url"]}, new. */
json_t *agent_listen_json(const struct agent *a, uint16_t port);

void agent_window_handle_list(struct agent_request *req); /* GET /v1/windows */
void agent_window_handle_get(struct agent_request *req);  /* GET /v1/windows/{w} */
/* PUT /v1/windows/{w}: make it unless it is there; of this size when one is told. */
void agent_window_handle_open(struct agent_request *req);
void agent_window_handle_run(struct agent_request *req);    /* POST /v1/windows/{w}/run */
void agent_window_handle_output(struct agent_request *req); /* GET /v1/windows/{w}/output */
/* GET /v1/windows/{w}/runs: those under way and the last that ended, with their commands. */
void agent_window_handle_runs(struct agent_request *req);
void agent_window_handle_get_run(struct agent_request *req); /* GET /v1/windows/{w}/runs/{id} */
void agent_window_handle_input(struct agent_request *req);   /* POST /v1/windows/{w}/input */
void agent_window_handle_resize(struct agent_request *req);  /* POST /v1/windows/{w}/resize */
void agent_window_handle_close(struct agent_request *req);   /* DELETE /v1/windows/{w} */

#endif
