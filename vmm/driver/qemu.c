/* SPDX-License-Identifier: MIT */
/* One QEMU process, from launch to the removal of its files.
 *
 * Start:  launch -> on_control (launcher executed QEMU) -> connect -> on_ready -> on_status ->
 *         on_start(0) -> ... -> gone -> drained -> clean -> report (on_exit).
 * Adopt:  pidfile -> connect -> the same.
 * Faults: before RUNNING fail() keeps the first reason and ends the process (start) or lets go of
 *         it (adopt); the path to report() is the same and ends in on_start(status). */
#include "vmm/driver/driver.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/driver/console.h"
#include "vmm/driver/exit_reason.h"
#include "vmm/driver/qmp.h"
#include "vmm/driver/remains.h"
#include "vmm/driver/vm.h"
#include "vmm/driver/warn_once.h"
#include "vmm/proc/child.h"
#include "vmm/proc/procid.h"

#define QUIT_MS      3000 /* from the order to quit to SIGKILL */
#define DRAIN_MS     1000 /* from the process's end to the last byte of its outputs */
#define RECONNECT_MS 500

enum vm_state {
    VM_LAUNCHING,  /* process, control, errors are live; left by on_control_end, fail */
    VM_CONNECTING, /* qmp may be live; left by on_status, fail */
    VM_RUNNING,    /* on_start(0) was given; left by on_gone, release */
    VM_DRAINING,   /* the process has ended, its outputs may hold a rest; left by clean */
    VM_CLEANING,   /* work runs */
    VM_CLOSING,    /* handles close, then report() */
};

struct qemu_vm {
    struct vm vm;
    uv_loop_t *loop;
    struct vm_cbs cbs;
    void *arg;
    enum vm_state state;
    uv_process_t process; /* start only */
    uv_pipe_t control, errors;
    uv_poll_t watch;  /* adopt only: pidfd */
    uv_timer_t timer; /* start deadline; grace and quit; drain */
    uv_timer_t reconnect;
    uv_write_t spec_write;
    uv_work_t work;
    struct procid id; /* adopt only */
    struct qmp *qmp;
    char *spec_text;
    char control_text[2048], error_text[1024];
    size_t control_len, error_len;
    int pidfd;
    int n_open; /* handles whose on_closed is due, when CLOSING */
    bool adopted, started, released, untouched;
    bool control_ended, errors_ended, stopping, quitting, guest_ended;
    struct err start_err;
    struct err clean_err;
    struct exit_facts facts;
    void (*release_cb)(void *arg);
    void *release_arg;
};

static void vm_free(struct qemu_vm *v)
{
    if (v->pidfd >= 0)
        (void)close(v->pidfd);
    vm_spec_fini(&v->vm.copy);
    free(v->spec_text);
    free(v);
}

static void log_vm(struct qemu_vm *v, enum tr_log_level level, const char *text)
{
    char ids[32];

    (void)snprintf(ids, sizeof(ids), "vm=%s", vm_label(&v->vm));
    tr_log(level, ids, "%s", text);
}

/* The last event. */
static void report(struct qemu_vm *v)
{
    struct vm_exit ex;

    if (v->clean_err.code != 0)
        log_vm(v, TR_LOG_WARN, v->clean_err.msg);
    if (v->released) {
        v->release_cb(v->release_arg);
    } else if (!v->started) {
        if (v->start_err.code == 0)
            (void)tr_err_set(&v->start_err, UV_EIO, "the machine ended before it was ready");
        v->cbs.on_start(&v->vm, v->start_err.code, &v->start_err, v->arg);
    } else {
        exit_explain(&v->facts, &ex);
        v->cbs.on_exit(&v->vm, &ex, v->arg);
    }
    vm_free(v);
}

static void check_closed(struct qemu_vm *v)
{
    if (v->state == VM_CLOSING && v->n_open == 0 && v->qmp == NULL)
        report(v);
}

