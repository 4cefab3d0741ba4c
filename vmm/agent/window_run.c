/* SPDX-License-Identifier: MIT */
/* A run in its window: waiting -> active (the shell began it) -> ended. A window has at most one
 * waiting and one active run.
 *
 * window_begin() takes the next step towards the waiting run whenever something changed: tell the
 * shell to leave the active run and kill that one's group; once both are through, open a shell if
 * there is none, and post the command to it. The shell is moved into the run's group before, so
 * that the run's children are born there, and back to the window's group at the end or before a
 * kill; what a finished run left in the background stays in the run's group.
 *
 * A run has ended when the shell said so and the mark behind its last byte has come through the
 * terminal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/event.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/window_internal.h"

#define TERM_MS         200 /* between SIGTERM and SIGKILL of what is cancelled */
#define DYING_POLL_MS   10
#define TERM_EVERY      10    /* of those polls: for what was started since */
#define START_UP_MS     30000 /* the user's start-up files */
#define MARK_MS         300   /* from the news of the end to the mark */
#define MAX_PATIENCE    15    /* times that a starved shell at its prompt is waited for again */
#define LOOK_MS         500   /* at the shell of an active run */
#define MAX_SHOWN       2048  /* of a command, in the terminal */
#define MAX_SHELL_LIVES 2     /* shells that may fail to start one run */

/* ---- its end ---- */

void window_end_run(struct agent_run *run, enum agent_run_status status)
{
    struct agent_window *w = run->window;
    json_t *fields;

    if (w == NULL)
        return;
    window_show_held(w);
    if (!run->mark_from)
        run->view.from = run->view.to = w->ring.end;
    else if (!run->mark_to)
        run->view.to = w->ring.end;
    run->view.status = status;
    run->view.ended_at = agent_wall_ms();
    run->window = NULL;
    window_pace(w);
    explicit_bzero(run->command, run->command_len);
    free(run->command);
    run->command = NULL;
    json_decref(run->env);
    run->env = NULL;
    run_remember(w, run);
    if (w->shell != NULL && run->posted) {
        agent_group_move(w->group, agent_shell_pid(w->shell));
        if (!run->begun && run->group != NULL) /* as far as we heard; the shell may just have */
            agent_group_signal(run->group, SIGKILL);
    }
    run_drop_group(run);
    fields = json_pack("{s:s,s:s,s:s}", "run_id", run->id, "window", w->name, "status",
                       agent_run_status_name(status));
    if (run->view.has_code)
        agent_exit_json(fields, run->view.by_exit, run->view.code);
    agent_event(w->windows->agent, "run_end", fields);
    if (run->on_end != NULL)
        run->on_end(run, run->on_end_arg);
    run->on_end = NULL;
    window_tell(w); /* some wait for the end of this run's output */
    window_begin(w);
}

static void end_if_complete(struct agent_run *run)
{
    if (run->told && run->mark_to)
        window_end_run(run, run->cancelled ? AGENT_KILLED : AGENT_EXITED);
}

/* ---- news from the shell ---- */

void window_on_mark(char kind, uint64_t seq, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = run_by_seq(w, seq);

    if (run == NULL)
        return;
    window_show_held(w);
    if (kind == 'S' && !run->mark_to) { /* a shell that was interrupted begins again */
        run->mark_from = true;
        run->view.from = run->view.to = w->ring.end;
        window_tell(w);
    } else if (kind == 'E' && !run->mark_to) {
        run->mark_to = true;
        run->view.to = w->ring.end;
        end_if_complete(run);
    }
}

/* A program that replaced the shell ("exec node server.js") is what the run is from then on. */
static void on_look(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    if (!run_is_active(w->run) || w->shell == NULL)
        return;
    if (agent_shell_is_itself(w->shell)) {
        window_start_timer(&w->look_timer, on_look, LOOK_MS);
        return;
    }
    w->foreign = w->run->view.shell_taken = true; /* the run lasts until it ends */
}

