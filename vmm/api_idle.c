/* SPDX-License-Identifier: MIT */
/* GET .../idle: why a sandbox is still alive, what holds it and until when. */
#include <errno.h>
#include "vmm/api.h"
#include "vmm/machine.h"
#include "vmm/vmm.h"

static void on_told(const json_t *told, void *arg)
{
    struct vmm_request *req = arg;
    json_t *body;

    if (told != NULL) {
        body = json_pack("{s:s}", "state", tr_sandbox_state_name(TR_SANDBOX_RUNNING));
        if (json_object_update(body, (json_t *)told) != 0) {
            json_decref(body);
            body = NULL;
        }
        vmm_reply_json(req, 200, body);
    } else {
        vmm_reply_error(req, 504, "the sandbox's agent does not tell what runs");
    }
    vmm_request_unref(req);
}

void vmm_api_idle(struct vmm_request *req)
{
    const struct vmm_sandbox *sb = req->sandbox;
    int r = vmm_machine_ask_idle(sb, on_told, vmm_request_ref(req));

    if (r == 0)
        return;
    if (r == -ENOTCONN)
        vmm_reply_json(
            req, 200,
            json_pack("{ss, ss}", "state", tr_sandbox_state_name(sb->state), "why", sb->reason));
    else
        vmm_reply_error(req, 503, "many ask at once; try again");
    vmm_request_unref(req);
}