static void on_closed(uv_handle_t *handle)
{
    struct qemu_vm *v = handle->data;

    v->n_open--;
    check_closed(v);
}

static void close_one(struct qemu_vm *v, uv_handle_t *handle)
{
    if (handle->data == NULL) /* never initialised */
        return;
    v->n_open++;
    uv_close(handle, on_closed);
}

static void close_all(struct qemu_vm *v)
{
    if (v->state == VM_CLOSING)
        return;
    v->state = VM_CLOSING;
    close_one(v, (uv_handle_t *)&v->process);
    close_one(v, (uv_handle_t *)&v->control);
    close_one(v, (uv_handle_t *)&v->errors);
    close_one(v, (uv_handle_t *)&v->watch);
    close_one(v, (uv_handle_t *)&v->timer);
    close_one(v, (uv_handle_t *)&v->reconnect);
    if (v->qmp != NULL)
        qmp_close(v->qmp);
}

static void clean_work(uv_work_t *work)
{
    struct qemu_vm *v = work->data;

    if (remains_remove(&v->vm.copy.spec, false, &v->facts.oom_kills, &v->clean_err) != 0)
        tr_err_wrap(&v->clean_err, "cleaning up");
}

static void after_clean(uv_work_t *work, int status)
{
    (void)status; /* never canceled */
    close_all(work->data);
}

static void clean(struct qemu_vm *v)
{
    v->state = VM_CLEANING;
    (void)uv_timer_stop(&v->timer);
    (void)uv_timer_stop(&v->reconnect);
    if (uv_queue_work(v->loop, &v->work, clean_work, after_clean) != 0)
        abort(); /* fails only without a work function */
}

static void check_drained(struct qemu_vm *v)
{
    if (v->state == VM_DRAINING && v->errors_ended && v->control_ended && v->qmp == NULL)
        clean(v);
}

static void on_drain_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    v->errors_ended = v->control_ended = true;
    if (v->qmp != NULL)
        qmp_close(v->qmp);
    check_drained(v);
}

/* The process has ended. What it said last may still be on its way. */
static void on_gone(struct qemu_vm *v)
{
    if (v->state >= VM_DRAINING)
        return;
    v->state = VM_DRAINING;
    (void)uv_timer_start(&v->timer, on_drain_timer, DRAIN_MS, 0);
    check_drained(v);
}

static void on_process_end(uv_process_t *process, int64_t code, int signal)
{
    struct qemu_vm *v = process->data;

    v->facts.code = (int)code;
    v->facts.signal = signal;
    on_gone(v);
}

static void on_watch(uv_poll_t *watch, int status, int events)
{
    struct qemu_vm *v = watch->data;

    (void)status;
    (void)events;
    (void)uv_poll_stop(watch);
    on_gone(v);
}

/* SIGKILL. Before the exec the launcher may have a child of its own: take its whole group. */
static void kill_process(struct qemu_vm *v)
{
    if (v->state >= VM_DRAINING)
        return;
    if (v->adopted)
        (void)procid_signal(&v->id, SIGKILL);
    else if (kill(-v->vm.pid, SIGKILL) != 0) /* not reaped yet, so the number is ours */
        (void)uv_process_kill(&v->process, SIGKILL);
}

/* Start or adopt has failed with start_err set. */
static void fail(struct qemu_vm *v)
{
    if (v->state >= VM_RUNNING)
        return;
    if (v->adopted) {
        v->untouched = true;
        close_all(v);
    } else {
        kill_process(v);
    }
}

static void on_start_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    if (v->start_err.code == 0)
        (void)tr_err_set(&v->start_err, UV_ETIMEDOUT, "%s",
                         v->state == VM_LAUNCHING ? "the machine's preparation did not end in time"
                         : v->adopted             ? "the machine process does not answer"
                                                  : "QEMU did not answer in time");
    fail(v);
}

