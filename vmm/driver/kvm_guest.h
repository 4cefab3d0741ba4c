/* SPDX-License-Identifier: MIT */
/* The smallest guest that tells how fast KVM runs code: 64-bit mode, one loop, no devices. */
#ifndef VMM_KVM_GUEST_H
#define VMM_KVM_GUEST_H

#include <stdint.h>
#include "transom/err.h"

struct kvm_figures {
    uint64_t rate;    /* guest instructions per second */
    uint64_t exit_ns; /* cost of one exit to us and back */
    int done;         /* the loop ended within the limit */
};

/* Run it, for about limit_ms at most. Returns 0 and the figures, or < 0 with the step that
 * failed: -ENOENT when there is no /dev/kvm. Blocks; alters the process's SIGALRM. */
TR_MUST_CHECK int kvm_guest_measure(unsigned limit_ms, struct kvm_figures *out, struct err *err);

#endif
