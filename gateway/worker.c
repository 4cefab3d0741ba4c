/* SPDX-License-Identifier: MIT */
#include "gateway/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <uv.h>

#include "gateway/access.h"
#include "gateway/client.h"
#include "gateway/h2.h"
#include "gateway/listener.h"
#include "gateway/live.h"
#include "gateway/log.h"
#include "gateway/manager.h"
#include "gateway/tunnel.h"
#include "gateway/upstream.h"
#include "transom/log.h"

#define TURN_MAX_MS 1000
#define VOID_MS     5000 /* between two looks at who was let in for a time only */
#define MAIL_MAX    4096 /* more waiting notices than that: looking at everything is cheaper */

/* All of a label end: because its machine has, or because visitors lost access? */
static bool lost_access(struct gw_worker *w, const struct gw_notice *n)
{
    struct gw_route route;
    bool private;

    if (n->keep_instance != 0 || !gw_table_get(w->gw->table, n->label, &route))
        return false;
    private = route.extra != NULL && route.extra->is_private;
    tr_route_extra_unref(route.extra);
    return private && route.state == TR_SANDBOX_RUNNING;
}

/* What came by a port that is not open any more. */
static void end_closed_ports(struct gw_worker *w, const struct gw_notice *n)
{
    struct gw_upstream_set *set = gw_pool_find(&w->pool, n->label, n->keep_instance);
    struct gw_route route;

    if (set == NULL || !gw_table_get(w->gw->table, n->label, &route))
        return;
    gw_upstream_end_ports(w, set, route.extra);
    tr_route_extra_unref(route.extra);
}

static void deliver(struct gw_worker *w, const struct gw_notice *n)
{
    static const struct gw_gone stopped = {502, "app_died", "The machine has stopped.",
                                           "machine stopped"};
    static const struct gw_gone revoked = {401, "preview_private",
                                           "This preview is private. Access to it was taken back.",
                                           "access revoked"};
    struct gw_upstream_set *set;

    while ((set = gw_pool_other(&w->pool, n->label, n->keep_instance)) != NULL)
        gw_upstream_set_gone(w, set, lost_access(w, n) ? &revoked : &stopped);
    if (n->keep_instance != 0)
        end_closed_ports(w, n);
}

/* Notices were lost: compare every machine that we talk to with the table. */
static void deliver_all(struct gw_worker *w)
{
    struct gw_notice *notices = calloc(w->pool.n_sets + 1, sizeof(*notices));
    size_t n = 0;

    if (notices == NULL)
        return;
    for (size_t i = 0; i < w->pool.n_buckets; i++) {
        for (const struct gw_upstream_set *s = w->pool.buckets[i]; s != NULL; s = s->hash_next) {
            struct gw_route route;

            memcpy(notices[n].label, s->label, TR_LABEL_LEN);
            if (gw_table_get(w->gw->table, s->label, &route)) {
                /* Perhaps it was told that somebody lost access: that one may come again. */
                bool doubtful = route.extra != NULL && route.extra->is_private;

                if (route.state != TR_SANDBOX_ASLEEP && route.state != TR_SANDBOX_FAILED &&
                    !doubtful)
                    notices[n].keep_instance = route.instance;
                tr_route_extra_unref(route.extra);
            }
            n++;
        }
    }
    for (size_t i = 0; i < n; i++)
        deliver(w, &notices[i]);
    free(notices);
}

/* gentle: another process serves, so there is time. */
static void begin_drain(struct gw_worker *w, bool gentle)
{
    uint64_t until = gw_loop_now(w->loop) + (gentle ? w->opt->upgrade_drain_ms : w->opt->drain_ms);

    if (w->draining && (gentle || !w->gentle))
        return;
    w->draining = true;
    w->gentle = gentle;
    w->drain_until = until;
    gw_listeners_close(w);
    for (struct gw_client *c = w->clients, *next; c != NULL; c = next) {
        next = c->next;
        gw_client_drain(c);
    }
    for (struct gw_h2_client *c = w->h2_clients, *next; c != NULL; c = next) {
        next = gw_h2_next(c);
        gw_h2_drain(c);
    }
}

static void set_timeouts(struct gw_worker *w)
{
    const struct gw_options *o = w->opt;

    gw_timeout_set(&w->t_head, o->head_timeout_ms);
    gw_timeout_set(&w->t_idle, o->idle_timeout_ms);
    gw_timeout_set(&w->t_connect, o->connect_timeout_ms);
    gw_timeout_set(&w->t_answer, o->answer_timeout_ms);
    gw_timeout_set(&w->t_body, o->body_idle_timeout_ms);
    gw_timeout_set(&w->t_tunnel, o->tunnel_idle_ms);
}

