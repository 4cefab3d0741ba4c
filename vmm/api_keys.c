/* SPDX-License-Identifier: MIT */
/* /v1/keys: admin only (the router sees to it). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/page.h"
#include "vmm/server.h"
#include "vmm/vmm.h"

void vmm_api_key_new(struct vmm_request *req)
{
    const char *owner = json_string_value(json_object_get(req->body, "owner"));
    const char *name = json_string_value(json_object_get(req->body, "name"));
    const json_t *scopes = json_object_get(req->body, "scopes");
    enum vmm_scope scope = VMM_SCOPE_SESSION;
    struct err err = {0};
    json_t *key;

    if (!vmm_owner_valid(owner)) {
        vmm_reply_error(req, 422, "member \"owner\" must be 1 to %d letters, digits and \"._-@+\"",
                        VMM_OWNER_MAX);
        return;
    }
    if (name != NULL && *name && !vmm_name_valid(name, 128)) {
        vmm_reply_error(req, 422,
                        "member \"name\" must be at most 128 bytes without control characters");
        return;
    }
    if (json_is_array(scopes) && vmm_scopes_parse(scopes, &scope, &err) != 0) {
        vmm_reply_error(req, 422, "%s", err.msg);
        return;
    }
    if (vmm_auth_create(req->vmm->auth, owner, name == NULL ? "" : name, scope, &key, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    vmm_live_key(req->vmm,
                 vmm_auth_by_id(req->vmm->auth, json_string_value(json_object_get(key, "id"))));
    vmm_reply_json(req, 201, key);
}

void vmm_api_key_list(struct vmm_request *req)
{
    struct vmm_page page;

    if (!vmm_page_begin(&page, req))
        return;
    for (const struct vmm_key *k = vmm_auth_keys(req->vmm->auth); k != NULL; k = k->next) {
        if (vmm_page_wants(&page, k->id))
            vmm_page_add(&page, k->id, vmm_key_view(k));
    }
    vmm_page_reply(&page, "keys");
}

void vmm_api_key_delete(struct vmm_request *req)
{
    const struct vmm_key *key = vmm_auth_by_id(req->vmm->auth, req->params[0]);
    char hash[VMM_KEY_HASH_LEN + 1] = "";
    struct err err = {0};
    int r;

    if (key != NULL)
        snprintf(hash, sizeof(hash), "%s", key->hash);
    r = vmm_auth_delete(req->vmm->auth, req->params[0], &err);
    if (r == 0) {
        vmm_live_key_gone(req->vmm, hash);
        vmm_server_key_gone(req->vmm->server, req->params[0]);
    }
    if (r == 0 || r == -ENOENT) /* deleting again is fine */
        vmm_reply_empty(req, 204);
    else
        vmm_reply_err(req, &err);
}
