/* SPDX-License-Identifier: MIT */
/* .../sandboxes/{n}/routes, /ports, /access, /links: settings of a preview.
 * A change: check -> keep the record -> one script to Redis -> answer. A change that changes
 * nothing is answered at once. With Redis away the record counts; the route is written when it is
 * back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/preview_key.h"
#include "vmm/state/route_json.h"
#include "vmm/vmm.h"

#define LINK_DEFAULT_S 3600
#define LINK_MAX_S     2592000 /* 30 days */
#define LINK_PATH_MAX  2048
#define TOKEN_MEMBER   "transom_token"

typedef int (*set_fn)(struct vmm_preview *preview, const json_t *body, struct err *err);
typedef json_t *(*view_fn)(const struct vmm *vmm, const struct vmm_sandbox *sb);

/* ---- how they look ---- */

static json_t *view_routes(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    (void)vmm;
    return json_pack("{si, ss, so}", "port", (int)sb->preview.port, "protocol",
                     tr_protocol_name(sb->preview.protocol), "rules",
                     tr_route_rules_json(sb->preview.places));
}

static void port_url(const struct vmm *vmm, const struct vmm_sandbox *sb, unsigned port, char *url,
                     size_t size)
{
    char name[VMM_ID_LEN + 8];

    snprintf(name, sizeof(name), "%u-%s", port, sb->label);
    vmm_view_url(vmm, name, url, size);
}

static json_t *view_ports(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    json_t *ports = tr_route_ports_json(sb->preview.places), *item;
    char url[512];
    size_t i;

    json_array_foreach(ports, i, item)
    {
        port_url(vmm, sb, (unsigned)json_integer_value(json_object_get(item, "port")), url,
                 sizeof(url));
        if (json_object_set_new(item, "url", json_string(url)) != 0) {
            json_decref(ports);
            return NULL;
        }
    }
    return json_pack("{so}", "ports", ports);
}

static json_t *view_access(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    (void)vmm;
    return json_pack("{ss, sb, sb, sI}", "mode", sb->preview.is_private ? "private" : "public",
                     "wake", (int)sb->preview.wake, "embed", (int)sb->preview.embed, "generation",
                     (json_int_t)sb->preview.generation);
}

/* ---- changes ---- */

struct change {
    struct vmm_request *req; /* with a reference */
    json_t *answer;
};

static void change_end(struct change *c, int status, const char *why)
{
    if (status == 0) {
        vmm_reply_json(c->req, 200, c->answer);
    } else {
        json_decref(c->answer);
        vmm_reply_error(c->req, 503, "the settings are kept, but Redis did not take them: %s", why);
    }
    vmm_request_unref(c->req);
    free(c);
}

static void on_written(int status, const char *why, void *arg)
{
    change_end(arg, status, why);
}

