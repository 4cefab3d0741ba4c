/* SPDX-License-Identifier: MIT */
/* What this node is: how it runs machines and from which image. */
#ifndef VMM_NODE_H
#define VMM_NODE_H

#include <jansson.h>
#include "vmm/driver/driver.h"
#include "vmm/driver/kvm_probe.h"
#include "vmm/options.h"

struct vmm_node {
    enum vm_accel accel;
    struct vm_kvm_result kvm;
    unsigned qemu_version; /* as in struct vm_spec */
    int64_t cpus, memory_mb;
};

/* Decide on the accelerator. Returns 0, or -ENOTSUP when the configuration wants KVM and it does
 * not work. */
TR_MUST_CHECK int vmm_node_init(struct vmm_node *node, const struct vmm_options *options,
                                const struct vm_kvm_result *kvm, struct err *err);

#endif
