/* SPDX-License-Identifier: MIT */
/* A window's life: open -> shells come and go -> close (by request, idle, shutdown) ->
 * window_on_gone() of the last shell -> window_dispose() -> on_handle_close. Its output:
 * window_output.c, the runs in it: window_run.c. */
#include "vmm/agent/window.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/event.h"
#include "vmm/agent/window_internal.h"

#define SWEEP_MS 5000
#define N_TIMERS 8

void window_start_timer(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms)
{
    if (!uv_is_closing((uv_handle_t *)timer) && uv_timer_start(timer, cb, ms, 0) != 0)
        abort(); /* fails only without a callback */
}

void window_touch(struct agent_window *w)
{
    w->active_at = agent_uptime_ms();
    w->active_wall = agent_wall_ms();
}

static const struct agent_shell_cbs shell_cbs = {.on_output = window_on_output,
                                                 .on_mark = window_on_mark,
                                                 .on_start = window_on_start,
                                                 .on_end = window_on_end,
                                                 .on_input_drain = window_on_input_drain,
                                                 .on_gone = window_on_gone};

int window_open_shell(struct agent_window *w, struct err *err)
{
    int r = agent_shell_open(w->windows->agent, w->group, w->rows, w->cols, &shell_cbs, w,
                             &w->shell, err);

    if (r != 0)
        w->shell = NULL;
    return r;
}

static void list_timers(struct agent_window *w, uv_timer_t *out[N_TIMERS])
{
    uv_timer_t *timers[N_TIMERS] = {&w->hold_timer, &w->redraw_timer, &w->pace_timer,
                                    &w->kill_timer, &w->back_timer,   &w->mark_timer,
                                    &w->look_timer, &w->tell_timer};

    memcpy(out, timers, sizeof(timers));
}

/* ---- end ---- */

static void on_handle_close(uv_handle_t *handle)
{
    struct agent_window *w = handle->data;

    if (--w->n_open > 0)
        return;
    window_output_fini(w);
    free(w);
}

void window_dispose(struct agent_window *w)
{
    uv_timer_t *timers[N_TIMERS];

    if (w->run != NULL) {
        if (run_is_active(w->run))
            window_end_run(w->run, AGENT_KILLED);
        agent_run_unref(w->run);
        w->run = NULL;
    }
    while (w->n_past > 0)
        agent_run_unref(w->past[--w->n_past]);
    if (w->dying != NULL)
        agent_group_free(w->dying);
    agent_group_free(w->group);
    w->dying = w->group = NULL;
    if (w->done != NULL)
        w->done(NULL, w->done_arg);
    list_timers(w, timers);
    for (size_t i = 0; i < N_TIMERS; i++)
        uv_close((uv_handle_t *)timers[i], on_handle_close);
}

void agent_window_close(struct agent_window *w, const char *reason, agent_run_cb done, void *arg)
{
    struct agent_window **p = &w->windows->list;
    struct agent_run *waiting = w->waiting;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    w->windows->n--;
    w->closed = true;
    window_pace(w);
    w->done = done;
    w->done_arg = arg;
    agent_event(w->windows->agent, "window_close",
                json_pack("{s:s,s:s}", "window", w->name, "reason", reason));
    agent_group_signal(w->group, SIGKILL); /* groups of runs are inside */
    if (run_is_active(w->run))
        window_end_run(w->run, AGENT_KILLED);
    w->waiting = NULL;
    if (waiting != NULL) {
        window_end_run(waiting, AGENT_KILLED);
        agent_run_unref(waiting);
    }
    while (w->listeners != NULL) {
        struct agent_window_listener *l = w->listeners;

        w->listeners = l->next;
        l->on_close(l);
    }
    if (w->shell == NULL)
        window_dispose(w);
}

/* ---- begin ---- */

static void init_timers(struct agent_window *w)
{
    uv_timer_t *timers[N_TIMERS];

    list_timers(w, timers);
    for (size_t i = 0; i < N_TIMERS; i++) {
        if (uv_timer_init(w->windows->agent->loop, timers[i]) != 0)
            abort(); /* cannot fail on Unix */
        timers[i]->data = w;
    }
    w->n_open = N_TIMERS;
}

int agent_window_open(struct agent_windows *ws, const char *name, int rows, int cols,
                      struct agent_window **out, struct err *err)
{
    struct agent_window *w = agent_window_find(ws, name), **tail = &ws->list;
    int r;

