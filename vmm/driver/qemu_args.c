/* SPDX-License-Identifier: MIT */
#include "vmm/driver/qemu_args.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "vmm/driver/qemu_version.h"

#define ARGS_MAX 96

struct args {
    char *argv[ARGS_MAX];
    int n;
    bool failed;
};

static void add(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct args *a, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    if (a->n == ARGS_MAX - 1 || vasprintf(&text, fmt, args) < 0)
        a->failed = true;
    else
        a->argv[a->n++] = text;
    va_end(args);
}

unsigned qemu_tb_mb(const struct vm_spec *spec)
{
    unsigned mb = spec->memory_mb / 8;

    return mb < 64 ? 64 : mb > 256 ? 256 : mb;
}

static bool has_memory_file(const struct vm_spec *spec)
{
    return spec->memory != VM_MEMORY_OWN;
}

static void add_machine(struct args *a, const struct vm_spec *spec)
{
    add(a, "-name");
    add(a, "transom-%s", spec->label);
    add(a, "-nodefaults");
    add(a, "-no-user-config");
    add(a, "-display");
    add(a, "none");
    add(a, "-S"); /* until the manager listens */
    /* A guest that ends stays until its console has been read: that tells a panic from a reboot,
     * also when no manager was there to see it. */
    add(a, "-action");
    add(a, "reboot=shutdown,shutdown=pause");
    add(a, "-sandbox");
    add(a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    add(a, "-M");
    add(a, "microvm,isa-serial=on,rtc=on%s", has_memory_file(spec) ? ",memory-backend=mem" : "");
    add(a, "-accel");
    if (spec->accel == VM_ACCEL_KVM)
        add(a, "kvm");
    else
        add(a, "tcg,thread=%s,tb-size=%u",
            spec->qemu_version >= QEMU_VERSION_TCG_THREADS ? "multi" : "single", qemu_tb_mb(spec));
    add(a, "-cpu");
    /* TCG's "rep stosb" is slow, and the kernel clears pages with it where ERMS is offered. */
    add(a, spec->accel == VM_ACCEL_KVM ? "host" : "max,-erms");
    add(a, "-m");
    add(a, "%u", spec->memory_mb);
    add(a, "-smp");
    add(a, "%u", spec->vcpus);
}

static void add_memory(struct args *a, const struct vm_spec *spec, const struct qemu_places *p)
{
    if (!has_memory_file(spec))
        return;
    add(a, "-object");
    add(a, "memory-backend-file,id=mem,size=%uM,mem-path=/proc/self/fd/%d,share=%s",
        spec->memory_mb, p->memory_fd, spec->memory == VM_MEMORY_TEMPLATE ? "on" : "off");
    if (spec->memory == VM_MEMORY_CLONE) {
        add(a, "-incoming");
        add(a, "defer");
    }
}

static void add_channels(struct args *a, const struct qemu_places *p)
{
    add(a, "-chardev");
    add(a, "ringbuf,id=console,size=%d", QEMU_CONSOLE_BYTES);
    add(a, "-serial");
    add(a, "chardev:console");
    add(a, "-chardev");
    add(a, "socket,id=qmp,fd=%d,server=on,wait=off", p->qmp_fd);
    add(a, "-mon");
    add(a, "chardev=qmp,mode=control");
    add(a, "-device");
    add(a, "virtio-serial-device,max_ports=2");
    add(a, "-chardev");
    add(a, "socket,id=agent,fd=%d,server=on,wait=off", p->agent_fd);
    add(a, "-device");
    add(a, "virtserialport,chardev=agent,name=transom.agent.0");
}

/* Disks come as descriptor sets: the process's user cannot open the files by name. */
static void add_disk_fd(struct args *a, int fd, int set)
{
    add(a, "-add-fd");
    add(a, "fd=%d,set=%d", fd, set);
}

static void add_disk(struct args *a, const char *name, int set, const char *more)
{
    add(a, "-drive");
    add(a, "id=%s,file=/dev/fdset/%d,format=raw,if=none,%s", name, set, more);
    add(a, "-device");
    add(a, "virtio-blk-device,drive=%s,serial=%s", name, name);
}

static void add_devices(struct args *a, const struct vm_spec *spec, const struct qemu_places *p)
{
    add(a, "-object");
    add(a, "rng-builtin,id=rng");
    add(a, "-device");
    add(a, "virtio-rng-device,rng=rng");
    /* Memory that the guest frees returns to the host, unless it is shared with others. */
    add(a, "-device");
    add(a, "virtio-balloon-device,free-page-reporting=%s", has_memory_file(spec) ? "off" : "on");
    if (p->root_fd >= 0) {
        add_disk_fd(a, p->root_fd, 1);
        add_disk(a, "root", 1, "readonly=on");
    }
    if (p->data_fd >= 0) {
        /* QEMU opens it for reading first, and for writing when the device wants to. */
        add_disk_fd(a, p->data_read_fd, 2);
        add_disk_fd(a, p->data_fd, 2);
        add_disk(a, "data", 2, "discard=unmap,detect-zeroes=unmap");
    }
    if (p->tap_fd >= 0) {
        add(a, "-netdev");
        add(a, "tap,id=net,fd=%d", p->tap_fd);
        add(a, "-device");
        add(a, "virtio-net-device,netdev=net,mac=%02x:%02x:%02x:%02x:%02x:%02x,host_mtu=%u",
            spec->mac[0], spec->mac[1], spec->mac[2], spec->mac[3], spec->mac[4], spec->mac[5],
            spec->mtu != 0 ? spec->mtu : 1500U);
    }
}

static void add_boot(struct args *a, const struct vm_spec *spec, const struct qemu_places *p)
{
    char clock[128] = "";

    /* TCG on microvm has no reliable clock to calibrate the TSC against: without its rate the
     * boot hangs at random. lpj is for the distribution's HZ=250. The APIC's timer cannot be told;
     * the agent checks what was measured (QEMU's runs at 1 GHz, of which Linux takes a 16th). */
    if (spec->accel == VM_ACCEL_TCG && spec->tsc_khz != 0)
        (void)snprintf(clock, sizeof(clock),
                       " tsc_early_khz=%u tsc=reliable lpj=%u transom.lapic_khz=62500",
                       spec->tsc_khz, spec->tsc_khz * 4);
    add(a, "-kernel");
    add(a, "%s", p->kernel);
    add(a, "-initrd");
    add(a, "%s", p->initrd);
    add(a, "-append");
    add(a,
        "console=ttyS0 quiet loglevel=4 reboot=t panic=-1%s no_timer_check cryptomgr.notests "
        "8250.nr_uarts=1 i8042.noaux i8042.nomux i8042.nopnp pci=off%s%s%s%s",
        clock, p->root_fd >= 0 ? " transom.root=root" : "",
        p->data_fd >= 0 ? " transom.data=data" : "", spec->cmdline[0] != '\0' ? " " : "",
        spec->cmdline);
}

char **qemu_args(const struct vm_spec *spec, const struct qemu_places *places)
{
    struct args a = {.n = 0};
    char **argv;
    int i;

    add(&a, "%s", places->program);
    add_machine(&a, spec);
    add_memory(&a, spec, places);
    add_channels(&a, places);
    add_devices(&a, spec, places);
    if (spec->memory != VM_MEMORY_CLONE) /* it has booted */
        add_boot(&a, spec, places);
    argv = a.failed ? NULL : calloc((size_t)a.n + 1, sizeof(*argv));
    for (i = 0; i < a.n; i++) {
        if (argv != NULL)
            argv[i] = a.argv[i];
        else
            free(a.argv[i]);
    }
    return argv;
}

void qemu_args_free(char **argv)
{
    char **p;

    if (argv == NULL)
        return;
    for (p = argv; *p != NULL; p++)
        free(*p);
    free(argv);
}