/* The record is kept: tell Redis, then answer. */
static void publish(struct vmm_request *req, const char *event, view_fn view)
{
    struct change *c = calloc(1, sizeof(*c));
    int r;

    if (c == NULL) {
        req->sandbox->unsent = true; /* asking again sends it */
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    c->req = vmm_request_ref(req);
    c->answer = view(req->vmm, req->sandbox);
    r = vmm_live_preview(req->vmm, req->sandbox, event, on_written, c);
    if (r != 0)
        change_end(c, r == UV_ENOTCONN ? 0 : r, uv_strerror(r));
}

/* Let edit() change the settings; keep and publish what came of it. */
static void change(struct vmm_request *req, set_fn edit, const char *event, view_fn view)
{
    struct vmm_sandbox *sb = req->sandbox;
    struct vmm_preview before, after;
    struct err err = {0};

    if (sb->closed) {
        vmm_reply_error(req, 409, "the session is being deleted");
        return;
    }
    vmm_preview_copy(&after, &sb->preview);
    if (edit(&after, req->body, &err) != 0) {
        vmm_preview_fini(&after);
        vmm_reply_err(req, &err);
        return;
    }
    if (vmm_preview_equal(&after, &sb->preview)) {
        vmm_preview_fini(&after);
        if (sb->unsent)
            publish(req, NULL, view);
        else
            vmm_reply_json(req, 200, view(req->vmm, sb));
        return;
    }
    before = sb->preview;
    sb->preview = after;
    if (vmm_sandbox_save(&req->vmm->sessions, sb, &err) != 0) {
        sb->preview = before;
        vmm_preview_fini(&after);
        log_error("vm=%s: settings of its preview: %s", sb->label, err.msg);
        vmm_reply_error(req, 503, "the settings could not be kept: %s", err.msg);
        return;
    }
    vmm_preview_fini(&before);
    publish(req, event, view);
}

void vmm_api_routes_get(struct vmm_request *req)
{
    vmm_reply_json(req, 200, view_routes(req->vmm, req->sandbox));
}

void vmm_api_routes_put(struct vmm_request *req)
{
    change(req, vmm_preview_set_routes, "routes", view_routes);
}

void vmm_api_ports_get(struct vmm_request *req)
{
    vmm_reply_json(req, 200, view_ports(req->vmm, req->sandbox));
}

void vmm_api_ports_put(struct vmm_request *req)
{
    change(req, vmm_preview_set_ports, "routes", view_ports);
}

void vmm_api_access_get(struct vmm_request *req)
{
    vmm_reply_json(req, 200, view_access(req->vmm, req->sandbox));
}

void vmm_api_access_put(struct vmm_request *req)
{
    change(req, vmm_preview_set_access, "access", view_access);
}

static int raise_generation(struct vmm_preview *preview, const json_t *body, struct err *err)
{
    (void)body;
    (void)err;
    preview->generation++;
    return 0;
}

void vmm_api_access_revoke(struct vmm_request *req)
{
    change(req, raise_generation, "access", view_access);
}

/* ---- links ---- */

/* A path, perhaps with a query, that can stand behind a host name as it is. */
static const char *link_path_fault(const char *path)
{
    size_t len = strlen(path);
    const char *query;

    if (path[0] != '/' || path[1] == '/')
        return "must begin with one \"/\"";
    if (len > LINK_PATH_MAX)
        return "is longer than 2048 bytes";
    for (size_t i = 0; i < len; i++) {
        if (path[i] <= 0x20 || path[i] >= 0x7f || strchr("#\\\"<>^`{|}", path[i]) != NULL)
            return "must be percent-encoded and without a fragment";
    }
    query = strchr(path, '?');
    if (query != NULL && strstr(query, TOKEN_MEMBER) != NULL)
        return "has a " TOKEN_MEMBER " already";
    return NULL;
}

static int link_number(const json_t *body, const char *name, int64_t max, int64_t fallback,
                       int64_t *out)
{
    const json_t *value = json_object_get(body, name);

    *out = value == NULL || json_is_null(value) ? fallback : json_integer_value(value);
    return *out >= 1 && *out <= max ? 0 : -EINVAL;
}

void vmm_api_link_new(struct vmm_request *req)
{
    const struct vmm_sandbox *sb = req->sandbox;
    const char *path = json_string_value(json_object_get(req->body, "path")), *fault;
    char token[VMM_PREVIEW_TOKEN_SIZE], host[512], until[VMM_TIME_SIZE], *url;
    uint8_t key[TR_ROUTE_KEY_SIZE];
    int64_t port, lifetime, expires;
    int r;

    if (link_number(req->body, "port", UINT16_MAX, VMM_PREVIEW_PORT, &port) != 0) {
        vmm_reply_error(req, 422, "member \"port\" must be from 1 to 65535");
        return;
    }
    if (link_number(req->body, "expires_s", LINK_MAX_S, LINK_DEFAULT_S, &lifetime) != 0) {
        vmm_reply_error(req, 422, "member \"expires_s\" must be from 1 to %d", LINK_MAX_S);
        return;
    }
    if (path == NULL)
        path = "/";
    if ((fault = link_path_fault(path)) != NULL) {
        vmm_reply_error(req, 422, "member \"path\" %s", fault);
        return;
    }
    if (!sb->preview.is_private) {
        vmm_reply_fault(req, 409, "preview_public",
                        "the preview is public: its URL needs no link; make it private first "
                        "(transom access private)");
        return;
    }
    if (port != VMM_PREVIEW_PORT && !vmm_preview_has_port(&sb->preview, (uint16_t)port)) {
        vmm_reply_error(req, 422, "member \"port\": port %d is not open", (int)port);
        return;
    }
    if (port == VMM_PREVIEW_PORT)
        vmm_view_url(req->vmm, sb->label, host, sizeof(host));
    else
        port_url(req->vmm, sb, (unsigned)port, host, sizeof(host));
    expires = vmm_wall_ms() / 1000 + lifetime;
    vmm_time_text(expires * 1000, until);
    r = vmm_preview_key(req->vmm->preview_master, sb->label, sb->preview.generation, key);
    if (r == 0)
        r = vmm_preview_token(key, sb->label, (uint16_t)port, expires, token);
    explicit_bzero(key, sizeof(key));
    if (r != 0 || asprintf(&url, "%s%s%c" TOKEN_MEMBER "=%s", host, path,
                           strchr(path, '?') == NULL ? '?' : '&', token) < 0) {
        vmm_reply_error(req, 500, "out of memory");
        return;
    }
    vmm_reply_json(req, 201,
                   json_pack("{ss, ss, si, ss}", "url", url, "token", token, "port", (int)port,
                             "expires_at", until));
    free(url);
}