    if (w != NULL) {
        *out = w;
        return 0;
    }
    if (ws->n >= AGENT_MAX_WINDOWS)
        return tr_err_set(err, UV_EBUSY, "%d windows are open", AGENT_MAX_WINDOWS);
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return tr_err_set(err, UV_ENOMEM, "opening a window: out of memory");
    w->windows = ws;
    r = window_output_init(w);
    if (r == 0)
        r = agent_group_new(ws->agent->groups, NULL, "w", &w->group);
    if (r != 0) {
        window_output_fini(w);
        free(w);
        return tr_err_set(err, r, "opening a window: %s", uv_strerror(r));
    }
    snprintf(w->name, sizeof(w->name), "%s", name);
    w->rows = rows;
    w->cols = cols;
    w->created_at = agent_wall_ms();
    window_touch(w);
    r = window_open_shell(w, err);
    if (r != 0) {
        agent_group_free(w->group);
        window_output_fini(w);
        free(w);
        return r;
    }
    init_timers(w);
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = w;
    ws->n++;
    agent_event(ws->agent, "window_open",
                json_pack("{s:s,s:i}", "window", w->name, "pid", (int)agent_shell_pid(w->shell)));
    *out = w;
    return 0;
}

/* ---- what is asked of one ---- */

struct agent_window *agent_window_find(struct agent_windows *ws, const char *name)
{
    struct agent_window *w = ws->list;

    while (w != NULL && strcmp(w->name, name) != 0)
        w = w->next;
    return w;
}

struct agent_window *agent_window_first(struct agent_windows *ws)
{
    return ws->list;
}

struct agent_window *agent_window_next(struct agent_window *w)
{
    return w->next;
}

const char *agent_window_name(const struct agent_window *w)
{
    return w->name;
}

const struct agent_ring *agent_window_ring(const struct agent_window *w)
{
    return &w->ring;
}

json_t *agent_window_json(struct agent_window *w)
{
    struct agent_run *run = w->waiting != NULL ? w->waiting : w->run;
    bool busy = w->waiting != NULL || run_is_active(w->run);
    json_t *obj =
        json_pack("{s:s,s:i,s:b,s:o,s:o,s:I,s:I,s:i,s:i}", "name", w->name, "pid",
                  w->shell != NULL ? (int)agent_shell_pid(w->shell) : 0, "busy", busy, "created_at",
                  agent_time_json(w->created_at), "last_activity_at",
                  agent_time_json(w->active_wall), "from", (json_int_t)agent_ring_begin(&w->ring),
                  "to", (json_int_t)w->ring.end, "rows", w->rows, "cols", w->cols);

    if (busy && obj != NULL)
        json_object_set_new(obj, "run_id", json_string(run->id));
    if (w->shell != NULL && obj != NULL)
        json_object_set_new(obj, "stale_secrets", agent_shell_stale_secrets(w->shell));
    return obj;
}

size_t agent_window_input(struct agent_window *w, const void *data, size_t len)
{
    window_touch(w);
    return w->shell != NULL ? agent_shell_input(w->shell, data, len) : 0;
}

int agent_window_resize(struct agent_window *w, int rows, int cols)
{
    w->rows = rows;
    w->cols = cols;
    uv_timer_stop(&w->redraw_timer);
    return w->shell != NULL ? agent_shell_resize(w->shell, rows, cols) : 0;
}

/* ---- life of the whole ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct agent_windows *ws = timer->data;
    struct agent_window *next;
    int64_t now = agent_uptime_ms();

    for (struct agent_window *w = ws->list; w != NULL; w = next) {
        next = w->next;
        if (now - w->active_at < ws->idle_ms || w->waiting != NULL || run_is_active(w->run))
            continue;
        if (agent_group_count(w->group) > (w->shell != NULL ? 1u : 0u))
            continue;
        agent_window_close(w, "idle", NULL, NULL);
    }
}

int agent_windows_new(struct agent *a, struct agent_windows **out)
{
    struct agent_windows *ws = calloc(1, sizeof(*ws));
    int r;

    if (ws == NULL)
        return UV_ENOMEM;
    ws->agent = a;
    r = uv_timer_init(a->loop, &ws->sweep);
    if (r != 0) {
        free(ws);
        return r;
    }
    ws->sweep.data = ws;
    agent_windows_set_limits(ws, AGENT_DEFAULT_IDLE_MS, AGENT_DEFAULT_BACK_MS);
    *out = ws;
    return 0;
}

void agent_windows_set_limits(struct agent_windows *ws, int64_t idle_ms, int64_t back_ms)
{
    uint64_t every = idle_ms < SWEEP_MS ? (uint64_t)idle_ms : SWEEP_MS;

    ws->idle_ms = idle_ms;
    ws->back_ms = back_ms;
    if (uv_timer_start(&ws->sweep, on_sweep, every, every) != 0)
        abort(); /* fails only without a callback */
}

void agent_windows_stop(struct agent_windows *ws)
{
    while (ws->list != NULL) {
        struct agent_window *w = ws->list;
        struct agent_shell *shell = w->shell;

        w->shell = NULL; /* nobody waits for it any more */
        if (shell != NULL)
            agent_shell_abandon(shell);
        agent_window_close(w, "shutdown", NULL, NULL);
    }
    if (!uv_is_closing((uv_handle_t *)&ws->sweep))
        uv_close((uv_handle_t *)&ws->sweep, NULL);
}

void agent_windows_free(struct agent_windows *ws)
{
    free(ws);
}
