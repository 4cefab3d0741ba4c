/* SPDX-License-Identifier: MIT */
/* POST /v1/edge/wake {"label"}: the gateway asks, for a visitor of a preview whose sandbox is
 * asleep. 202 it is up or on its way, 404 no such label, 409 (wake_not_allowed) its owner has not
 * asked for that, 429 too often, else why it cannot start.
 *
 * Only the gateway's user, root and our own user are heard here, and only for themselves: a request
 * without the field transom-edge, or with x-forwarded-for or authorization, is one that the gateway
 * passes on, and for it the path does not exist. The gateway has checked the visitor's token before
 * it asks. */
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/vmm.h"

/* Strangers cause these, by way of a gateway: a start that fails must not be tried without end. */
#define AGAIN_MS        2000
#define AGAIN_FAILED_MS 30000
#define STARTS_PER_S    20
#define STARTS_BURST    100

/* Starts that may be caused now, in thousandths; refilled as time goes by. */
static bool take_start(struct vmm_wakes *w, uint64_t now_ms)
{
    uint64_t passed = w->used ? now_ms - w->at_ms : STARTS_BURST * 1000 / STARTS_PER_S;
    uint64_t budget = w->budget + passed * STARTS_PER_S;

    w->used = true;
    w->at_ms = now_ms;
    w->budget = budget > STARTS_BURST * 1000 ? STARTS_BURST * 1000 : budget;
    if (w->budget < 1000)
        return false;
    w->budget -= 1000;
    return true;
}

static void reply_state(struct vmm_request *req, const struct vmm_sandbox *sb)
{
    vmm_reply_json(req, 202, json_pack("{ss}", "state", tr_sandbox_state_name(sb->state)));
}

void vmm_api_wake(struct vmm_request *req)
{
    const char *label = json_string_value(json_object_get(req->body, "label"));
    struct vmm_sandbox *sb = vmm_sessions_by_label(&req->vmm->sessions, label);
    uint64_t now = uv_now(req->vmm->loop), pause;
    struct err err = {0};
    int r;

    if (sb == NULL || sb->closed) {
        vmm_reply_error(req, 404, "no sandbox has this label");
        return;
    }
    if (!sb->preview.wake) {
        vmm_reply_fault(req, 409, "wake_not_allowed", "its preview may not wake this sandbox");
        return;
    }
    if (sb->state == TR_SANDBOX_RUNNING || sb->state == TR_SANDBOX_STARTING) {
        reply_state(req, sb);
        return;
    }
    if (req->vmm->ending) {
        vmm_reply_error(req, 503, "the manager is ending");
        return;
    }
    pause = sb->state == TR_SANDBOX_FAILED ? AGAIN_FAILED_MS : AGAIN_MS;
    if ((sb->woken_ms != 0 && now < sb->woken_ms + pause) || !take_start(&req->vmm->wakes, now)) {
        vmm_reply_error(req, 429, "it was asked for a moment ago");
        return;
    }
    sb->woken_ms = now;
    r = vmm_sandbox_start(sb, NULL, NULL, &err);
    if (r < 0) {
        vmm_reply_err(req, &err);
        return;
    }
    log_info("vm=%s: woken by a visitor of its preview", sb->label);
    reply_state(req, sb);
}
