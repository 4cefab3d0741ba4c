/* SPDX-License-Identifier: MIT */
/* What the kernel gives: KVM, control groups. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "vmm/doctor/doctor.h"
#include "vmm/driver/cgroup.h"
#include "vmm/driver/kvm_probe.h"

void doctor_check_kvm(struct doctor *d)
{
    static const char *const argv[] = {"/proc/self/exe", "--kvm-probe", NULL};
    const bool wanted = strcmp(d->options.accelerator, "kvm") == 0;
    struct vm_kvm_result result = {0};
    char text[512];

    if (strcmp(d->options.accelerator, "tcg") == 0) {
        doctor_report(d, "kvm", DOCTOR_OK, "", "not used: vmm.accelerator is tcg");
        return;
    }
    if (doctor_run(argv, text, sizeof(text)) != 0 || vm_kvm_parse(text, &result) != 0)
        snprintf(result.reason, sizeof(result.reason), "the probe did not end (%.200s)", text);
    if (result.verdict == VM_KVM_USABLE) {
        doctor_report(d, "kvm", DOCTOR_OK, "", "%s", result.reason);
        return;
    }
    doctor_report(
        d, "kvm", wanted ? DOCTOR_BAD : DOCTOR_WARN,
        wanted ? "turn on virtualization in the firmware or at the cloud provider (nested "
                 "virtualization), modprobe kvm_intel or kvm_amd, or set vmm.accelerator: "
                 "auto"
               : "machines run in emulation, several times slower. For KVM: turn on "
                 "virtualization in the firmware or at the cloud provider, modprobe "
                 "kvm_intel or kvm_amd",
        "KVM is %s: %s", result.verdict == VM_KVM_ABSENT ? "absent" : "unusable", result.reason);
}

/* A folder that groups can be made in. */
static bool usable(const char *dir)
{
    return *dir != '\0' && access(dir, W_OK | X_OK) == 0;
}

void doctor_check_cgroup(struct doctor *d)
{
    static const char *const names[CGROUP_N] = {"memory", "cpu", "pids"};
    char missing[64] = "", denied[64] = "";
    struct cgroup_mounts m;
    bool any = false;

    if (cgroup_find(&m) != 0)
        memset(&m, 0, sizeof(m));
    for (int i = 0; i < CGROUP_N; i++) {
        const char *dir = m.v1[i][0] != '\0' ? m.v1[i] : m.in_v2[i] ? m.v2 : "";
        char *list = *dir == '\0' ? missing : denied;

        if (usable(dir)) {
            any = true;
            continue;
        }
        snprintf(list + strlen(list), 64 - strlen(list), "%s%s", *list != '\0' ? ", " : "",
                 names[i]);
    }
    if (*missing == '\0' && *denied == '\0')
        doctor_report(d, "cgroup", DOCTOR_OK, "", "memory, cpu and pids can be limited (%s)",
                      m.v1[0][0] != '\0' ? "cgroup v1" : "cgroup v2");
    if (*missing != '\0')
        doctor_report(d, "cgroup", any ? DOCTOR_WARN : DOCTOR_BAD,
                      "mount -t cgroup2 none /sys/fs/cgroup, or boot with "
                      "systemd.unified_cgroup_hierarchy=1; in a container, give it the controllers",
                      "machines are not limited in: %s (no such controller is mounted)", missing);
    if (*denied != '\0')
        doctor_report(d, "cgroup", DOCTOR_BAD,
                      "run transom-vmm as root, or mount the hierarchy writable",
                      "no groups can be made for: %s", denied);
}
