/* SPDX-License-Identifier: MIT */
/* Path: run -> (write input, read both outputs, on_ended) -> settle -> on_closed, each handle ->
 * cb. Faults: deadline and cancel kill the process and take the same path. */
#include "vmm/proc/child.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *const child_environment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};

#define AFTER_EXIT_MS 1000
#define AFTER_KILL_MS 3000

struct output {
    uv_pipe_t pipe;
    char *data;
    size_t len;
    bool ended;
};

struct child {
    uv_process_t process;
    uv_pipe_t in;
    struct output out, errors;
    uv_timer_t timer;
    uv_write_t write;
    char *input;
    child_cb cb;
    void *arg;
    int status, code, signal;
    int n_open; /* handles whose on_closed is still due */
    bool exited, killed, settled;
};

static void child_free(struct child *c)
{
    free(c->input);
    free(c->out.data);
    free(c->errors.data);
    free(c);
}

static void on_closed(uv_handle_t *handle)
{
    struct child *c = handle->data;
    struct child_result result;

    if (--c->n_open > 0)
        return;
    while (c->errors.len > 0 && (unsigned char)c->errors.data[c->errors.len - 1] <= ' ')
        c->errors.len--;
    if (c->out.data != NULL)
        c->out.data[c->out.len] = '\0';
    if (c->errors.data != NULL)
        c->errors.data[c->errors.len] = '\0';
    result = (struct child_result){
        .status = c->status,
        .code = c->code,
        .signal = c->signal,
        .out = c->out.data != NULL ? c->out.data : "",
        .out_len = c->out.len,
        .errors = c->errors.data != NULL ? c->errors.data : "",
    };
    if (c->cb != NULL)
        c->cb(&result, c->arg);
    child_free(c);
}

