/* SPDX-License-Identifier: MIT */
/* /v1/sessions */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/machine.h"
#include "vmm/page.h"
#include "vmm/store.h"
#include "vmm/vmm.h"

/* Members of the body that are not there stay in *out as they are. Returns false after answering.
 */
static bool get_settings(struct vmm_request *req, struct vmm_session_settings *out)
{
    const json_t *persist = json_object_get(req->body, "persist");
    const json_t *timeout = json_object_get(req->body, "idle_timeout_s");

    out->name = json_string_value(json_object_get(req->body, "name"));
    if (out->name != NULL && *out->name && !vmm_name_valid(out->name, VMM_SESSION_NAME_MAX)) {
        vmm_reply_error(req, 422,
                        "member \"name\" must be at most %d bytes without control characters",
                        VMM_SESSION_NAME_MAX);
        return false;
    }
    if (json_is_integer(timeout) &&
        (json_integer_value(timeout) < 0 || json_integer_value(timeout) > VMM_IDLE_MAX_S)) {
        vmm_reply_error(
            req, 422, "member \"idle_timeout_s\" must be from 1 to %d seconds, or 0 for the node's",
            VMM_IDLE_MAX_S);
        return false;
    }
    if (json_is_boolean(persist))
        out->persist = json_is_true(persist);
    if (json_is_integer(timeout))
        out->idle_timeout_s = json_integer_value(timeout);
    return true;
}

void vmm_api_session_new(struct vmm_request *req)
{
    struct vmm_session_settings want = {0};
    struct vmm_session *session;
    struct err err = {0};

    if (!get_settings(req, &want))
        return;
    if (req->vmm->ending) {
        vmm_reply_error(req, 503, "the manager is ending");
        return;
    }
    if (vmm_session_new(&req->vmm->sessions, req->who.owner, &want, &session, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    log_info("session=%s: created for %s", session->id, session->owner);
    vmm_live_session(req->vmm, session, "session.created");
    vmm_reply_json(req, 201, vmm_view_session(req->vmm, session));
}

/* May the asking key see it? */
static bool is_visible(const struct vmm_request *req, const struct vmm_session *session)
{
    return req->who.scope == VMM_SCOPE_ADMIN || strcmp(req->who.owner, session->owner) == 0;
}

void vmm_api_session_list(struct vmm_request *req)
{
    struct vmm_page page;

    if (!vmm_page_begin(&page, req))
        return;
    for (const struct vmm_session *s = req->vmm->sessions.first; s != NULL; s = s->next) {
        if (is_visible(req, s) && !s->deleting && vmm_page_wants(&page, s->id))
            vmm_page_add(&page, s->id, vmm_view_session(req->vmm, s));
    }
    vmm_page_reply(&page, "sessions");
}

void vmm_api_session_get(struct vmm_request *req)
{
    vmm_reply_json(req, 200, vmm_view_session(req->vmm, req->session));
}

void vmm_api_session_change(struct vmm_request *req)
{
    struct vmm_session *session = req->session;
    struct vmm_session_settings want = {.persist = session->persist,
                                        .idle_timeout_s = session->idle_timeout_s};
    struct err err = {0};

    if (!get_settings(req, &want))
        return;
    if (vmm_session_change(&req->vmm->sessions, session, &want, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        vmm_machine_judge(sb);
    vmm_live_session(req->vmm, session, "session.changed");
    vmm_reply_json(req, 200, vmm_view_session(req->vmm, session));
}

/* ---- deletion: mark it, stop every sandbox, end its store, remove all, answer ---- */

struct deletion {
    struct vmm *vmm;
    struct vmm_request *req; /* NULL: nobody waits (resumed after a crash) */
    char session[VMM_ID_LEN + 1];
};

static void deletion_end(struct deletion *d, const struct err *err)
{
    if (d->req != NULL) {
        if (err->code == 0)
            vmm_reply_empty(d->req, 204);
        else
            vmm_reply_err(d->req, err);
        vmm_request_unref(d->req);
    } else if (err->code != 0) {
        log_error("session=%s: not deleted: %s", d->session, err->msg);
    }
    free(d);
}

static void deletion_step(struct deletion *d);

static void on_stopped(struct vmm_sandbox *sb, int status, const char *why, void *arg)
{
    struct deletion *d = arg;

    (void)sb;
    (void)status;
    (void)why;
    deletion_step(d);
}

static void on_store_ended(void *arg)
{
    deletion_step(arg);
}

static void deletion_step(struct deletion *d)
{
    struct vmm_session *session = vmm_session_find(&d->vmm->sessions, d->session);
    struct err err = {0};
    int r;

    if (session == NULL) { /* two deletions at once: the other one was first */
        deletion_end(d, &err);
        return;
    }
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next) {
        r = vmm_sandbox_stop(sb, "the session is being deleted", true, on_stopped, d, &err);
        if (r > 0)
            return; /* on_stopped() goes on */
        if (r < 0) {
            deletion_end(d, &err);
            return;
        }
    }
    if (vmm_store_end(d->vmm, session, on_store_ended, d))
        return; /* on_store_ended() goes on */
    log_info("session=%s: deleted", session->id);
    vmm_live_session_gone(d->vmm, session);
    if (vmm_session_remove(&d->vmm->sessions, session, &err) != 0)
        log_error("session=%s: %s; the next start tries again", d->session, err.msg);
    vmm_stores_sweep(d->vmm);
    tr_err_clear(&err);
    deletion_end(d, &err);
}

static void delete_session(struct vmm *vmm, struct vmm_request *req, struct vmm_session *session)
{
    struct deletion *d = calloc(1, sizeof(*d));
    struct err err = {0};

    if (d == NULL) {
        if (req != NULL)
            vmm_reply_error(req, 503, "out of memory");
        return;
    }
    d->vmm = vmm;
    d->req = req == NULL ? NULL : vmm_request_ref(req);
    memcpy(d->session, session->id, sizeof(d->session));
    if (vmm_session_mark_deleting(&vmm->sessions, session, &err) != 0)
        deletion_end(d, &err);
    else
        deletion_step(d);
}

void vmm_api_session_delete(struct vmm_request *req)
{
    delete_session(req->vmm, req, req->session);
}

void vmm_api_session_resume_delete(struct vmm *vmm, struct vmm_session *session)
{
    delete_session(vmm, NULL, session);
}