/* --- QMP --- */

static void on_quit_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    v->facts.we_kill = true;
    kill_process(v);
}

/* Tell QEMU to end; it has QUIT_MS for it. */
static void quit(struct qemu_vm *v)
{
    if (v->state != VM_RUNNING || v->quitting)
        return;
    v->quitting = true;
    if (v->qmp == NULL || qmp_execute(v->qmp, "quit", NULL, NULL, NULL) != 0)
        on_quit_timer(&v->timer);
    else
        (void)uv_timer_start(&v->timer, on_quit_timer, QUIT_MS, 0);
}

static void on_last_console(int status, json_t *value, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;
    size_t len = 0;
    char *text = status == 0 ? console_decode(json_string_value(value), &len) : NULL;

    (void)err;
    if (text != NULL)
        (void)exit_find_panic(text, len, v->facts.panic, sizeof(v->facts.panic));
    free(text);
    quit(v);
}

/* The guest has ended and QEMU holds still: read what it said last, then let the process end. */
static void on_guest_end(struct qemu_vm *v)
{
    if (v->guest_ended)
        return;
    v->guest_ended = true;
    v->facts.off = v->facts.shutdown[0] == '\0'; /* it ended while nobody listened */
    (void)uv_timer_start(&v->timer, on_quit_timer, QUIT_MS, 0);
    if (qmp_execute(v->qmp, "ringbuf-read", console_request(), on_last_console, v) != 0)
        quit(v);
}

static void on_event(struct qmp *q, const char *name, json_t *data, void *arg)
{
    struct qemu_vm *v = arg;
    const char *reason = json_string_value(json_object_get(data, "reason"));

    (void)q;
    if (strcmp(name, "SHUTDOWN") != 0 || v->facts.shutdown[0] != '\0')
        return;
    (void)snprintf(v->facts.shutdown, sizeof(v->facts.shutdown), "%s",
                   reason != NULL ? reason : "?");
    if (json_is_true(json_object_get(data, "guest")) && v->state == VM_RUNNING)
        on_guest_end(v);
}

/* A command that the start depends on was refused, or its connection broke. */
static void start_refused(struct qemu_vm *v, int status, const struct err *err)
{
    if (v->start_err.code == 0)
        (void)tr_err_set(&v->start_err, status, "%s", err->msg);
    fail(v);
}

static void become_running(struct qemu_vm *v)
{
    if (v->state != VM_CONNECTING || v->start_err.code != 0)
        return;
    v->state = VM_RUNNING;
    v->started = true;
    (void)uv_timer_stop(&v->timer);
    v->cbs.on_start(&v->vm, 0, &v->start_err, v->arg);
}

static void on_cont(int status, json_t *value, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;

    (void)value;
    if (status != 0)
        start_refused(v, status, err);
    else
        become_running(v);
}

/* QEMU waits before the first instruction until it is told to go on, so that not even a guest that
 * ends at once does so unheard. */
static void on_status(int status, json_t *value, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;
    const char *name = json_string_value(json_object_get(value, "status"));

    if (status != 0) {
        start_refused(v, status, err);
    } else if (name != NULL && strcmp(name, "prelaunch") == 0) {
        status = qmp_execute(v->qmp, "cont", NULL, on_cont, v);
        if (status != 0)
            start_refused(v, status, &(struct err){.msg = "QMP: cannot send"});
    } else {
        become_running(v);
        if (v->state == VM_RUNNING && name != NULL && strcmp(name, "shutdown") == 0)
            on_guest_end(v);
    }
}

static void on_ready(struct qmp *q, void *arg)
{
    struct qemu_vm *v = arg;

    if (qmp_execute(q, "query-status", NULL, on_status, v) != 0) {
        (void)tr_err_set(&v->start_err, UV_ENOMEM, "out of memory");
        fail(v);
    }
}

static void connect_qmp(struct qemu_vm *v);

