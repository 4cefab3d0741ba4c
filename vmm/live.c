/* SPDX-License-Identifier: MIT */
/* Path: a change -> one script -> done. Faults: down -> nothing is sent; up again ->
 * live_write_back() sends everything there is, in pieces, so that neither end is flooded. */
#include "vmm/live.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/audit.h"
#include "vmm/live_internal.h"

#define HEARTBEAT_MS     10000
#define LEAVE_TIMEOUT_MS 2000

void live_on_reply(struct redisReply *reply, void *arg)
{
    (void)arg;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        log_error("redis refused a state change: %s", reply->str);
}

bool live_usable(const struct vmm_live *live)
{
    return live != NULL && !live->closing && tr_redis_is_up(live->redis);
}

/* ---- the connection ---- */

static void maybe_closed(struct vmm_live *live)
{
    if (--live->n_open > 0)
        return;
    if (live->on_closed != NULL)
        live->on_closed(live->on_closed_arg);
    free(live->url);
    free(live);
}

static void on_timer_close(uv_handle_t *handle)
{
    maybe_closed(handle->data);
}

static void on_redis_close(struct tr_redis *r, void *arg)
{
    (void)r;
    maybe_closed(arg);
}

static void close_now(struct vmm_live *live)
{
    if (live->closing)
        return;
    live->closing = true;
    uv_close((uv_handle_t *)&live->timer, on_timer_close);
    tr_redis_close(live->redis);
}

static void on_timer(uv_timer_t *timer)
{
    struct vmm_live *live = timer->data;

    if (live->leaving)
        close_now(live);
    else if (live_usable(live))
        live_send_node(live);
}

static void on_up(struct tr_redis *r, void *arg)
{
    struct vmm_live *live = arg;

    (void)r;
    log_info("redis: connected to %s", live->url);
    live->was_up = true;
    if (!live->leaving) {
        live_write_back(live);
        vmm_audit_flush(live->vmm);
    }
}

static void on_down(struct tr_redis *r, const char *why, void *arg)
{
    struct vmm_live *live = arg;

    (void)r;
    live->vmm->figures.redis_lost += live->was_up && !live->leaving;
    if (live->was_up && !live->leaving)
        log_warn("redis: lost %s: %s", live->url, why);
    else
        log_debug("redis: %s: %s", live->url, why);
    live->was_up = false;
    if (live->leaving)
        close_now(live);
}

/* The address without its password and what else is about the user. */
static char *public_url(const char *url)
{
    const char *at = strrchr(url, '@'), *scheme = strstr(url, "://"), *rest, *end;
    char *out = NULL;

    rest = at == NULL || scheme == NULL ? url : at + 1;
    end = strrchr(rest, '?');
    if (asprintf(&out, "%.*s%.*s", rest == url ? 0 : (int)(scheme + 3 - url), url,
                 end == NULL ? (int)strlen(rest) : (int)(end - rest), rest) < 0)
        return NULL;
    return out;
}

