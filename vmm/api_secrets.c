/* SPDX-License-Identifier: MIT */
/* /v1/secrets and /v1/sessions/{s}/secrets. A value goes in and never comes out again but into the
 * machines of sessions that activated it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "transom/mask.h"
#include "vmm/active.h"
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/page.h"
#include "vmm/secret.h"
#include "vmm/vmm.h"

static json_t *view(const struct vmm_secret *secret)
{
    char created[VMM_TIME_SIZE], updated[VMM_TIME_SIZE];

    vmm_time_text(secret->created_ms, created);
    vmm_time_text(secret->updated_ms, updated);
    return json_pack("{ss, ss, ss}", "name", secret->name, "created_at", created, "updated_at",
                     updated);
}

/* Can it be hidden in output? Whoever activates it should know. */
static int add_maskable(json_t *answer, bool maskable)
{
    if (json_object_set_new(answer, "maskable", json_boolean(maskable)) != 0)
        return -ENOMEM;
    if (maskable)
        return 0;
    return json_object_set_new(
        answer, "note",
        json_sprintf("shorter than %d bytes: it cannot be hidden in output", TR_MASK_MIN));
}

/* ---- an answer that waits for the machines ---- */

struct waiting {
    struct vmm_request *req; /* with a reference */
    unsigned n;              /* sessions that are being told, and one while we go through them */
    int status;
    json_t *answer; /* NULL: 204 */
};

static void waiting_step(void *arg)
{
    struct waiting *w = arg;

    if (--w->n > 0)
        return;
    if (w->answer != NULL)
        vmm_reply_json(w->req, w->status, w->answer);
    else
        vmm_reply_empty(w->req, w->status);
    vmm_request_unref(w->req);
    free(w);
}

/* Answer once the session has the change, or with session NULL all of the asker's that have the
 * secret active. Takes answer. */
