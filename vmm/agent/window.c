/* SPDX-License-Identifier: MIT */
/* A run: waiting -> active (the shell began it) -> ended. A window has at most one waiting and one
 * active run.
 *
 * begin() takes the next step towards the waiting run whenever something changed: tell the shell to
 * leave the active run and kill that one's group; once both are through, open a shell if there is
 * none, and post the command to it. The shell is moved into the run's group before, so that the
 * run's children are born there, and back to the window's group at the end or before a kill; what a
 * finished run left in the background stays in the run's group.
 *
 * A run has ended when the shell said so and the mark behind its last byte has come through the
 * terminal. */
#include "vmm/agent/window.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/event.h"
#include "vmm/agent/group.h"
#include "vmm/agent/screen.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/shell.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/utf8.h"

#define TERM_MS         200 /* between SIGTERM and SIGKILL of what is cancelled */
#define DYING_POLL_MS   10
#define TERM_EVERY      10    /* of those polls: for what was started since */
#define START_UP_MS     30000 /* the user's start-up files */
#define MARK_MS         300   /* from the news of the end to the mark */
#define MAX_PATIENCE    15    /* times that a starved shell at its prompt is waited for again */
#define SWEEP_MS        5000
#define PACE_MS         100  /* between looks whether a listener still deserves to be waited for */
#define REDRAW_MS       60   /* between the two sizes by which a program is told to draw itself */
#define LOOK_MS         500  /* at the shell of an active run */
#define MAX_SHOWN       2048 /* of a command, in the terminal */
#define MAX_SHELL_LIVES 2    /* shells that may fail to start one run */

struct agent_run {
    unsigned refs;
    struct agent_window *window; /* NULL once ended */
    uint64_t seq;
    char *command;
    size_t command_len;
    json_t *env;
    struct agent_group *group;
    agent_run_cb on_end;
    void *on_end_arg;
    bool posted, begun;            /* handed to the shell; the shell began it */
    bool cancelled;                /* a newer one or a close ended it */
    bool mark_from, mark_to, told; /* seen so far: both marks, the news of its end */
    unsigned n_shells;
    char id[AGENT_RUN_ID_SIZE];
    char *shown; /* view.command */
    struct agent_run_view view;
};

struct agent_window {
    struct agent_windows *windows;
    struct agent_window *next;
    char name[132];
    struct agent_ring ring;
    struct agent_screen screen; /* at offset screen_at, that of the ring's oldest byte */
    uint64_t screen_at;
    struct tr_masker *masker; /* between the terminal and the ring */
    struct agent_group *group;
    struct agent_shell *shell;                   /* NULL: gone, the next run opens one */
    struct agent_run *run;                       /* active, or the last one that was; referenced */
    struct agent_run *waiting;                   /* referenced */
    struct agent_run *past[AGENT_MAX_PAST_RUNS]; /* ended ones, oldest first; referenced */
    size_t n_past;
    struct agent_group *dying; /* of the run that was cancelled, until it is empty */
    int64_t dying_since;
    unsigned n_dying; /* times it was signalled */
    uv_timer_t kill_timer, back_timer, mark_timer, look_timer, hold_timer, redraw_timer, pace_timer;
    bool paused; /* the shell: for a listener that lags */
    unsigned n_patience;
    bool foreign; /* in the active run another program took the shell's place */
    int n_open;
    int rows, cols;
    int64_t created_at, active_at; /* wall ms, uptime ms */
    int64_t active_wall;
    struct agent_window_listener *listeners;
    agent_run_cb done; /* of agent_window_close() */
    void *done_arg;
    bool closed;
};

struct agent_windows {
    struct agent *agent;
    struct agent_window *list; /* open, oldest first */
    size_t n;
    uint64_t last_seq;
    int64_t idle_ms, back_ms;
    uv_timer_t sweep;
};

static const struct agent_shell_cbs shell_cbs;
static void begin(struct agent_window *w);

const char *agent_run_status_name(enum agent_run_status status)
{
    static const char *const names[] = {"running", "exited", "killed", "shell_gone"};

    return names[status];
}

static void start_timer(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms)
{
    if (!uv_is_closing((uv_handle_t *)timer) && uv_timer_start(timer, cb, ms, 0) != 0)
        abort(); /* fails only without a callback */
}

static void touch(struct agent_window *w)
{
    w->active_at = agent_uptime_ms();
    w->active_wall = agent_wall_ms();
}

