/* SPDX-License-Identifier: MIT */
/* Path: open /dev/kvm -> a VM with 64 KiB -> page tables, registers for 64-bit mode -> loops of
 * growing length until one takes long enough to be measured -> a loop of port writes. */
#include "vmm/driver/kvm_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MEM_SIZE  0x10000
#define CODE_AT   0x8000
#define PML4_AT   0x1000
#define PDPT_AT   0x2000
#define PD_AT     0x3000
#define ENOUGH_NS 20000000 /* a loop of 20 ms is a measurement */
#define LOOP_MAX  1000000000ULL
#define N_EXITS   200

/* rcx: how often. First the plain loop (2 instructions a round), then port writes (3 a round). */
static const uint8_t code[] = {
    0x48, 0xff, 0xc9, /*       dec rcx        */
    0x75, 0xfb,       /*       jnz -5         */
    0xf4,             /*       hlt            */
    0x90, 0x90,       /*       (padding)      */
    0xe6, 0x10,       /* at 8: out 0x10, al   */
    0x48, 0xff, 0xc9, /*       dec rcx        */
    0x75, 0xf9,       /*       jnz -7         */
    0xf4,             /*       hlt            */
};
#define PORT_LOOP_AT (CODE_AT + 8)

struct guest {
    int kvm, vm, vcpu;
    uint8_t *mem;
    struct kvm_run *run;
    size_t run_size;
};

static volatile sig_atomic_t alarmed;

static void on_alarm(int signal)
{
    (void)signal;
    alarmed = 1;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static int failed(struct err *err, const char *step)
{
    return tr_err_set(err, -errno, "%s: %s", step, strerror(errno));
}

static int open_vm(struct guest *g, struct err *err)
{
    struct kvm_userspace_memory_region region = {.memory_size = MEM_SIZE};
    int version, size;

    g->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (g->kvm < 0)
        return failed(err, "/dev/kvm");
    version = ioctl(g->kvm, KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION)
        return tr_err_set(err, -EPROTO, "/dev/kvm: API version %d", version);
    g->vm = ioctl(g->kvm, KVM_CREATE_VM, 0);
    if (g->vm < 0)
        return failed(err, "creating a VM");
    g->mem = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g->mem == MAP_FAILED)
        return failed(err, "guest memory");
    region.userspace_addr = (uint64_t)(uintptr_t)g->mem;
    if (ioctl(g->vm, KVM_SET_USER_MEMORY_REGION, &region) != 0)
        return failed(err, "guest memory");
    g->vcpu = ioctl(g->vm, KVM_CREATE_VCPU, 0);
    if (g->vcpu < 0)
        return failed(err, "creating a vCPU");
    size = ioctl(g->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (size <= 0)
        return failed(err, "vCPU state");
    g->run_size = (size_t)size;
    g->run = mmap(NULL, g->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, g->vcpu, 0);
    if (g->run == MAP_FAILED)
        return failed(err, "vCPU state");
    return 0;
}

static void put64(uint8_t *mem, size_t at, uint64_t value)
{
    memcpy(mem + at, &value, sizeof(value));
}

/* One 2 MiB page from 0, and flat 64-bit segments. */
static int enter_long_mode(struct guest *g, struct err *err)
{
    struct kvm_segment code_seg = {
        .limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data_seg = {
        .limit = 0xffffffff, .selector = 16, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1};
    struct kvm_sregs sregs;

    put64(g->mem, PML4_AT, PDPT_AT | 3);
    put64(g->mem, PDPT_AT, PD_AT | 3);
    put64(g->mem, PD_AT, 0x83);
    memcpy(g->mem + CODE_AT, code, sizeof(code));
    if (ioctl(g->vcpu, KVM_GET_SREGS, &sregs) != 0)
        return failed(err, "reading registers");
    sregs.cr3 = PML4_AT;
    sregs.cr4 = 0x20;              /* PAE */
    sregs.cr0 = 0x80000001 | 0x10; /* paging, protected mode, ET */
    sregs.efer = 0x500;            /* long mode enabled and active */
    sregs.cs = code_seg;
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data_seg;
    if (ioctl(g->vcpu, KVM_SET_SREGS, &sregs) != 0)
        return failed(err, "entering 64-bit mode");
    return 0;
}

/* Run count rounds from rip until its halt. Returns 1: halted; 0: the limit struck; < 0: fault. */
static int run_loop(struct guest *g, uint64_t rip, uint64_t count, struct err *err)
{
    struct kvm_regs regs = {.rip = rip, .rcx = count, .rflags = 2, .rsp = 0x7000};

    if (ioctl(g->vcpu, KVM_SET_REGS, &regs) != 0)
        return failed(err, "setting registers");
    while (!alarmed) {
        if (ioctl(g->vcpu, KVM_RUN, 0) != 0) {
            if (errno == EINTR)
                continue;
            return failed(err, "running the guest");
        }
        if (g->run->exit_reason == KVM_EXIT_HLT)
            return 1;
        if (g->run->exit_reason != KVM_EXIT_IO)
            return tr_err_set(err, -EIO, "running the guest: unexpected exit %u",
                              g->run->exit_reason);
    }
    return 0;
}

static uint64_t rounds_left(struct guest *g)
{
    struct kvm_regs regs;

    return ioctl(g->vcpu, KVM_GET_REGS, &regs) == 0 ? regs.rcx : 0;
}

static int measure(struct guest *g, struct kvm_figures *out, struct err *err)
{
    uint64_t count, start, ns;
    int r;

    for (count = 10000; count <= LOOP_MAX; count *= 10) {
        start = now_ns();
        r = run_loop(g, CODE_AT, count, err);
        ns = now_ns() - start;
        if (r < 0)
            return r;
        if (r == 0)
            count -= rounds_left(g);
        if (ns > 0)
            out->rate = (uint64_t)((double)count * 2 * 1e9 / (double)ns);
        if (r == 0)
            return 0;
        if (ns >= ENOUGH_NS)
            break;
    }
    out->done = 1;
    start = now_ns();
    r = run_loop(g, PORT_LOOP_AT, N_EXITS, err);
    if (r > 0)
        out->exit_ns = (now_ns() - start) / N_EXITS;
    return r < 0 ? r : 0;
}

int kvm_guest_measure(unsigned limit_ms, struct kvm_figures *out, struct err *err)
{
    struct guest g = {.kvm = -1, .vm = -1, .vcpu = -1, .mem = MAP_FAILED, .run = MAP_FAILED};
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART: KVM_RUN must return */
    /* Again and again: the first may strike just before KVM_RUN. */
    struct itimerval limit = {.it_value = {limit_ms / 1000, (limit_ms % 1000) * 1000},
                              .it_interval = {0, 10000}};
    struct itimerval off = {{0, 0}, {0, 0}};
    int r;

    memset(out, 0, sizeof(*out));
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &limit, NULL);
    r = open_vm(&g, err);
    if (r == 0)
        r = enter_long_mode(&g, err);
    if (r == 0)
        r = measure(&g, out, err);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    if (g.run != MAP_FAILED)
        (void)munmap(g.run, g.run_size);
    if (g.mem != MAP_FAILED)
        (void)munmap(g.mem, MEM_SIZE);
    if (g.vcpu >= 0)
        (void)close(g.vcpu);
    if (g.vm >= 0)
        (void)close(g.vm);
    if (g.kvm >= 0)
        (void)close(g.kvm);
    return r;
}
