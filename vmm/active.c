/* SPDX-License-Identifier: MIT */
#include "vmm/active.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/agent_client.h"
#include "vmm/bind.h"
#include "vmm/machine.h"
#include "vmm/secret.h"

#define PUSH_MS 30000

/* A value that our log hides. */
struct vmm_hidden {
    struct vmm_hidden *next;
    size_t len;
    char value[];
};

static bool find(const struct vmm_session *session, const char *name, size_t *at)
{
    json_t *item;
    size_t i;

    json_array_foreach(session->secrets, i, item)
    {
        if (strcmp(json_string_value(item), name) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

bool vmm_active_has(const struct vmm_session *session, const char *name)
{
    size_t at;

    return find(session, name, &at);
}

/* Values of the session's secrets but that of this name (NULL: all). Returns how many there are
 * now behind the n that values has already, for close_values(). */
static size_t open_values(struct vmm *vmm, const struct vmm_session *session, const char *but,
                          struct tr_mask_secret *values, size_t n)
{
    json_t *item;
    size_t i;

    json_array_foreach(session->secrets, i, item)
    {
        const char *name = json_string_value(item);
        const struct vmm_secret *secret = vmm_secret_find(vmm->secrets, session->owner, name);
        uint8_t *bytes;
        size_t len;

        /* One that does not open is not sent either. */
        if ((but != NULL && strcmp(name, but) == 0) || secret == NULL ||
            vmm_secret_value(vmm->secrets, secret, &bytes, &len, NULL) != 0)
            continue;
        values[n++] = (struct tr_mask_secret){bytes, len};
    }
    return n;
}

static void close_values(struct tr_mask_secret *values, size_t from, size_t n)
{
    while (n-- > from) {
        explicit_bzero((void *)values[n].value, values[n].len);
        free((void *)values[n].value);
    }
}

int vmm_active_mask(struct vmm *vmm, const struct vmm_session *session, struct tr_mask **out)
{
    struct tr_mask_secret *values = calloc(json_array_size(session->secrets) + 1, sizeof(*values));
    size_t n;
    int r;

    *out = NULL;
    if (values == NULL)
        return -ENOMEM;
    n = open_values(vmm, session, NULL, values, 0);
    r = tr_mask_new(values, n, out);
    close_values(values, 0, n);
    free(values);
    return r;
}

int vmm_active_check(struct vmm *vmm, const struct vmm_session *session, const char *name,
                     const void *value, size_t len, struct err *err)
{
    struct tr_mask_secret *values = calloc(json_array_size(session->secrets) + 1, sizeof(*values));
    size_t n;
    int r;

    if (values == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    values[0] = (struct tr_mask_secret){value, len};
    n = open_values(vmm, session, name, values, 1);
    r = tr_mask_check(values, n);
    close_values(values, 1, n);
    free(values);
    if (r == UV_E2BIG)
        return tr_err_set(err, -EDQUOT,
                          "session %s: the values of its secrets have at most %d bytes together, "
                          "and fewer when they can be written in many ways, which are all hidden",
                          session->id, 4 * VMM_SECRET_VALUE_MAX);
    return r == 0 ? 0 : tr_err_set(err, -ENOMEM, "out of memory");
}

/* May this one become active, too? */
static int check_new(struct vmm *vmm, const struct vmm_session *session, const char *name,
                     struct err *err)
{
    const struct vmm_secret *secret = vmm_secret_find(vmm->secrets, session->owner, name);
    uint8_t *value;
    size_t len;
    int r;

    if (json_array_size(session->secrets) >= VMM_ACTIVE_MAX)
        return tr_err_set(err, -EDQUOT, "%d secrets are active in this session already",
                          VMM_ACTIVE_MAX);
    if (secret == NULL)
        return tr_err_set(err, -ENOENT, "there is no secret %s", name);
    r = vmm_secret_value(vmm->secrets, secret, &value, &len, err);
    if (r != 0)
        return r;
    r = vmm_active_check(vmm, session, name, value, len, err);
    explicit_bzero(value, len);
    free(value);
    return r;
}

int vmm_active_set(struct vmm *vmm, struct vmm_session *session, const char *name, bool active,
                   struct err *err)
{
    size_t at = 0;
    int r;

    if (find(session, name, &at) == active)
        return 0;
    if (active) {
        r = check_new(vmm, session, name, err);
        if (r != 0)
            return r;
        at = json_array_size(session->secrets);
        if (json_array_append_new(session->secrets, json_string(name)) != 0)
            return tr_err_set(err, -ENOMEM, "out of memory");
    } else {
        (void)json_array_remove(session->secrets, at);
    }
    r = vmm_session_save(&vmm->sessions, session, err);
    if (r != 0) { /* as it was */
        if (active)
            (void)json_array_remove(session->secrets, at);
        else
            (void)json_array_append_new(session->secrets, json_string(name));
        return r;
    }
    session->secrets_version++;
    return 0;
}

/* {"name","value_b64"}, or NULL. */
static json_t *item_of(struct vmm *vmm, const struct vmm_session *session, const char *name)
{
    const struct vmm_secret *secret = vmm_secret_find(vmm->secrets, session->owner, name);
    struct err err = {0};
    unsigned char *text;
    uint8_t *value;
    json_t *item;
    size_t len;

    if (secret == NULL)
        return json_null();
    if (vmm_secret_value(vmm->secrets, secret, &value, &len, &err) != 0) {
        log_error("session=%s: %s", session->id, err.msg);
        return json_null();
    }
    text = malloc(len * 4 / 3 + 5);
    if (text != NULL)
        EVP_EncodeBlock(text, value, (int)len);
    item = text == NULL ? NULL : json_pack("{ss, ss}", "name", name, "value_b64", (char *)text);
    if (text != NULL)
        explicit_bzero(text, len * 4 / 3);
    free(text);
    explicit_bzero(value, len);
    free(value);
    return item;
}

json_t *vmm_active_body(struct vmm *vmm, const struct vmm_session *session)
{
    json_t *list = json_array(), *name, *item;
    size_t i;

    json_array_foreach(session->secrets, i, name)
    {
        item = item_of(vmm, session, json_string_value(name));
        if (json_is_null(item))
            continue;
        if (item == NULL || json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list == NULL ? NULL
                        : json_pack("{so, sI}", "secrets", list, "version",
                                    (json_int_t)session->secrets_version + 1);
}

/* ---- sending ---- */

struct push {
    unsigned n; /* answers awaited, and one while we send */
    vmm_active_cb cb;
    void *arg;
};

/* One machine's part. The agent outlives its calls. */
struct told {
    struct push *push;
    struct vmm_agent *agent;
};

static void push_step(struct push *p)
{
    if (--p->n > 0)
        return;
    p->cb(p->arg);
    free(p);
}

static void on_pushed(int status, const json_t *reply, void *arg)
{
    const char *why = json_string_value(json_object_get(reply, "message"));
    struct told *told = arg;

    if (status != 204) {
        log_warn("secrets were not taken by a machine: %d %.200s", status, why != NULL ? why : "");
        /* The next hello brings them, and nothing is done there before. */
        vmm_agent_reconnect(told->agent, "secrets were not taken");
    }
    push_step(told->push);
    free(told);
}

static void push_to(struct push *p, struct vmm_agent *agent, const json_t *body)
{
    struct told *told = malloc(sizeof(*told));

    if (told == NULL) {
        vmm_agent_reconnect(agent, "out of memory for secrets");
        return;
    }
    *told = (struct told){p, agent};
    p->n++;
    if (vmm_agent_call_within(agent, PUSH_MS, "PUT", "/v1/secrets", body, on_pushed, told) == 0)
        return;
    p->n--;
    free(told);
    vmm_agent_reconnect(agent, "secrets could not be sent");
}

void vmm_active_push(struct vmm *vmm, struct vmm_session *session, vmm_active_cb cb, void *arg)
{
    struct push *p = calloc(1, sizeof(*p));
    json_t *body = vmm_active_body(vmm, session);
    struct tr_mask *mask = NULL;
    int r = p == NULL || body == NULL ? -ENOMEM : vmm_active_mask(vmm, session, &mask);

    if (r != 0) { /* none is given to whoever is not watched for it */
        log_error("session=%s: secrets were not sent: %s", session->id, uv_strerror(r));
        free(p);
        json_decref(body);
        cb(arg);
        return;
    }
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        if (vmm->machines != NULL)
            vmm_machine_sync_secrets(sb, mask);
    vmm_binds_secrets(vmm, session->id, mask);
    tr_mask_unref(mask);
    p->n = 1;
    p->cb = cb;
    p->arg = arg;
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next) {
        struct vmm_agent *agent = vmm->machines == NULL ? NULL : vmm_machine_agent(sb);

        if (agent == NULL || vmm_agent_session(agent) == NULL)
            continue;
        push_to(p, agent, body);
    }
    json_decref(body);
    push_step(p);
}

/* ---- our log ---- */

static void forget(struct vmm *vmm)
{
    struct vmm_hidden *h;

    while ((h = vmm->hidden) != NULL) {
        vmm->hidden = h->next;
        tr_log_secret_remove(h->value, h->len);
        explicit_bzero(h->value, h->len);
        free(h);
    }
}

static void hide(struct vmm *vmm, const void *value, size_t len)
{
    struct vmm_hidden *h;

    if (!tr_mask_covers(value, len))
        return;
    h = malloc(sizeof(*h) + len);
    if (h == NULL || tr_log_secret_add(value, len) != 0) {
        free(h);
        log_error("a secret cannot be hidden from the log: out of memory");
        return;
    }
    memcpy(h->value, value, len);
    h->len = len;
    h->next = vmm->hidden;
    vmm->hidden = h;
}

/* Whole, and line by line: the log has one line for each entry. */
static void hide_lines(struct vmm *vmm, const uint8_t *value, size_t len)
{
    const uint8_t *end = value + len, *nl;

    for (; value < end; value = nl + 1) {
        nl = memchr(value, '\n', (size_t)(end - value));
        if (nl == NULL)
            nl = end;
        hide(vmm, value, (size_t)(nl - value));
    }
}

void vmm_active_hide(struct vmm *vmm)
{
    forget(vmm);
    for (const struct vmm_session *s = vmm->sessions.first; s != NULL; s = s->next) {
        json_t *name;
        size_t i;

        json_array_foreach(s->secrets, i, name)
        {
            const struct vmm_secret *secret =
                vmm_secret_find(vmm->secrets, s->owner, json_string_value(name));
            uint8_t *value;
            size_t len;

            if (secret == NULL || vmm_secret_value(vmm->secrets, secret, &value, &len, NULL) != 0)
                continue;
            hide_lines(vmm, value, len);
            explicit_bzero(value, len);
            free(value);
        }
    }
}

void vmm_active_fini(struct vmm *vmm)
{
    forget(vmm);
}
