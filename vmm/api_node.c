/* SPDX-License-Identifier: MIT */
/* /v1/version, /v1/openapi.json, /v1/node */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/image.h"
#include "vmm/live.h"
#include "vmm/node.h"
#include "vmm/openapi.h"
#include "vmm/vmm.h"

void vmm_api_version(struct vmm_request *req)
{
    vmm_reply_json(req, 200, json_pack("{ss, ss}", "version", TRANSOM_VERSION, "api", "v1"));
}

void vmm_api_openapi(struct vmm_request *req)
{
    vmm_reply_bytes(req, 200, "application/json", vmm_openapi_start,
                    (size_t)(vmm_openapi_end - vmm_openapi_start));
}

/* How many sandboxes the caller may see, by state. */
static json_t *count_sandboxes(const struct vmm_request *req)
{
    json_int_t n[TR_SANDBOX_FAILED + 1] = {0};
    json_t *out = json_object();

    for (const struct vmm_session *s = req->vmm->sessions.first; s != NULL; s = s->next) {
        if (req->who.scope != VMM_SCOPE_ADMIN && strcmp(req->who.owner, s->owner) != 0)
            continue;
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next)
            n[sb->state]++;
    }
    for (int i = TR_SANDBOX_ASLEEP; out != NULL && i <= TR_SANDBOX_FAILED; i++) {
        if (json_object_set_new(out, tr_sandbox_state_name((enum tr_sandbox_state)i),
                                json_integer(n[i])) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *describe_image(const struct vmm_options *options)
{
    struct vmm_image image;
    struct err err = {0};
    json_t *out;

    if (vmm_image_find(options, &image, &err) != 0)
        return json_pack("{ss}", "error", err.msg);
    out = json_pack("{ss}", "path", image.dir);
    if (out != NULL && json_object_update(out, image.about) != 0) {
        json_decref(out);
        out = NULL;
    }
    vmm_image_fini(&image);
    return out;
}

/* Of /proc/meminfo; 0 when it does not say. */
static json_int_t available_mb(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kb = 0;
    char line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return (json_int_t)(kb / 1024);
}

void vmm_api_node(struct vmm_request *req)
{
    const struct vmm *vmm = req->vmm;
    const struct vmm_node *node = vmm->node;
    double load = 0;

    (void)!getloadavg(&load, 1);
    vmm_reply_json(
        req, 200,
        json_pack("{ss, ss, ss, s{sb, ss}, sI, sI, sI, sf, so, sI, so, s{sb, ss}}", "name",
                  vmm->options->node, "version", TRANSOM_VERSION, "accelerator",
                  vm_accel_name(node->accel), "kvm", "usable", node->kvm.verdict == VM_KVM_USABLE,
                  "reason", node->kvm.reason, "cpus", (json_int_t)node->cpus, "memory_mb",
                  (json_int_t)node->memory_mb, "memory_available_mb", available_mb(), "load1", load,
                  "sandboxes", count_sandboxes(req), "max_sandboxes",
                  (json_int_t)vmm->options->max_sandboxes, "image", describe_image(vmm->options),
                  "redis", "up", vmm_live_is_up(vmm->live), "url", vmm_live_url(vmm->live)));
}
