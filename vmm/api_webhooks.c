/* SPDX-License-Identifier: MIT */
/* /v1/webhooks: each owner's own; an administrator sees all. */
#include <errno.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/page.h"
#include "vmm/vmm.h"
#include "vmm/webhook.h"

static bool is_visible(const struct vmm_request *req, const struct vmm_webhook *hook)
{
    return req->who.scope == VMM_SCOPE_ADMIN ||
           strcmp(req->who.owner, vmm_webhook_owner(hook)) == 0;
}

void vmm_api_webhook_new(struct vmm_request *req)
{
    const char *url = json_string_value(json_object_get(req->body, "url"));
    bool all_owners = json_is_true(json_object_get(req->body, "all_owners"));
    char secret[VMM_WEBHOOK_SECRET_LEN + 1];
    struct vmm_webhook *hook;
    struct err err = {0};
    json_t *view;

    if (all_owners && req->who.scope != VMM_SCOPE_ADMIN) {
        vmm_reply_error(req, 403, "everybody's events are for a key with scope \"admin\"");
        return;
    }
    if (vmm_webhook_new(req->vmm->webhooks, req->who.owner, url,
                        json_object_get(req->body, "events"), all_owners, &hook, secret,
                        &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    view = vmm_webhook_view(hook);
    if (view != NULL && json_object_set_new(view, "secret", json_string(secret)) != 0) {
        json_decref(view);
        view = NULL;
    }
    explicit_bzero(secret, sizeof(secret));
    vmm_reply_json(req, 201, view);
}

void vmm_api_webhook_list(struct vmm_request *req)
{
    struct vmm_page page;

    if (!vmm_page_begin(&page, req))
        return;
    for (const struct vmm_webhook *h = vmm_webhook_first(req->vmm->webhooks); h != NULL;
         h = vmm_webhook_next(h)) {
        if (is_visible(req, h) && vmm_page_wants(&page, vmm_webhook_id(h)))
            vmm_page_add(&page, vmm_webhook_id(h), vmm_webhook_view(h));
    }
    vmm_page_reply(&page, "webhooks");
}

void vmm_api_webhook_get(struct vmm_request *req)
{
    const struct vmm_webhook *hook = vmm_webhook_find(req->vmm->webhooks, req->params[0]);

    if (hook == NULL || !is_visible(req, hook))
        vmm_reply_error(req, 404, "there is no webhook %.64s", req->params[0]);
    else
        vmm_reply_json(req, 200, vmm_webhook_view(hook));
}

void vmm_api_webhook_delete(struct vmm_request *req)
{
    const struct vmm_webhook *hook = vmm_webhook_find(req->vmm->webhooks, req->params[0]);
    struct err err = {0};

    /* Deleting again is fine, and a foreign one looks like none. */
    if (hook != NULL && is_visible(req, hook) &&
        vmm_webhook_delete(req->vmm->webhooks, req->params[0], &err) != 0)
        vmm_reply_err(req, &err);
    else
        vmm_reply_empty(req, 204);
}