static void answer_after(struct vmm_request *req, struct vmm_session *session, const char *name,
                         int status, json_t *answer)
{
    struct waiting *w = calloc(1, sizeof(*w));

    vmm_active_hide(req->vmm);
    if (w == NULL) {
        json_decref(answer);
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    *w = (struct waiting){vmm_request_ref(req), 1, status, answer};
    for (struct vmm_session *s = req->vmm->sessions.first; s != NULL; s = s->next) {
        if (session != NULL ? s != session
                            : strcmp(s->owner, req->who.owner) != 0 || !vmm_active_has(s, name))
            continue;
        w->n++;
        vmm_active_push(req->vmm, s, waiting_step, w);
    }
    waiting_step(w);
}

/* ---- /v1/secrets ---- */

void vmm_api_secret_list(struct vmm_request *req)
{
    struct vmm_page page;

    if (!vmm_page_begin(&page, req))
        return;
    for (const struct vmm_secret *s = vmm_secrets_first(req->vmm->secrets); s != NULL;
         s = s->next) {
        if (strcmp(s->owner, req->who.owner) == 0 && vmm_page_wants(&page, s->name))
            vmm_page_add(&page, s->name, view(s));
    }
    vmm_page_reply(&page, "secrets");
}

/* Where it is active, the new value must fit. */
static int check_active(struct vmm_request *req, const char *name, const char *value,
                        struct err *err)
{
    int r = 0;

    for (struct vmm_session *s = req->vmm->sessions.first; s != NULL && r == 0; s = s->next) {
        if (strcmp(s->owner, req->who.owner) == 0 && vmm_active_has(s, name))
            r = vmm_active_check(req->vmm, s, name, value, req->raw_len, err);
    }
    return r;
}

void vmm_api_secret_put(struct vmm_request *req)
{
    const char *owner = req->who.owner, *name = req->params[0];
    const char *value = req->raw_len > 0 ? req->raw : "";
    const struct vmm_secret *secret;
    struct err err = {0};
    bool created = false;
    json_t *answer;

    if (check_active(req, name, value, &err) != 0 ||
        vmm_secret_set(req->vmm->secrets, owner, name, value, req->raw_len, &created, &err) != 0) {
        if (err.code == -EINVAL)
            vmm_reply_error(req, 422, "%s", err.msg);
        else
            vmm_reply_err(req, &err);
        return;
    }
    secret = vmm_secret_find(req->vmm->secrets, owner, name);
    log_info("secret %s of %s: %s", name, owner, created ? "created" : "replaced");
    vmm_live_secret(req->vmm, secret);
    answer = view(secret);
    if (answer != NULL && add_maskable(answer, tr_mask_covers(value, req->raw_len)) != 0) {
        json_decref(answer);
        answer = NULL;
    }
    if (answer == NULL) {
        vmm_reply_json(req, 200, NULL);
        return;
    }
    for (struct vmm_session *s = req->vmm->sessions.first; s != NULL; s = s->next) {
        if (strcmp(s->owner, owner) == 0 && vmm_active_has(s, name))
            s->secrets_version++;
    }
    answer_after(req, NULL, name, created ? 201 : 200, answer);
}

/* It ends everywhere before it is gone: a value that is active nowhere can be deleted. */
void vmm_api_secret_delete(struct vmm_request *req)
{
    const char *owner = req->who.owner, *name = req->params[0];
    const struct vmm_secret *secret = vmm_secret_find(req->vmm->secrets, owner, name);
    struct waiting *w;
    struct err err = {0};
    int r = 0;

    if (secret == NULL) {
        vmm_reply_empty(req, 204); /* deleting again is fine */
        return;
    }
    w = calloc(1, sizeof(*w));
    if (w == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    *w = (struct waiting){vmm_request_ref(req), 1, 204, NULL};
    for (struct vmm_session *s = req->vmm->sessions.first; s != NULL; s = s->next) {
        if (strcmp(s->owner, owner) != 0 || !vmm_active_has(s, name))
            continue;
        r = vmm_active_set(req->vmm, s, name, false, &err);
        if (r != 0)
            break;
        w->n++;
        vmm_active_push(req->vmm, s, waiting_step, w);
    }
    if (err.code == 0) {
        vmm_live_secret_gone(req->vmm, secret);
        r = vmm_secret_delete(req->vmm->secrets, owner, name, &err);
        if (r != 0)
            vmm_live_secret(req->vmm, secret);
        else
            log_info("secret %s of %s: deleted", name, owner);
    }
    if (err.code != 0)
        vmm_reply_err(req, &err); /* what w answers later is too late */
    vmm_active_hide(req->vmm);
    waiting_step(w);
}

void vmm_api_secret_rotate(struct vmm_request *req)
{
    struct err err = {0};
    size_t n = 0;

    if (vmm_secrets_rotate(req->vmm->secrets, &n, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    log_info("secrets: a new key, %zu sealed again", n);
    for (const struct vmm_secret *s = vmm_secrets_first(req->vmm->secrets); s != NULL; s = s->next)
        vmm_live_secret(req->vmm, s);
    vmm_reply_json(req, 200, json_pack("{sI}", "sealed", (json_int_t)n));
}

/* ---- /v1/sessions/{s}/secrets ---- */

void vmm_api_active_list(struct vmm_request *req)
{
    vmm_reply_json(req, 200, json_pack("{sO}", "secrets", req->session->secrets));
}

void vmm_api_active_put(struct vmm_request *req)
{
    const char *owner = req->session->owner, *name = req->params[1];
    const struct vmm_secret *secret = vmm_secret_find(req->vmm->secrets, owner, name);
    struct err err = {0};
    uint8_t *value;
    json_t *answer;
    size_t len;

    if (secret == NULL) {
        vmm_reply_error(req, 404, "there is no secret %.128s; make it with PUT /v1/secrets/NAME",
                        name);
        return;
    }
    if (vmm_secret_value(req->vmm->secrets, secret, &value, &len, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    answer = view(secret);
    if (answer != NULL && add_maskable(answer, tr_mask_covers(value, len)) != 0) {
        json_decref(answer);
        answer = NULL;
    }
    explicit_bzero(value, len);
    free(value);
    if (answer == NULL) {
        vmm_reply_json(req, 200, NULL);
        return;
    }
    if (vmm_active_set(req->vmm, req->session, name, true, &err) != 0) {
        json_decref(answer);
        vmm_reply_err(req, &err);
        return;
    }
    answer_after(req, req->session, name, 200, answer);
}

void vmm_api_active_delete(struct vmm_request *req)
{
    struct err err = {0};

    if (!vmm_active_has(req->session, req->params[1])) {
        vmm_reply_empty(req, 204);
        return;
    }
    if (vmm_active_set(req->vmm, req->session, req->params[1], false, &err) != 0) {
        vmm_reply_err(req, &err);
        return;
    }
    answer_after(req, req->session, req->params[1], 204, NULL);
}