/* Between two turns: nothing borrows from the old configuration. */
static void take(struct gw_worker *w, struct gw_live *live)
{
    size_t n = live->opt.limits.n_fields + GW_FIELDS_EXTRA;
    struct gw_field *fields = calloc(n, sizeof(*fields));
    void *nv = w->h2_nv != NULL ? gw_h2_new_fields(n) : NULL;

    if (fields == NULL || (nv == NULL && w->h2_nv != NULL)) {
        free(fields);
        free(nv);
        log_error("reload: out of memory; worker %u goes on as before", w->index);
        gw_live_unref(live);
        return;
    }
    free(w->fields);
    free(w->h2_nv);
    w->fields = fields;
    w->h2_nv = nv;
    gw_live_unref(w->live);
    w->live = live;
    w->opt = &live->opt;
    w->tls = live->tls;
    set_timeouts(w);
}

static void go_live(struct gw_worker *w, struct gw_live *live)
{
    gw_live_ref(live);
    take(w, live);
    atomic_fetch_add(&live->n_taken, 1);
    gw_live_unref(live);
    w->gw->on_change(w->gw->arg);
}

static void on_wake(void *arg)
{
    struct gw_worker *w = arg;
    struct gw_notice *mail;
    size_t n;
    struct gw_live *live;
    bool stop, drain, lost;

    pthread_mutex_lock(&w->mail_lock);
    mail = w->mail;
    n = w->n_mail;
    w->mail = NULL;
    w->n_mail = w->mail_cap = 0;
    lost = w->mail_lost;
    w->mail_lost = false;
    stop = w->stop_asked;
    drain = w->drain_asked;
    live = w->next_live;
    w->next_live = NULL;
    pthread_mutex_unlock(&w->mail_lock);
    if (live != NULL)
        go_live(w, live);
    for (size_t i = 0; i < n; i++)
        deliver(w, &mail[i]);
    free(mail);
    if (lost)
        deliver_all(w);
    if (stop || drain)
        begin_drain(w, !stop);
}

static void *run(void *arg)
{
    struct gw_worker *w = arg;
    char name[16];

    snprintf(name, sizeof(name), "worker-%u", w->index);
    pthread_setname_np(pthread_self(), name);
    gw_listeners_start(w);
    while (!w->draining || w->clients != NULL || w->h2_clients != NULL || w->tunnels != NULL) {
        uint64_t now = gw_loop_now(w->loop), wait = TURN_MAX_MS;

        if (w->draining && now >= w->drain_until)
            break;
        if (w->draining && w->drain_until - now < wait)
            wait = w->drain_until - now;
        gw_loop_run(w->loop, (int)wait);
        if (w->n_timed > 0 && now >= w->void_at) {
            w->void_at = now + VOID_MS;
            gw_tunnel_end_void(w, (uint64_t)time(NULL));
        }
        gw_set_gauge(&w->stats.pool_idle, w->pool.n_idle);
        gw_set_gauge(&w->stats.pool_machines, (int64_t)w->pool.n_sets);
        if (w->log_len > 0)
            gw_log_flush(w);
    }
    while (w->clients != NULL)
        gw_client_close(w->clients);
    while (w->tunnels != NULL)
        gw_tunnel_go_away(w->tunnels, "gateway stopped");
    while (w->h2_clients != NULL)
        gw_h2_close(w->h2_clients);
    gw_upstream_close_all(w);
    gw_manager_close(w);
    if (w->log_len > 0)
        gw_log_flush(w);
    atomic_fetch_add(&w->gw->n_ended, 1);
    w->gw->on_change(w->gw->arg);
    return NULL;
}

