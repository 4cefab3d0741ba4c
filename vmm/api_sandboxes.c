/* SPDX-License-Identifier: MIT */
/* /v1/sessions/{s}/sandboxes: the life of a sandbox. */
#include <errno.h>
#include "vmm/api.h"
#include "vmm/vmm.h"

void vmm_api_sandbox_list(struct vmm_request *req)
{
    json_t *list = json_array();

    for (struct vmm_sandbox *sb = req->session->sandboxes; list != NULL && sb != NULL;
         sb = sb->next) {
        if (json_array_append_new(list, vmm_view_sandbox(req->vmm, sb)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    vmm_reply_json(req, 200, list == NULL ? NULL : json_pack("{so}", "sandboxes", list));
}

void vmm_api_sandbox_get(struct vmm_request *req)
{
    vmm_reply_json(req, 200, vmm_view_sandbox(req->vmm, req->sandbox));
}

/* The end of start, stop or reset. */
static void on_done(struct vmm_sandbox *sb, int status, const char *why, void *arg)
{
    struct vmm_request *req = arg;
    struct err err = {0};

    if (status == 0) {
        vmm_reply_json(req, 200, vmm_view_sandbox(req->vmm, sb));
    } else {
        (void)tr_err_set(&err, status, "the sandbox did not start: %s", why);
        vmm_reply_err(req, &err);
    }
    vmm_request_unref(req);
}

/* r as returned by vmm_sandbox_start() and its kin, called with a reference to req. */
static void answer(struct vmm_request *req, int r, const struct err *err)
{
    if (r > 0)
        return; /* on_done() does */
    if (r == 0)
        vmm_reply_json(req, 200, vmm_view_sandbox(req->vmm, req->sandbox));
    else
        vmm_reply_err(req, err);
    vmm_request_unref(req);
}

void vmm_api_sandbox_start(struct vmm_request *req)
{
    struct err err = {0};

    answer(req, vmm_sandbox_start(req->sandbox, on_done, vmm_request_ref(req), &err), &err);
}

void vmm_api_sandbox_stop(struct vmm_request *req)
{
    struct err err = {0};

    answer(req,
           vmm_sandbox_stop(req->sandbox, "stopped by request", false, on_done,
                            vmm_request_ref(req), &err),
           &err);
}

void vmm_api_sandbox_reset(struct vmm_request *req)
{
    struct err err = {0};

    if (!json_is_true(json_object_get(req->body, "confirm"))) {
        vmm_reply_error(req, 422,
                        "a reset ends everything in the machine: send {\"confirm\": true}");
        return;
    }
    answer(req, vmm_sandbox_reset(req->sandbox, on_done, vmm_request_ref(req), &err), &err);
}