void window_on_start(uint64_t seq, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = w->waiting;

    if (run == NULL || run->seq != seq)
        return; /* overtaken by a newer one, which the shell will be told of again */
    uv_timer_stop(&w->back_timer);
    if (run_is_active(w->run)) /* its end got lost, for instance with the FIFO */
        window_end_run(w->run, AGENT_KILLED);
    if (w->run != NULL)
        agent_run_unref(w->run);
    w->run = run;
    w->waiting = NULL;
    run->begun = true;
    run->view.started_at = agent_wall_ms();
    if (!run->mark_from) /* the mark was printed before, but may not have passed the terminal yet */
        run->view.from = run->view.to = w->ring.end;
    window_start_timer(&w->look_timer, on_look, LOOK_MS);
    agent_event(w->windows->agent, "run_start",
                json_pack("{s:s,s:s}", "run_id", run->id, "window", w->name));
}

static void on_no_mark(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;
    uint64_t end = w->ring.end;

    if (w->shell != NULL)
        agent_shell_read(w->shell);
    window_show_held(w);
    if (!run_is_active(w->run) || !w->run->told)
        return;
    if (w->ring.end != end) { /* still coming */
        window_start_timer(&w->mark_timer, on_no_mark, MARK_MS);
    } else {
        w->run->mark_to = w->run->mark_from = true;
        w->run->view.to = w->ring.end;
        end_if_complete(w->run);
    }
}

void window_on_end(uint64_t seq, int status, bool by_signal, bool cut, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = run_by_seq(w, seq);

    if (run == NULL || run->told)
        return;
    run->told = true;
    run->view.has_code = true;
    run->view.by_exit = !by_signal && !(cut && status == 128 + SIGINT);
    run->view.code = run->view.by_exit ? status : status - 128;
    if (!run->mark_to)
        window_start_timer(&w->mark_timer, on_no_mark, MARK_MS);
    end_if_complete(run);
}

void window_on_gone(bool exited, int code, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = w->run;

    w->shell = NULL;
    w->foreign = false;
    window_pace(w);
    uv_timer_stop(&w->back_timer);
    if (run_is_active(run)) {
        if (!run->told) {
            run->view.has_code = true;
            run->view.by_exit = exited;
            run->view.code = code;
        }
        window_end_run(run, run->cancelled ? AGENT_KILLED : AGENT_SHELL_GONE);
    }
    if (w->closed) {
        window_dispose(w);
        return;
    }
    run = w->waiting;
    if (run == NULL)
        return;
    run->posted = false;
    if (run->n_shells < MAX_SHELL_LIVES) {
        run->view.shell_replaced = true;
        window_begin(w);
        return;
    }
    w->waiting = NULL;
    run->view.has_code = true;
    run->view.by_exit = exited;
    run->view.code = code;
    window_end_run(run, AGENT_SHELL_GONE);
    agent_run_unref(run);
}

/* ---- the next one ---- */

/* Until the shell has left the run it stays in the run's group, so that what it still starts is
 * found; afterwards the group is killed whole. */
static void on_dying(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;
    int64_t waited = agent_uptime_ms() - w->dying_since;
    int signum = waited >= TERM_MS ? SIGKILL : w->n_dying % TERM_EVERY == 0 ? SIGTERM : SIGCONT;

    w->n_dying++;
    if (w->shell != NULL && run_is_active(w->run)) {
        pid_t spared = w->foreign ? 0 : agent_shell_pid(w->shell);

        if (w->foreign) /* without cgroups it may be in no group's reach */
            agent_shell_signal(w->shell, signum);
        agent_group_signal_others(w->dying, signum, spared);
        agent_group_signal_others(w->dying, SIGCONT, spared);
        window_start_timer(&w->kill_timer, on_dying, DYING_POLL_MS);
        return;
    }
    if (agent_group_count(w->dying) > 0 && waited < w->windows->back_ms) {
        agent_group_signal(w->dying, signum);
        agent_group_signal(w->dying, SIGCONT);
        window_start_timer(&w->kill_timer, on_dying, DYING_POLL_MS);
        return;
    }
    agent_group_free(w->dying);
    w->dying = NULL;
    window_begin(w);
}

static void on_not_back(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    if (w->shell != NULL)
        agent_shell_read(w->shell);
    if (w->waiting == NULL || w->shell == NULL)
        return;
    if (!run_is_active(w->run) && agent_shell_works(w->shell) && w->n_patience++ < MAX_PATIENCE) {
        window_start_timer(&w->back_timer, on_not_back, (uint64_t)w->windows->back_ms);
        return;
    }
    log_warn("a window's shell did not come back and is replaced");
    agent_shell_kill(w->shell);
}