static void close_one(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

static void settle(struct child *c)
{
    if (c->settled)
        return;
    c->settled = true;
    if (c->status == 0 && (c->code != 0 || c->signal != 0))
        c->status = UV_EIO;
    close_one((uv_handle_t *)&c->process);
    close_one((uv_handle_t *)&c->in);
    close_one((uv_handle_t *)&c->out.pipe);
    close_one((uv_handle_t *)&c->errors.pipe);
    close_one((uv_handle_t *)&c->timer);
}

static void check_end(struct child *c)
{
    if (c->exited && c->out.ended && c->errors.ended)
        settle(c);
}

static void on_timer(uv_timer_t *timer);

static void end(struct child *c)
{
    c->killed = true;
    (void)uv_process_kill(&c->process, SIGKILL); /* fails only when it has just ended */
    (void)uv_timer_start(&c->timer, on_timer, AFTER_KILL_MS, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct child *c = timer->data;

    /* Exited: a grandchild keeps an output open. Killed: it hangs in the kernel. Neither is waited
     * for. */
    if (c->exited || c->killed) {
        if (c->status == 0 && !c->exited)
            c->status = UV_ETIMEDOUT;
        settle(c);
        return;
    }
    if (c->status == 0)
        c->status = UV_ETIMEDOUT;
    end(c);
}

static void on_ended(uv_process_t *process, int64_t code, int signal)
{
    struct child *c = process->data;

    c->exited = true;
    c->code = (int)code;
    c->signal = signal;
    (void)uv_timer_start(&c->timer, on_timer, AFTER_EXIT_MS, 0);
    check_end(c);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char scratch[4096]; /* takes what exceeds the limit; one loop thread at a time */
    struct child *c = handle->data;
    struct output *o = (uv_pipe_t *)handle == &c->out.pipe ? &c->out : &c->errors;

    (void)suggested;
    if (o->data == NULL)
        o->data = malloc(CHILD_OUTPUT_MAX + 1);
    if (o->data == NULL || o->len == CHILD_OUTPUT_MAX)
        *buf = uv_buf_init(scratch, sizeof(scratch));
    else
        *buf = uv_buf_init(o->data + o->len, (unsigned)(CHILD_OUTPUT_MAX - o->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct child *c = stream->data;
    struct output *o = (uv_pipe_t *)stream == &c->out.pipe ? &c->out : &c->errors;

    if (n < 0) {
        (void)uv_read_stop(stream);
        o->ended = true;
        check_end(c);
    } else if (o->data != NULL && buf->base == o->data + o->len) {
        o->len += (size_t)n;
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct child *c = req->data;

    (void)status; /* a program that does not read its input says so by its exit status */
    close_one((uv_handle_t *)&c->in);
}

static void init_handles(struct child *c, uv_loop_t *loop)
{
    if (uv_pipe_init(loop, &c->in, 0) != 0 || uv_pipe_init(loop, &c->out.pipe, 0) != 0 ||
        uv_pipe_init(loop, &c->errors.pipe, 0) != 0 || uv_timer_init(loop, &c->timer) != 0)
        abort(); /* cannot fail on Unix */
    c->in.data = c->out.pipe.data = c->errors.pipe.data = c->timer.data = c;
    c->process.data = c->write.data = c;
    c->n_open = 5;
}

int child_run(uv_loop_t *loop, const char *const *argv, const char *input, uint64_t timeout_ms,
              child_cb cb, void *arg, struct child **out, struct err *err)
{
    struct child *c = calloc(1, sizeof(*c));
    uv_stdio_container_t stdio[3] = {0};
    uv_process_options_t options = {0};
    int r;

    if (c == NULL || (input != NULL && (c->input = strdup(input)) == NULL)) {
        free(c);
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    c->cb = cb;
    c->arg = arg;
    init_handles(c, loop);
    stdio[0].flags = input != NULL ? UV_CREATE_PIPE | UV_READABLE_PIPE : UV_IGNORE;
    stdio[0].data.stream = (uv_stream_t *)&c->in;
    stdio[1].flags = stdio[2].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
    stdio[1].data.stream = (uv_stream_t *)&c->out.pipe;
    stdio[2].data.stream = (uv_stream_t *)&c->errors.pipe;
    options.file = argv[0];
    options.args = (char **)argv;
    options.env = (char **)child_environment;
    options.stdio = stdio;
    options.stdio_count = 3;
    options.exit_cb = on_ended;
    r = uv_spawn(loop, &c->process, &options);
    if (r != 0) { /* the handles close by themselves, and nobody is told: cb was never promised */
        c->cb = NULL;
        settle(c);
        return tr_err_set(err, r, "cannot run %s: %s%s", argv[0], uv_strerror(r),
                          r == UV_ENOENT ? " (is its package installed?)" : "");
    }
    r = uv_timer_start(&c->timer, on_timer, timeout_ms, 0);
    if (r == 0)
        r = uv_read_start((uv_stream_t *)&c->out.pipe, on_alloc, on_read);
    if (r == 0)
        r = uv_read_start((uv_stream_t *)&c->errors.pipe, on_alloc, on_read);
    if (r == 0 && c->input != NULL) {
        uv_buf_t buf = uv_buf_init(c->input, (unsigned)strlen(c->input));

        r = uv_write(&c->write, (uv_stream_t *)&c->in, &buf, 1, on_written);
    }
    if (r != 0) {
        c->status = r;
        c->out.ended = c->errors.ended = true;
        end(c);
    }
    if (out != NULL)
        *out = c;
    return 0;
}

void child_cancel(struct child *c)
{
    if (c->status == 0)
        c->status = UV_ECANCELED;
    if (!c->exited && !c->killed)
        end(c);
}

int child_explain(const struct child_result *result, const char *name, struct err *err)
{
    const char *text = result->errors[0] != '\0' ? result->errors : result->out;

    if (result->status == 0)
        return 0;
    if (result->status == UV_ETIMEDOUT)
        return tr_err_set(err, UV_ETIMEDOUT, "%s did not end in time and was killed", name);
    if (result->status == UV_ECANCELED)
        return tr_err_set(err, UV_ECANCELED, "%s: canceled", name);
    if (result->signal != 0)
        return tr_err_set(err, UV_EIO, "%s: ended by signal %d: %.300s", name, result->signal,
                          text);
    return tr_err_set(err, UV_EIO, "%s: exit status %d: %.300s", name, result->code, text);
}
