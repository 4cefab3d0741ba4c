/* SPDX-License-Identifier: MIT */
#include "vmm/agent/agent.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "vmm/agent/deaths.h"
#include "vmm/agent/event.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/group.h"
#include "vmm/agent/hello.h"
#include "vmm/agent/port.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/server.h"
#include "vmm/agent/splice.h"
#include "vmm/agent/ssh.h"
#include "vmm/agent/stats.h"
#include "vmm/agent/systemd.h"
#include "vmm/agent/window.h"

static int64_t now_ms(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t agent_uptime_ms(void)
{
    return now_ms(CLOCK_BOOTTIME);
}

int64_t agent_wall_ms(void)
{
    return now_ms(CLOCK_REALTIME);
}

json_t *agent_time_json(int64_t wall_ms)
{
    time_t seconds = wall_ms / 1000;
    char text[64];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(wall_ms % 1000));
    return json_string(text);
}

int agent_init(struct agent *a, uv_loop_t *loop, const struct agent_options *options,
               struct err *err)
{
    int r;

    memset(a, 0, sizeof(*a));
    a->loop = loop;
    a->options = *options;
    a->terminals.sum = AGENT_TERMINAL_READS;
    r = agent_reaper_new(loop, &a->reaper);
    if (r == 0)
        r = agent_groups_new(loop, options->cgroup, &a->groups);
    if (r == 0)
        r = agent_deaths_new(loop, &a->deaths);
    if (r == 0)
        r = agent_secrets_new(a, &a->secrets);
    if (r == 0)
        r = agent_events_new(a, &a->events);
    if (r == 0)
        r = agent_execs_new(a, &a->execs);
    if (r == 0)
        r = agent_windows_new(a, &a->windows);
    if (r == 0)
        r = agent_ssh_new(a, &a->ssh);
    if (r == 0)
        r = agent_ports_new(a, &a->ports);
    if (r == 0)
        r = agent_splices_new(a, &a->splices);
    if (r == 0)
        r = agent_stats_new(a, &a->stats);
    if (r == 0)
        r = agent_systemd_new(a, &a->systemd);
    if (r != 0)
        return tr_err_set(err, r, "starting: %s", uv_strerror(r));
    agent_ports_start(a->ports);
    return 0;
}

void agent_stop(struct agent *a)
{
    if (a->stopping)
        return;
    a->stopping = true;
    if (a->server != NULL)
        agent_server_stop(a->server);
    if (a->execs != NULL)
        agent_execs_stop(a->execs);
    if (a->windows != NULL)
        agent_windows_stop(a->windows);
    if (a->ssh != NULL)
        agent_ssh_stop(a->ssh);
    if (a->deaths != NULL)
        agent_deaths_close(a->deaths);
    if (a->systemd != NULL)
        agent_systemd_stop(a->systemd);
    if (a->ports != NULL)
        agent_ports_stop(a->ports);
    if (a->splices != NULL)
        agent_splices_stop(a->splices);
    if (a->stats != NULL)
        agent_stats_stop(a->stats);
    if (a->groups != NULL) {
        agent_groups_kill(a->groups); /* what finished commands left behind, too */
        agent_groups_close(a->groups);
    }
    if (a->reaper != NULL)
        agent_reaper_close(a->reaper);
}

void agent_free(struct agent *a)
{
    if (a->server != NULL)
        agent_server_free(a->server);
    if (a->execs != NULL)
        agent_execs_free(a->execs);
    if (a->windows != NULL)
        agent_windows_free(a->windows);
    if (a->ssh != NULL)
        agent_ssh_free(a->ssh);
    if (a->systemd != NULL)
        agent_systemd_free(a->systemd);
    if (a->ports != NULL)
        agent_ports_free(a->ports);
    if (a->splices != NULL)
        agent_splices_free(a->splices);
    if (a->stats != NULL)
        agent_stats_free(a->stats);
    if (a->events != NULL)
        agent_events_free(a->events);
    if (a->secrets != NULL)
        agent_secrets_free(a->secrets);
    if (a->deaths != NULL)
        agent_deaths_free(a->deaths);
    if (a->groups != NULL)
        agent_groups_free(a->groups);
    if (a->reaper != NULL)
        agent_reaper_free(a->reaper);
    agent_identity_fini(&a->id);
}
