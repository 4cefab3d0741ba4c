/* SPDX-License-Identifier: MIT */
#include "vmm/driver/vm.h"

#include <string.h>

#include "vmm/driver/kvm_probe.h"
#include "vmm/driver/launch.h"

const char *vm_accel_name(enum vm_accel accel)
{
    return accel == VM_ACCEL_KVM ? "kvm" : "tcg";
}

const char *vm_exit_reason_name(enum vm_exit_reason reason)
{
    static const char *const names[] = {"guest-shutdown", "guest-reset", "panic",
                                        "quit",           "killed",      "host-error"};

    return names[reason];
}

pid_t vm_pid(const struct vm *vm)
{
    return vm->pid;
}

uint64_t vm_instance(const struct vm *vm)
{
    return vm->copy.spec.instance;
}

const char *vm_label(const struct vm *vm)
{
    return vm->copy.spec.label;
}

bool vm_role_main(int argc, char **argv, int *status)
{
    if (argc != 2)
        return false;
    if (strcmp(argv[1], "--kvm-probe") == 0)
        *status = vm_kvm_probe_main();
    else if (strcmp(argv[1], "--launch-machine") == 0)
        *status = vm_launch_main();
    else
        return false;
    return true;
}
