/* SPDX-License-Identifier: MIT */
/* waitid(WNOWAIT) names a dead child without collecting it, so that a pid is looked up here before
 * its status is taken: nobody's status is ever stolen. */
#include "vmm/agent/reaper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "transom/log.h"

struct agent_watch {
    struct agent_watch *next;
    pid_t pid;
    agent_exit_cb cb; /* NULL: forgotten */
    void *arg;
};

struct agent_reaper {
    uv_signal_t signal;
    struct agent_watch *watches;
};

static struct agent_watch *take(struct agent_reaper *r, pid_t pid)
{
    for (struct agent_watch **p = &r->watches; *p != NULL; p = &(*p)->next) {
        struct agent_watch *w = *p;

        if (w->pid == pid) {
            *p = w->next;
            return w;
        }
    }
    return NULL;
}

static void collect(struct agent_reaper *r)
{
    for (;;) {
        struct agent_watch *w;
        siginfo_t info = {0};

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        w = take(r, info.si_pid);
        if (waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG) != 0)
            log_error("waiting for process %d: %s", (int)info.si_pid, uv_strerror(-errno));
        if (w == NULL)
            continue; /* an orphan */
        if (w->cb != NULL)
            w->cb(info.si_code == CLD_EXITED, info.si_status, w->arg);
        free(w);
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    collect(handle->data);
}

int agent_reaper_new(uv_loop_t *loop, struct agent_reaper **out)
{
    struct agent_reaper *r = calloc(1, sizeof(*r));
    int rc;

    if (r == NULL)
        return UV_ENOMEM;
    rc = uv_signal_init(loop, &r->signal);
    if (rc != 0) {
        free(r);
        return rc;
    }
    r->signal.data = r;
    rc = uv_signal_start(&r->signal, on_signal, SIGCHLD);
    if (rc != 0)
        log_error("SIGCHLD: %s", uv_strerror(rc)); /* cannot happen: the number is right */
    uv_unref((uv_handle_t *)&r->signal);
    *out = r;
    return 0;
}

void agent_reaper_close(struct agent_reaper *r)
{
    if (!uv_is_closing((uv_handle_t *)&r->signal))
        uv_close((uv_handle_t *)&r->signal, NULL);
}

void agent_reaper_free(struct agent_reaper *r)
{
    while (r->watches != NULL) {
        struct agent_watch *w = r->watches;

        r->watches = w->next;
        free(w);
    }
    free(r);
}

int agent_reaper_watch(struct agent_reaper *r, pid_t pid, agent_exit_cb cb, void *arg,
                       struct agent_watch **out)
{
    struct agent_watch *w = calloc(1, sizeof(*w));

    if (w == NULL)
        return UV_ENOMEM;
    w->pid = pid;
    w->cb = cb;
    w->arg = arg;
    w->next = r->watches;
    r->watches = w;
    *out = w;
    return 0;
}

void agent_watch_forget(struct agent_watch *w)
{
    w->cb = NULL;
}
