/* SPDX-License-Identifier: MIT */
/* A driver starts, stops and watches machines and gives the way to their agents. The manager works
 * only through this table; vm_qemu is the first driver.
 *
 * A machine outlives the manager: it runs in a session of its own and all that a later manager
 * needs to take it over is in its run directory. One loop thread; no callback runs before the call
 * that caused it has returned.
 *
 * Files of a machine: run_dir/{pidfile,qmp.sock,agent.sock}, its cgroups, its data disk. The driver
 * makes all of them and removes all but the data disk when the machine ends. */
#ifndef VMM_DRIVER_H
#define VMM_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include "transom/err.h"

#define VM_QEMU_PROGRAM "qemu-system-x86_64"

enum vm_accel { VM_ACCEL_TCG, VM_ACCEL_KVM };

/* Where a machine's memory is. A template is booted, made ready and snapshotted; its clones start
 * from there. Both must have the same devices: the same accelerator, vCPUs, memory, disks and
 * network or none. */
enum vm_memory {
    VM_MEMORY_OWN,      /* its process's own */
    VM_MEMORY_TEMPLATE, /* memory_fd, mapped shared: what the guest writes is there afterwards */
    VM_MEMORY_CLONE,    /* memory_fd, mapped privately: what the guest writes is its own */
};
const char *vm_accel_name(enum vm_accel accel); /* "tcg", "kvm" */

/* What to start. Strings are borrowed for the call and copied; NULL means "". */
struct vm_spec {
    const char *label; /* [a-z0-9]{16} */
    uint64_t instance;
    enum vm_accel accel;
    unsigned vcpus;     /* 1..64 */
    unsigned memory_mb; /* 64..1048576 */
    uint32_t tsc_khz;   /* host counter rate (struct vm_kvm_result); 0: measured at start, 100 ms */
    /* Image: readable files. */
    const char *kernel, *initrd, *root_image;
    /* Writable disk: made as an empty ext4 file system of disk_mb (sparse) when the file is not
     * there yet; its folder must exist. "": no data disk (the guest writes to memory). */
    const char *data_disk;
    unsigned disk_mb;
    /* Own folder of this machine, e.g. /run/transom/vm/<label>; made with mode 0700. */
    const char *run_dir;
    const char *cgroup;    /* parent group, e.g. "transom"; "": no limits by cgroup */
    const char *qemu;      /* program name (found in PATH) or path; "": VM_QEMU_PROGRAM */
    uint32_t qemu_version; /* 801: 8.1; 0: not known. Under TCG it tells whether the vCPUs run at
                            * once or take turns (qemu_version.h). */
    /* Network: a tap that exists in the named namespace (struct net_port). "": no network. */
    const char *netns, *tap;
    uint8_t mac[6];
    uint16_t mtu; /* 0: 1500 */
    /* User the machine's process runs as; 0: stay what the manager is. */
    uid_t uid;
    gid_t gid;
    const char *cmdline; /* words added to the kernel command line */
    /* Template and clone. The descriptors are borrowed for the call of start. A memfd of memory_mb,
     * for clones a sealed one: QEMU would give back to the host what the guest frees, and with it
     * tear holes into what all clones share. */
    enum vm_memory memory;
    int memory_fd;
    int state_fd; /* clone: what snapshot() wrote, from its beginning on */
    /* The data disk is made as a copy of this file when it is not there yet. "": see data_disk. */
    const char *disk_from;
};

/* Why a machine ended. */
enum vm_exit_reason {
    VM_EXIT_SHUTDOWN,   /* the guest powered off */
    VM_EXIT_RESET,      /* the guest rebooted (machines do not: it is the end) */
    VM_EXIT_PANIC,      /* the guest's kernel panicked; detail: its message */
    VM_EXIT_QUIT,       /* ended on our request: stop ran out of patience, or a signal TERM */
    VM_EXIT_KILLED,     /* killed: by us (vm_kill), by a stranger, or out of memory; see detail */
    VM_EXIT_HOST_ERROR, /* the machine process failed; detail: what it said last */
};
const char *vm_exit_reason_name(enum vm_exit_reason reason); /* "guest-shutdown", ... */

struct vm_exit {
    enum vm_exit_reason reason;
    int code;         /* exit status of the process, -1 unknown (adopted) */
    int signal;       /* the signal that ended it, 0 none or unknown */
    char detail[400]; /* a sentence for people, or "" */
};

struct vm;

