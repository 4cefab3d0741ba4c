/* SPDX-License-Identifier: MIT */
/* Path: start -> output frames -> on_exit -> what is left in the pipes -> exit frame -> stream end.
 * Then the pipes are read to nowhere until the last process that holds them is gone, so that what
 * was left in the background does not die of a broken pipe. Faults (reader gone, deadline) kill the
 * group and enter at on_exit.
 *
 * A finished process has written all it ever will into the pipes: reading until they are empty is
 * enough, end-of-file may never come. Descendants get LINGER_MS of silence to say their last.
 *
 * A detached one writes into rings instead and waits for nobody; its readers come and go, and it is
 * remembered for a while after its end. */
#include "vmm/agent/exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/event.h"
#include "vmm/agent/exec_internal.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"

#define LINGER_MS 100

/* ---- end of life ---- */

static void free_exec(struct exec *x)
{
    struct exec **p = &x->execs->list;

    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    exec_output_fini(x);
    exec_ring_fini(x);
    free(x->command);
    free(x);
}

static void on_handle_close(uv_handle_t *handle)
{
    struct exec *x = handle->data;

    if (--x->n_open > 0)
        return;
    x->execs->n--;
    if (!x->kept)
        free_exec(x);
}

void exec_forget(struct exec *x)
{
    x->kept = false;
    if (x->n_open == 0)
        free_exec(x);
}

void exec_close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_close);
}

/* The reader is served or gone, and nothing will be reported any more. */
static void let_go(struct exec *x)
{
    if (x->finished)
        return;
    x->finished = true;
    x->ended_at = agent_wall_ms();
    x->ended_uptime = agent_uptime_ms();
    agent_event(x->execs->agent, "exec_end",
                agent_exit_json(json_pack("{s:s,s:b}", "id", x->id, "timed_out", x->timed_out),
                                x->by_exit, x->code));
    exec_input_close(x);
    exec_close_handle((uv_handle_t *)&x->deadline);
    exec_close_handle((uv_handle_t *)&x->linger);
    exec_close_handle((uv_handle_t *)&x->outs[0].hold);
    exec_close_handle((uv_handle_t *)&x->outs[1].hold);
    agent_group_free(x->group);
    x->group = NULL;
}

static void report_exit(struct exec *x)
{
    struct agent_request *req = x->req;

    exec_output_flush(x);
    if (req != NULL) {
        exec_send_json(req, AGENT_FRAME_EXIT, exec_exit_json(x));
        agent_request_finish(req);
        req->cbs = NULL;
        x->req = NULL;
        x->full = false;
    }
    let_go(x);
    if (x->detached)
        exec_ring_end(x);
    exec_output_watch(x);
}

static void on_linger(uv_timer_t *timer)
{
    struct exec *x = timer->data;

    if (x->finished || x->full)
        return;
    /* Timers come before descriptors: after a pause of our own there may be more. */
    for (int i = 0; i < 2; i++) {
        x->outs[i].empty = false;
        if (x->outs[i].fd >= 0 && !exec_output_is_empty(&x->outs[i]))
            return;
    }
    report_exit(x);
}

/* Look at where we are and do what is due. */
void exec_step(struct exec *x)
{
    exec_output_watch(x);
    if (!x->exited || x->finished || x->full)
        return;
    if ((x->outs[0].fd < 0 && x->outs[1].fd < 0) || (x->req == NULL && !x->detached)) {
        report_exit(x);
        return;
    }
    /* The timer runs only from an empty pipe: exec_output_pump() stops it at each byte. */
    for (int i = 0; i < 2; i++) {
        if (x->outs[i].fd >= 0 && !exec_output_is_empty(&x->outs[i]))
            return;
    }
    if (!uv_is_active((uv_handle_t *)&x->linger) &&
        uv_timer_start(&x->linger, on_linger, LINGER_MS, 0) != 0)
        report_exit(x);
}

void exec_on_exit(bool exited, int code, void *arg)
{
    struct exec *x = arg;

    x->watch = NULL;
    x->exited = true;
    x->by_exit = exited;
    x->code = code;
    uv_timer_stop(&x->deadline);
    for (int i = 0; i < 2; i++) {
        x->outs[i].empty = false;
        exec_output_pump(&x->outs[i]);
    }
    exec_step(x);
}

void exec_on_deadline(uv_timer_t *timer)
{
    struct exec *x = timer->data;

    x->timed_out = true;
    agent_group_signal(x->group, SIGKILL);
}

static void on_start_drain(struct agent_request *req)
{
    struct exec *x = req->ctx;

    x->full = false;
    for (int i = 0; i < 2 && !x->full; i++)
        exec_output_pump(&x->outs[i]);
    exec_step(x);
}

static void on_start_close(struct agent_request *req, uint32_t code)
{
    struct exec *x = req->ctx;

    (void)code;
    x->req = NULL;
    x->full = false;
    agent_group_signal(x->group, SIGKILL);
    exec_input_close(x);
    exec_step(x);
}

const struct agent_request_cbs exec_start_cbs = {.on_drain = on_start_drain,
                                                 .on_close = on_start_close};

int agent_execs_new(struct agent *a, struct agent_execs **out)
{
    struct agent_execs *x = calloc(1, sizeof(*x));

    if (x == NULL)
        return UV_ENOMEM;
    x->agent = a;
    *out = x;
    return 0;
}

const char *agent_execs_owner(const struct agent_execs *execs, pid_t pid)
{
    for (const struct exec *x = execs->list; x != NULL; x = x->next) {
        if (x->group != NULL && agent_group_has(x->group, pid, NULL, 0))
            return x->id;
    }
    return NULL;
}

void agent_execs_stop(struct agent_execs *execs)
{
    struct exec *next;

    for (struct exec *x = execs->list; x != NULL; x = next) {
        next = x->next;
        if (x->watch != NULL)
            agent_watch_forget(x->watch);
        x->watch = NULL;
        if (x->group != NULL)
            agent_group_signal(x->group, SIGKILL);
        if (x->req != NULL)
            x->req->cbs = NULL;
        if (x->in.req != NULL)
            x->in.req->cbs = NULL;
        x->req = x->in.req = NULL;
        x->full = false;
        let_go(x);
        exec_output_close(&x->outs[0]);
        exec_output_close(&x->outs[1]);
        exec_forget(x); /* frees only what has no handles left */
    }
}

void agent_execs_free(struct agent_execs *execs)
{
    free(execs);
}
