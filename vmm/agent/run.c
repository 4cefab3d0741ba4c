/* SPDX-License-Identifier: MIT */
/* What a run is, what is remembered of it, and which process belongs to which. How one begins and
 * ends in its window: window_run.c. */
#include "vmm/agent/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/secrets.h"
#include "vmm/agent/utf8.h"
#include "vmm/agent/window_internal.h"

const char *agent_run_status_name(enum agent_run_status status)
{
    static const char *const names[] = {"running", "exited", "killed", "shell_gone"};

    return names[status];
}

/* ---- life ---- */

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

static void format_id(const struct agent_windows *ws, uint64_t seq, char out[AGENT_RUN_ID_SIZE])
{
    const char *instance = ws->agent->id.instance != NULL ? ws->agent->id.instance : "";

    snprintf(out, AGENT_RUN_ID_SIZE, "%.20s%s%llu", instance, instance[0] != '\0' ? "-" : "",
             (unsigned long long)seq);
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

int run_new(struct agent_window *w, const char *command, size_t len, json_t *env,
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

bool run_is_active(const struct agent_run *run)
{
    return run != NULL && run->window != NULL;
}

void run_drop_group(struct agent_run *run)
{
    if (run->group != NULL)
        agent_group_free(run->group);
    run->group = NULL;
}

/* ---- those of a window ---- */

void run_remember(struct agent_window *w, struct agent_run *run)
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

struct agent_run *run_by_seq(struct agent_window *w, uint64_t seq)
{
    if (run_is_active(w->run) && w->run->seq == seq)
        return w->run;
    return w->waiting != NULL && w->waiting->seq == seq ? w->waiting : NULL;
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
    if (run_is_active(w->run) && i-- == 0)
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

/* ---- their processes ---- */

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