struct vm_cbs {
    /* Exactly once, the outcome of start or adopt. 0: the machine runs (its guest is booting).
     * Else nothing is left behind, err has the reason (what to do included), and vm is freed when
     * this returns. */
    void (*on_start)(struct vm *vm, int status, const struct err *err, void *arg);
    /* Exactly once after a good on_start, unless released: the machine has ended and its files are
     * removed. vm is freed when this returns. */
    void (*on_exit)(struct vm *vm, const struct vm_exit *ex, void *arg);
};

typedef void (*vm_text_cb)(int status, const char *text, size_t len, void *arg);
typedef void (*vm_done_cb)(int status, const struct err *err, void *arg);

struct vm_driver {
    const char *name; /* "qemu" */

    /* Start a machine. exe: the program to re-execute as launcher (it must call vm_role_main()
     * first thing in main); NULL: /proc/self/exe. timeout_ms bounds the time to on_start.
     * Returns 0 and *out (borrowed; valid until on_exit or a failed on_start), or < 0 with err:
     * nothing was started and no callback runs. */
    int (*start)(uv_loop_t *loop, const char *exe, const struct vm_spec *spec, uint64_t timeout_ms,
                 const struct vm_cbs *cbs, void *arg, struct vm **out, struct err *err);

    /* Take over a machine that an earlier manager left running. Of the spec, label, instance,
     * run_dir and cgroup are used. on_start says UV_ESRCH when it no longer runs (its remains are
     * removed then), -ESTALE when it is another instance (not touched), UV_ETIMEDOUT when it
     * does not answer (not touched: use remove). */
    int (*adopt)(uv_loop_t *loop, const struct vm_spec *spec, uint64_t timeout_ms,
                 const struct vm_cbs *cbs, void *arg, struct vm **out, struct err *err);

    /* Connect to the agent's channel: a new descriptor (yours), nonblocking. One conversation at a
     * time: close the old descriptor first. Returns it, or < 0 with err. */
    int (*channel)(struct vm *vm, struct err *err);

    /* End it within grace_ms: the guest is given that long to power off by itself (ask its agent
     * first: POST /v1/shutdown), then the process is told to quit, then killed. Ends in on_exit.
     * Again: the earlier deadline holds. During start: cancels it (on_start UV_ECANCELED). */
    void (*stop)(struct vm *vm, uint64_t grace_ms);

    /* End it now. Ends in on_exit (or on_start UV_ECANCELED). */
    void (*kill)(struct vm *vm);

    /* A template: hold it still for good and write the state of its devices to a file (borrowed
     * until cb). With its memory and its data disk as they are then, that is what clones start
     * from. cb runs once, later; the machine is to be ended then, whatever the outcome. */
    int (*snapshot)(struct vm *vm, int state_fd, vm_done_cb cb, void *arg);

    /* Hold a running machine still, and let it go on. cb runs once, later. */
    int (*pause)(struct vm *vm, vm_done_cb cb, void *arg);
    int (*resume)(struct vm *vm, vm_done_cb cb, void *arg);
    /* Somebody else has it from now on: his on_exit will run. Only after a good on_start. */
    void (*hand_over)(struct vm *vm, const struct vm_cbs *cbs, void *arg);

    /* Let go without ending it (the manager exits): handles close, cb runs, then vm is freed;
     * on_exit does not run. Only after a good on_start. */
    void (*release)(struct vm *vm, void (*cb)(void *arg), void *arg);

    /* What the serial console printed since the last call, at most 64 KiB (older text is lost).
     * cb runs once; text is borrowed. */
    int (*console)(struct vm *vm, vm_text_cb cb, void *arg);
    /* Where its processors stand, for people: to tell a guest that waits from one that runs in
     * circles. As console(). */
    int (*processors)(struct vm *vm, vm_text_cb cb, void *arg);

    /* Remove what may be left of a machine that this manager does not hold: process (only if the
     * pidfile still names it), cgroups, run directory. Of the spec: label, run_dir, cgroup.
     * Nothing there is a success. */
    int (*remove)(uv_loop_t *loop, const struct vm_spec *spec, vm_done_cb cb, void *arg,
                  struct err *err);
};

extern const struct vm_driver vm_qemu;

/* Facts of a machine. */
pid_t vm_pid(const struct vm *vm);
uint64_t vm_instance(const struct vm *vm);
const char *vm_label(const struct vm *vm);

/* The roles that the drivers re-execute the program for (--kvm-probe, --launch-machine). Call it
 * before anything else in main: returns true when argv names a role that has run; exit with
 * *status then. */
bool vm_role_main(int argc, char **argv, int *status);

#endif
