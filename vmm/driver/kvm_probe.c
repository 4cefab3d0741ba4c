/* SPDX-License-Identifier: MIT */
/* Both ends of the probe: the child measures and prints one line, the parent waits for it.
 * Path: start -> child_run -> on_child -> cb. */
#include "vmm/driver/kvm_probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "vmm/driver/kvm_guest.h"
#include "vmm/proc/child.h"

#define LIMIT_MS 400 /* for the guest loop */
#define TSC_MS   60
/* Below this a machine under TCG is faster: TCG runs this loop at some 500 M/s, real KVM at the
 * processor's own 1000 M/s and more; a host that interprets every instruction at 3 M/s. */
#define RATE_MIN 700000000ULL

static const char *const verdict_names[] = {"absent", "unusable", "usable"};

const char *vm_kvm_verdict_name(enum vm_kvm_verdict verdict)
{
    return verdict_names[verdict];
}

uint32_t vm_tsc_khz(unsigned ms)
{
    struct timespec t0, t1, pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    uint64_t c0, c1;
    double ns;

    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &t0);
    c0 = __rdtsc();
    (void)nanosleep(&pause, NULL);
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &t1);
    c1 = __rdtsc();
    ns = (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
    /* Rounded to 100 kHz: what is left below is the noise of two clock readings. */
    return ns <= 0 ? 0 : (uint32_t)((double)(c1 - c0) * 1e6 / ns / 100 + 0.5) * 100;
}

static void judge(int r, const struct kvm_figures *figures, const struct err *err,
                  struct vm_kvm_result *out)
{
    double rate = (double)figures->rate / 1e6;

    out->rate = figures->rate;
    out->verdict = VM_KVM_UNUSABLE;
    if (r == -ENOENT || r == -ENXIO || r == -ENODEV) {
        out->verdict = VM_KVM_ABSENT;
        (void)snprintf(out->reason, sizeof(out->reason), "this host offers no KVM (%s)", err->msg);
    } else if (r == -EACCES || r == -EPERM) {
        (void)snprintf(out->reason, sizeof(out->reason), "%s: add this user to the group kvm",
                       err->msg);
    } else if (r != 0) {
        (void)snprintf(out->reason, sizeof(out->reason), "%s", err->msg);
    } else if (!figures->done || figures->rate < RATE_MIN) {
        (void)snprintf(out->reason, sizeof(out->reason),
                       "a guest runs only %.1f million instructions/s (%llu are worth it): this "
                       "host seems to interpret them",
                       rate, RATE_MIN / 1000000);
    } else {
        out->verdict = VM_KVM_USABLE;
        (void)snprintf(out->reason, sizeof(out->reason),
                       "a guest runs %.0f million instructions/s, an exit takes %.1f us", rate,
                       (double)figures->exit_ns / 1000);
    }
}

int vm_kvm_probe_main(void)
{
    struct vm_kvm_result result = {0};
    struct kvm_figures figures;
    struct err err = {0};
    int r;

    result.tsc_khz = vm_tsc_khz(TSC_MS);
    /* The rate first: it holds even when the guest hangs and we are killed. */
    (void)printf("tsc_khz=%" PRIu32 "\n", result.tsc_khz);
    (void)fflush(stdout);
    r = kvm_guest_measure(LIMIT_MS, &figures, &err);
    judge(r, &figures, &err, &result);
    (void)printf("%s %" PRIu64 " %s\n", verdict_names[result.verdict], result.rate, result.reason);
    return fflush(stdout) == 0 ? 0 : 1;
}

int vm_kvm_parse(const char *line, struct vm_kvm_result *out)
{
    char word[16];
    int end = 0, i;

    memset(out, 0, sizeof(*out));
    if (sscanf(line, "tsc_khz=%9" SCNu32 " %n", &out->tsc_khz, &end) != 1 || end == 0)
        return UV_EINVAL;
    line += end;
    end = 0;
    if (sscanf(line, "%15s %20" SCNu64 " %n", word, &out->rate, &end) != 2 || end == 0)
        return UV_EINVAL;
    for (i = 0; i < 3; i++) {
        if (strcmp(word, verdict_names[i]) != 0)
            continue;
        out->verdict = (enum vm_kvm_verdict)i;
        (void)snprintf(out->reason, sizeof(out->reason), "%.*s", (int)strcspn(line + end, "\n"),
                       line + end);
        return 0;
    }
    return UV_EINVAL;
}

struct probe {
    vm_kvm_probe_cb cb;
    void *arg;
};

static void on_child(const struct child_result *child, void *arg)
{
    struct probe *p = arg;
    struct vm_kvm_result result;
    struct err err = {0};
    uint32_t tsc_khz;

    if (child->status != 0 || vm_kvm_parse(child->out, &result) != 0) {
        if (sscanf(child->out, "tsc_khz=%9" SCNu32, &tsc_khz) != 1)
            tsc_khz = 0;
        memset(&result, 0, sizeof(result));
        result.tsc_khz = tsc_khz;
        result.verdict = VM_KVM_UNUSABLE;
        if (child_explain(child, "the probe of KVM", &err) == 0)
            (void)tr_err_set(&err, UV_EPROTO, "the probe of KVM said nothing");
        (void)snprintf(result.reason, sizeof(result.reason), "%.250s", err.msg);
    }
    p->cb(&result, p->arg);
    free(p);
}

int vm_kvm_probe_start(uv_loop_t *loop, const char *exe, uint64_t timeout_ms, vm_kvm_probe_cb cb,
                       void *arg, struct err *err)
{
    const char *argv[] = {exe != NULL ? exe : "/proc/self/exe", "--kvm-probe", NULL};
    struct probe *p = malloc(sizeof(*p));
    int r;

    if (p == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    p->cb = cb;
    p->arg = arg;
    r = child_run(loop, argv, NULL, timeout_ms, on_child, p, NULL, err);
    if (r != 0)
        free(p);
    return r;
}
