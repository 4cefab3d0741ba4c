/* SPDX-License-Identifier: MIT */
/* Path: start -> on_started -> ask_agent -> on_agent -> cb. What is there already is passed by. */
#include "vmm/reach.h"

#include <errno.h>
#include <string.h>
#include "vmm/machine.h"
#include "vmm/vmm.h"

#define AGENT_WAIT_MS 30000

struct vmm_sandbox *vmm_reach_sandbox(const struct vmm_reach *r)
{
    return vmm_sessions_by_label(&r->req->vmm->sessions, r->label);
}

struct vmm_agent *vmm_reach_agent(const struct vmm_reach *r)
{
    const struct vmm_sandbox *sb = vmm_reach_sandbox(r);

    return sb == NULL ? NULL : vmm_machine_agent(sb);
}

static void on_agent(struct vmm_agent_wait *wait, int status)
{
    struct vmm_reach *r = (struct vmm_reach *)((char *)wait - offsetof(struct vmm_reach, wait));
    const struct vmm_sandbox *sb = vmm_reach_sandbox(r);
    struct vmm_agent *agent = vmm_reach_agent(r);
    struct tr_h2 *h2 = agent == NULL ? NULL : vmm_agent_session(agent);

    if (status == 0 && h2 != NULL) {
        r->cb(r, h2);
        return;
    }
    if (status == UV_ETIMEDOUT)
        vmm_reply_error(r->req, 504, "the sandbox's agent does not answer");
    else
        vmm_reply_error(r->req, 502, "the machine ended%s%s", sb != NULL && *sb->reason ? ": " : "",
                        sb != NULL ? sb->reason : "");
    r->cb(r, NULL);
}

static void ask_agent(struct vmm_reach *r, const struct vmm_sandbox *sb)
{
    struct vmm_agent *agent = vmm_machine_agent(sb);

    if (agent == NULL) {
        vmm_reply_error(r->req, 502, "the sandbox has no agent");
        r->cb(r, NULL);
    } else if (vmm_agent_session(agent) != NULL) {
        r->cb(r, vmm_agent_session(agent));
    } else {
        r->wait.cb = on_agent;
        vmm_agent_wait(agent, &r->wait, AGENT_WAIT_MS);
    }
}

static void on_started(struct vmm_sandbox *sb, int status, const char *why, void *arg)
{
    struct vmm_reach *r = arg;

    if (r->req->st == NULL) {
        r->cb(r, NULL);
    } else if (status != 0) {
        vmm_reply_error(r->req, status == -ECANCELED || status == -ESHUTDOWN ? 409 : 503,
                        "the sandbox did not start: %s", why);
        r->cb(r, NULL);
    } else {
        ask_agent(r, sb);
    }
}

void vmm_reach_start(struct vmm_reach *r, struct vmm_request *req, vmm_reach_cb cb)
{
    struct err err = {0};
    int status;

    memset(r, 0, sizeof(*r));
    r->req = req;
    r->cb = cb;
    memcpy(r->label, req->sandbox->label, sizeof(r->label));
    status = vmm_sandbox_start(req->sandbox, on_started, r, &err);
    if (status == 0) {
        ask_agent(r, req->sandbox);
    } else if (status < 0) {
        vmm_reply_err(req, &err);
        cb(r, NULL);
    }
}

bool vmm_reach_cancel(struct vmm_reach *r)
{
    if (r->wait.agent == NULL)
        return false;
    vmm_agent_wait_cancel(&r->wait);
    return true;
}
