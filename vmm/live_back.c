/* SPDX-License-Identifier: MIT */
/* Path: what is gone is removed -> events, node -> keys -> secrets -> sessions and sandboxes, a
 * batch at a time, the next when all replies are there. Fault: down -> it ends, and begins anew
 * when the connection is back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/live_internal.h"

#define BATCH 256 /* scripts under way */

static void write_some(struct vmm_live *live);

static void on_batch_reply(struct redisReply *reply, void *arg)
{
    struct vmm_live *live = arg;

    live_on_reply(reply, NULL);
    live->n_batch--;
    if (live->n_batch == 0 && live->writing_back)
        write_some(live);
}

/* Up to BATCH keys; what is created meanwhile is sent by itself. */
static void write_some_keys(struct vmm_live *live)
{
    const struct vmm_auth *auth = live->vmm->auth;
    const struct vmm_key *key = *live->next_key ? vmm_auth_by_hash(auth, live->next_key) : NULL;

    if (key == NULL) /* the start, or deleted meanwhile: begin again, which does no harm */
        key = vmm_auth_keys(auth);
    for (unsigned n = 0; key != NULL && n < BATCH; key = key->next, n++)
        live->n_batch += live_send_key(live, key, on_batch_reply) == 0;
    live->keys_written = key == NULL;
    if (key != NULL)
        memcpy(live->next_key, key->hash, sizeof(live->next_key));
}

/* The same of secrets. */
static void write_some_secrets(struct vmm_live *live)
{
    const struct vmm_secret *secret = live->next_secret;

    for (unsigned n = 0; secret != NULL && n < BATCH; secret = secret->next, n++)
        live->n_batch += live_send_secret(live, secret, on_batch_reply) == 0;
    live->secrets_written = secret == NULL;
    live->next_secret = secret;
}

/* Up to BATCH sessions and their sandboxes; what is created meanwhile is sent by itself. */
static void write_some(struct vmm_live *live)
{
    const struct vmm_session *session = live->vmm->sessions.first;
    unsigned n = 0;

    if (!live_usable(live)) {
        live->writing_back = false;
        return;
    }
    if (!live->keys_written) {
        write_some_keys(live);
        if (live->n_batch > 0)
            return;                /* the replies go on */
        if (!live->keys_written) { /* nothing could be sent: the next write-back begins anew */
            live->writing_back = false;
            return;
        }
    }
    if (!live->secrets_written) {
        write_some_secrets(live);
        if (live->n_batch > 0)
            return;
        if (!live->secrets_written) {
            live->writing_back = false;
            return;
        }
    }
    if (*live->next_session) {
        session = vmm_session_find(&live->vmm->sessions, live->next_session);
        if (session == NULL) /* deleted meanwhile: begin again, which does no harm */
            session = live->vmm->sessions.first;
    }
    for (; session != NULL && n < BATCH; session = session->next, n++) {
        live->n_batch += live_send_session(live, session, "", on_batch_reply) == 0;
        for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
            live->n_batch += live_send_sandbox(live, sb, "", on_batch_reply, live) == 0;
    }
    if (session == NULL) {
        live->writing_back = false;
        log_info("redis: everything of this node is written");
        return;
    }
    memcpy(live->next_session, session->id, sizeof(live->next_session));
    if (live->n_batch == 0) /* nothing could be sent: the next write-back begins anew */
        live->writing_back = false;
}

/* Ids of all that exists, for script_prune. Entries point into text, which the caller frees. */
static const char **all_ids(const struct vmm *vmm, char **text, size_t *n)
{
    size_t n_keys = vmm->auth == NULL ? 0 : vmm_auth_n_keys(vmm->auth);
    size_t max = vmm->sessions.by_id.n_entries + vmm->sessions.by_label.n_entries;
    size_t n_secrets = vmm->secrets == NULL ? 0 : vmm_secrets_count(vmm->secrets);
    const char **ids = calloc(max + n_keys + n_secrets + 1, sizeof(char *));
    char *p = malloc((max + 1) * (VMM_ID_LEN + 3) + n_keys * (VMM_KEY_HASH_LEN + 3) +
                     n_secrets * LIVE_SECRET_ID_SIZE);

    *n = 0;
    *text = p;
    if (ids == NULL || p == NULL) {
        free(ids);
        return NULL;
    }
    for (const struct vmm_session *s = vmm->sessions.first; s != NULL; s = s->next) {
        ids[(*n)++] = p;
        p += snprintf(p, VMM_ID_LEN + 3, "s:%s", s->id) + 1;
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next) {
            ids[(*n)++] = p;
            p += snprintf(p, VMM_ID_LEN + 3, "l:%s", sb->label) + 1;
        }
    }
    for (const struct vmm_key *k = n_keys == 0 ? NULL : vmm_auth_keys(vmm->auth); k != NULL;
         k = k->next) {
        ids[(*n)++] = p;
        p += snprintf(p, VMM_KEY_HASH_LEN + 3, "k:%s", k->hash) + 1;
    }
    for (const struct vmm_secret *x = n_secrets == 0 ? NULL : vmm_secrets_first(vmm->secrets);
         x != NULL; x = x->next) {
        ids[(*n)++] = p;
        p += snprintf(p, LIVE_SECRET_ID_SIZE, "x:%s:%s", x->owner, x->name) + 1;
    }
    return ids;
}

void live_write_back(struct vmm_live *live)
{
    const struct vmm_event *ev;
    size_t n;
    char *text;
    const char **ids = all_ids(live->vmm, &text, &n);

    if (ids == NULL || live_send_prune(live, true, "", ids, n, live_on_reply) != 0)
        log_error("redis: what is gone could not be removed from it");
    free(ids);
    free(text);
    while ((ev = vmm_events_next(&live->vmm->events, live->event_sent, NULL)) != NULL) {
        if (strcmp(ev->type, LIVE_EVENT_STATS) != 0)
            live_send_event(live, ev->text);
        live->event_sent = ev->id;
    }
    live_send_node(live);
    live->next_session[0] = live->next_key[0] = '\0';
    live->keys_written = live->vmm->auth == NULL;
    live->next_secret = live->vmm->secrets == NULL ? NULL : vmm_secrets_first(live->vmm->secrets);
    live->secrets_written = live->next_secret == NULL;
    live->writing_back = true;
    if (live->n_batch == 0) /* else the replies of an earlier one go on with it */
        write_some(live);
}
