/* SPDX-License-Identifier: MIT */
/* One QEMU process, from launch to the removal of its files.
 *
 * Start:  launch -> on_control (launcher executed QEMU) -> connect -> on_ready -> on_status ->
 *         on_start(0) -> ... -> gone -> drained -> clean -> report (on_exit).
 * Adopt:  pidfile -> connect -> the same.
 * Faults: before RUNNING fail() keeps the first reason and ends the process (start) or lets go of
 *         it (adopt); the path to report() is the same and ends in on_start(status). */
#include "vmm/driver/driver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vmm/driver/console.h"
#include "vmm/driver/qemu_int.h"
#include "vmm/driver/remains.h"

#define DRAIN_MS 1000 /* from the process's end to the last byte of its outputs */

static void vm_free(struct qemu_vm *v)
{
    if (v->pidfd >= 0)
        (void)close(v->pidfd);
    vm_spec_fini(&v->vm.copy);
    free(v->spec_text);
    free(v);
}

void qemu_log(struct qemu_vm *v, enum tr_log_level level, const char *text)
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
        qemu_log(v, TR_LOG_WARN, v->clean_err.msg);
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

void qemu_check_closed(struct qemu_vm *v)
{
    if (v->state == VM_CLOSING && v->n_open == 0 && v->qmp == NULL)
        report(v);
}

static void on_closed(uv_handle_t *handle)
{
    struct qemu_vm *v = handle->data;

    v->n_open--;
    qemu_check_closed(v);
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

void qemu_check_drained(struct qemu_vm *v)
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
    qemu_check_drained(v);
}

/* The process has ended. What it said last may still be on its way. */
void qemu_gone(struct qemu_vm *v)
{
    if (v->state >= VM_DRAINING)
        return;
    if (v->adopted && !v->started && v->start_err.code == 0)
        (void)tr_err_set(&v->start_err, UV_ESRCH, "the machine ended just now");
    v->state = VM_DRAINING;
    (void)uv_timer_start(&v->timer, on_drain_timer, DRAIN_MS, 0);
    qemu_check_drained(v);
}

static void on_watch(uv_poll_t *watch, int status, int events)
{
    struct qemu_vm *v = watch->data;

    (void)status;
    (void)events;
    (void)uv_poll_stop(watch);
    qemu_gone(v);
}

/* SIGKILL. Before the exec the launcher may have a child of its own: take its whole group. */
void qemu_kill_process(struct qemu_vm *v)
{
    if (v->state >= VM_DRAINING)
        return;
    if (v->adopted)
        (void)procid_signal(&v->id, SIGKILL);
    else if (kill(-v->vm.pid, SIGKILL) != 0) /* not reaped yet, so the number is ours */
        (void)uv_process_kill(&v->process, SIGKILL);
}

/* Start or adopt has failed with start_err set. */
void qemu_fail(struct qemu_vm *v)
{
    if (v->state >= VM_RUNNING)
        return;
    if (v->adopted) {
        v->untouched = true;
        close_all(v);
    } else {
        qemu_kill_process(v);
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
    qemu_fail(v);
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
    v->memory_fd = spec->memory_fd;
    v->state_fd = spec->state_fd;
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
    int r = vm_spec_check(spec, err);

    if (r != 0)
        return r;
    v = vm_new(loop, spec, cbs, arg);
    if (v == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    r = qemu_launch(v, exe != NULL ? exe : "/proc/self/exe", err);
    if (r != 0) { /* nobody is told; the handles close by themselves */
        v->released = true;
        v->release_cb = on_nothing_started;
        close_all(v);
        return r;
    }
    (void)uv_timer_start(&v->timer, on_start_timer, timeout_ms, 0);
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
        qemu_fail(v);
    } else {
        (void)uv_timer_start(&v->timer, on_start_timer, timeout_ms, 0);
        qemu_connect(v);
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
    qemu_kill_process(v);
}

static void on_grace_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    if (v->facts.shutdown[0] == '\0')
        v->facts.we_quit = true;
    qemu_quit(v);
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
        qemu_log(v, TR_LOG_DEBUG, "no power button: QEMU is not connected");
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

static void qemu_hand_over(struct vm *vm, const struct vm_cbs *cbs, void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;

    v->cbs = *cbs;
    v->arg = arg;
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
    .processors = qemu_processors,
    .snapshot = qemu_snapshot,
    .pause = qemu_pause,
    .resume = qemu_resume,
    .hand_over = qemu_hand_over,
    .remove = qemu_remove,
};