/* ---- runs ---- */

void agent_run_ref(struct agent_run *run)
{
    run->refs++;
}

void agent_run_unref(struct agent_run *run)
{
    if (--run->refs > 0)
        return;
    free(run->shown);
    free(run->command);
    json_decref(run->env);
    free(run);
}

void agent_run_view(const struct agent_run *run, struct agent_run_view *out)
{
    *out = run->view;
    if (run->window != NULL && run->view.status == AGENT_RUNNING && run->mark_from && !run->mark_to)
        out->to = run->window->ring.end;
    out->placed = run->window == NULL || run->mark_from;
    out->to_final = run->window == NULL || run->mark_to;
}

void agent_run_on_end(struct agent_run *run, agent_run_cb cb, void *arg)
{
    run->on_end = cb;
    run->on_end_arg = arg;
}

static void drop_group(struct agent_run *run)
{
    if (run->group != NULL)
        agent_group_free(run->group);
    run->group = NULL;
}

static void tell_listeners(struct agent_window *w)
{
    struct agent_window_listener *next;

    for (struct agent_window_listener *l = w->listeners; l != NULL; l = next) {
        next = l->next;
        l->on_output(l);
    }
}

static bool is_active(const struct agent_run *run)
{
    return run != NULL && run->window != NULL;
}

/* Is there a listener for whose sake the run has to wait? Once it waits, until half of that is
 * made up for. Nobody is waited for once the run is to end. */
static bool must_wait(const struct agent_window *w)
{
    uint64_t limit = w->ring.size / (w->paused ? 4 : 2);

    if (w->closed || w->waiting != NULL || !is_active(w->run) || w->run->cancelled)
        return false;
    for (const struct agent_window_listener *l = w->listeners; l != NULL; l = l->next) {
        if (l->lag != NULL && l->lag(l) > limit)
            return true;
    }
    return false;
}

static void on_pace(uv_timer_t *timer);

/* Who takes output steadily gets all of it: what prints faster than that waits, as on a wire. */
static void pace(struct agent_window *w)
{
    bool wait = w->shell != NULL && must_wait(w);

    if (w->shell != NULL)
        agent_shell_pause(w->shell, wait);
    w->paused = wait;
    if (wait)
        start_timer(&w->pace_timer, on_pace, PACE_MS);
    else
        uv_timer_stop(&w->pace_timer);
}

static void on_pace(uv_timer_t *timer)
{
    pace(timer->data);
}

/* What was held back because a secret might begin there. */
static void show_held(struct agent_window *w)
{
    uv_timer_stop(&w->hold_timer);
    tr_masker_flush(w->masker);
}

static void remember(struct agent_window *w, struct agent_run *run)
{
    if (w->n_past == AGENT_MAX_PAST_RUNS) {
        agent_run_unref(w->past[0]);
        w->n_past--;
        for (size_t i = 0; i < w->n_past; i++)
            w->past[i] = w->past[i + 1];
    }
    agent_run_ref(run);
    w->past[w->n_past++] = run;
}

/* The one end of every run. */
static void end_run(struct agent_run *run, enum agent_run_status status)
{
    struct agent_window *w = run->window;
    json_t *fields;

    if (w == NULL)
        return;
    show_held(w);
    if (!run->mark_from)
        run->view.from = run->view.to = w->ring.end;
    else if (!run->mark_to)
        run->view.to = w->ring.end;
    run->view.status = status;
    run->view.ended_at = agent_wall_ms();
    run->window = NULL;
    pace(w);
    explicit_bzero(run->command, run->command_len);
    free(run->command);
    run->command = NULL;
    json_decref(run->env);
    run->env = NULL;
    remember(w, run);
    if (w->shell != NULL && run->posted) {
        agent_group_move(w->group, agent_shell_pid(w->shell));
        if (!run->begun && run->group != NULL) /* as far as we heard; the shell may just have */
            agent_group_signal(run->group, SIGKILL);
    }
    drop_group(run);
    fields = json_pack("{s:s,s:s,s:s}", "run_id", run->id, "window", w->name, "status",
                       agent_run_status_name(status));
    if (run->view.has_code)
        agent_exit_json(fields, run->view.by_exit, run->view.code);
    agent_event(w->windows->agent, "run_end", fields);
    if (run->on_end != NULL)
        run->on_end(run, run->on_end_arg);
    run->on_end = NULL;
    tell_listeners(w); /* some wait for the end of this run's output */
    begin(w);
}

