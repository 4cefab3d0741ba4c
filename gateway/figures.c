/* SPDX-License-Identifier: MIT */
#include "gateway/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom/state.h"

#define INTERVAL_MS 10000
#define FIELDS_MAX  20

/* Counters of all workers together. */
struct sums {
    uint64_t requests, status[6], bytes_in, bytes_out, woken, denied, durations[GW_DURATIONS + 1];
    int64_t connections, tunnels;
};

struct gw_figures {
    uv_timer_t timer;
    struct gw_gateway *gw;
    struct gw_feed *feed;
    struct sums before;
    uint64_t before_ms;
};

static uint64_t read_counter(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void add_up(const struct gw_gateway *gw, struct sums *t)
{
    memset(t, 0, sizeof(*t));
    for (unsigned i = 0; i < gw->n_workers; i++) {
        const struct gw_stats *s = &gw->workers[i].stats;

        t->requests += read_counter(&s->requests);
        t->bytes_in += read_counter(&s->bytes_in);
        t->bytes_out += read_counter(&s->bytes_out);
        t->woken += read_counter(&s->woken);
        t->denied += read_counter(&s->denied);
        for (int k = 0; k < 6; k++)
            t->status[k] += read_counter(&s->status[k]);
        for (int d = 0; d <= GW_DURATIONS; d++)
            t->durations[d] += read_counter(&s->durations[d]);
        t->connections += atomic_load_explicit(&s->connections, memory_order_relaxed);
        t->tunnels += atomic_load_explicit(&s->open_tunnels, memory_order_relaxed);
    }
}

unsigned gw_figures_quantile(const uint64_t counts[GW_DURATIONS + 1], double part)
{
    uint64_t all = 0, seen = 0;

    for (int i = 0; i <= GW_DURATIONS; i++)
        all += counts[i];
    if (all == 0)
        return 0;
    for (int i = 0; i < GW_DURATIONS; i++) {
        seen += counts[i];
        if ((double)seen >= part * (double)all)
            return gw_duration_ms[i];
    }
    return gw_duration_ms[GW_DURATIONS - 1];
}

/* XADD under way. */
struct entry {
    const char *argv[5 + 2 * FIELDS_MAX];
    char text[FIELDS_MAX][24];
    int n, n_fields;
};

static void add(struct entry *e, const char *name, uint64_t value)
{
    snprintf(e->text[e->n_fields], sizeof(e->text[0]), "%llu", (unsigned long long)value);
    e->argv[e->n++] = name;
    e->argv[e->n++] = e->text[e->n_fields++];
}

static void on_timer(uv_timer_t *timer)
{
    static const char *const classes[] = {"status_none", "status_1xx", "status_2xx",
                                          "status_3xx",  "status_4xx", "status_5xx"};
    struct gw_figures *f = timer->data;
    uint64_t now_ms = uv_hrtime() / 1000000, lengths[GW_DURATIONS + 1];
    char key[sizeof(TR_KEY_GATEWAY_STATS) + 64], max[16];
    struct entry e = {.argv = {"XADD", key, "MAXLEN", max, "*"}, .n = 5};
    struct sums now, *b = &f->before;

    add_up(f->gw, &now);
    for (int d = 0; d <= GW_DURATIONS; d++)
        lengths[d] = now.durations[d] - b->durations[d];
    snprintf(key, sizeof(key), "%s%s", TR_KEY_GATEWAY_STATS, f->gw->opt->node);
    snprintf(max, sizeof(max), "%d", TR_STATS_MAX);
    add(&e, "interval_ms", now_ms - f->before_ms);
    add(&e, "requests", now.requests - b->requests);
    for (int k = 0; k < 6; k++)
        add(&e, classes[k], now.status[k] - b->status[k]);
    add(&e, "received_bytes", now.bytes_in - b->bytes_in);
    add(&e, "sent_bytes", now.bytes_out - b->bytes_out);
    add(&e, "woken", now.woken - b->woken);
    add(&e, "denied", now.denied - b->denied);
    add(&e, "connections", now.connections > 0 ? (uint64_t)now.connections : 0);
    add(&e, "tunnels", now.tunnels > 0 ? (uint64_t)now.tunnels : 0);
    add(&e, "p50_ms", gw_figures_quantile(lengths, 0.5));
    add(&e, "p90_ms", gw_figures_quantile(lengths, 0.9));
    add(&e, "p99_ms", gw_figures_quantile(lengths, 0.99));
    if (gw_feed_write(f->feed, e.n, e.argv) == 0) { /* else the next sample holds this one, too */
        f->before = now;
        f->before_ms = now_ms;
    }
}

int gw_figures_open(uv_loop_t *loop, struct gw_gateway *gw, struct gw_feed *feed,
                    struct gw_figures **out)
{
    struct gw_figures *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return UV_ENOMEM;
    f->gw = gw;
    f->feed = feed;
    f->before_ms = uv_hrtime() / 1000000;
    if (uv_timer_init(loop, &f->timer) != 0 ||
        uv_timer_start(&f->timer, on_timer, INTERVAL_MS, INTERVAL_MS) != 0)
        abort(); /* cannot fail on Unix */
    f->timer.data = f;
    *out = f;
    return 0;
}

static void on_close(uv_handle_t *handle)
{
    free(handle->data);
}

void gw_figures_close(struct gw_figures *f)
{
    uv_close((uv_handle_t *)&f->timer, on_close);
}
