/* SPDX-License-Identifier: MIT */
/* A worker: one thread, one loop, its own listeners, connections and pool. Workers share the route
 * table, the TLS context and nothing else. */
#ifndef GATEWAY_WORKER_H
#define GATEWAY_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include "gateway/buf.h"
#include "gateway/limits.h"
#include "gateway/options.h"
#include "gateway/pool.h"
#include "gateway/runtime.h"
#include "gateway/table.h"
#include "gateway/wake.h"

struct gw_access_log;
struct gw_client;
struct gw_exchange;
struct gw_h2_client;
struct gw_h2_stream;
struct gw_listener;
struct gw_live;
struct gw_manager;
struct gw_tunnel;
struct ssl_ctx_st;

/* Upper bounds of the classes in which the lengths of exchanges are counted. */
#define GW_DURATIONS 14
static const unsigned gw_duration_ms[GW_DURATIONS] = {1,   2,   5,    10,   25,   50,    100,
                                                      250, 500, 1000, 2500, 5000, 10000, 30000};

/* Figures, written by the worker alone and read by anybody. */
struct gw_stats {
    _Atomic uint64_t accepted, tls_failed, tls_handshakes, tls_resumed, requests, bad_requests,
        bytes_in, bytes_out;
    _Atomic uint64_t status[6]; /* 1xx .. 5xx; [0]: no response */
    _Atomic uint64_t upstream_connects, upstream_reuses, upstream_retries, upstream_failures;
    _Atomic uint64_t tunnels, pages, denied, woken, clients_limited, sandboxes_limited;
    _Atomic uint64_t h2_accepted, h2_requests, h2_resets, h2_cut;
    _Atomic uint64_t slow_clients;                /* ended by a limit */
    _Atomic uint64_t durations[GW_DURATIONS + 1]; /* of exchanges, by length; the last: longer */
    _Atomic uint64_t duration_ms;                 /* their sum */
    _Atomic int64_t pool_idle, pool_machines;
    _Atomic int64_t connections, h2_connections, open_tunnels, exchanges;
};

static inline void gw_count(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer: no locked instruction needed. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void gw_set_gauge(_Atomic int64_t *gauge, int64_t n)
{
    atomic_store_explicit(gauge, n, memory_order_relaxed);
}

static inline void gw_gauge(_Atomic int64_t *gauge, int64_t n)
{
    atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* A machine whose connections must not be used any more. */
struct gw_notice {
    char label[TR_LABEL_LEN + 1];
    uint64_t keep_instance; /* connections of this one may stay, by ports that are open; 0: none */
};

struct gw_gateway {
    const struct gw_options *opt; /* at the start; the control thread's */
    struct gw_table *table;
    struct gw_access_log *log;
    struct gw_wakes wakes;
    struct gw_limits limits;
    struct gw_worker *workers;
    unsigned n_workers;
    bool has_https; /* a listener */
    int64_t start_s, certificates_end_s;
    size_t n_certificates;
    _Atomic uint64_t reloads, reloads_refused;
    _Atomic unsigned n_ended;     /* workers that have come to their end */
    void (*on_change)(void *arg); /* called then, and after a reload, by the worker's thread */
    void *arg;
    _Atomic unsigned n_connections; /* of all workers */
};

struct gw_worker {
    struct gw_gateway *gw;
    struct gw_live *live;         /* what it works with; replaced by a reload */
    const struct gw_options *opt; /* of live */
    struct ssl_ctx_st *tls;       /* of live; NULL: no HTTPS */
    unsigned index;
    pthread_t thread;
    bool started;
    struct gw_loop *loop;
    struct gw_bufs bufs;
    struct gw_field *fields; /* of the head being parsed; opt->limits.n_fields + GW_FIELDS_EXTRA */
    struct gw_exchange *free_exchanges;
    struct gw_timeout t_head, t_idle, t_connect, t_answer, t_body, t_tunnel, t_linger, t_half;
    struct gw_timeout t_pool, t_retry, t_accept, t_now;
    struct gw_pool pool;
    struct gw_use *use;         /* of sandboxes; GW_SANDBOX_SLOTS */
    struct evp_mac_ctx_st *mac; /* of tokens */
    struct gw_manager *manager;
    struct gw_listener *listeners;
    struct gw_client *clients;
    struct gw_h2_client *h2_clients;
    struct gw_h2_stream *free_h2_streams;
    unsigned n_free_h2_streams;
    void *h2_nv; /* nghttp2's fields of the head being sent; as many as fields */
    struct gw_tunnel *tunnels;
    struct gw_stats stats;
    uint64_t id_state; /* of request ids */
    char *log_buf;     /* access log lines of this turn */
    size_t log_len;

    pthread_mutex_t mail_lock;
    struct gw_notice *mail;
    size_t n_mail, mail_cap;
    bool mail_lost;            /* more notices came than were kept: look at everything */
    bool stop_asked;           /* end at drain_ms */
    bool drain_asked;          /* another process serves now */
    struct gw_live *next_live; /* after a reload; all of these under mail_lock */

    bool draining; /* no new connections; exchanges are each connection's last */
    bool gentle;   /* idle connections may still send a request */
    uint64_t drain_until, void_at;
    unsigned n_timed; /* tunnels whose visitor was let in for a time only */
};

/* Create workers with their listeners (see listener.h) and start the threads. */
TR_MUST_CHECK int gw_worker_init(struct gw_worker *w, struct gw_gateway *gw, unsigned index,
                                 struct gw_live *live);
TR_MUST_CHECK int gw_worker_start(struct gw_worker *w);
/* From any thread: connections to the label's other instances end. */
void gw_worker_notify(struct gw_worker *w, const struct gw_notice *notice);
/* From any thread: stop listening, end when idle or at the drain deadline. */
void gw_worker_stop(struct gw_worker *w);
/* From any thread: the same because another process serves now, with the deadline for that. No
 * connection is closed before its time. gw_worker_stop() may follow. */
void gw_worker_drain(struct gw_worker *w);
/* From any thread: work with this from the next turn on. */
void gw_worker_reload(struct gw_worker *w, struct gw_live *live);
void gw_worker_join(struct gw_worker *w);
void gw_worker_fini(struct gw_worker *w);

#endif
