/* SPDX-License-Identifier: MIT */
/* Path: connected -> ends (first and last id of the change stream) -> resume, or load -> follow.
 *
 * load:   note the stream's last id, read the whole hash in portions, then forget what it did not
 *         hold. Changes made meanwhile come again from the stream, which does no harm.
 * follow: XREAD BLOCK from the last id seen. A reader that fell so far behind that the stream was
 *         trimmed past it loads again.
 * Redis gone: the table stays as it is. Redis back but empty, or in part: its manager is writing
 * everything back, so routes are forgotten only when that has not happened for a while. */
#include "gateway/feed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hiredis/hiredis.h>
#include "transom/log.h"
#include "transom/state.h"

#define BATCH           "1000" /* changes per read, fields per portion */
#define BATCH_N         1000
#define BLOCK_MS        "5000"
#define REWRITE_WAIT_MS 5000

enum feed_state {
    DOWN,    /* no connection */
    ENDS,    /* asked for the stream's ends */
    LOADING, /* reading the hash */
    FOLLOWING,
};

struct stream_id {
    unsigned long long ms, seq;
};

struct gw_feed {
    struct tr_redis *redis;
    uv_timer_t sweep_timer;
    struct gw_table *table;
    gw_feed_gone_cb gone;
    void *arg;
    struct gw_feed_figures figures;
    enum feed_state state;
    struct stream_id last;               /* seen; all zero before the first load */
    bool loaded;                         /* once */
    struct stream_id first_kept, newest; /* of the stream, as told */
    char cursor[24];
    uint32_t generation;
    size_t n_loaded; /* records in the load under way */
    uint64_t down_logged_ms;
    bool closing;
};

static void ask_ends(struct gw_feed *f);
static void follow(struct gw_feed *f);
static void on_sweep_timer(uv_timer_t *timer);
static void on_scan(redisReply *reply, void *arg);

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000; /* the workers' clock, too */
}

static int compare(const struct stream_id *a, const struct stream_id *b)
{
    if (a->ms != b->ms)
        return a->ms < b->ms ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return 0;
}

static bool parse_id(const redisReply *r, struct stream_id *out)
{
    return r != NULL && r->type == REDIS_REPLY_STRING &&
           sscanf(r->str, "%llu-%llu", &out->ms, &out->seq) == 2;
}

static void note_lag(struct gw_feed *f)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    atomic_store(&f->figures.lag_ms,
                 (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 - (int64_t)f->last.ms);
}

/* A failed command on a connection that lives, e.g. Redis loading its data: start over soon. The
 * connection's own reconnect does the waiting. */
static bool failed(struct gw_feed *f, const redisReply *reply, const char *what)
{
    if (reply == NULL) { /* the connection is gone; on_up comes again */
        f->state = DOWN;
        return true;
    }
    atomic_store(&f->figures.answered_ms, now_ms());
    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    log_warn("redis: %s: %s", what, reply->str);
    f->state = DOWN;
    uv_timer_start(&f->sweep_timer, on_sweep_timer, 1000, 0);
    return true;
}

static int command(struct gw_feed *f, tr_redis_reply_cb cb, int argc, const char **argv)
{
    size_t len[16];

    for (int i = 0; i < argc; i++)
        len[i] = strlen(argv[i]);
    return tr_redis_command(f->redis, cb, f, argc, argv, len);
}

/* Apply one record; "" or NULL json: the label is gone. */
static void apply(struct gw_feed *f, const char *label, size_t label_len, const char *json,
                  size_t len)
{
    char name[TR_LABEL_LEN + 1];
    struct tr_route route;
    struct err err = {0};
    uint64_t keep = 0;
    int r;

    if (!tr_label_valid(label, label_len)) {
        atomic_fetch_add(&f->figures.bad_records, 1);
        return;
    }
    memcpy(name, label, TR_LABEL_LEN);
    name[TR_LABEL_LEN] = '\0';
    if (len == 0) {
        if (gw_table_remove(f->table, name))
            f->gone(name, 0, f->arg);
        return;
    }
    if (tr_route_parse(name, json, len, &route, &err) != 0) {
        atomic_fetch_add(&f->figures.bad_records, 1);
        log_warn("route of %s ignored: %s", name, err.msg);
        return;
    }
    r = gw_table_put(f->table, &route, f->generation, now_ms());
    tr_route_fini(&route);
    if (r != GW_TABLE_CHANGED && r != GW_TABLE_CLOSED && r != GW_TABLE_REVOKED)
        return; /* nobody talks to a label that is new */
    /* A machine that stops may still finish what it is saying; who lost access may not go on. */
    if (r != GW_TABLE_REVOKED &&
        (route.state == TR_SANDBOX_RUNNING || route.state == TR_SANDBOX_STOPPING ||
         route.state == TR_SANDBOX_STARTING))
        keep = route.instance;
    f->gone(name, keep, f->arg);
}

