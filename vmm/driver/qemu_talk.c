/* SPDX-License-Identifier: MIT */
/* Path: qemu_connect -> on_ready -> on_status (-> on_cont) -> become_running -> ... -> on_event
 * (SHUTDOWN) -> on_guest_end -> on_last_console -> qemu_quit. */
#include "vmm/driver/qemu_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/driver/console.h"
#include "vmm/driver/remains.h"

#define QUIT_MS      3000 /* from the order to quit to SIGKILL */
#define RECONNECT_MS 500

static void on_quit_timer(uv_timer_t *timer)
{
    struct qemu_vm *v = timer->data;

    v->facts.we_kill = true;
    qemu_kill_process(v);
}

/* Tell QEMU to end; it has QUIT_MS for it. */
void qemu_quit(struct qemu_vm *v)
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
    qemu_quit(v);
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
        qemu_quit(v);
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

void qemu_start_refused(struct qemu_vm *v, int status, const struct err *err)
{
    if (v->start_err.code == 0)
        (void)tr_err_set(&v->start_err, status, "%s", err->msg);
    qemu_fail(v);
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
        qemu_start_refused(v, status, err);
    else
        become_running(v);
}

void qemu_continue(struct qemu_vm *v)
{
    int r = v->qmp == NULL ? UV_ENOTCONN : qmp_execute(v->qmp, "cont", NULL, on_cont, v);

    if (r != 0)
        qemu_start_refused(v, r, &(struct err){.msg = "QMP: cannot send"});
}

/* QEMU waits before the first instruction until it is told to go on, so that not even a guest that
 * ends at once does so unheard. */
static void on_status(int status, json_t *value, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;
    const char *name = json_string_value(json_object_get(value, "status"));

    if (status != 0) {
        qemu_start_refused(v, status, err);
    } else if (name != NULL && strcmp(name, "prelaunch") == 0) {
        qemu_continue(v);
    } else if (name != NULL && strcmp(name, "inmigrate") == 0 && !v->adopted) {
        qemu_restore(v);
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
        qemu_fail(v);
    }
}

static void on_reconnect(uv_timer_t *timer)
{
    qemu_connect(timer->data);
}

static void on_qmp_close(struct qmp *q, int status, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;

    (void)q;
    v->qmp = NULL;
    if (status != 0 && v->state == VM_RUNNING)
        qemu_log(v, TR_LOG_WARN, err->msg);
    if (v->state == VM_CONNECTING && v->adopted) {
        (void)tr_err_set(&v->start_err, UV_ETIMEDOUT, "the machine process does not answer: %s",
                         err->msg);
        qemu_fail(v);
    } else if (v->state <= VM_RUNNING) {
        /* Either the process is about to end, or it lost us: its end or the timer will tell. */
        (void)uv_timer_start(&v->reconnect, on_reconnect, RECONNECT_MS, 0);
    }
    qemu_check_drained(v);
    qemu_check_closed(v);
}

void qemu_connect(struct qemu_vm *v)
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
struct text_read {
    vm_text_cb cb;
    void *arg;
};

static void on_console(int status, json_t *value, const struct err *err, void *arg)
{
    struct text_read *read = arg;
    size_t len = 0;
    char *text = status == 0 ? console_decode(json_string_value(value), &len) : NULL;

    (void)err;
    if (status == 0 && text == NULL)
        status = UV_EPROTO;
    read->cb(status, text != NULL ? text : "", len, read->arg);
    free(text);
    free(read);
}

/* Ask something that is answered with text. args is taken. */
static int ask_text(struct vm *vm, const char *command, json_t *args, qmp_reply_cb on_answer,
                    vm_text_cb cb, void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;
    struct text_read *read;
    int r;

    if (v->state != VM_RUNNING || v->qmp == NULL) {
        json_decref(args);
        return UV_ENOTCONN;
    }
    read = malloc(sizeof(*read));
    if (read == NULL) {
        json_decref(args);
        return UV_ENOMEM;
    }
    read->cb = cb;
    read->arg = arg;
    r = qmp_execute(v->qmp, command, args, on_answer, read);
    if (r != 0)
        free(read);
    return r;
}

int qemu_console(struct vm *vm, vm_text_cb cb, void *arg)
{
    return ask_text(vm, "ringbuf-read", console_request(), on_console, cb, arg);
}

static void on_processors(int status, json_t *value, const struct err *err, void *arg)
{
    struct text_read *read = arg;
    const char *text = json_string_value(value);

    (void)err;
    if (status == 0 && text == NULL)
        status = UV_EPROTO;
    read->cb(status, text != NULL ? text : "", text != NULL ? strlen(text) : 0, read->arg);
    free(read);
}

int qemu_processors(struct vm *vm, vm_text_cb cb, void *arg)
{
    return ask_text(vm, "human-monitor-command",
                    json_pack("{ss}", "command-line", "info registers -a"), on_processors, cb, arg);
}
