/* SPDX-License-Identifier: MIT */
/* POST .../ssh/keys: the key is remembered, and the sandbox's agent answers. */
#include "vmm/api.h"
#include "vmm/ssh_keys.h"
#include "vmm/vmm.h"

#define EXPIRES_DEFAULT_S 86400
#define EXPIRES_MAX_S     (30 * 86400)

void vmm_api_ssh_key(struct vmm_request *req)
{
    const json_t *expires = json_object_get(req->body, "expires_s");
    json_int_t expires_s =
        json_is_integer(expires) ? json_integer_value(expires) : EXPIRES_DEFAULT_S;
    struct err err = {0};

    if (expires_s < 1 || expires_s > EXPIRES_MAX_S)
        vmm_reply_error(req, 400, "member \"expires_s\" must be from 1 to %d", EXPIRES_MAX_S);
    else if (vmm_ssh_keys_add(req->sandbox,
                              json_string_value(json_object_get(req->body, "public_key")),
                              expires_s, uv_now(req->vmm->loop), &err) != 0)
        vmm_reply_err(req, &err);
    else
        vmm_api_forward(req);
}
