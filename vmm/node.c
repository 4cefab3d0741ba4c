/* SPDX-License-Identifier: MIT */
#include "vmm/node.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int vmm_node_init(struct vmm_node *node, const struct vmm_options *options,
                  const struct vm_kvm_result *kvm, struct err *err)
{
    bool usable = kvm->verdict == VM_KVM_USABLE;

    node->kvm = *kvm;
    node->cpus = sysconf(_SC_NPROCESSORS_ONLN);
    node->memory_mb =
        (int64_t)sysconf(_SC_PHYS_PAGES) / (1024 * 1024 / (int64_t)sysconf(_SC_PAGESIZE));
    node->accel = VM_ACCEL_TCG;
    if (strcmp(options->accelerator, "kvm") == 0 && !usable)
        return tr_err_set(err, -ENOTSUP, "vmm.accelerator: kvm does not work here: %s",
                          kvm->reason);
    if (strcmp(options->accelerator, "tcg") != 0 && usable)
        node->accel = VM_ACCEL_KVM;
    return 0;
}
