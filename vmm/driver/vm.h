/* SPDX-License-Identifier: MIT */
/* What every driver's machine begins with. */
#ifndef VMM_VM_H
#define VMM_VM_H

#include "vmm/driver/spec.h"

struct vm {
    const struct vm_driver *driver;
    struct vm_spec_copy copy;
    pid_t pid; /* 0: not known yet */
};

#endif
