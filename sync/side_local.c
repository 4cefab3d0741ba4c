/* SPDX-License-Identifier: MIT */
#include "sync/side_local.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sync/side_tree.h"
#include "sync/watch.h"

struct wish { /* of the engine */
    struct wish *next;
    bool on;
    size_t len;
    char dir[];
};

struct sync_side_local {
    struct sync_side_tree tree; /* first: what its functions are given */
    struct sync_side_ops ops;
    const struct sync_side_local_cbs *cbs;
    void *arg;
    pthread_mutex_t lock;
    struct wish *first, *last; /* under the lock */
    uv_async_t async;
    struct sync_watch *watch; /* NULL: cannot be had */
    bool is_closing, is_async_closed, is_watch_closed;
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static bool on_dirty(const char *dir, size_t len, void *arg)
{
    const struct sync_side_local *s = arg;

    if (!s->is_closing)
        s->cbs->on_dirty(dir, len, s->arg);
    return true;
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    const struct sync_side_local *s = arg;

    if (!s->is_closing)
        s->cbs->on_lost(dir, len, status, s->arg);
}

static void on_overflow(void *arg)
{
    const struct sync_side_local *s = arg;

    if (!s->is_closing)
        s->cbs->on_overflow(s->arg);
}

static struct wish *take(struct sync_side_local *s)
{
    struct wish *wish;

    pthread_mutex_lock(&s->lock);
    wish = s->first;
    if (wish != NULL)
        s->first = wish->next;
    if (s->first == NULL)
        s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    return wish;
}

static void on_async(uv_async_t *async)
{
    struct sync_side_local *s = async->data;
    struct wish *wish;

    while (!s->is_closing && (wish = take(s)) != NULL) {
        int r = 0;

        if (!wish->on && s->watch != NULL)
            sync_watch_remove(s->watch, wish->dir, wish->len);
        else if (wish->on)
            r = s->watch != NULL ? sync_watch_add(s->watch, wish->dir, wish->len) : -ENOSPC;
        if (r != 0)
            on_lost(wish->dir, wish->len, -ENOSPC, s); /* looked at from time to time */
        free(wish);
    }
}

/* The engine's thread. */
static void watch(void *ctx, const char *dir, size_t len, bool on)
{
    struct sync_side_local *s = ctx;
    struct wish *wish = calloc(1, sizeof(*wish) + len + 1);

    if (wish == NULL)
        return; /* what changes there is found by the next look at everything */
    wish->on = on;
    wish->len = len;
    memcpy(wish->dir, dir, len);
    pthread_mutex_lock(&s->lock);
    if (s->last != NULL)
        s->last->next = wish;
    else
        s->first = wish;
    s->last = wish;
    pthread_mutex_unlock(&s->lock);
    uv_async_send(&s->async);
}

static void maybe_closed(struct sync_side_local *s)
{
    struct wish *wish;

    if (!s->is_async_closed || !s->is_watch_closed)
        return;
    while ((wish = take(s)) != NULL)
        free(wish);
    pthread_mutex_destroy(&s->lock);
    s->on_close(s->on_close_arg);
    free(s);
}

static void on_watch_closed(void *arg)
{
    struct sync_side_local *s = arg;

    s->is_watch_closed = true;
    maybe_closed(s);
}

static void on_async_closed(uv_handle_t *handle)
{
    struct sync_side_local *s = handle->data;

    s->is_async_closed = true;
    maybe_closed(s);
}

int sync_side_local_open(uv_loop_t *loop, const struct sync_tree *tree,
                         const struct sync_side_local_cbs *cbs, void *arg,
                         struct sync_side_local **out)
{
    static const struct sync_watch_cbs watch_cbs = {.on_dirty = on_dirty,
                                                    .on_lost = on_lost,
                                                    .on_overflow = on_overflow,
                                                    .on_close = on_watch_closed};
    struct sync_side_local *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return -ENOMEM;
    s->tree.tree = *tree;
    s->ops = sync_side_tree_ops;
    s->ops.watch = watch;
    s->cbs = cbs;
    s->arg = arg;
    if (uv_async_init(loop, &s->async, on_async) != 0) {
        free(s);
        return -ENOMEM;
    }
    s->async.data = s;
    pthread_mutex_init(&s->lock, NULL);
    if (sync_watch_open(loop, tree->root, &watch_cbs, s, &s->watch) != 0) {
        s->watch = NULL;
        s->is_watch_closed = true;
    }
    *out = s;
    return 0;
}

void sync_side_local_close(struct sync_side_local *s, void (*cb)(void *arg), void *arg)
{
    s->on_close = cb;
    s->on_close_arg = arg;
    s->is_closing = true;
    if (s->watch != NULL)
        sync_watch_close(s->watch);
    uv_close((uv_handle_t *)&s->async, on_async_closed);
}

const struct sync_side_ops *sync_side_local_get_ops(const struct sync_side_local *s)
{
    return &s->ops;
}
