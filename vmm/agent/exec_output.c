/* SPDX-License-Identifier: MIT */
/* Output of an exec: pipe -> masker -> frames to its request, or its rings when detached. */
#include "vmm/agent/exec_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"

#define READS_AT_ONCE 8

void agent_exec_frame_head(uint8_t *out, enum agent_exec_frame type, uint32_t len)
{
    out[0] = (uint8_t)type;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

void exec_output_fini(struct exec *x)
{
    tr_masker_free(x->outs[0].masker);
    tr_masker_free(x->outs[1].masker);
}

void exec_output_close(struct exec_output *o)
{
    if (o->fd < 0)
        return;
    uv_poll_stop(&o->poll);
    close(o->fd);
    o->fd = -1;
    exec_close_handle((uv_handle_t *)&o->poll);
}

void exec_send_json(struct agent_request *req, enum agent_exec_frame type, json_t *obj)
{
    char *text = obj != NULL ? json_dumps(obj, JSON_COMPACT) : NULL;
    uint8_t head[AGENT_FRAME_HEAD];

    json_decref(obj);
    if (text == NULL) {
        tr_h2_reset(req->stream, 2);
        return;
    }
    agent_exec_frame_head(head, type, (uint32_t)strlen(text));
    if (agent_request_write(req, head, sizeof(head)) < 0 ||
        agent_request_write(req, text, strlen(text)) < 0)
        log_debug("exec: the reader is gone");
    free(text);
}

json_t *exec_exit_json(const struct exec *x)
{
    json_t *obj = agent_exit_json(json_object(), x->by_exit, x->code);

    if (x->timed_out)
        json_object_set_new(obj, "timed_out", json_true());
    return obj;
}

/* A piece of output, its secrets hidden. */
static void on_shown(const uint8_t *data, size_t len, void *arg)
{
    struct exec_output *o = arg;
    struct exec *x = o->exec;
    uint8_t head[AGENT_FRAME_HEAD];

    if (x->detached && len > 0)
        exec_ring_write(o, data, len);
    if (x->req == NULL || len == 0)
        return;
    agent_exec_frame_head(head, o->type, (uint32_t)len);
    if (agent_request_write(x->req, head, sizeof(head)) < 0)
        return;
    x->full = agent_request_write(x->req, data, len) == 0;
}

void exec_output_flush(struct exec *x)
{
    for (int i = 0; i < 2; i++)
        tr_masker_flush(x->outs[i].masker);
}

int exec_output_init(struct exec *x, struct tr_mask *mask)
{
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        x->outs[i].exec = x;
        r = tr_masker_new(mask, on_shown, &x->outs[i], &x->outs[i].masker);
    }
    return r;
}

void agent_execs_secrets_changed(struct agent_execs *execs)
{
    for (struct exec *x = execs->list; x != NULL; x = x->next) {
        for (int i = 0; i < 2; i++)
            tr_masker_set(x->outs[i].masker, execs->agent->secrets->mask);
    }
}

static void pass_on(struct exec_output *o, size_t n)
{
    struct exec *x = o->exec;
    uint8_t *buf = x->execs->buf;

    uv_timer_stop(&x->linger);
    if (x->execs->agent->secrets->mask == NULL && tr_masker_held(o->masker) == 0) {
        if (x->detached) {
            exec_ring_write(o, buf + AGENT_FRAME_HEAD, n);
            return;
        }
        agent_exec_frame_head(buf, o->type, (uint32_t)n);
        x->full = agent_request_write(x->req, buf, AGENT_FRAME_HEAD + n) == 0;
        return;
    }
    if (tr_masker_write(o->masker, buf + AGENT_FRAME_HEAD, n) != 0)
        log_error("exec %s: output is lost: out of memory", x->id);
}

/* Returns whether anything came. */
static bool pump(struct exec_output *o)
{
    struct exec *x = o->exec;
    uint8_t *buf = x->execs->buf;
    bool some = false;

    for (int i = 0; i < READS_AT_ONCE && o->fd >= 0 && !x->full; i++) {
        ssize_t n = read(o->fd, buf + AGENT_FRAME_HEAD, EXEC_READ_BYTES);

        if (n < 0 && errno == EINTR)
            continue;
        o->empty = n < 0 && errno == EAGAIN;
        if (o->empty)
            break;
        if (n <= 0) {
            exec_output_close(o);
            break;
        }
        some = true;
        if (x->detached ? x->finished : x->req == NULL)
            continue; /* to nowhere */
        pass_on(o, (size_t)n);
    }
    return some;
}

static void on_held(uv_timer_t *timer);

/* What is held waits for the rest of a secret as long as bytes come, or a slow reader keeps us from
 * taking them. */
static void hold(struct exec_output *o)
{
    if (o->exec->finished)
        return; /* nothing is held, and the timer may be closed */
    if (tr_masker_held(o->masker) == 0)
        uv_timer_stop(&o->hold);
    else if (uv_timer_start(&o->hold, on_held, TR_MASK_HOLD_MS, 0) != 0)
        abort(); /* fails only without a callback */
}

static void on_held(uv_timer_t *timer)
{
    struct exec *x = timer->data;
    struct exec_output *o = timer == &x->outs[0].hold ? &x->outs[0] : &x->outs[1];

    if (x->full)
        return; /* exec_output_pump() follows */
    /* Timers come before descriptors: after a pause of our own the rest may be there. */
    if (pump(o))
        hold(o);
    else
        tr_masker_flush(o->masker);
    exec_step(x);
}

void exec_output_pump(struct exec_output *o)
{
    (void)pump(o);
    hold(o);
}

static void on_readable(uv_poll_t *poll, int status, int events);

void exec_output_watch(struct exec *x)
{
    for (int i = 0; i < 2; i++) {
        struct exec_output *o = &x->outs[i];

        if (o->fd < 0)
            continue;
        if (x->full)
            uv_poll_stop(&o->poll);
        else if (!uv_is_active((uv_handle_t *)&o->poll) &&
                 uv_poll_start(&o->poll, UV_READABLE, on_readable) != 0)
            exec_output_close(o);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct exec *x = poll->data;
    struct exec_output *o = poll == &x->outs[0].poll ? &x->outs[0] : &x->outs[1];

    (void)status;
    (void)events;
    o->empty = false;
    exec_output_pump(o);
    exec_step(x);
}

bool exec_output_is_empty(struct exec_output *o)
{
    int n = 1;

    if (!o->empty) /* the last share may have been all there was */
        o->empty = ioctl(o->fd, FIONREAD, &n) == 0 && n == 0;
    return o->empty;
}
