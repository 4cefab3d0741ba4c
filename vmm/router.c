/* SPDX-License-Identifier: MIT */
#include "vmm/router.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/bind.h"
#include "vmm/secret.h"

#define S "/v1/sessions/{s}"
#define N S "/sandboxes/{n}"
#define W N "/windows/{w}"

static const struct vmm_member key_members[] = {
    {"owner", JSON_STRING, true},
    {"name", JSON_STRING, false},
    {"scopes", JSON_ARRAY, false},
    {0},
};
static const struct vmm_member webhook_members[] = {
    {"url", JSON_STRING, true},
    {"events", JSON_ARRAY, false},
    {"all_owners", JSON_TRUE, false},
    {0},
};
static const struct vmm_member session_members[] = {
    {"name", JSON_STRING, false},
    {"persist", JSON_TRUE, false},
    {"idle_timeout_s", JSON_INTEGER, false},
    {0},
};
static const struct vmm_member reset_members[] = {
    {"confirm", JSON_TRUE, true},
    {0},
};
static const struct vmm_member routes_members[] = {
    {"port", JSON_INTEGER, false},
    {"protocol", JSON_STRING, false},
    {"rules", JSON_ARRAY, false},
    {0},
};
static const struct vmm_member ports_members[] = {
    {"ports", JSON_ARRAY, true},
    {0},
};
static const struct vmm_member access_members[] = {
    {"mode", JSON_STRING, true}, /* whoever leaves it out does not mean to open the preview */
    {"wake", JSON_TRUE, false},
    {"embed", JSON_TRUE, false},
    {0},
};
static const struct vmm_member link_members[] = {
    {"port", JSON_INTEGER, false},
    {"expires_s", JSON_INTEGER, false},
    {"path", JSON_STRING, false},
    {0},
};
static const struct vmm_member wake_members[] = {
    {"label", JSON_STRING, true},
    {0},
};
static const struct vmm_member run_members[] = {
    {"command", JSON_STRING, true}, {"wait_ms", JSON_INTEGER, false}, {"rows", JSON_INTEGER, false},
    {"cols", JSON_INTEGER, false},  {"env", JSON_OBJECT, false},      {0},
};
static const struct vmm_member window_members[] = {
    {"rows", JSON_INTEGER, false},
    {"cols", JSON_INTEGER, false},
    {0},
};
static const struct vmm_member resize_members[] = {
    {"rows", JSON_INTEGER, true},
    {"cols", JSON_INTEGER, true},
    {0},
};
static const struct vmm_member exec_members[] = {
    {"argv", JSON_ARRAY, false},
    {"command", JSON_STRING, false},
    {"cwd", JSON_STRING, false},
    {"env", JSON_OBJECT, false},
    {"user", JSON_STRING, false},
    {"stdin", JSON_TRUE, false},
    {"timeout_ms", JSON_INTEGER, false},
    {"detach", JSON_TRUE, false},
    {0},
};
static const struct vmm_member move_members[] = {
    {"from", JSON_STRING, true},
    {"to", JSON_STRING, true},
    {"replace", JSON_TRUE, false},
    {"user", JSON_STRING, false},
    {0},
};
static const struct vmm_member store_move_members[] = {
    {"from", JSON_STRING, false}, /* or from_b64 */
    {"from_b64", JSON_STRING, false},
    {"to", JSON_STRING, false},
    {"to_b64", JSON_STRING, false},
    {"replace", JSON_TRUE, false},
    {0},
};
static const struct vmm_member clone_members[] = {
    {"url", JSON_STRING, true},
    {"ref", JSON_STRING, false},
    {"depth", JSON_INTEGER, false},
    {0},
};
static const struct vmm_member checkpoint_members[] = {
    {"message", JSON_STRING, false},
    {0},
};
static const struct vmm_member restore_members[] = {
    {"path", JSON_STRING, false},
    {"path_b64", JSON_STRING, false},
    {0},
};
static const struct vmm_member mkdir_members[] = {
    {"path", JSON_STRING, true},
    {"mode", JSON_STRING, false},
    {"user", JSON_STRING, false},
    {"owner", JSON_STRING, false},
    {0},
};
static const struct vmm_member ssh_key_members[] = {
    {"public_key", JSON_STRING, true},
    {"expires_s", JSON_INTEGER, false},
    {0},
};
static const struct vmm_member signal_members[] = {
    {"signal", JSON_STRING, true},
    {0},
};

