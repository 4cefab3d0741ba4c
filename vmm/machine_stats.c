/* SPDX-License-Identifier: MIT */
/* A sandbox's figures: what its agent tells of the inside, checked, and what the host sees of its
 * process and its tap. Each sample becomes the API's "stats", an event and an entry in Redis. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "vmm/live.h"
#include "vmm/machine_internal.h"

#define SAMPLE_MIN_MS 5000 /* a guest that tells more often is not listened to */
#define VALUE_MAX     9007199254740992.0

/* What is taken over from the agent; each is a number from 0 to max. */
static const struct {
    const char *name;
    double max;
} figures[] = {
    {"interval_ms", VALUE_MAX},   {"cpu_percent", 100},        {"cpus", 4096},
    {"load1", VALUE_MAX},         {"load5", VALUE_MAX},        {"load15", VALUE_MAX},
    {"processes", VALUE_MAX},     {"mem_total_kb", VALUE_MAX}, {"mem_available_kb", VALUE_MAX},
    {"disk_total_kb", VALUE_MAX}, {"disk_used_kb", VALUE_MAX},
};

json_t *machine_stats_check(const json_t *told)
{
    json_t *out = json_object();

    for (size_t i = 0; out != NULL && i < sizeof(figures) / sizeof(figures[0]); i++) {
        json_t *value = json_object_get(told, figures[i].name);
        double v = json_number_value(value);

        if (json_is_number(value) && isfinite(v) && v >= 0 && v <= figures[i].max)
            (void)json_object_set(out, figures[i].name, value); /* out of memory: one less */
    }
    return out;
}

static bool read_proc(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, out, size - 1);
    close(fd);
    out[n < 0 ? 0 : n] = '\0';
    return n > 0;
}

static void set(json_t *sample, const char *name, uint64_t value)
{
    (void)json_object_set_new(sample, name, json_integer((json_int_t)value));
}

/* The machine's process: its processor time and resident memory. */
static void add_process(json_t *sample, pid_t pid)
{
    uint64_t user, system, resident;
    char text[1024];
    const char *at;

    if (pid <= 0)
        return;
    if (read_proc(pid, "stat", text, sizeof(text)) && (at = strrchr(text, ')')) != NULL &&
        sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &user,
               &system) == 2)
        set(sample, "host_cpu_ms", (user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
    if (read_proc(pid, "statm", text, sizeof(text)) && sscanf(text, "%*u %" SCNu64, &resident) == 1)
        set(sample, "host_memory_kb", resident * ((uint64_t)sysconf(_SC_PAGESIZE) / 1024));
}

void machine_stats_take(struct vmm_machine *m, const json_t *told)
{
    struct vmm *vmm = m->ms->vmm;
    uint64_t now = uv_now(vmm->loop), received, sent;
    char time[VMM_TIME_SIZE];
    json_t *sample;

    if (m->stats != NULL && now - m->stats_ms < SAMPLE_MIN_MS)
        return;
    sample = machine_stats_check(told);
    if (sample == NULL)
        return;
    vmm_time_text(vmm_wall_ms(), time);
    (void)json_object_set_new(sample, "at", json_string(time));
    if (m->vm != NULL)
        add_process(sample, vm_pid(m->vm));
    if (m->attached && net_traffic(m->ms->net, m->port.tap, &received, &sent) == 0) {
        set(sample, "net_received_bytes", received);
        set(sample, "net_sent_bytes", sent);
    }
    json_decref(m->stats);
    m->stats = sample;
    m->stats_ms = now;
    vmm_live_stats(vmm, m->sb, sample);
}

json_t *vmm_machine_stats(const struct vmm_sandbox *sb)
{
    return sb->machine != NULL && sb->state == TR_SANDBOX_RUNNING ? sb->machine->stats : NULL;
}