static void on_reconnect(uv_timer_t *timer)
{
    connect_qmp(timer->data);
}

static void on_qmp_close(struct qmp *q, int status, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;

    (void)q;
    v->qmp = NULL;
    if (status != 0 && v->state == VM_RUNNING)
        log_vm(v, TR_LOG_WARN, err->msg);
    if (v->state == VM_CONNECTING && v->adopted) {
        (void)tr_err_set(&v->start_err, UV_ETIMEDOUT, "the machine process does not answer: %s",
                         err->msg);
        fail(v);
    } else if (v->state <= VM_RUNNING) {
        /* Either the process is about to end, or it lost us: its end or the timer will tell. */
        (void)uv_timer_start(&v->reconnect, on_reconnect, RECONNECT_MS, 0);
    }
    check_drained(v);
    check_closed(v);
}

static void connect_qmp(struct qemu_vm *v)
{
    static const struct qmp_cbs cbs = {on_ready, on_event, on_qmp_close};
    int fd;

    if (v->state != VM_CONNECTING && v->state != VM_RUNNING)
        return;
    fd = console_connect(v->vm.copy.spec.run_dir, MACHINE_QMP);
    if (fd < 0 || qmp_open(v->loop, fd, &cbs, v, &v->qmp) != 0) {
        if (fd >= 0)
            (void)close(fd);
        (void)uv_timer_start(&v->reconnect, on_reconnect, RECONNECT_MS, 0);
    }
}

/* --- the launcher's side of start --- */

/* A whole line of the launcher. */
static void on_control_line(struct qemu_vm *v, const char *line)
{
    char *end;
    long code;

    if (line[0] == 'W' && line[1] == ' ') {
        log_vm(v, warn_once(line + 2) ? TR_LOG_WARN : TR_LOG_DEBUG, line + 2);
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
        connect_qmp(v);
    }
    check_drained(v);
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
    check_drained(v);
}