int vmm_live_open(struct vmm *vmm, const char *url, struct vmm_live **out, struct err *err)
{
    static const struct tr_redis_cbs cbs = {
        .on_up = on_up, .on_down = on_down, .on_close = on_redis_close};
    struct vmm_live *live = calloc(1, sizeof(*live));
    int r;

    if (live == NULL || (live->url = public_url(url)) == NULL) {
        free(live);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    live->vmm = vmm;
    snprintf(live->key_node, sizeof(live->key_node), "%s%s", TR_KEY_NODE, vmm->options->node);
    snprintf(live->key_labels, sizeof(live->key_labels), "%s%s", TR_KEY_NODE_LABELS,
             vmm->options->node);
    snprintf(live->key_sessions, sizeof(live->key_sessions), "%s%s", TR_KEY_NODE_SESSIONS,
             vmm->options->node);
    snprintf(live->key_keys, sizeof(live->key_keys), "%s%s", TR_KEY_NODE_KEYS, vmm->options->node);
    snprintf(live->key_secrets, sizeof(live->key_secrets), "%s%s", TR_KEY_NODE_SECRETS,
             vmm->options->node);
    r = tr_redis_open(vmm->loop, url, &cbs, live, &live->redis, err);
    if (r != 0) {
        free(live->url);
        free(live);
        return r;
    }
    if (uv_timer_init(vmm->loop, &live->timer) != 0)
        abort(); /* cannot fail on Unix */
    live->timer.data = live;
    live->n_open = 2;
    if (uv_timer_start(&live->timer, on_timer, HEARTBEAT_MS, HEARTBEAT_MS) != 0)
        abort(); /* a callback is given, the handle is open */
    *out = live;
    return 0;
}

static void on_left(struct redisReply *reply, void *arg)
{
    live_on_reply(reply, NULL);
    close_now(arg);
}

void vmm_live_close(struct vmm_live *live, bool leave, void (*cb)(void *arg), void *arg)
{
    live->on_closed = cb;
    live->on_closed_arg = arg;
    live->leaving = true;
    live->writing_back = false;
    if (!leave || !live_usable(live) || live_send_leave(live, on_left) != 0) {
        close_now(live);
        return;
    }
    (void)uv_timer_start(&live->timer, on_timer, LEAVE_TIMEOUT_MS, 0);
}

int vmm_live_command(struct vmm *vmm, int argc, const char **argv, tr_redis_reply_cb cb, void *arg)
{
    size_t len[16];

    if (!live_usable(vmm->live))
        return UV_ENOTCONN;
    assert(argc <= 16);
    for (int i = 0; i < argc; i++)
        len[i] = strlen(argv[i]);
    return tr_redis_command(vmm->live->redis, cb, arg, argc, argv, len);
}

bool vmm_live_is_up(const struct vmm_live *live)
{
    return live_usable(live);
}

const char *vmm_live_url(const struct vmm_live *live)
{
    return live == NULL ? "" : live->url;
}

/* ---- changes ---- */

/* The text of an event for the same script as its state change; "" when there is none. */
static const char *event_text(struct vmm *vmm, const struct vmm_event *ev)
{
    if (ev == NULL)
        return "";
    if (live_usable(vmm->live))
        vmm->live->event_sent = ev->id;
    return ev->text;
}

void vmm_live_sandbox(struct vmm *vmm, const struct vmm_sandbox *sb)
{
    const struct vmm_event *ev = vmm_events_add(
        &vmm->events, "sandbox.state", sb->session->owner,
        json_pack("{ss, ss, ss, ss, ss, sI}", "session", sb->session->id, "sandbox", sb->name,
                  "label", sb->label, "state", tr_sandbox_state_name(sb->state), "reason",
                  sb->reason, "instance", (json_int_t)sb->instance));

    vmm->figures.failed += sb->state == TR_SANDBOX_FAILED;
    if (live_usable(vmm->live))
        (void)live_send_sandbox(vmm->live, sb, event_text(vmm, ev), live_on_reply, NULL);
}

/* A change of a preview's settings whose answer somebody waits for. */
struct setting {
    struct vmm *vmm;
    char label[VMM_ID_LEN + 1];
    vmm_live_cb cb;
    void *arg;
};

static void on_setting(struct redisReply *reply, void *arg)
{
    struct setting *s = arg;
    struct vmm_sandbox *sb = vmm_sessions_by_label(&s->vmm->sessions, s->label);
    bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR;

    if (sb != NULL && reply != NULL)
        sb->unsent = refused; /* said anew also when the change before this one was taken */
    /* Lost: it is as with Redis down, the write-back does it. */
    s->cb(refused ? -EIO : 0, refused ? reply->str : "", s->arg);
    free(s);
}

int vmm_live_preview(struct vmm *vmm, struct vmm_sandbox *sb, const char *event, vmm_live_cb cb,
                     void *arg)
{
    const struct vmm_event *ev = NULL;
    struct setting *s;
    int r;

    if (event != NULL)
        ev = vmm_events_add(&vmm->events, event, sb->session->owner,
                            json_pack("{ss, ss, ss, ss, sb}", "session", sb->session->id, "sandbox",
                                      sb->name, "label", sb->label, "access",
                                      sb->preview.is_private ? "private" : "public", "wake",
                                      (int)sb->preview.wake));
    sb->unsent = true;
    if (!live_usable(vmm->live))
        return UV_ENOTCONN;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return UV_ENOMEM;
    *s = (struct setting){.vmm = vmm, .cb = cb, .arg = arg};
    memcpy(s->label, sb->label, sizeof(s->label));
    r = live_send_sandbox(vmm->live, sb, event_text(vmm, ev), on_setting, s);
    if (r != 0)
        free(s);
    return r;
}

void vmm_live_session(struct vmm *vmm, const struct vmm_session *session, const char *event)
{
    const struct vmm_event *ev =
        vmm_events_add(&vmm->events, event, session->owner,
                       json_pack("{ss, ss}", "session", session->id, "name", session->name));

    if (!live_usable(vmm->live))
        return;
    (void)live_send_session(vmm->live, session, event_text(vmm, ev), live_on_reply);
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        (void)live_send_sandbox(vmm->live, sb, "", live_on_reply, NULL);
}

void vmm_live_session_gone(struct vmm *vmm, const struct vmm_session *session)
{
    const struct vmm_event *ev =
        vmm_events_add(&vmm->events, "session.deleted", session->owner,
                       json_pack("{ss, ss}", "session", session->id, "name", session->name));
    char text[65][VMM_ID_LEN + 3];
    const char *ids[65];
    size_t n = 0;

    if (!live_usable(vmm->live))
        return;
    snprintf(text[n], sizeof(text[n]), "s:%s", session->id);
    ids[n] = text[n];
    n++;
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL && n < 65; sb = sb->next) {
        snprintf(text[n], sizeof(text[n]), "l:%s", sb->label);
        ids[n] = text[n];
        n++;
    }
    if (live_send_prune(vmm->live, false, event_text(vmm, ev), ids, n, live_on_reply) != 0)
        log_error("session=%s: its routes could not be removed from redis", session->id);
}