/* Make the shell leave the active run, and end all that belongs to it. */
static void cancel(struct agent_window *w)
{
    struct agent_run *run = w->run;

    if (run->cancelled)
        return;
    run->cancelled = true;
    if (w->shell != NULL && !agent_shell_is_itself(w->shell))
        w->foreign = run->view.shell_taken = true;
    if (w->shell != NULL && !w->foreign) {
        agent_shell_reset_terminal(w->shell);
        if (agent_shell_post(w->shell, ++w->windows->last_seq, "", 0, "", NULL) != 0)
            agent_shell_kill(w->shell); /* no other way to get it back */
        window_start_timer(&w->back_timer, on_not_back, (uint64_t)w->windows->back_ms);
    }
    w->dying = run->group;
    run->group = NULL;
    w->dying_since = agent_uptime_ms();
    w->n_dying = 0;
    on_dying(&w->kill_timer);
}

/* A command as a person may see it: one that could move the cursor or be endless is not shown as it
 * is. */
static char *make_shown(const char *command, size_t len)
{
    size_t n = len < MAX_SHOWN ? len : MAX_SHOWN;
    char *out = malloc(n + 8);

    if (out == NULL)
        return NULL;
    while (n < len && n > 0 && ((unsigned char)command[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)command[i];

        out[i] = (char)((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
    }
    while (n > 0 && out[n - 1] == '\n')
        n--;
    snprintf(out + n, 4, "%s", len > MAX_SHOWN ? "..." : "");
    return out;
}

static void post(struct agent_window *w, struct agent_run *run)
{
    char *shown = make_shown(run->command, run->command_len);
    struct err err = {0};
    int r = shown == NULL ? UV_ENOMEM : 0;

    if (r == 0 && w->shell == NULL)
        r = window_open_shell(w, &err);
    if (r == 0) {
        run->n_shells++;
        w->n_patience = 0;
        run->posted = true;
        agent_group_set_leader(run->group, agent_shell_pid(w->shell), false);
        agent_group_move(run->group, agent_shell_pid(w->shell));
        agent_shell_reset_terminal(w->shell);
        r = agent_shell_post(w->shell, run->seq, run->command, run->command_len, shown, run->env);
    }
    free(shown);
    if (r != 0) {
        log_error("a run cannot be started: %s", err.msg[0] ? err.msg : uv_strerror(r));
        w->waiting = NULL;
        window_end_run(run, AGENT_SHELL_GONE);
        agent_run_unref(run);
        return;
    }
    window_start_timer(&w->back_timer, on_not_back,
                       !agent_shell_has_started(w->shell)
                           ? START_UP_MS
                           /* At its prompt only the user's own hooks can keep it: more patience. */
                           : (uint64_t)w->windows->back_ms * 5 / 2);
}

void window_begin(struct agent_window *w)
{
    struct agent_run *run = w->waiting;

    if (run == NULL || run->posted || w->closed)
        return;
    if (run_is_active(w->run))
        cancel(w);
    else if (w->shell != NULL && agent_shell_has_started(w->shell) &&
             !agent_shell_is_itself(w->shell))
        agent_shell_kill(w->shell); /* typed "exec zsh"; on_gone() comes back here */
    else if (w->dying == NULL)
        post(w, run);
}

int agent_run_start(struct agent_window *w, const char *command, size_t len, json_t *env,
                    struct agent_run **out, struct err *err)
{
    struct agent_run *run, *overtaken;
    int r;

    if (w->shell != NULL)
        agent_shell_read(w->shell); /* the waiting run may have begun, or the active one ended */
    overtaken = w->waiting;
    r = run_new(w, command, len, env, &run);
    if (r != 0)
        return tr_err_set(err, r, "starting a run: %s", uv_strerror(r));
    window_touch(w);
    w->waiting = run;
    window_pace(w);
    agent_run_ref(run); /* the caller's */
    *out = run;
    if (overtaken != NULL) {
        window_end_run(overtaken, AGENT_KILLED); /* begins the new one */
        agent_run_unref(overtaken);
    }
    window_begin(w);
    return 0;
}