#define AT(method_, path_, scope_, body_, handler_, ...)                                           \
    {                                                                                              \
        .method = method_, .path = path_, .scope = VMM_SCOPE_##scope_, .body = VMM_BODY_##body_,   \
        .handle = vmm_api_##handler_, __VA_ARGS__                                                  \
    }
#define MEMBERS(m) .members = m##_members
#define RAW_MAX(n) .raw_max = n
#define EMPTY(e)   .asleep = VMM_ASLEEP_EMPTY, .empty = e
#define ABSENT     .asleep = VMM_ASLEEP_404
#define GONE       .asleep = VMM_ASLEEP_204
#define USE        .activity = true
#define WEBSOCKET  .websocket = true
#define TAIL       .tail = true
#define SINCE      .needs_query = "since"
#define PATH       .needs_query = "path"
#define FOLDER     .needs_query = "folder"
#define GATEWAY    .gateway_only = true
#define CREATES    .creates = true
#define QUIET      .quiet = true

/* clang-format off */
const struct vmm_endpoint vmm_endpoints[] = {
    AT("GET",    "/v1/version",             NONE,    NONE,   version),
    AT("GET",    "/v1/openapi.json",        NONE,    NONE,   openapi),
    AT("GET",    "/v1/node",                READ,    NONE,   node),
    AT("GET",    "/v1/node/traffic",        ADMIN,   NONE,   traffic),
    AT("GET",    "/v1/events",              READ,    NONE,   events),
    AT("GET",    "/v1/audit",               ADMIN,   NONE,   audit),
    AT("GET",    "/v1/whoami",              READ,    NONE,   whoami),
    AT("GET",    "/v1/sandboxes",           READ,    NONE,   sandbox_search),

    AT("POST",   "/v1/keys",                ADMIN,   JSON,   key_new, MEMBERS(key), CREATES),
    AT("GET",    "/v1/keys",                ADMIN,   NONE,   key_list),
    AT("DELETE", "/v1/keys/{id}",           ADMIN,   NONE,   key_delete),

    AT("POST",   "/v1/webhooks",            SESSION, JSON,   webhook_new, MEMBERS(webhook), CREATES),
    AT("GET",    "/v1/webhooks",            READ,    NONE,   webhook_list),
    AT("GET",    "/v1/webhooks/{id}",       READ,    NONE,   webhook_get),
    AT("DELETE", "/v1/webhooks/{id}",       SESSION, NONE,   webhook_delete),

    AT("GET",    "/v1/secrets",             READ,    NONE,   secret_list),
    AT("POST",   "/v1/secrets/rotate-key",  ADMIN,   NONE,   secret_rotate),
    AT("PUT",    "/v1/secrets/{name}",      SESSION, RAW,    secret_put, RAW_MAX(VMM_SECRET_VALUE_MAX)),
    AT("DELETE", "/v1/secrets/{name}",      SESSION, NONE,   secret_delete),

    AT("POST",   "/v1/sessions",            SESSION, JSON,   session_new, MEMBERS(session), CREATES),
    AT("GET",    "/v1/sessions",            READ,    NONE,   session_list),
    AT("GET",    S,                         READ,    NONE,   session_get),
    AT("PATCH",  S,                         SESSION, JSON,   session_change, MEMBERS(session)),
    AT("DELETE", S,                         SESSION, NONE,   session_delete),

    AT("GET",    S "/secrets",              READ,    NONE,   active_list),
    AT("PUT",    S "/secrets/{name}",       SESSION, NONE,   active_put),
    AT("DELETE", S "/secrets/{name}",       SESSION, NONE,   active_delete),

    /* The session's own files, whether a machine runs or not. */
    AT("GET",    S "/files",                READ,    NONE,   store_list),
    AT("POST",   S "/clone",                SESSION, JSON,   store_clone, MEMBERS(clone)),
    AT("POST",   S "/files",                SESSION, STREAM, store_unpack),
    AT("POST",   S "/files/move",           SESSION, JSON,   store_move, MEMBERS(store_move)),
    AT("GET",    S "/files/{path}",         READ,    NONE,   store_get, TAIL),
    AT("HEAD",   S "/files/{path}",         READ,    NONE,   store_get, TAIL),
    AT("PUT",    S "/files/{path}",         SESSION, STREAM, store_put, TAIL),
    AT("DELETE", S "/files/{path}",         SESSION, NONE,   store_delete, TAIL),
    AT("GET",    S "/git/{path}",           READ,    NONE,   store_git, TAIL),
    AT("POST",   S "/bindings",             SESSION, STREAM, bind, FOLDER),
    AT("GET",    S "/bindings",             READ,    NONE,   bind_list),
    AT("GET",    S "/changes",              READ,    NONE,   changes, SINCE),
    AT("GET",    S "/contents/{content}",   READ,    NONE,   content_get),
    AT("GET",    S "/kept",                 READ,    NONE,   kept_list),
    AT("GET",    S "/checkpoints",          READ,    NONE,   checkpoint_list),
    AT("POST",   S "/checkpoints",          SESSION, JSON,   checkpoint_new, MEMBERS(checkpoint), CREATES),
    AT("GET",    S "/checkpoints/{checkpoint}", READ, NONE,  checkpoint_get),
    AT("POST",   S "/checkpoints/{checkpoint}/restore", SESSION, JSON, checkpoint_restore, MEMBERS(restore)),

    AT("GET",    S "/sandboxes",            READ,    NONE,   sandbox_list),
    AT("GET",    N,                         READ,    NONE,   sandbox_get),
    AT("GET",    N "/idle",                 READ,    NONE,   idle),
    AT("GET",    N "/stats",                READ,    NONE,   stats),
    AT("GET",    N "/sync",                 READ,    NONE,   sync),
    AT("POST",   N "/start",                SESSION, NONE,   sandbox_start),
    AT("POST",   N "/stop",                 SESSION, NONE,   sandbox_stop),
    AT("POST",   N "/reset",                SESSION, JSON,   sandbox_reset, MEMBERS(reset)),

    AT("GET",    N "/routes",               READ,    NONE,   routes_get),
    AT("PUT",    N "/routes",               SESSION, JSON,   routes_put, MEMBERS(routes)),
    AT("GET",    N "/ports",                READ,    NONE,   ports_get),
    AT("PUT",    N "/ports",                SESSION, JSON,   ports_put, MEMBERS(ports)),
    AT("GET",    N "/access",               READ,    NONE,   access_get),
    AT("PUT",    N "/access",               SESSION, JSON,   access_put, MEMBERS(access)),
    AT("POST",   N "/access/revoke",        SESSION, NONE,   access_revoke),
    AT("POST",   N "/links",                SESSION, JSON,   link_new, MEMBERS(link), CREATES),

    AT("POST",   "/v1/edge/wake",           NONE,    JSON,   wake, MEMBERS(wake), GATEWAY),

    /* Answered by the agent. */
    AT("GET",    N "/windows",              READ,    NONE,   forward, EMPTY("{\"windows\":[]}")),
    AT("GET",    W,                         READ,    NONE,   forward, ABSENT),
    AT("PUT",    W,                         SESSION, JSON,   forward, MEMBERS(window), USE),
    AT("DELETE", W,                         SESSION, NONE,   forward, GONE),
    AT("POST",   W "/run",                  SESSION, JSON,   forward, MEMBERS(run), USE),
    AT("GET",    W "/runs",                 READ,    NONE,   forward, ABSENT),
    AT("GET",    W "/runs/{id}",            READ,    NONE,   forward, ABSENT),
    AT("GET",    W "/output",               READ,    NONE,   forward, ABSENT),
    AT("GET",    W "/attach",               SESSION, NONE,   attach, WEBSOCKET),
    AT("POST",   W "/input",                SESSION, STREAM, forward, ABSENT, USE, QUIET),
    AT("POST",   W "/resize",               SESSION, JSON,   forward, MEMBERS(resize), ABSENT, QUIET),
    AT("POST",   N "/exec",                 SESSION, JSON,   forward, MEMBERS(exec), USE),
    AT("GET",    N "/exec",                 READ,    NONE,   forward, EMPTY("{\"execs\":[]}")),
    AT("GET",    N "/exec/{id}",            READ,    NONE,   forward, ABSENT),
    AT("DELETE", N "/exec/{id}",            SESSION, NONE,   forward, GONE),
    AT("GET",    N "/exec/{id}/output",     READ,    NONE,   forward, ABSENT),
    AT("GET",    N "/exec/{id}/attach",     READ,    NONE,   forward, ABSENT),
    AT("POST",   N "/exec/{id}/stdin",      SESSION, STREAM, forward, ABSENT, USE, QUIET),
    AT("POST",   N "/exec/{id}/signal",     SESSION, JSON,   forward, MEMBERS(signal), ABSENT),
    AT("POST",   N "/ssh/keys",             SESSION, JSON,   ssh_key, MEMBERS(ssh_key), USE),
    AT("POST",   N "/ssh",                  SESSION, STREAM, forward, USE),
    AT("GET",    N "/ssh",                  READ,    NONE,   forward, EMPTY("{\"connections\":[]}")),
    AT("GET",    N "/files",                READ,    NONE,   forward, PATH),
    AT("HEAD",   N "/files",                READ,    NONE,   forward, PATH),
    AT("PUT",    N "/files",                SESSION, STREAM, forward, PATH),
    AT("DELETE", N "/files",                SESSION, NONE,   forward, PATH),
    AT("GET",    N "/files/list",           READ,    NONE,   forward, PATH),
    AT("GET",    N "/files/stat",           READ,    NONE,   forward, PATH),
    AT("GET",    N "/files/watch",          READ,    NONE,   forward, PATH),
    AT("POST",   N "/files/move",           SESSION, JSON,   forward, MEMBERS(move)),
    AT("POST",   N "/files/mkdir",          SESSION, JSON,   forward, MEMBERS(mkdir)),
};
/* clang-format on */
const size_t vmm_n_endpoints = sizeof(vmm_endpoints) / sizeof(vmm_endpoints[0]);

