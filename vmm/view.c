/* SPDX-License-Identifier: MIT */
/* How sessions and sandboxes look in answers. */
#include <stdio.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/machine.h"
#include "vmm/vmm.h"

void vmm_view_host(const struct vmm *vmm, const char *label, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", label, vmm->options->preview_domain);
}

void vmm_view_url(const struct vmm *vmm, const char *label, char *out, size_t size)
{
    const struct vmm_options *o = vmm->options;
    char port[8] = "";

    if (o->preview_port != 0)
        snprintf(port, sizeof(port), ":%u", o->preview_port);
    snprintf(out, size, "%s://%s.%s%s", o->preview_scheme, label, o->preview_domain, port);
}

json_t *vmm_view_sandbox(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    char url[512], host[300], created[VMM_TIME_SIZE], started[VMM_TIME_SIZE];

    vmm_view_url(vmm, sb->label, url, sizeof(url));
    vmm_view_host(vmm, sb->label, host, sizeof(host));
    vmm_time_text(sb->created_ms, created);
    vmm_time_text(sb->started_ms, started);
    return json_pack("{ss, ss, ss, ss, sI, ss, ss, ss, ss, sI, sI, ss, ss*, so*, sO?}", "name",
                     sb->name, "label", sb->label, "state", tr_sandbox_state_name(sb->state),
                     "reason", sb->reason, "instance", (json_int_t)sb->instance, "address",
                     sb->address, "url", url, "host", host, "access",
                     sb->preview.is_private ? "private" : "public", "vcpus", (json_int_t)sb->vcpus,
                     "memory_mb", (json_int_t)sb->memory_mb, "created_at", created, "started_at",
                     *started ? started : NULL, "idle", vmm_machine_idle_json(sb), "stats",
                     vmm_machine_stats(sb));
}

json_t *vmm_view_session(const struct vmm *vmm, const struct vmm_session *session)
{
    char created[VMM_TIME_SIZE];
    json_t *sandboxes = json_array();

    for (const struct vmm_sandbox *sb = session->sandboxes; sandboxes != NULL && sb != NULL;
         sb = sb->next) {
        if (json_array_append_new(sandboxes, vmm_view_sandbox(vmm, sb)) != 0) {
            json_decref(sandboxes);
            sandboxes = NULL;
        }
    }
    vmm_time_text(session->created_ms, created);
    return json_pack("{ss, ss, ss, ss, sb, sI, sO, so}", "id", session->id, "name", session->name,
                     "owner", session->owner, "created_at", created, "persist", session->persist,
                     "idle_timeout_s", (json_int_t)session->idle_timeout_s, "secrets",
                     session->secrets, "sandboxes", sandboxes);
}
