/* SPDX-License-Identifier: MIT */
/* GET .../sync: how a sandbox's files stand with the session's. */
#include "vmm/api.h"
#include "vmm/machine.h"
#include "vmm/vmm.h"

void vmm_api_sync(struct vmm_request *req)
{
    const struct vmm_sandbox *sb = req->sandbox;
    json_t *told = vmm_machine_sync_json(sb);
    json_t *body =
        json_pack("{ss, sb}", "state", tr_sandbox_state_name(sb->state), "syncing", told != NULL);

    if (told != NULL && json_object_update(body, told) != 0) {
        json_decref(body);
        body = NULL;
    }
    json_decref(told);
    vmm_reply_json(req, 200, body);
}