static int spawn_launcher(struct qemu_vm *v, const char *exe, struct err *err)
{
    static char role[] = "--launch-machine";
    char *argv[] = {(char *)exe, role, NULL};
    uv_stdio_container_t stdio[3] = {0};
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

static struct qemu_vm *vm_new(uv_loop_t *loop, const struct vm_spec *spec, const struct vm_cbs *cbs,
                              void *arg)
{
    struct qemu_vm *v = calloc(1, sizeof(*v));

    if (v == NULL || vm_spec_copy(spec, &v->vm.copy) != 0) {
        free(v);
        return NULL;
    }
    v->vm.driver = &vm_qemu;
    v->loop = loop;
    v->cbs = *cbs;
    v->arg = arg;
    v->pidfd = -1;
    v->facts.code = -1;
    v->facts.memory_mb = spec->memory_mb;
    v->work.data = v;
    if (uv_timer_init(loop, &v->timer) != 0 || uv_timer_init(loop, &v->reconnect) != 0)
        abort(); /* cannot fail on Unix */
    v->timer.data = v->reconnect.data = v;
    return v;
}

static void on_nothing_started(void *arg)
{
    (void)arg;
}

static int qemu_start(uv_loop_t *loop, const char *exe, const struct vm_spec *spec,
                      uint64_t timeout_ms, const struct vm_cbs *cbs, void *arg, struct vm **out,
                      struct err *err)
{
    struct qemu_vm *v;
    uv_buf_t buf;
    size_t len;
    int r = vm_spec_check(spec, err);

    if (r != 0)
        return r;
    v = vm_new(loop, spec, cbs, arg);
    if (v == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    if (uv_pipe_init(loop, &v->control, 0) != 0 || uv_pipe_init(loop, &v->errors, 0) != 0)
        abort(); /* cannot fail on Unix */
    v->control.data = v->errors.data = v;
    r = vm_spec_encode(spec, &v->spec_text, &len);
    if (r != 0)
        (void)tr_err_set(err, r, "machine: %s", uv_strerror(r));
    else
        r = spawn_launcher(v, exe != NULL ? exe : "/proc/self/exe", err);
    if (r != 0) { /* nobody is told; the handles close by themselves */
        v->released = true;
        v->release_cb = on_nothing_started;
        close_all(v);
        return r;
    }
    buf = uv_buf_init(v->spec_text, (unsigned)len);
    r = uv_read_start((uv_stream_t *)&v->control, on_alloc, on_control);
    if (r == 0)
        r = uv_read_start((uv_stream_t *)&v->errors, on_alloc, on_errors);
    if (r == 0)
        r = uv_write(&v->spec_write, (uv_stream_t *)&v->control, &buf, 1, on_spec_written);
    if (r == 0)
        r = uv_timer_start(&v->timer, on_start_timer, timeout_ms, 0);
    if (r != 0) { /* handles are live: told through on_start */
        (void)tr_err_set(&v->start_err, r, "machine: %s", uv_strerror(r));
        v->control_ended = v->errors_ended = true;
        fail(v);
    }
    *out = &v->vm;
    return 0;
}

/* --- adopt --- */

/* Find the process. Returns 0 and it is watched, or a negative status. */
static int find_process(struct qemu_vm *v)
{
    int dir_fd = remains_open(&v->vm.copy.spec), r;

    if (dir_fd < 0)
        return tr_err_set(&v->start_err, UV_ESRCH, "the machine does not run");
    r = procid_load(dir_fd, MACHINE_PIDFILE, &v->id);
    (void)close(dir_fd);
    if (r == 0) {
        v->pidfd = procid_pidfd(&v->id);
        r = v->pidfd < 0 ? v->pidfd : 0;
    }
    if (r != 0)
        return tr_err_set(&v->start_err, UV_ESRCH, "the machine does not run any more");
    v->vm.pid = v->id.pid;
    if (v->id.instance != v->vm.copy.spec.instance)
        return tr_err_set(
            &v->start_err, -ESTALE, "another instance of this machine runs (%llu instead of %llu)",
            (unsigned long long)v->id.instance, (unsigned long long)v->vm.copy.spec.instance);
    r = uv_poll_init(v->loop, &v->watch, v->pidfd);
    if (r != 0)
        return tr_err_set(&v->start_err, r, "cannot watch the machine: %s", uv_strerror(r));
    v->watch.data = v;
    r = uv_poll_start(&v->watch, UV_READABLE, on_watch);
    if (r != 0)
        return tr_err_set(&v->start_err, r, "cannot watch the machine: %s", uv_strerror(r));
    return 0;
}

static int qemu_adopt(uv_loop_t *loop, const struct vm_spec *spec, uint64_t timeout_ms,
                      const struct vm_cbs *cbs, void *arg, struct vm **out, struct err *err)
{
    struct qemu_vm *v;
    int r = vm_spec_check_place(spec, err);

    if (r != 0)
        return r;
    v = vm_new(loop, spec, cbs, arg);
    if (v == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    v->adopted = v->control_ended = v->errors_ended = true;
    v->state = VM_CONNECTING;
    *out = &v->vm;
    r = find_process(v);
    if (r == UV_ESRCH) {
        clean(v);
    } else if (r != 0) {
        fail(v);
    } else {
        (void)uv_timer_start(&v->timer, on_start_timer, timeout_ms, 0);
        connect_qmp(v);
    }
    return 0;
}

/* --- the other calls --- */

static int qemu_channel(struct vm *vm, struct err *err)
{
    int fd = console_connect(vm->copy.spec.run_dir, MACHINE_AGENT);

    if (fd < 0)
        return tr_err_set(err, fd, "machine's agent socket: %s", uv_strerror(fd));
    return fd;
}

static void qemu_kill(struct vm *vm)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;

    if (v->state < VM_RUNNING && v->start_err.code == 0)
        (void)tr_err_set(&v->start_err, UV_ECANCELED, "canceled");
    v->facts.we_kill = true;
    kill_process(v);
}

static void on_grace_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    if (v->facts.shutdown[0] == '\0')
        v->facts.we_quit = true;
    quit(v);
}

static void qemu_stop(struct vm *vm, uint64_t grace_ms)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;

    if (v->state < VM_RUNNING) {
        qemu_kill(vm);
        return;
    }
    if (v->state != VM_RUNNING || v->stopping || v->guest_ended)
        return; /* it is on its way */
    v->stopping = true;
    /* A guest without the power button's driver ignores this; its agent is asked by the manager. */
    if (v->qmp == NULL || qmp_execute(v->qmp, "system_powerdown", NULL, NULL, NULL) != 0)
        log_vm(v, TR_LOG_DEBUG, "no power button: QEMU is not connected");
    (void)uv_timer_start(&v->timer, on_grace_timer, grace_ms, 0);
}