int gw_worker_init(struct gw_worker *w, struct gw_gateway *gw, unsigned index, struct gw_live *live)
{
    const struct gw_options *o = &live->opt;
    int r;

    memset(w, 0, sizeof(*w));
    w->gw = gw;
    w->live = gw_live_ref(live);
    w->opt = o;
    w->tls = live->tls;
    w->index = index;
    if (getrandom(&w->id_state, sizeof(w->id_state), 0) != (ssize_t)sizeof(w->id_state))
        w->id_state = uv_hrtime() + index;
    pthread_mutex_init(&w->mail_lock, NULL);
    w->fields = calloc(o->limits.n_fields + GW_FIELDS_EXTRA, sizeof(struct gw_field));
    w->use = calloc(GW_SANDBOX_SLOTS, sizeof(*w->use));
    w->mac = gw_token_mac_new();
    if (w->fields == NULL || w->use == NULL || w->mac == NULL)
        return UV_ENOMEM;
    r = gw_pool_init(&w->pool);
    if (r == 0)
        r = gw_loop_new(&w->loop);
    if (r != 0)
        return r;
    gw_timeout_init(w->loop, &w->t_head, o->head_timeout_ms);
    gw_timeout_init(w->loop, &w->t_idle, o->idle_timeout_ms);
    gw_timeout_init(w->loop, &w->t_connect, o->connect_timeout_ms);
    gw_timeout_init(w->loop, &w->t_answer, o->answer_timeout_ms);
    gw_timeout_init(w->loop, &w->t_body, o->body_idle_timeout_ms);
    gw_timeout_init(w->loop, &w->t_tunnel, o->tunnel_idle_ms);
    gw_timeout_init(w->loop, &w->t_linger, 2000);
    gw_timeout_init(w->loop, &w->t_half, 1000);
    /* Below the 5 s after which Node closes its own side. */
    gw_timeout_init(w->loop, &w->t_pool, 4000);
    gw_timeout_init(w->loop, &w->t_retry, 100);
    gw_timeout_init(w->loop, &w->t_accept, 100);
    gw_timeout_init(w->loop, &w->t_now, 0);
    gw_loop_on_wake(w->loop, on_wake, w);
    return 0;
}

int gw_worker_start(struct gw_worker *w)
{
    int r;

    w->started = true;
    r = pthread_create(&w->thread, NULL, run, w);
    if (r != 0)
        w->started = false;
    return -r;
}

void gw_worker_notify(struct gw_worker *w, const struct gw_notice *notice)
{
    pthread_mutex_lock(&w->mail_lock);
    if (w->n_mail == w->mail_cap && w->mail_cap < MAIL_MAX) {
        size_t cap = w->mail_cap == 0 ? 64 : w->mail_cap * 2;
        struct gw_notice *mail = realloc(w->mail, cap * sizeof(*mail));

        if (mail != NULL) {
            w->mail = mail;
            w->mail_cap = cap;
        }
    }
    if (w->n_mail == w->mail_cap)
        w->mail_lost = true;
    else
        w->mail[w->n_mail++] = *notice;
    pthread_mutex_unlock(&w->mail_lock);
    gw_loop_wake(w->loop);
}

void gw_worker_stop(struct gw_worker *w)
{
    pthread_mutex_lock(&w->mail_lock);
    w->stop_asked = true;
    pthread_mutex_unlock(&w->mail_lock);
    gw_loop_wake(w->loop);
}

void gw_worker_drain(struct gw_worker *w)
{
    pthread_mutex_lock(&w->mail_lock);
    w->drain_asked = true;
    pthread_mutex_unlock(&w->mail_lock);
    gw_loop_wake(w->loop);
}

void gw_worker_reload(struct gw_worker *w, struct gw_live *live)
{
    struct gw_live *unseen;

    pthread_mutex_lock(&w->mail_lock);
    unseen = w->next_live;
    w->next_live = gw_live_ref(live);
    pthread_mutex_unlock(&w->mail_lock);
    gw_live_unref(unseen);
    gw_loop_wake(w->loop);
}

void gw_worker_join(struct gw_worker *w)
{
    if (w->started)
        pthread_join(w->thread, NULL);
    w->started = false;
}

void gw_worker_fini(struct gw_worker *w)
{
    if (w->loop != NULL) {
        gw_listeners_close(w);
        gw_loop_free(w->loop);
        gw_pool_fini(&w->pool);
    }
    while (w->free_exchanges != NULL) {
        struct gw_exchange *next = w->free_exchanges->next_free;

        free(w->free_exchanges);
        w->free_exchanges = next;
    }
    gw_h2_fini(w);
    gw_bufs_fini(&w->bufs);
    free(w->fields);
    free(w->use);
    gw_token_mac_free(w->mac);
    free(w->log_buf);
    free(w->mail);
    gw_live_unref(w->next_live);
    gw_live_unref(w->live);
    pthread_mutex_destroy(&w->mail_lock);
}
