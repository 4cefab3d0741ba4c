/* SPDX-License-Identifier: MIT */
/* Every path the agent answers. */
#include "vmm/agent/event.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/files_api.h"
#include "vmm/agent/git_api.h"
#include "vmm/agent/hello.h"
#include "vmm/agent/request.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/ssh.h"
#include "vmm/agent/ssh_keys.h"
#include "vmm/agent/sync_api.h"
#include "vmm/agent/tunnel.h"
#include "vmm/agent/window_api.h"

const struct agent_route agent_routes[] = {
    {"POST", "/v1/hello", AGENT_JSON_LIMIT, true, agent_hello_handle},
    {"GET", "/v1/status", 0, true, agent_status_handle},
    {"POST", "/v1/shutdown", AGENT_JSON_LIMIT, true, agent_shutdown_handle},
    {"PUT", "/v1/secrets", AGENT_JSON_LIMIT, false, agent_secrets_handle_put},
    {"GET", "/v1/events", 0, false, agent_events_handle},
    {"POST", "/v1/exec", AGENT_RUN_JSON_LIMIT, false, agent_exec_handle_start},
    {"GET", "/v1/exec", 0, false, agent_exec_handle_list},
    {"GET", "/v1/exec/*", 0, false, agent_exec_handle_get},
    {"DELETE", "/v1/exec/*", 0, false, agent_exec_handle_delete},
    {"GET", "/v1/exec/*/output", 0, false, agent_exec_handle_output},
    {"GET", "/v1/exec/*/attach", 0, false, agent_exec_handle_attach},
    {"POST", "/v1/exec/*/stdin", 0, false, agent_exec_handle_stdin},
    {"POST", "/v1/exec/*/signal", AGENT_JSON_LIMIT, false, agent_exec_handle_signal},
    {"GET", "/v1/windows", 0, false, agent_window_handle_list},
    {"GET", "/v1/windows/*", 0, false, agent_window_handle_get},
    {"PUT", "/v1/windows/*", AGENT_JSON_LIMIT, false, agent_window_handle_open},
    {"DELETE", "/v1/windows/*", 0, false, agent_window_handle_close},
    {"POST", "/v1/windows/*/run", AGENT_RUN_JSON_LIMIT, false, agent_window_handle_run},
    {"GET", "/v1/windows/*/runs", 0, false, agent_window_handle_runs},
    {"GET", "/v1/windows/*/runs/*", 0, false, agent_window_handle_get_run},
    {"GET", "/v1/windows/*/output", 0, false, agent_window_handle_output},
    {"POST", "/v1/windows/*/input", 0, false, agent_window_handle_input},
    {"POST", "/v1/windows/*/resize", AGENT_JSON_LIMIT, false, agent_window_handle_resize},
    {"GET", "/v1/files", 0, false, agent_files_handle_get},
    {"HEAD", "/v1/files", 0, false, agent_files_handle_get},
    {"PUT", "/v1/files", 0, false, agent_files_handle_put},
    {"DELETE", "/v1/files", 0, false, agent_files_handle_delete},
    {"GET", "/v1/files/list", 0, false, agent_files_handle_list},
    {"GET", "/v1/files/stat", 0, false, agent_files_handle_stat},
    {"GET", "/v1/files/watch", 0, false, agent_files_handle_watch},
    {"POST", "/v1/files/move", AGENT_JSON_LIMIT, false, agent_files_handle_move},
    {"POST", "/v1/files/mkdir", AGENT_JSON_LIMIT, false, agent_files_handle_mkdir},
    {"POST", "/v1/sync/list", 0, false, agent_sync_handle_list},
    {"POST", "/v1/sync/hash", 0, false, agent_sync_handle_hash},
    {"POST", "/v1/sync/read", 0, false, agent_sync_handle_read},
    {"POST", "/v1/sync/apply", 0, false, agent_sync_handle_apply},
    {"POST", "/v1/sync/watch", 0, false, agent_sync_handle_watch},
    {"POST", "/v1/git/look", AGENT_GIT_FOLDERS_LIMIT, false, agent_git_handle_look},
    {"GET", "/v1/git", 0, false, agent_git_handle_get},
    {"PUT", "/v1/git", 0, false, agent_git_handle_put},
    {"POST", "/v1/ssh/keys", AGENT_JSON_LIMIT, false, agent_ssh_keys_handle_post},
    {"POST", "/v1/ssh", 0, false, agent_ssh_handle_open},
    {"GET", "/v1/ssh", 0, false, agent_ssh_handle_list},
    {"CONNECT", "/connect", 0, false, agent_tunnel_handle},
};
const size_t agent_n_routes = sizeof(agent_routes) / sizeof(agent_routes[0]);