/* Does path fit the endpoint? Raw parameters go to raw[] (start) and len[]. */
static bool fits(const struct vmm_endpoint *e, const char *path, const char **raw, size_t *len,
                 size_t *n)
{
    const char *pattern = e->path;

    *n = 0;
    while (*pattern) {
        if (*pattern == '{') {
            const char *rest = strchr(pattern, '}') + 1;
            size_t value_len = e->tail && *rest == '\0' ? strlen(path) : strcspn(path, "/");

            if (value_len == 0 || *n == VMM_PARAMS_MAX)
                return false;
            raw[*n] = path;
            len[(*n)++] = value_len;
            path += value_len;
            pattern = rest;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

int vmm_route(struct vmm_request *req, const char *method)
{
    const char *raw[VMM_PARAMS_MAX];
    size_t len[VMM_PARAMS_MAX], n, used = 0;
    const struct vmm_endpoint *found = NULL;

    req->allow[0] = '\0';
    for (size_t i = 0; i < vmm_n_endpoints && found == NULL; i++) {
        const struct vmm_endpoint *e = &vmm_endpoints[i];

        if (e->gateway_only && !req->from_gateway)
            continue;
        if (!fits(e, req->path, raw, len, &n))
            continue;
        if (strcmp(e->method, method) == 0)
            found = e;
        else
            used += (size_t)snprintf(req->allow + used, sizeof(req->allow) - used, "%s%s",
                                     used ? ", " : "", e->method);
    }
    if (found == NULL)
        return *req->allow ? 405 : 404;
    for (size_t i = 0; i < n; i++) {
        req->params[i] = vmm_percent_decode(raw[i], len[i]);
        if (req->params[i] == NULL)
            return 400;
        req->n_params++;
    }
    req->endpoint = found;
    return 200;
}

static const char *type_name(json_type type)
{
    switch (type) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    default:
        return "true or false";
    }
}

int vmm_check_members(const json_t *body, const struct vmm_member *members, struct err *err)
{
    for (const struct vmm_member *m = members; m != NULL && m->name != NULL; m++) {
        const json_t *value = json_object_get(body, m->name);

        if (value == NULL || (json_is_null(value) && !m->required)) {
            if (m->required)
                return tr_err_set(err, -EINVAL, "member \"%s\" is missing: it must be %s", m->name,
                                  type_name(m->type));
            continue;
        }
        if (m->type == JSON_TRUE ? !json_is_boolean(value) : json_typeof(value) != m->type)
            return tr_err_set(err, -EINVAL, "member \"%s\" must be %s", m->name,
                              type_name(m->type));
    }
    return 0;
}
