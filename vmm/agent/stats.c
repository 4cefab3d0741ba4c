/* SPDX-License-Identifier: MIT */
#include "vmm/agent/stats.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "vmm/agent/event.h"

#define FIRST_MS 1000
#define EVERY_MS 10000

struct agent_stats {
    struct agent *agent;
    uv_timer_t timer; /* active while there are readers */
    uint64_t cpu_total, cpu_busy;
    int64_t taken_at; /* uptime ms of those two */
};

/* The first bytes of a file of /proc; "" when it cannot be read. */
static void read_start(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

    out[n < 0 ? 0 : n] = '\0';
    if (fd >= 0)
        close(fd);
}

bool agent_stats_parse_cpu(const char *text, uint64_t *total, uint64_t *busy)
{
    /* user nice system idle iowait irq softirq steal; guests' time is part of user */
    uint64_t t[8] = {0};

    if (sscanf(text,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
        return false;
    *total = 0;
    for (size_t i = 0; i < 8; i++)
        *total += t[i];
    *busy = *total - t[3] - t[4];
    return true;
}

uint64_t agent_stats_parse_memory(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kb;

    while (at != NULL && at != text && at[-1] != '\n')
        at = strstr(at + 1, name);
    if (at == NULL || sscanf(at + strlen(name), " %" SCNu64 " kB", &kb) != 1)
        return 0;
    return kb;
}

static double take_cpu(struct agent_stats *s, int64_t *interval_ms)
{
    int64_t now = agent_uptime_ms();
    uint64_t total, busy;
    double percent = 0;
    char text[512];

    read_start("/proc/stat", text, sizeof(text));
    *interval_ms = now - s->taken_at;
    if (!agent_stats_parse_cpu(text, &total, &busy))
        return 0;
    /* The kernel's idle times may step back a little. */
    if (total > s->cpu_total && busy >= s->cpu_busy && busy - s->cpu_busy <= total - s->cpu_total)
        percent = 100.0 * (double)(busy - s->cpu_busy) / (double)(total - s->cpu_total);
    s->cpu_total = total;
    s->cpu_busy = busy;
    s->taken_at = now;
    return percent;
}

static int count_processes(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    int n = 0;

    while (proc != NULL && (e = readdir(proc)) != NULL)
        n += isdigit((unsigned char)e->d_name[0]) != 0;
    if (proc != NULL)
        closedir(proc);
    return n;
}

static void take(struct agent_stats *s)
{
    char memory[4096], text[128];
    double cpu, load[3] = {0, 0, 0};
    uint64_t disk_total = 0, disk_used = 0;
    int64_t interval_ms;
    struct statvfs fs;

    cpu = take_cpu(s, &interval_ms);
    read_start("/proc/meminfo", memory, sizeof(memory));
    read_start("/proc/loadavg", text, sizeof(text));
    (void)!sscanf(text, "%lf %lf %lf", &load[0], &load[1], &load[2]);
    if (statvfs("/", &fs) == 0) {
        disk_total = (uint64_t)fs.f_blocks * fs.f_frsize / 1024;
        disk_used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize / 1024;
    }
    agent_event(
        s->agent, "stats",
        json_pack("{s:I,s:f,s:I,s:f,s:f,s:f,s:i,s:I,s:I,s:I,s:I}", "interval_ms",
                  (json_int_t)interval_ms, "cpu_percent", cpu, "cpus",
                  (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "load1", load[0], "load5", load[1],
                  "load15", load[2], "processes", count_processes(), "mem_total_kb",
                  (json_int_t)agent_stats_parse_memory(memory, "MemTotal:"), "mem_available_kb",
                  (json_int_t)agent_stats_parse_memory(memory, "MemAvailable:"), "disk_total_kb",
                  (json_int_t)disk_total, "disk_used_kb", (json_int_t)disk_used));
}

static void on_timer(uv_timer_t *timer)
{
    struct agent_stats *s = timer->data;

    if (agent_events_are_read(s->agent->events))
        take(s);
    else
        (void)uv_timer_stop(timer);
}

int agent_stats_new(struct agent *a, struct agent_stats **out)
{
    struct agent_stats *s = calloc(1, sizeof(*s));
    int r;

    if (s == NULL)
        return UV_ENOMEM;
    r = uv_timer_init(a->loop, &s->timer);
    if (r != 0) {
        free(s);
        return r;
    }
    s->timer.data = s;
    s->agent = a;
    *out = s;
    return 0;
}

void agent_stats_wake(struct agent_stats *s)
{
    int64_t ignored;

    if (uv_is_active((uv_handle_t *)&s->timer) || uv_is_closing((uv_handle_t *)&s->timer))
        return;
    (void)take_cpu(s, &ignored); /* the first sample's beginning */
    (void)uv_timer_start(&s->timer, on_timer, FIRST_MS, EVERY_MS);
}

void agent_stats_stop(struct agent_stats *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->timer))
        uv_close((uv_handle_t *)&s->timer, NULL);
}

void agent_stats_free(struct agent_stats *s)
{
    free(s);
}