static void end_if_complete(struct agent_run *run)
{
    if (run->told && run->mark_to)
        end_run(run, run->cancelled ? AGENT_KILLED : AGENT_EXITED);
}

static struct agent_run *find_run(struct agent_window *w, uint64_t seq)
{
    if (is_active(w->run) && w->run->seq == seq)
        return w->run;
    return w->waiting != NULL && w->waiting->seq == seq ? w->waiting : NULL;
}

/* ---- news from the shell ---- */

static void on_shown(const uint8_t *data, size_t len, void *arg)
{
    struct agent_window *w = arg;
    uint64_t end = w->ring.end + len, begin = end > w->ring.size ? end - w->ring.size : 0;

    while (w->screen_at < begin && w->screen_at < w->ring.end) {
        const uint8_t *piece;
        size_t n = agent_ring_peek(&w->ring, w->screen_at, &piece);

        if (n > begin - w->screen_at)
            n = (size_t)(begin - w->screen_at);
        agent_screen_feed(&w->screen, piece, n, NULL, NULL);
        w->screen_at += n;
    }
    if (w->screen_at < begin) { /* more than the ring holds came at once */
        agent_screen_feed(&w->screen, data, (size_t)(begin - w->screen_at), NULL, NULL);
        w->screen_at = begin;
    }
    agent_ring_write(&w->ring, data, len);
}

static void on_held(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    /* Timers come before descriptors: after a pause of our own the rest may be there. */
    if (w->shell != NULL)
        agent_shell_read(w->shell);
    if (uv_is_active((uv_handle_t *)timer))
        return; /* bytes came, and some of them are held */
    show_held(w);
    tell_listeners(w);
}

static void on_output(const uint8_t *data, size_t len, void *arg)
{
    struct agent_window *w = arg;

    touch(w);
    if (tr_masker_write(w->masker, data, len) != 0)
        log_error("output of a window is lost: out of memory");
    if (tr_masker_held(w->masker) == 0)
        uv_timer_stop(&w->hold_timer);
    else
        start_timer(&w->hold_timer, on_held, TR_MASK_HOLD_MS);
    tell_listeners(w);
    pace(w);
}