static void qemu_release(struct vm *vm, void (*cb)(void *arg), void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;

    v->release_cb = cb;
    v->release_arg = arg;
    v->released = true;
    if (v->state <= VM_DRAINING) /* else cleaning or closing is under way and ends in report() */
        close_all(v);
}

struct console_read {
    vm_text_cb cb;
    void *arg;
};

static void on_console(int status, json_t *value, const struct err *err, void *arg)
{
    struct console_read *read = arg;
    size_t len = 0;
    char *text = status == 0 ? console_decode(json_string_value(value), &len) : NULL;

    (void)err;
    if (status == 0 && text == NULL)
        status = UV_EPROTO;
    read->cb(status, text != NULL ? text : "", len, read->arg);
    free(text);
    free(read);
}

static int qemu_console(struct vm *vm, vm_text_cb cb, void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;
    struct console_read *read;
    int r;

    if (v->state != VM_RUNNING || v->qmp == NULL)
        return UV_ENOTCONN;
    read = malloc(sizeof(*read));
    if (read == NULL)
        return UV_ENOMEM;
    read->cb = cb;
    read->arg = arg;
    r = qmp_execute(v->qmp, "ringbuf-read", console_request(), on_console, read);
    if (r != 0)
        free(read);
    return r;
}

/* --- remove --- */

struct removal {
    uv_work_t work;
    struct vm_spec_copy copy;
    struct err err;
    vm_done_cb cb;
    void *arg;
};

static void remove_work(uv_work_t *work)
{
    struct removal *r = work->data;

    if (remains_remove(&r->copy.spec, true, NULL, &r->err) != 0)
        tr_err_wrap(&r->err, "cleaning up");
}

static void after_remove(uv_work_t *work, int status)
{
    struct removal *r = work->data;

    (void)status;
    r->cb(r->err.code, &r->err, r->arg);
    vm_spec_fini(&r->copy);
    free(r);
}

static int qemu_remove(uv_loop_t *loop, const struct vm_spec *spec, vm_done_cb cb, void *arg,
                       struct err *err)
{
    struct removal *removal;
    int r = vm_spec_check_place(spec, err);

    if (r != 0)
        return r;
    removal = calloc(1, sizeof(*removal));
    if (removal == NULL || vm_spec_copy(spec, &removal->copy) != 0) {
        free(removal);
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    removal->cb = cb;
    removal->arg = arg;
    removal->work.data = removal;
    if (uv_queue_work(loop, &removal->work, remove_work, after_remove) != 0)
        abort(); /* fails only without a work function */
    return 0;
}

const struct vm_driver vm_qemu = {
    .name = "qemu",
    .start = qemu_start,
    .adopt = qemu_adopt,
    .channel = qemu_channel,
    .stop = qemu_stop,
    .kill = qemu_kill,
    .release = qemu_release,
    .console = qemu_console,
    .remove = qemu_remove,
};
