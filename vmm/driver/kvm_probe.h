/* SPDX-License-Identifier: MIT */
/* Does KVM really work here? /dev/kvm can exist and be useless: on nested hosts that interpret
 * every guest instruction a stock kernel seems to hang. A child process runs a small guest loop
 * under a hard time limit and measures it. */
#ifndef VMM_KVM_PROBE_H
#define VMM_KVM_PROBE_H

#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

enum vm_kvm_verdict { VM_KVM_ABSENT, VM_KVM_UNUSABLE, VM_KVM_USABLE };
const char *vm_kvm_verdict_name(enum vm_kvm_verdict verdict);

struct vm_kvm_result {
    enum vm_kvm_verdict verdict;
    char reason[256]; /* a sentence with the figures */
    uint64_t rate;    /* guest instructions per second, 0 not measured */
    uint32_t tsc_khz; /* host's time stamp counter, 0 not measured (vm_spec wants it) */
};

typedef void (*vm_kvm_probe_cb)(const struct vm_kvm_result *result, void *arg);

/* Run the probe in a child (exe as in struct vm_driver). A child that does not end within
 * timeout_ms is killed, which is a verdict too. Returns 0: cb runs exactly once, later. */
TR_MUST_CHECK int vm_kvm_probe_start(uv_loop_t *loop, const char *exe, uint64_t timeout_ms,
                                     vm_kvm_probe_cb cb, void *arg, struct err *err);

/* The child's side (--kvm-probe): measures, prints one line, returns the exit status. */
int vm_kvm_probe_main(void);

/* Parse the child's line. Returns 0, or UV_EINVAL. */
TR_MUST_CHECK int vm_kvm_parse(const char *line, struct vm_kvm_result *result);

/* Rate of the host's time stamp counter against CLOCK_MONOTONIC_RAW, in kHz; blocks for ms
 * milliseconds. 0: no such counter. */
uint32_t vm_tsc_khz(unsigned ms);

#endif
