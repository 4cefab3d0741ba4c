/* SPDX-License-Identifier: MIT */
/* Every path the agent answers. */
#include "vmm/agent/event.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/hello.h"
#include "vmm/agent/request.h"
#include "vmm/agent/tunnel.h"

const struct agent_route agent_routes[] = {
    {"POST", "/v1/hello", AGENT_JSON_LIMIT, true, agent_hello_handle},
    {"GET", "/v1/status", 0, true, agent_status_handle},
    {"POST", "/v1/shutdown", AGENT_JSON_LIMIT, true, agent_shutdown_handle},
    {"GET", "/v1/events", 0, false, agent_events_handle},
    {"POST", "/v1/exec", AGENT_RUN_JSON_LIMIT, false, agent_exec_handle_start},
    {"GET", "/v1/exec", 0, false, agent_exec_handle_list},
    {"POST", "/v1/exec/*/stdin", 0, false, agent_exec_handle_stdin},
    {"POST", "/v1/exec/*/signal", AGENT_JSON_LIMIT, false, agent_exec_handle_signal},
    {"CONNECT", "/connect", 0, false, agent_tunnel_handle},
};
const size_t agent_n_routes = sizeof(agent_routes) / sizeof(agent_routes[0]);
