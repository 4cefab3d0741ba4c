/* SPDX-License-Identifier: MIT */
/* Standard input of an exec: bodies of requests, each no faster than the command reads. */
#include "vmm/agent/exec_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_rest_end(struct agent_request *req)
{
    req->cbs = NULL;
    agent_request_empty(req, 204);
}

/* Of a request whose exec takes no more, and may be gone before the body is: the rest is read to
 * nowhere. */
static const struct agent_request_cbs rest_cbs = {.on_end = on_rest_end};

void exec_input_close(struct exec *x)
{
    struct agent_request *req = x->in.req;

    if (x->in.fd >= 0) {
        uv_poll_stop(&x->in.poll);
        close(x->in.fd);
        x->in.fd = -1;
        exec_close_handle((uv_handle_t *)&x->in.poll);
    }
    if (req != NULL && x->in.queue_len > 0)
        agent_request_consume(req, x->in.queue_len);
    free(x->in.queue);
    x->in.queue = NULL;
    x->in.queue_len = 0;
    x->in.req = NULL;
    if (req == NULL)
        return;
    req->ctx = NULL;
    req->cbs = &rest_cbs;
    if (req->body_ended)
        on_rest_end(req);
}

/* Its body is in the pipe, which stays open for the next one. */
static void end_request(struct exec *x)
{
    struct agent_request *req = x->in.req;

    x->in.req = NULL;
    req->cbs = NULL;
    agent_request_empty(req, 204);
}

static void on_writable(uv_poll_t *poll, int status, int events);

static void write_input(struct exec *x)
{
    struct exec_input *in = &x->in;
    size_t done = 0;

    while (done < in->queue_len) {
        ssize_t n = write(in->fd, in->queue + done, in->queue_len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* EPIPE: nobody reads any more, which is no fault */
            exec_input_close(x);
            return;
        }
        done += (size_t)n;
    }
    if (done > 0 && in->req != NULL)
        agent_request_consume(in->req, done);
    if (done > 0)
        memmove(in->queue, in->queue + done, in->queue_len - done);
    in->queue_len -= done;
    if (in->queue_len > 0) {
        if (!uv_is_active((uv_handle_t *)&in->poll) &&
            uv_poll_start(&in->poll, UV_WRITABLE, on_writable) != 0)
            exec_input_close(x);
        return;
    }
    uv_poll_stop(&in->poll);
    if (in->req == NULL || !in->req->body_ended)
        return;
    if (in->keep)
        end_request(x);
    else
        exec_input_close(x);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    write_input(poll->data);
}

static void on_stdin_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct exec *x = req->ctx;
    uint8_t *grown;

    grown = realloc(x->in.queue, x->in.queue_len + len);
    if (grown == NULL) {
        agent_request_consume(req, len);
        exec_input_close(x);
        return;
    }
    memcpy(grown + x->in.queue_len, data, len);
    x->in.queue = grown;
    x->in.queue_len += len;
    write_input(x);
}

static void on_stdin_end(struct agent_request *req)
{
    write_input(req->ctx);
}

static void on_stdin_close(struct agent_request *req, uint32_t code)
{
    struct exec *x = req->ctx;

    (void)code;
    x->in.req = NULL;
    if (x->in.keep)
        return;          /* the next one goes on */
    exec_input_close(x); /* cut short: the command must not take it for more to come */
}

static const struct agent_request_cbs stdin_cbs = {
    .on_data = on_stdin_data, .on_end = on_stdin_end, .on_close = on_stdin_close};

void agent_exec_handle_stdin(struct agent_request *req)
{
    const struct agent_text *keep = agent_target_query(&req->target, "keep");
    struct exec *x = exec_find(req, true);

    if (x == NULL)
        return;
    if (x->in.fd < 0 || x->in.req != NULL) {
        agent_request_error(req, 409, NULL, "standard input is closed or in use");
        return;
    }
    x->in.keep = keep != NULL && strcmp(keep->at, "1") == 0;
    x->in.req = req;
    req->ctx = x;
    req->cbs = &stdin_cbs;
    if (req->body_ended)
        on_stdin_end(req);
}
