/* SPDX-License-Identifier: MIT */
/* Inside of the QEMU driver: one machine, and what its parts call of each other.
 *   qemu.c         the driver's table and a machine's way from start to report
 *   qemu_launch.c  the launcher's side of a start: spec in, warnings and reasons out
 *   qemu_talk.c    the conversation over QMP: readiness, the guest's end, the console
 *   qemu_snapshot.c a template's snapshot, and a clone's start from it
 *   qemu_remove.c  removal of what no manager holds */
#ifndef VMM_QEMU_INT_H
#define VMM_QEMU_INT_H

#include <uv.h>

#include "transom/log.h"
#include "vmm/driver/exit_reason.h"
#include "vmm/driver/qmp.h"
#include "vmm/driver/vm.h"
#include "vmm/proc/procid.h"

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
    int n_open;              /* handles whose on_closed is due, when CLOSING */
    int memory_fd, state_fd; /* of the spec, during start */
    bool adopted, started, released, untouched;
    bool control_ended, errors_ended, stopping, quitting, guest_ended;
    struct err start_err;
    struct err clean_err;
    struct exit_facts facts;
    void (*release_cb)(void *arg);
    void *release_arg;
};

/* qemu.c */
void qemu_log(struct qemu_vm *v, enum tr_log_level level, const char *text);
/* Start or adopt has failed with start_err set: end the process, or let go of an adopted one. */
void qemu_fail(struct qemu_vm *v);
/* SIGKILL. */
void qemu_kill_process(struct qemu_vm *v);
/* The process has ended. */
void qemu_gone(struct qemu_vm *v);
/* Go on when the process has ended and all that it said has been read. */
void qemu_check_drained(struct qemu_vm *v);
void qemu_check_closed(struct qemu_vm *v);

/* qemu_launch.c: run the launcher and give it the spec. Returns < 0 with err when there is no
 * process; later faults go through qemu_fail(). */
TR_MUST_CHECK int qemu_launch(struct qemu_vm *v, const char *exe, struct err *err);

/* qemu_talk.c */
void qemu_connect(struct qemu_vm *v);
/* Tell QEMU to end, and kill it when it does not. */
void qemu_quit(struct qemu_vm *v);
TR_MUST_CHECK int qemu_console(struct vm *vm, vm_text_cb cb, void *arg);
int qemu_processors(struct vm *vm, vm_text_cb cb, void *arg);

/* A command that the start depends on was refused, or its connection broke. */
void qemu_start_refused(struct qemu_vm *v, int status, const struct err *err);
/* The machine is ready to run: let it. */
void qemu_continue(struct qemu_vm *v);

/* qemu_snapshot.c */
int qemu_snapshot(struct vm *vm, int state_fd, vm_done_cb cb, void *arg);
int qemu_pause(struct vm *vm, vm_done_cb cb, void *arg);
int qemu_resume(struct vm *vm, vm_done_cb cb, void *arg);
/* QEMU waits for the state to start from. Ends in qemu_continue() or qemu_start_refused(). */
void qemu_restore(struct qemu_vm *v);

/* qemu_remove.c */
TR_MUST_CHECK int qemu_remove(uv_loop_t *loop, const struct vm_spec *spec, vm_done_cb cb, void *arg,
                              struct err *err);

#endif
