/* SPDX-License-Identifier: MIT */
#include "vmm/state/redis_loop.h"

#include <stdlib.h>

struct watcher {
    uv_poll_t poll;
    redisAsyncContext *ac; /* NULL once hiredis let go */
    int events;
};

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct watcher *w = poll->data;

    /* Either call may free ac, which clears w->ac; w itself stays until its handle is closed. */
    if (w->ac != NULL && (status != 0 || (events & UV_READABLE) != 0))
        redisAsyncHandleRead(w->ac);
    if (w->ac != NULL && status == 0 && (events & UV_WRITABLE) != 0)
        redisAsyncHandleWrite(w->ac);
    if (w->ac != NULL && status != 0)
        redisAsyncFree(w->ac); /* reading found nothing wrong, but libuv watches no more */
}

static void watch(struct watcher *w, int events)
{
    if (w->events == events)
        return;
    w->events = events;
    if (events == 0)
        uv_poll_stop(&w->poll);
    else
        (void)uv_poll_start(&w->poll, events, on_poll); /* fails only while closing */
}

static void add_read(void *arg)
{
    struct watcher *w = arg;

    watch(w, w->events | UV_READABLE);
}

static void del_read(void *arg)
{
    struct watcher *w = arg;

    watch(w, w->events & ~UV_READABLE);
}

static void add_write(void *arg)
{
    struct watcher *w = arg;

    watch(w, w->events | UV_WRITABLE);
}

static void del_write(void *arg)
{
    struct watcher *w = arg;

    watch(w, w->events & ~UV_WRITABLE);
}

static void on_poll_close(uv_handle_t *handle)
{
    free(handle->data);
}

static void cleanup(void *arg)
{
    struct watcher *w = arg;

    w->ac = NULL;
    uv_close((uv_handle_t *)&w->poll, on_poll_close);
}

int redis_loop_attach(uv_loop_t *loop, redisAsyncContext *ac)
{
    struct watcher *w = calloc(1, sizeof(*w));
    int r;

    if (w == NULL)
        return UV_ENOMEM;
    r = uv_poll_init(loop, &w->poll, ac->c.fd);
    if (r != 0) {
        free(w);
        return r;
    }
    w->poll.data = w;
    w->ac = ac;
    ac->ev.data = w;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = cleanup;
    return 0;
}