static void on_mark(char kind, uint64_t seq, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = find_run(w, seq);

    if (run == NULL)
        return;
    show_held(w);
    if (kind == 'S' && !run->mark_to) { /* a shell that was interrupted begins again */
        run->mark_from = true;
        run->view.from = run->view.to = w->ring.end;
        tell_listeners(w);
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

    if (!is_active(w->run) || w->shell == NULL)
        return;
    if (agent_shell_is_itself(w->shell)) {
        start_timer(&w->look_timer, on_look, LOOK_MS);
        return;
    }
    w->foreign = w->run->view.shell_taken = true; /* the run lasts until it ends */
}

static void on_start(uint64_t seq, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = w->waiting;

    if (run == NULL || run->seq != seq)
        return; /* overtaken by a newer one, which the shell will be told of again */
    uv_timer_stop(&w->back_timer);
    if (is_active(w->run)) /* its end got lost, for instance with the FIFO */
        end_run(w->run, AGENT_KILLED);
    if (w->run != NULL)
        agent_run_unref(w->run);
    w->run = run;
    w->waiting = NULL;
    run->begun = true;
    run->view.started_at = agent_wall_ms();
    if (!run->mark_from) /* the mark was printed before, but may not have passed the terminal yet */
        run->view.from = run->view.to = w->ring.end;
    start_timer(&w->look_timer, on_look, LOOK_MS);
    agent_event(w->windows->agent, "run_start",
                json_pack("{s:s,s:s}", "run_id", run->id, "window", w->name));
}

static void on_no_mark(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;
    uint64_t end = w->ring.end;

    if (w->shell != NULL)
        agent_shell_read(w->shell);
    show_held(w);
    if (!is_active(w->run) || !w->run->told)
        return;
    if (w->ring.end != end) { /* still coming */
        start_timer(&w->mark_timer, on_no_mark, MARK_MS);
    } else {
        w->run->mark_to = w->run->mark_from = true;
        w->run->view.to = w->ring.end;
        end_if_complete(w->run);
    }
}

static void on_end(uint64_t seq, int status, bool by_signal, bool cut, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = find_run(w, seq);

    if (run == NULL || run->told)
        return;
    run->told = true;
    run->view.has_code = true;
    run->view.by_exit = !by_signal && !(cut && status == 128 + SIGINT);
    run->view.code = run->view.by_exit ? status : status - 128;
    if (!run->mark_to)
        start_timer(&w->mark_timer, on_no_mark, MARK_MS);
    end_if_complete(run);
}

static void on_input_drain(void *arg)
{
    struct agent_window *w = arg;
    struct agent_window_listener *next;

    for (struct agent_window_listener *l = w->listeners; l != NULL; l = next) {
        next = l->next;
        if (l->on_input_drain != NULL)
            l->on_input_drain(l);
    }
}

static void on_handle_close(uv_handle_t *handle)
{
    struct agent_window *w = handle->data;

    if (--w->n_open > 0)
        return;
    tr_masker_free(w->masker);
    agent_ring_fini(&w->ring);
    free(w);
}

/* The tree is gone: let the rest go. */
static void dispose(struct agent_window *w)
{
    if (w->run != NULL) {
        if (is_active(w->run))
            end_run(w->run, AGENT_KILLED);
        agent_run_unref(w->run);
        w->run = NULL;
    }
    while (w->n_past > 0)
        agent_run_unref(w->past[--w->n_past]);
    if (w->dying != NULL)
        agent_group_free(w->dying);
    agent_group_free(w->group);
    w->dying = w->group = NULL;
    if (w->done != NULL)
        w->done(NULL, w->done_arg);
    uv_close((uv_handle_t *)&w->kill_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->back_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->mark_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->look_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->hold_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->redraw_timer, on_handle_close);
    uv_close((uv_handle_t *)&w->pace_timer, on_handle_close);
}

static void on_gone(bool exited, int code, void *arg)
{
    struct agent_window *w = arg;
    struct agent_run *run = w->run;

    w->shell = NULL;
    w->foreign = false;
    pace(w);
    uv_timer_stop(&w->back_timer);
    if (is_active(run)) {
        if (!run->told) {
            run->view.has_code = true;
            run->view.by_exit = exited;
            run->view.code = code;
        }
        end_run(run, run->cancelled ? AGENT_KILLED : AGENT_SHELL_GONE);
    }
    if (w->closed) {
        dispose(w);
        return;
    }
    run = w->waiting;
    if (run == NULL)
        return;
    run->posted = false;
    if (run->n_shells < MAX_SHELL_LIVES) {
        run->view.shell_replaced = true;
        begin(w);
        return;
    }
    w->waiting = NULL;
    run->view.has_code = true;
    run->view.by_exit = exited;
    run->view.code = code;
    end_run(run, AGENT_SHELL_GONE);
    agent_run_unref(run);
}

static const struct agent_shell_cbs shell_cbs = {.on_output = on_output,
                                                 .on_mark = on_mark,
                                                 .on_start = on_start,
                                                 .on_end = on_end,
                                                 .on_input_drain = on_input_drain,
                                                 .on_gone = on_gone};

/* ---- starting a run ---- */

/* Until the shell has left the run it stays in the run's group, so that what it still starts is
 * found; afterwards the group is killed whole. */
static void on_dying(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;
    int64_t waited = agent_uptime_ms() - w->dying_since;
    int signum = waited >= TERM_MS ? SIGKILL : w->n_dying % TERM_EVERY == 0 ? SIGTERM : SIGCONT;

    w->n_dying++;
    if (w->shell != NULL && is_active(w->run)) {
        pid_t spared = w->foreign ? 0 : agent_shell_pid(w->shell);

        if (w->foreign) /* without cgroups it may be in no group's reach */
            agent_shell_signal(w->shell, signum);
        agent_group_signal_others(w->dying, signum, spared);
        agent_group_signal_others(w->dying, SIGCONT, spared);
        start_timer(&w->kill_timer, on_dying, DYING_POLL_MS);
        return;
    }
    if (agent_group_count(w->dying) > 0 && waited < w->windows->back_ms) {
        agent_group_signal(w->dying, signum);
        agent_group_signal(w->dying, SIGCONT);
        start_timer(&w->kill_timer, on_dying, DYING_POLL_MS);
        return;
    }
    agent_group_free(w->dying);
    w->dying = NULL;
    begin(w);
}

static void on_not_back(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    if (w->shell != NULL)
        agent_shell_read(w->shell);
    if (w->waiting == NULL || w->shell == NULL)
        return;
    if (!is_active(w->run) && agent_shell_works(w->shell) && w->n_patience++ < MAX_PATIENCE) {
        start_timer(&w->back_timer, on_not_back, (uint64_t)w->windows->back_ms);
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
        start_timer(&w->back_timer, on_not_back, (uint64_t)w->windows->back_ms);
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

static int open_shell(struct agent_window *w, struct err *err)
{
    int r = agent_shell_open(w->windows->agent, w->group, w->rows, w->cols, &shell_cbs, w,
                             &w->shell, err);

    if (r != 0)
        w->shell = NULL;
    return r;
}

static void post(struct agent_window *w, struct agent_run *run)
{
    char *shown = make_shown(run->command, run->command_len);
    struct err err = {0};
    int r = shown == NULL ? UV_ENOMEM : 0;

    if (r == 0 && w->shell == NULL)
        r = open_shell(w, &err);
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
        end_run(run, AGENT_SHELL_GONE);
        agent_run_unref(run);
        return;
    }
    start_timer(&w->back_timer, on_not_back,
                !agent_shell_has_started(w->shell)
                    ? START_UP_MS
                    /* At its prompt only the user's own hooks can keep it: more patience. */
                    : (uint64_t)w->windows->back_ms * 5 / 2);
}

/* The next step towards the waiting run. */
static void begin(struct agent_window *w)
{
    struct agent_run *run = w->waiting;

    if (run == NULL || run->posted || w->closed)
        return;
    if (is_active(w->run))
        cancel(w);
    else if (w->shell != NULL && agent_shell_has_started(w->shell) &&
             !agent_shell_is_itself(w->shell))
        agent_shell_kill(w->shell); /* typed "exec zsh"; on_gone() comes back here */
    else if (w->dying == NULL)
        post(w, run);
}

static void format_id(const struct agent_windows *ws, uint64_t seq, char out[AGENT_RUN_ID_SIZE])
{
    const char *instance = ws->agent->id.instance != NULL ? ws->agent->id.instance : "";

    snprintf(out, AGENT_RUN_ID_SIZE, "%.20s%s%llu", instance, instance[0] != '\0' ? "-" : "",
             (unsigned long long)seq);
}

struct agent_window *agent_windows_owner(struct agent_windows *ws, pid_t pid, char *run_id)
{
    char inside[64];
    unsigned long long seq;

    run_id[0] = '\0';
    for (struct agent_window *w = ws->list; w != NULL; w = w->next) {
        struct agent_run *runs[] = {w->run, w->waiting};

        if (w->group == NULL || !agent_group_has(w->group, pid, inside, sizeof(inside)))
            continue;
        /* The group's name tells also of runs that are over and forgotten. */
        if (sscanf(inside, "r%llu.", &seq) == 1) {
            format_id(ws, seq, run_id);
            return w;
        }
        for (size_t i = 0; i < 2; i++) {
            if (runs[i] != NULL && runs[i]->group != NULL &&
                agent_group_has(runs[i]->group, pid, NULL, 0))
                snprintf(run_id, AGENT_RUN_ID_SIZE, "%s", runs[i]->id);
        }
        return w;
    }
    return NULL;
}

/* A command as it is remembered. */
static char *make_record(const struct agent *a, const char *command, size_t len)
{
    size_t n = 0;
    char *hidden = tr_mask_text(a->secrets->mask, command, len, &n), *out;

    if (hidden == NULL)
        return NULL;
    if (n > AGENT_MAX_COMMAND) {
        n = AGENT_MAX_COMMAND;
        while (n > 0 && ((unsigned char)hidden[n] & 0xc0) == 0x80)
            n--; /* not in the middle of a character */
    }
    out = agent_utf8_repair(hidden, n, NULL);
    free(hidden);
    return out;
}

static int new_run(struct agent_window *w, const char *command, size_t len, json_t *env,
                   struct agent_run **out)
{
    struct agent_windows *ws = w->windows;
    struct agent_run *run = calloc(1, sizeof(*run));
    char prefix[32];
    int r;

    if (run == NULL)
        return UV_ENOMEM;
    run->seq = ++ws->last_seq;
    snprintf(prefix, sizeof(prefix), "r%llu.", (unsigned long long)run->seq);
    run->command = malloc(len + 1);
    run->shown = make_record(ws->agent, command, len);
    r = run->command == NULL || run->shown == NULL
            ? UV_ENOMEM
            : agent_group_new(ws->agent->groups, w->group, prefix, &run->group);
    if (r != 0) {
        free(run->shown);
        free(run->command);
        free(run);
        return r;
    }
    memcpy(run->command, command, len);
    run->command[len] = '\0';
    run->command_len = len;
    run->env = json_incref(env);
    run->refs = 1;
    run->window = w;
    run->view.from = run->view.to = w->ring.end;
    format_id(ws, run->seq, run->id);
    run->view.id = run->id;
    run->view.command = run->shown;
    *out = run;
    return 0;
}

int agent_run_start(struct agent_window *w, const char *command, size_t len, json_t *env,
                    struct agent_run **out, struct err *err)
{
    struct agent_run *run, *overtaken;
    int r;

    if (w->shell != NULL)
        agent_shell_read(w->shell); /* the waiting run may have begun, or the active one ended */
    overtaken = w->waiting;
    r = new_run(w, command, len, env, &run);
    if (r != 0)
        return tr_err_set(err, r, "starting a run: %s", uv_strerror(r));
    touch(w);
    w->waiting = run;
    pace(w);
    agent_run_ref(run); /* the caller's */
    *out = run;
    if (overtaken != NULL) {
        end_run(overtaken, AGENT_KILLED); /* begins the new one */
        agent_run_unref(overtaken);
    }
    begin(w);
    return 0;
}

/* ---- windows ---- */

struct agent_window *agent_window_find(struct agent_windows *ws, const char *name)
{
    struct agent_window *w = ws->list;

    while (w != NULL && strcmp(w->name, name) != 0)
        w = w->next;
    return w;
}

struct agent_window *agent_window_first(struct agent_windows *ws)
{
    return ws->list;
}

struct agent_window *agent_window_next(struct agent_window *w)
{
    return w->next;
}

int agent_window_open(struct agent_windows *ws, const char *name, int rows, int cols,
                      struct agent_window **out, struct err *err)
{
    struct agent_window *w = agent_window_find(ws, name), **tail = &ws->list;
    int r;

    if (w != NULL) {
        *out = w;
        return 0;
    }
    if (ws->n >= AGENT_MAX_WINDOWS)
        return tr_err_set(err, UV_EBUSY, "%d windows are open", AGENT_MAX_WINDOWS);
    w = calloc(1, sizeof(*w));
    r = w == NULL ? UV_ENOMEM : agent_ring_init(&w->ring, AGENT_RING_BYTES);
    if (r == 0)
        r = tr_masker_new(ws->agent->secrets->mask, on_shown, w, &w->masker);
    if (r == 0)
        r = agent_group_new(ws->agent->groups, NULL, "w", &w->group);
    if (r != 0) {
        if (w != NULL) {
            tr_masker_free(w->masker);
            agent_ring_fini(&w->ring);
        }
        free(w);
        return tr_err_set(err, r, "opening a window: %s", uv_strerror(r));
    }
    w->windows = ws;
    agent_screen_init(&w->screen);
    snprintf(w->name, sizeof(w->name), "%s", name);
    w->rows = rows;
    w->cols = cols;
    w->created_at = agent_wall_ms();
    touch(w);
    r = open_shell(w, err);
    if (r != 0) {
        agent_group_free(w->group);
        tr_masker_free(w->masker);
        agent_ring_fini(&w->ring);
        free(w);
        return r;
    }
    if (uv_timer_init(ws->agent->loop, &w->kill_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->back_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->mark_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->look_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->hold_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->redraw_timer) != 0 ||
        uv_timer_init(ws->agent->loop, &w->pace_timer) != 0)
        abort(); /* cannot fail on Unix */
    w->n_open = 7;
    w->kill_timer.data = w->back_timer.data = w->mark_timer.data = w->look_timer.data = w;
    w->hold_timer.data = w->redraw_timer.data = w->pace_timer.data = w;
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = w;
    ws->n++;
    agent_event(ws->agent, "window_open",
                json_pack("{s:s,s:i}", "window", w->name, "pid", (int)agent_shell_pid(w->shell)));
    *out = w;
    return 0;
}

void agent_window_close(struct agent_window *w, const char *reason, agent_run_cb done, void *arg)
{
    struct agent_window **p = &w->windows->list;
    struct agent_run *waiting = w->waiting;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    w->windows->n--;
    w->closed = true;
    pace(w);
    w->done = done;
    w->done_arg = arg;
    agent_event(w->windows->agent, "window_close",
                json_pack("{s:s,s:s}", "window", w->name, "reason", reason));
    agent_group_signal(w->group, SIGKILL); /* groups of runs are inside */
    if (is_active(w->run))
        end_run(w->run, AGENT_KILLED);
    w->waiting = NULL;
    if (waiting != NULL) {
        end_run(waiting, AGENT_KILLED);
        agent_run_unref(waiting);
    }
    while (w->listeners != NULL) {
        struct agent_window_listener *l = w->listeners;

        w->listeners = l->next;
        l->on_close(l);
    }
    if (w->shell == NULL)
        dispose(w);
}

const char *agent_window_name(const struct agent_window *w)
{
    return w->name;
}

const struct agent_ring *agent_window_ring(const struct agent_window *w)
{
    return &w->ring;
}

struct agent_run *agent_window_run(struct agent_window *w)
{
    return w->run;
}

struct agent_run *agent_window_nth_run(struct agent_window *w, size_t i)
{
    if (i < w->n_past)
        return w->past[i];
    i -= w->n_past;
    if (is_active(w->run) && i-- == 0)
        return w->run;
    return i == 0 ? w->waiting : NULL;
}

struct agent_run *agent_window_find_run(struct agent_window *w, const char *id)
{
    struct agent_run *run = NULL;

    for (size_t i = 0; (run = agent_window_nth_run(w, i)) != NULL; i++) {
        if (strcmp(run->id, id) == 0)
            return run;
    }
    return NULL;
}

void agent_windows_listening(struct agent_windows *ws, const char *run_id, uint16_t port)
{
    struct agent_window_listener *next;

    for (struct agent_window *w = ws->list; w != NULL; w = w->next) {
        struct agent_run *run = agent_window_find_run(w, run_id);

        if (run == NULL)
            continue;
        if (port == AGENT_PREVIEW_PORT)
            run->view.previews = true;
        for (struct agent_window_listener *l = w->listeners; l != NULL; l = next) {
            next = l->next;
            if (l->on_listen != NULL)
                l->on_listen(l, run, port);
        }
    }
}

json_t *agent_window_json(struct agent_window *w)
{
    struct agent_run *run = w->waiting != NULL ? w->waiting : w->run;
    bool busy = w->waiting != NULL || is_active(w->run);
    json_t *obj =
        json_pack("{s:s,s:i,s:b,s:o,s:o,s:I,s:I,s:i,s:i}", "name", w->name, "pid",
                  w->shell != NULL ? (int)agent_shell_pid(w->shell) : 0, "busy", busy, "created_at",
                  agent_time_json(w->created_at), "last_activity_at",
                  agent_time_json(w->active_wall), "from", (json_int_t)agent_ring_begin(&w->ring),
                  "to", (json_int_t)w->ring.end, "rows", w->rows, "cols", w->cols);

    if (busy && obj != NULL)
        json_object_set_new(obj, "run_id", json_string(run->id));
    if (w->shell != NULL && obj != NULL)
        json_object_set_new(obj, "stale_secrets", agent_shell_stale_secrets(w->shell));
    return obj;
}

size_t agent_window_input(struct agent_window *w, const void *data, size_t len)
{
    touch(w);
    return w->shell != NULL ? agent_shell_input(w->shell, data, len) : 0;
}

int agent_window_resize(struct agent_window *w, int rows, int cols)
{
    w->rows = rows;
    w->cols = cols;
    uv_timer_stop(&w->redraw_timer);
    return w->shell != NULL ? agent_shell_resize(w->shell, rows, cols) : 0;
}

/* ---- late viewers ---- */

struct replay {
    uint8_t *bytes;
    size_t len;
};

static void on_replayed(const uint8_t *data, size_t len, void *arg)
{
    struct replay *r = arg;

    memcpy(r->bytes + r->len, data, len);
    r->len += len;
}

static void on_redraw(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    if (w->shell != NULL && agent_shell_resize(w->shell, w->rows, w->cols) != 0)
        log_warn("a window's size was not put back");
}

/* Programs draw themselves when their window gets another size, and some only then. */
static void redraw(struct agent_window *w)
{
    int rows = w->rows > 1 ? w->rows - 1 : w->rows + 1;

    if (w->shell == NULL || agent_shell_resize(w->shell, rows, w->cols) != 0)
        return;
    start_timer(&w->redraw_timer, on_redraw, REDRAW_MS);
}

int agent_window_replay(struct agent_window *w, uint8_t **out, size_t *len)
{
    struct agent_screen screen = w->screen;
    uint64_t at = w->screen_at;
    struct replay r = {
        .bytes = malloc((size_t)(w->ring.end - at) + AGENT_SCREEN_MODES + sizeof(screen.held))};

    if (r.bytes == NULL)
        return UV_ENOMEM;
    r.len = agent_screen_modes(&screen, (char *)r.bytes);
    screen.drop = true; /* a string of which only the rest is kept */
    while (at < w->ring.end) {
        const uint8_t *piece;
        size_t n = agent_ring_peek(&w->ring, at, &piece);

        agent_screen_feed(&screen, piece, n, on_replayed, &r);
        at += n;
    }
    agent_screen_flush(&screen, on_replayed, &r);
    if (agent_screen_is_alternate(&screen))
        redraw(w);
    *out = r.bytes;
    *len = r.len;
    return 0;
}

void agent_window_listen(struct agent_window *w, struct agent_window_listener *l)
{
    l->next = w->listeners;
    w->listeners = l;
}

void agent_window_caught_up(struct agent_window *w)
{
    if (w->paused)
        pace(w);
}

void agent_window_unlisten(struct agent_window *w, struct agent_window_listener *l)
{
    struct agent_window_listener **p = &w->listeners;

    while (*p != NULL && *p != l)
        p = &(*p)->next;
    if (*p != NULL)
        *p = (*p)->next;
    agent_window_caught_up(w);
}

/* ---- life of the whole ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct agent_windows *ws = timer->data;
    struct agent_window *next;
    int64_t now = agent_uptime_ms();

    for (struct agent_window *w = ws->list; w != NULL; w = next) {
        next = w->next;
        if (now - w->active_at < ws->idle_ms || w->waiting != NULL || is_active(w->run))
            continue;
        if (agent_group_count(w->group) > (w->shell != NULL ? 1u : 0u))
            continue;
        agent_window_close(w, "idle", NULL, NULL);
    }
}

int agent_windows_new(struct agent *a, struct agent_windows **out)
{
    struct agent_windows *ws = calloc(1, sizeof(*ws));
    int r;

    if (ws == NULL)
        return UV_ENOMEM;
    ws->agent = a;
    r = uv_timer_init(a->loop, &ws->sweep);
    if (r != 0) {
        free(ws);
        return r;
    }
    ws->sweep.data = ws;
    agent_windows_set_limits(ws, AGENT_DEFAULT_IDLE_MS, AGENT_DEFAULT_BACK_MS);
    *out = ws;
    return 0;
}

void agent_windows_set_limits(struct agent_windows *ws, int64_t idle_ms, int64_t back_ms)
{
    uint64_t every = idle_ms < SWEEP_MS ? (uint64_t)idle_ms : SWEEP_MS;

    ws->idle_ms = idle_ms;
    ws->back_ms = back_ms;
    if (uv_timer_start(&ws->sweep, on_sweep, every, every) != 0)
        abort(); /* fails only without a callback */
}

void agent_windows_secrets_changed(struct agent_windows *ws)
{
    for (struct agent_window *w = ws->list; w != NULL; w = w->next) {
        uv_timer_stop(&w->hold_timer);
        tr_masker_set(w->masker, ws->agent->secrets->mask);
        tell_listeners(w);
    }
}

void agent_windows_stop(struct agent_windows *ws)
{
    while (ws->list != NULL) {
        struct agent_window *w = ws->list;
        struct agent_shell *shell = w->shell;

        w->shell = NULL; /* nobody waits for it any more */
        if (shell != NULL)
            agent_shell_abandon(shell);
        agent_window_close(w, "shutdown", NULL, NULL);
    }
    if (!uv_is_closing((uv_handle_t *)&ws->sweep))
        uv_close((uv_handle_t *)&ws->sweep, NULL);
}

void agent_windows_free(struct agent_windows *ws)
{
    free(ws);
}
