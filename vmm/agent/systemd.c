/* SPDX-License-Identifier: MIT */
#include "vmm/agent/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/event.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/spawn.h"

#define ASK_EVERY_MS 1000
#define PRIVATE_BUS  "/run/systemd/private"

struct agent_systemd {
    struct agent *agent;
    uv_timer_t timer;
    struct agent_watch *watch; /* of the tool, while it runs */
    int answer_fd;             /* its output */
    char state[16];
};

bool agent_systemd_is_init(void)
{
    char comm[32] = "";
    FILE *f = fopen("/proc/1/comm", "re");

    if (f == NULL)
        return false;
    if (fgets(comm, sizeof(comm), f) == NULL)
        comm[0] = '\0';
    fclose(f);
    return strcmp(comm, "systemd\n") == 0;
}

static void on_answer(bool exited, int code, void *arg)
{
    struct agent_systemd *s = arg;
    char text[64] = "";
    ssize_t n = read(s->answer_fd, text, sizeof(text) - 1);

    (void)exited;
    (void)code;
    s->watch = NULL;
    close(s->answer_fd);
    s->answer_fd = -1;
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, "running") != 0 && strcmp(text, "degraded") != 0)
        return;
    uv_timer_stop(&s->timer);
    if (strcmp(s->state, text) == 0)
        return;
    snprintf(s->state, sizeof(s->state), "%s", text);
    agent_event(s->agent, "systemd", json_pack("{s:s}", "state", s->state));
}

static void ask(struct agent_systemd *s)
{
    static char *const argv[] = {"systemctl", "is-system-running", NULL};
    static char *const envp[] = {"PATH=/usr/bin:/bin", "LANG=C", "SYSTEMD_IGNORE_CHROOT=1", NULL};
    struct agent_spawn sp = {.path = "/usr/bin/systemctl",
                             .argv = argv,
                             .envp = envp,
                             .fds = {-1, -1, -1},
                             .procs_fd = -1};
    struct err err = {0};
    int ends[2];
    pid_t pid;

    if (s->watch != NULL || access(PRIVATE_BUS, F_OK) != 0)
        return;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return;
    sp.fds[1] = ends[1];
    if (agent_spawn(&sp, &pid, &err) != 0) {
        log_warn("asking systemd: %s", err.msg);
        close(ends[0]);
        close(ends[1]);
        uv_timer_stop(&s->timer); /* an image without it */
        return;
    }
    close(ends[1]);
    s->answer_fd = ends[0];
    if (agent_reaper_watch(s->agent->reaper, pid, on_answer, s, &s->watch) != 0) {
        close(s->answer_fd);
        s->answer_fd = -1;
    }
}

static void on_timer(uv_timer_t *timer)
{
    ask(timer->data);
}

int agent_systemd_new(struct agent *a, struct agent_systemd **out)
{
    struct agent_systemd *s = calloc(1, sizeof(*s));
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
    s->answer_fd = -1;
    snprintf(s->state, sizeof(s->state), "%s", a->options.host_test ? "none" : "starting");
    *out = s;
    return 0;
}

void agent_systemd_start(struct agent_systemd *s)
{
    if (strcmp(s->state, "starting") != 0 || uv_is_active((uv_handle_t *)&s->timer))
        return;
    if (uv_timer_start(&s->timer, on_timer, ASK_EVERY_MS, ASK_EVERY_MS) != 0)
        log_error("timer");
}

void agent_systemd_stop(struct agent_systemd *s)
{
    if (s->watch != NULL)
        agent_watch_forget(s->watch);
    s->watch = NULL;
    if (s->answer_fd >= 0)
        close(s->answer_fd);
    s->answer_fd = -1;
    if (!uv_is_closing((uv_handle_t *)&s->timer))
        uv_close((uv_handle_t *)&s->timer, NULL);
}

void agent_systemd_free(struct agent_systemd *s)
{
    free(s);
}

const char *agent_systemd_state(const struct agent_systemd *s)
{
    return s->state;
}
