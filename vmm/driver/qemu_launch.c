/* SPDX-License-Identifier: MIT */
/* Path: qemu_launch -> spawn -> (write spec, on_control, on_errors) -> the exec ends the control
 * socket -> qemu_connect. */
#include "vmm/driver/qemu_int.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/driver/launch.h"
#include "vmm/driver/warn_once.h"
#include "vmm/proc/child.h"

static void on_process_end(uv_process_t *process, int64_t code, int signal)
{
    struct qemu_vm *v = process->data;

    v->facts.code = (int)code;
    v->facts.signal = signal;
    qemu_gone(v);
}

/* A whole line of the launcher. */
static void on_control_line(struct qemu_vm *v, const char *line)
{
    char *end;
    long code;

    if (line[0] == 'W' && line[1] == ' ') {
        qemu_log(v, warn_once(line + 2) ? TR_LOG_WARN : TR_LOG_DEBUG, line + 2);
    } else if (line[0] == 'E' && line[1] == ' ') {
        code = strtol(line + 2, &end, 10);
        if (v->start_err.code == 0)
            (void)tr_err_set(&v->start_err, code < 0 && code > -4096 ? (int)code : UV_EIO, "%s",
                             *end == ' ' ? end + 1 : end);
    }
}

static void take_control(struct qemu_vm *v, const char *data, size_t len)
{
    char *end;

    if (len > sizeof(v->control_text) - 1 - v->control_len) /* our own program: cannot happen */
        len = sizeof(v->control_text) - 1 - v->control_len;
    memcpy(v->control_text + v->control_len, data, len);
    v->control_len += len;
    v->control_text[v->control_len] = '\0';
    while ((end = strchr(v->control_text, '\n')) != NULL) {
        *end = '\0';
        on_control_line(v, v->control_text);
        v->control_len -= (size_t)(end + 1 - v->control_text);
        memmove(v->control_text, end + 1, v->control_len + 1);
    }
}

static void take_errors(struct qemu_vm *v, const char *data, size_t len)
{
    size_t max = sizeof(v->error_text) - 1;

    if (len > max) {
        data += len - max;
        len = max;
    }
    if (v->error_len + len > max) { /* what it said last counts */
        size_t drop = v->error_len + len - max;

        memmove(v->error_text, v->error_text + drop, v->error_len - drop);
        v->error_len -= drop;
    }
    memcpy(v->error_text + v->error_len, data, len);
    v->error_len += len;
}

/* Its last words as one printable line. */
static void finish_errors(struct qemu_vm *v)
{
    size_t skip, i;

    while (v->error_len > 0 && (unsigned char)v->error_text[v->error_len - 1] <= ' ')
        v->error_len--;
    skip = v->error_len > 380 ? v->error_len - 380 : 0;
    for (i = skip; i < v->error_len; i++)
        v->facts.stderr_tail[i - skip] =
            (unsigned char)v->error_text[i] < ' ' ? ' ' : v->error_text[i];
    v->facts.stderr_tail[v->error_len - skip] = '\0';
    if (!v->started && v->start_err.code == 0 && v->error_len > 0)
        (void)tr_err_set(&v->start_err, UV_EIO, "QEMU did not start: %s", v->facts.stderr_tail);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char scratch[4096]; /* consumed before on_read returns; one loop thread */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(scratch, sizeof(scratch));
}

static void on_control(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct qemu_vm *v = stream->data;

    if (n >= 0) {
        take_control(v, buf->base, (size_t)n);
        return;
    }
    (void)uv_read_stop(stream);
    v->control_ended = true;
    if (v->state == VM_LAUNCHING && v->start_err.code == 0) {
        v->state = VM_CONNECTING; /* the exec closed it */
        qemu_connect(v);
    }
    qemu_check_drained(v);
}

static void on_errors(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct qemu_vm *v = stream->data;

    if (n >= 0) {
        take_errors(v, buf->base, (size_t)n);
        return;
    }
    (void)uv_read_stop(stream);
    v->errors_ended = true;
    finish_errors(v);
    qemu_check_drained(v);
}

static int spawn(struct qemu_vm *v, const char *exe, struct err *err)
{
    static char role[] = "--launch-machine";
    char *argv[] = {(char *)exe, role, NULL};
    uv_stdio_container_t stdio[LAUNCH_STATE_FD + 1] = {0};
    uv_process_options_t options = {0};
    int r;

    stdio[0].flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE;
    stdio[0].data.stream = (uv_stream_t *)&v->control;
    stdio[1].flags = UV_IGNORE;
    stdio[2].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
    stdio[2].data.stream = (uv_stream_t *)&v->errors;
    options.file = exe;
    options.args = argv;
    options.env = (char **)child_environment;
    options.stdio = stdio;
    options.stdio_count = 3;
    if (v->vm.copy.spec.memory != VM_MEMORY_OWN) {
        stdio[LAUNCH_MEMORY_FD].flags = UV_INHERIT_FD;
        stdio[LAUNCH_MEMORY_FD].data.fd = v->memory_fd;
        options.stdio_count = LAUNCH_MEMORY_FD + 1;
    }
    if (v->vm.copy.spec.memory == VM_MEMORY_CLONE) {
        stdio[LAUNCH_STATE_FD].flags = UV_INHERIT_FD;
        stdio[LAUNCH_STATE_FD].data.fd = v->state_fd;
        options.stdio_count = LAUNCH_STATE_FD + 1;
    }
    options.flags = UV_PROCESS_DETACHED; /* outlives us, in a session of its own */
    options.exit_cb = on_process_end;
    r = uv_spawn(v->loop, &v->process, &options);
    v->process.data = v;
    if (r != 0)
        return tr_err_set(err, r, "cannot run %s: %s", exe, uv_strerror(r));
    v->vm.pid = v->process.pid;
    return 0;
}

static void on_spec_written(uv_write_t *req, int status)
{
    (void)req;
    (void)status; /* a launcher that did not read it tells by its end */
}

int qemu_launch(struct qemu_vm *v, const char *exe, struct err *err)
{
    uv_buf_t buf;
    size_t len;
    int r;

    if (uv_pipe_init(v->loop, &v->control, 0) != 0 || uv_pipe_init(v->loop, &v->errors, 0) != 0)
        abort(); /* cannot fail on Unix */
    v->control.data = v->errors.data = v;
    r = vm_spec_encode(&v->vm.copy.spec, &v->spec_text, &len);
    if (r != 0)
        return tr_err_set(err, r, "machine: %s", uv_strerror(r));
    r = spawn(v, exe, err);
    if (r != 0)
        return r;
    buf = uv_buf_init(v->spec_text, (unsigned)len);
    r = uv_read_start((uv_stream_t *)&v->control, on_alloc, on_control);
    if (r == 0)
        r = uv_read_start((uv_stream_t *)&v->errors, on_alloc, on_errors);
    if (r == 0)
        r = uv_write(&v->spec_write, (uv_stream_t *)&v->control, &buf, 1, on_spec_written);
    if (r != 0) { /* handles are live: told through on_start */
        (void)tr_err_set(&v->start_err, r, "machine: %s", uv_strerror(r));
        v->control_ended = v->errors_ended = true;
        qemu_fail(v);
    }
    return 0;
}
