/* SPDX-License-Identifier: MIT */
/* A stream of what changes at a path. Reading inotify, and looking into folders that come, is work
 * of the thread pool, one piece at a time, and none while the reader does not take what there is:
 * the kernel's queue is the only one.
 *
 * Path: open (as the user) -> head -> readable -> read -> lines -> readable ...; gone or the
 * reader's close ends it. */
#include "vmm/agent/files_api.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/agent/files_request.h"
#include "vmm/agent/watch.h"

#define MAX_WATCHES 32

struct watcher {
    struct agent_request *req; /* NULL once the stream is gone */
    uv_loop_t *loop;
    uv_work_t work;
    uv_poll_t poll;
    struct agent_files files;
    struct agent_watch_tree tree;
    struct err err;
    char *path;
    int result;
    bool recursive, opened, polled; /* polled: the handle is live */
    bool busy, full, over;
};

static size_t n_watchers; /* one loop, one thread */

static void wait_more(struct watcher *w);

static void free_watcher(struct watcher *w)
{
    if (w->opened)
        agent_watch_tree_close(&w->tree);
    free(w->path);
    free(w);
    n_watchers--;
}

static void on_poll_close(uv_handle_t *handle)
{
    free_watcher(handle->data);
}

static void end(struct watcher *w)
{
    if (w->req != NULL)
        w->req->cbs = NULL;
    w->req = NULL;
    w->over = true;
    if (w->busy)
        return; /* its callback comes back here */
    if (w->polled)
        uv_close((uv_handle_t *)&w->poll, on_poll_close);
    else
        free_watcher(w);
}

/* What there is goes out. */
static void send_lines(struct watcher *w)
{
    int r = 1;

    if (w->tree.out_len > 0)
        r = agent_request_write(w->req, w->tree.out, w->tree.out_len);
    w->tree.out_len = 0;
    w->full = r == 0;
    if (r < 0) {
        end(w);
    } else if (w->tree.gone) {
        agent_request_finish(w->req);
        end(w);
    } else {
        wait_more(w);
    }
}

static void do_read(uv_work_t *work)
{
    struct watcher *w = work->data;

    w->result = agent_act_begin(&w->files.act);
    if (w->result != 0)
        return;
    w->result = agent_watch_tree_read(&w->tree);
    agent_act_end(&w->files.act);
}

static void on_read(uv_work_t *work, int status)
{
    struct watcher *w = work->data;

    (void)status;
    w->busy = false;
    if (w->over) {
        end(w);
    } else if (w->result != 0) {
        tr_h2_reset(w->req->stream, 2);
        end(w);
    } else {
        send_lines(w);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct watcher *w = poll->data;

    (void)status;
    (void)events;
    uv_poll_stop(poll);
    w->busy = true;
    if (uv_queue_work(w->loop, &w->work, do_read, on_read) != 0) {
        w->busy = false;
        tr_h2_reset(w->req->stream, 2);
        end(w);
    }
}

static void wait_more(struct watcher *w)
{
    if (!w->full && !w->busy && uv_poll_start(&w->poll, UV_READABLE, on_readable) != 0) {
        tr_h2_reset(w->req->stream, 2);
        end(w);
    }
}

static void do_open(uv_work_t *work)
{
    struct watcher *w = work->data;

    w->result = agent_act_begin(&w->files.act);
    if (w->result != 0)
        return;
    w->result = agent_watch_tree_open(&w->files, w->path, w->recursive, &w->tree, &w->err);
    agent_act_end(&w->files.act);
}

static void on_open(uv_work_t *work, int status)
{
    struct watcher *w = work->data;

    (void)status;
    w->busy = false;
    w->opened = w->result == 0;
    if (!w->over && !w->opened) {
        agent_request_fail(w->req, w->result, &w->err);
        end(w);
        return;
    }
    if (w->over || uv_poll_init(w->loop, &w->poll, w->tree.fd) != 0) {
        if (!w->over)
            agent_request_error(w->req, 500, NULL, "the loop refuses the watch");
        end(w);
        return;
    }
    w->poll.data = w;
    w->polled = true;
    agent_request_head(w->req, 200, "application/x-ndjson", NULL, NULL);
    send_lines(w);
}

static void on_drain(struct agent_request *req)
{
    struct watcher *w = req->ctx;

    w->full = false;
    if (w->polled)
        wait_more(w);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    (void)code;
    end(req->ctx);
}

static const struct agent_request_cbs cbs = {.on_drain = on_drain, .on_close = on_close};

void agent_files_handle_watch(struct agent_request *req)
{
    const struct agent_text *recursive = agent_target_query(&req->target, "recursive");
    const char *path = agent_files_query_path(req, false);
    struct watcher *w;

    if (path == NULL)
        return;
    if (n_watchers >= MAX_WATCHES) {
        agent_request_error(req, 429, "too_many", "%d watches are open", MAX_WATCHES);
        return;
    }
    w = calloc(1, sizeof(*w));
    if (w == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    n_watchers++;
    w->loop = req->agent->loop;
    w->recursive = recursive != NULL && strcmp(recursive->at, "1") == 0;
    if (!agent_files_for_query(req, &w->files) || !agent_request_may_act(req)) {
        end(w);
        return;
    }
    w->path = strdup(path);
    w->work.data = w;
    w->busy = true;
    if (w->path == NULL || uv_queue_work(w->loop, &w->work, do_open, on_open) != 0) {
        w->busy = false;
        agent_request_error(req, 500, NULL, "out of memory");
        end(w);
        return;
    }
    w->req = req;
    req->ctx = w;
    req->cbs = &cbs;
}