static void on_removed(const char *label, void *arg)
{
    struct gw_feed *f = arg;

    f->gone(label, 0, f->arg);
}

/* The load is complete: forget what it did not hold. */
static void sweep(struct gw_feed *f)
{
    gw_table_sweep(f->table, f->generation, on_removed, f);
}

static void on_sweep_timer(uv_timer_t *timer)
{
    struct gw_feed *f = timer->data;

    if (f->state == FOLLOWING)
        sweep(f);
    else if (f->state == DOWN && tr_redis_is_up(f->redis))
        ask_ends(f); /* after a command that failed */
    else if (f->state != DOWN)
        uv_timer_start(timer, on_sweep_timer, 200, 0); /* between two questions */
}

static void end_load(struct gw_feed *f)
{
    atomic_fetch_add(&f->figures.loads, 1);
    log_info("routes: %zu loaded", f->n_loaded);
    /* A Redis that lost everything is written anew, one sandbox after the other: what is not there
     * may come yet, and its tunnels should not end meanwhile. */
    if (!f->loaded)
        sweep(f);
    else
        uv_timer_start(&f->sweep_timer, on_sweep_timer, REWRITE_WAIT_MS, 0);
    f->loaded = true;
    follow(f);
}

static void scan(struct gw_feed *f)
{
    const char *argv[] = {"HSCAN", TR_KEY_ROUTES, f->cursor, "COUNT", BATCH};

    if (command(f, on_scan, 5, argv) != 0)
        f->state = DOWN;
}

static void on_scan(redisReply *reply, void *arg)
{
    struct gw_feed *f = arg;
    const redisReply *pairs;

    if (f->closing || failed(f, reply, "HSCAN"))
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_ARRAY)
        return;
    pairs = reply->element[1];
    for (size_t i = 0; i + 1 < pairs->elements; i += 2) {
        const redisReply *k = pairs->element[i], *v = pairs->element[i + 1];

        if (k->type != REDIS_REPLY_STRING || v->type != REDIS_REPLY_STRING || v->len == 0)
            continue;
        apply(f, k->str, (size_t)k->len, v->str, (size_t)v->len);
        f->n_loaded++;
    }
    snprintf(f->cursor, sizeof(f->cursor), "%s", reply->element[0]->str);
    if (strcmp(f->cursor, "0") == 0)
        end_load(f);
    else
        scan(f);
}

static void load(struct gw_feed *f)
{
    f->state = LOADING;
    f->last = f->newest;
    f->generation++;
    f->n_loaded = 0;
    snprintf(f->cursor, sizeof(f->cursor), "0");
    uv_timer_stop(&f->sweep_timer);
    scan(f);
}

/* Both ends are known: go on where we were, or load. */
static void on_ends(struct gw_feed *f)
{
    bool gap =
        !f->loaded || compare(&f->first_kept, &f->last) > 0 || compare(&f->newest, &f->last) < 0;

    if (gap)
        load(f);
    else
        follow(f);
}

/* The one id of a reply to X(REV)RANGE COUNT 1, or 0-0. */
static struct stream_id range_id(const redisReply *reply)
{
    struct stream_id id = {0, 0};

    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
        reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements == 2 &&
        !parse_id(reply->element[0]->element[0], &id))
        memset(&id, 0, sizeof(id));
    return id;
}

static void on_first(redisReply *reply, void *arg)
{
    struct gw_feed *f = arg;

    if (f->closing || failed(f, reply, "XRANGE") || f->state != ENDS)
        return;
    f->first_kept = range_id(reply);
    on_ends(f);
}

static void on_newest(redisReply *reply, void *arg)
{
    struct gw_feed *f = arg;

    if (f->closing || failed(f, reply, "XREVRANGE"))
        return;
    f->newest = range_id(reply);
}

static void ask_ends(struct gw_feed *f)
{
    const char *newest[] = {"XREVRANGE", TR_KEY_ROUTE_CHANGES, "+", "-", "COUNT", "1"};
    const char *first[] = {"XRANGE", TR_KEY_ROUTE_CHANGES, "-", "+", "COUNT", "1"};

    f->state = ENDS;
    if (command(f, on_newest, 6, newest) != 0 || command(f, on_first, 6, first) != 0)
        f->state = DOWN;
}