void vmm_live_key(struct vmm *vmm, const struct vmm_key *key)
{
    if (key != NULL && live_usable(vmm->live))
        (void)live_send_key(vmm->live, key, live_on_reply);
}

void vmm_live_key_gone(struct vmm *vmm, const char *hash)
{
    char text[VMM_KEY_HASH_LEN + 3];
    const char *id = text;

    if (!live_usable(vmm->live))
        return;
    snprintf(text, sizeof(text), "k:%s", hash);
    if (live_send_prune(vmm->live, false, "", &id, 1, live_on_reply) != 0)
        log_error("an API key that was deleted could not be removed from redis");
}

void vmm_live_secret(struct vmm *vmm, const struct vmm_secret *secret)
{
    if (secret != NULL && live_usable(vmm->live))
        (void)live_send_secret(vmm->live, secret, live_on_reply);
}

void vmm_live_secret_gone(struct vmm *vmm, const struct vmm_secret *secret)
{
    char id[LIVE_SECRET_ID_SIZE];
    const char *ids[] = {id};

    if (vmm->live == NULL)
        return;
    if (vmm->live->next_secret == secret)
        vmm->live->next_secret = secret->next;
    if (!live_usable(vmm->live))
        return;
    snprintf(id, sizeof(id), "x:%s:%s", secret->owner, secret->name);
    if (live_send_prune(vmm->live, false, "", ids, 1, live_on_reply) != 0)
        log_error("a secret that was deleted could not be removed from redis");
}

void vmm_live_stats(struct vmm *vmm, const struct vmm_sandbox *sb, const json_t *sample)
{
    (void)vmm_events_add_last(&vmm->events, LIVE_EVENT_STATS, sb->session->owner, sb->label,
                              json_pack("{ss, ss, ss, sI, sO}", "session", sb->session->id,
                                        "sandbox", sb->name, "label", sb->label, "instance",
                                        (json_int_t)sb->instance, "stats", (json_t *)sample));
    if (live_usable(vmm->live))
        live_send_stats(vmm->live, sb->label, sample);
}

void vmm_live_event(struct vmm *vmm, const char *type, const char *owner, json_t *members)
{
    const struct vmm_event *ev = vmm_events_add(&vmm->events, type, owner, members);

    if (ev != NULL && live_usable(vmm->live))
        live_send_event(vmm->live, event_text(vmm, ev));
}

void vmm_live_idle(struct vmm *vmm, const char *label, int64_t deadline_wall_ms)
{
    char score[24];
    const char *set[] = {"ZADD", TR_KEY_IDLE, score, label};
    const char *clear[] = {"ZREM", TR_KEY_IDLE, label};
    size_t len[4];
    int n = deadline_wall_ms > 0 ? 4 : 3;
    const char **argv = deadline_wall_ms > 0 ? set : clear;

    if (!live_usable(vmm->live))
        return;
    snprintf(score, sizeof(score), "%" PRId64, deadline_wall_ms);
    for (int i = 0; i < n; i++)
        len[i] = strlen(argv[i]);
    (void)!tr_redis_command(vmm->live->redis, live_on_reply, NULL, n, argv, len);
}
