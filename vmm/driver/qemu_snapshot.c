/* SPDX-License-Identifier: MIT */
/* Snapshot: stop -> capability -> descriptor -> migrate -> query-migrate, until it has ended -> cb.
 * Restore:  capability -> migrate-incoming -> query-status, until the state is in -> continue.
 *
 * Memory does not go along (x-ignore-shared): it is in the template's file, which each clone maps
 * for itself. QEMU has no event for the end of a migration unless asked for, and it takes a few
 * milliseconds, in which QEMU's own loop hardly turns: so it is asked again at each answer. */
#include <stdlib.h>
#include <string.h>

#include "vmm/driver/launch.h"
#include "vmm/driver/qemu_int.h"

#define SNAPSHOT_MS 60000
#define STATE_NAME  "state" /* of the descriptor, as QEMU knows it */

struct snapshot {
    struct qemu_vm *v;
    vm_done_cb cb;
    void *arg;
    int state_fd;
    uint64_t deadline_ms;
};

static json_t *capabilities(void)
{
    return json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "x-ignore-shared", "state",
                     1);
}

/* ---- snapshot ---- */

static void snapshot_end(struct snapshot *s, int status, const struct err *err)
{
    s->cb(status, err, s->arg);
    free(s);
}

/* Give the next command, unless the last one failed. fd: goes along, -1 for none. */
static void snapshot_step(struct snapshot *s, int status, const struct err *err,
                          const char *command, json_t *arguments, int fd, qmp_reply_cb next)
{
    struct err fault = {0};

    if (status != 0) {
        json_decref(arguments);
        snapshot_end(s, status, err);
        return;
    }
    if (s->v->qmp == NULL) {
        json_decref(arguments);
        status = UV_ENOTCONN;
    } else {
        status = qmp_execute_fd(s->v->qmp, command, arguments, fd, next, s);
    }
    if (status != 0)
        snapshot_end(s, tr_err_set(&fault, status, "QMP %s: %s", command, uv_strerror(status)),
                     &fault);
}

static void on_progress(int status, json_t *value, const struct err *err, void *arg)
{
    struct snapshot *s = arg;
    const char *name = json_string_value(json_object_get(value, "status"));
    const char *why = json_string_value(json_object_get(value, "error-desc"));
    struct err fault = {0};

    if (status == 0 && name != NULL && strcmp(name, "completed") == 0) {
        snapshot_end(s, 0, &fault);
        return;
    }
    if (status == 0 &&
        (name == NULL || strcmp(name, "failed") == 0 || strcmp(name, "cancelled") == 0))
        status = tr_err_set(&fault, UV_EIO, "QEMU could not write its state: %s",
                            why != NULL ? why : "?");
    else if (status == 0 && uv_now(s->v->loop) >= s->deadline_ms)
        status = tr_err_set(&fault, UV_ETIMEDOUT, "QEMU did not write its state within %d s",
                            SNAPSHOT_MS / 1000);
    snapshot_step(s, status, fault.code != 0 ? &fault : err, "query-migrate", NULL, -1,
                  on_progress);
}

static void on_migrate(int status, json_t *value, const struct err *err, void *arg)
{
    (void)value;
    snapshot_step(arg, status, err, "query-migrate", NULL, -1, on_progress);
}

static void on_fd(int status, json_t *value, const struct err *err, void *arg)
{
    (void)value;
    snapshot_step(arg, status, err, "migrate", json_pack("{s:s}", "uri", "fd:" STATE_NAME), -1,
                  on_migrate);
}

static void on_capabilities(int status, json_t *value, const struct err *err, void *arg)
{
    struct snapshot *s = arg;

    (void)value;
    snapshot_step(s, status, err, "getfd", json_pack("{s:s}", "fdname", STATE_NAME), s->state_fd,
                  on_fd);
}

static void on_stopped(int status, json_t *value, const struct err *err, void *arg)
{
    (void)value;
    snapshot_step(arg, status, err, "migrate-set-capabilities", capabilities(), -1,
                  on_capabilities);
}

int qemu_snapshot(struct vm *vm, int state_fd, vm_done_cb cb, void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;
    struct snapshot *s;
    int r;

    if (v->vm.copy.spec.memory != VM_MEMORY_TEMPLATE)
        return UV_EINVAL;
    if (v->state != VM_RUNNING || v->qmp == NULL)
        return UV_ENOTCONN;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return UV_ENOMEM;
    s->v = v;
    s->cb = cb;
    s->arg = arg;
    s->state_fd = state_fd;
    s->deadline_ms = uv_now(v->loop) + SNAPSHOT_MS;
    r = qmp_execute(v->qmp, "stop", NULL, on_stopped, s);
    if (r != 0)
        free(s);
    return r;
}

/* ---- restore ---- */

static void restore_step(struct qemu_vm *v, int status, const struct err *err, const char *command,
                         json_t *arguments, qmp_reply_cb next)
{
    struct err fault = {0};

    if (status == UV_ECANCELED) { /* QEMU has ended: that is told with what it said last */
        json_decref(arguments);
        return;
    }
    if (status != 0) {
        json_decref(arguments);
        qemu_start_refused(v, status, err);
        return;
    }
    status = qmp_execute(v->qmp, command, arguments, next, v);
    if (status != 0)
        qemu_start_refused(
            v, tr_err_set(&fault, status, "QMP %s: %s", command, uv_strerror(status)), &fault);
}

static void on_restoring(int status, json_t *value, const struct err *err, void *arg)
{
    struct qemu_vm *v = arg;
    const char *name = json_string_value(json_object_get(value, "status"));

    if (v->state != VM_CONNECTING || v->start_err.code != 0)
        return; /* its start is over */
    if (status == 0 && name != NULL && strcmp(name, "inmigrate") != 0)
        qemu_continue(v);
    else
        restore_step(v, status, err, "query-status", NULL, on_restoring);
}

static void on_incoming(int status, json_t *value, const struct err *err, void *arg)
{
    (void)value;
    restore_step(arg, status, err, "query-status", NULL, on_restoring);
}

static void on_able(int status, json_t *value, const struct err *err, void *arg)
{
    (void)value;
    restore_step(arg, status, err, "migrate-incoming",
                 json_pack("{s:o}", "uri", json_sprintf("fd:%d", LAUNCH_STATE_FD)), on_incoming);
}

void qemu_restore(struct qemu_vm *v)
{
    restore_step(v, 0, NULL, "migrate-set-capabilities", capabilities(), on_able);
}

/* ---- pause and resume ---- */

struct order {
    vm_done_cb cb;
    void *arg;
};

static void on_done(int status, json_t *value, const struct err *err, void *arg)
{
    struct order *order = arg;

    (void)value;
    order->cb(status, err, order->arg);
    free(order);
}

static int give(struct vm *vm, const char *command, vm_done_cb cb, void *arg)
{
    struct qemu_vm *v = (struct qemu_vm *)vm;
    struct order *order;
    int r;

    if (v->state != VM_RUNNING || v->qmp == NULL)
        return UV_ENOTCONN;
    order = malloc(sizeof(*order));
    if (order == NULL)
        return UV_ENOMEM;
    order->cb = cb;
    order->arg = arg;
    r = qmp_execute(v->qmp, command, NULL, on_done, order);
    if (r != 0)
        free(order);
    return r;
}

int qemu_pause(struct vm *vm, vm_done_cb cb, void *arg)
{
    return give(vm, "stop", cb, arg);
}

int qemu_resume(struct vm *vm, vm_done_cb cb, void *arg)
{
    return give(vm, "cont", cb, arg);
}