/* One stream entry: [id, [field, value, ...]]. */
static void apply_entry(struct gw_feed *f, const redisReply *entry)
{
    const redisReply *fields, *label = NULL, *route = NULL;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
        !parse_id(entry->element[0], &f->last))
        return;
    fields = entry->element[1];
    for (size_t i = 0; fields->type == REDIS_REPLY_ARRAY && i + 1 < fields->elements; i += 2) {
        const redisReply *k = fields->element[i], *v = fields->element[i + 1];

        if (k->type != REDIS_REPLY_STRING || v->type != REDIS_REPLY_STRING)
            continue;
        if (strcmp(k->str, "label") == 0)
            label = v;
        else if (strcmp(k->str, "route") == 0)
            route = v;
    }
    if (label != NULL && route != NULL)
        apply(f, label->str, (size_t)label->len, route->str, (size_t)route->len);
    atomic_fetch_add(&f->figures.changes, 1);
}

static void on_changes(redisReply *reply, void *arg)
{
    struct gw_feed *f = arg;
    const redisReply *entries;

    if (f->closing || failed(f, reply, "XREAD"))
        return;
    if (reply->type ==
        REDIS_REPLY_NIL) { /* nothing happened in BLOCK_MS: is it still our stream? */
        ask_ends(f);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 ||
        reply->element[0]->type != REDIS_REPLY_ARRAY || reply->element[0]->elements != 2)
        return;
    entries = reply->element[0]->element[1];
    for (size_t i = 0; entries->type == REDIS_REPLY_ARRAY && i < entries->elements; i++)
        apply_entry(f, entries->element[i]);
    note_lag(f);
    if (entries->elements >= BATCH_N)
        ask_ends(f); /* behind: perhaps so far that changes were trimmed away */
    else
        follow(f);
}

static void follow(struct gw_feed *f)
{
    char id[48];
    const char *argv[] = {
        "XREAD", "COUNT", BATCH, "BLOCK", BLOCK_MS, "STREAMS", TR_KEY_ROUTE_CHANGES, id};

    f->state = FOLLOWING;
    snprintf(id, sizeof(id), "%llu-%llu", f->last.ms, f->last.seq);
    if (command(f, on_changes, 8, argv) != 0)
        f->state = DOWN;
}

static void on_up(struct tr_redis *redis, void *arg)
{
    struct gw_feed *f = arg;

    (void)redis;
    f->down_logged_ms = 0;
    atomic_store(&f->figures.up, true);
    log_info("redis: connected");
    ask_ends(f);
}

static void on_down(struct tr_redis *redis, const char *why, void *arg)
{
    struct gw_feed *f = arg;
    uint64_t now = now_ms();

    (void)redis;
    atomic_store(&f->figures.up, false);
    f->state = DOWN;
    uv_timer_stop(&f->sweep_timer);
    if (f->down_logged_ms == 0 || now - f->down_logged_ms > 60000) {
        log_warn("redis: %s; serving %zu known routes, trying on", why, gw_table_count(f->table));
        f->down_logged_ms = now;
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_close(struct tr_redis *redis, void *arg)
{
    struct gw_feed *f = arg;

    (void)redis;
    uv_close((uv_handle_t *)&f->sweep_timer, on_timer_closed);
}

int gw_feed_open(uv_loop_t *loop, const char *url, struct gw_table *table, gw_feed_gone_cb gone,
                 void *arg, struct gw_feed **out, struct err *err)
{
    static const struct tr_redis_cbs cbs = {
        .on_up = on_up, .on_down = on_down, .on_close = on_close};
    struct gw_feed *f = calloc(1, sizeof(*f));
    int r;

    if (f == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    f->table = table;
    f->gone = gone;
    f->arg = arg;
    r = tr_redis_open(loop, url, &cbs, f, &f->redis, err);
    if (r != 0) {
        free(f);
        return r;
    }
    if (uv_timer_init(loop, &f->sweep_timer) != 0)
        abort(); /* cannot fail on Unix */
    f->sweep_timer.data = f;
    *out = f;
    return 0;
}

void gw_feed_close(struct gw_feed *f)
{
    f->closing = true;
    tr_redis_close(f->redis);
}

int gw_feed_write(struct gw_feed *f, int argc, const char **argv)
{
    size_t len[48];

    if (argc > 48)
        return UV_E2BIG;
    for (int i = 0; i < argc; i++)
        len[i] = strlen(argv[i]);
    return tr_redis_command(f->redis, NULL, NULL, argc, argv, len);
}

const struct gw_feed_figures *gw_feed_figures(const struct gw_feed *f)
{
    return &f->figures;
}
