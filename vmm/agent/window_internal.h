/* SPDX-License-Identifier: MIT */
/* A window as its parts see it: window.c its life, window_output.c what it prints, window_run.c how
 * runs begin and end in it, run.c what is known of a run. */
#ifndef VMM_AGENT_WINDOW_INTERNAL_H
#define VMM_AGENT_WINDOW_INTERNAL_H

#include <uv.h>

#include "transom/mask.h"
#include "vmm/agent/group.h"
#include "vmm/agent/screen.h"
#include "vmm/agent/shell.h"
#include "vmm/agent/window.h"

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
    int n_open;
    int rows, cols;
    int64_t created_at, active_at; /* wall ms, uptime ms */
    int64_t active_wall;
    bool closed;
    agent_run_cb done; /* of agent_window_close() */
    void *done_arg;
    struct agent_group *group;
    struct agent_shell *shell; /* NULL: gone, the next run opens one */

    /* window_output.c */
    struct agent_ring ring;
    struct agent_screen screen; /* at offset screen_at, that of the ring's oldest byte */
    uint64_t screen_at;
    struct tr_masker *masker; /* between the terminal and the ring */
    struct agent_window_listener *listeners;
    bool paused; /* the shell: for a listener that lags */
    uv_timer_t hold_timer, redraw_timer, pace_timer, tell_timer;
    uint64_t redraw_from;  /* end of the output when the size was changed for a late viewer */
    unsigned redraw_waits; /* looks since then */
    int redraw_quiet;      /* so many without output are to come; -1: there was none yet */

    /* window_run.c */
    struct agent_run *run;                       /* active, or the last one that was; referenced */
    struct agent_run *waiting;                   /* referenced */
    struct agent_run *past[AGENT_MAX_PAST_RUNS]; /* ended ones, oldest first; referenced */
    size_t n_past;
    struct agent_group *dying; /* of the run that was cancelled, until it is empty */
    int64_t dying_since;
    unsigned n_dying; /* times it was signalled */
    unsigned n_patience;
    bool foreign; /* in the active run another program took the shell's place */
    uv_timer_t kill_timer, back_timer, mark_timer, look_timer;
};

struct agent_windows {
    struct agent *agent;
    struct agent_window *list; /* open, oldest first */
    size_t n;
    uint64_t last_seq; /* of runs and of what else a shell is posted */
    int64_t idle_ms, back_ms;
    uv_timer_t sweep;
};

/* window.c */
/* Nothing once the window's handles are being closed. */
void window_start_timer(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms);
/* Input or output: it is not idle. */
void window_touch(struct agent_window *w);
TR_MUST_CHECK int window_open_shell(struct agent_window *w, struct err *err);
/* A closed window's last process is gone: let the rest go. Its memory stays until the handles are
 * closed. */
void window_dispose(struct agent_window *w);

/* window_output.c */
TR_MUST_CHECK int window_output_init(struct agent_window *w);
void window_output_fini(struct agent_window *w);
void window_on_output(const uint8_t *data, size_t len, void *arg);
void window_on_input_drain(void *arg);
/* Show what was held back because a secret might begin there. */
void window_show_held(struct agent_window *w);
/* Bytes came, or something about a run changed. */
void window_tell(struct agent_window *w);
/* Let the program wait for a listener that lags, or go on. */
void window_pace(struct agent_window *w);

/* window_run.c */
void window_on_mark(char kind, uint64_t seq, void *arg);
void window_on_start(uint64_t seq, void *arg);
void window_on_end(uint64_t seq, int status, bool by_signal, bool cut, void *arg);
void window_on_gone(bool exited, int code, void *arg);
/* The next step towards the waiting run. */
void window_begin(struct agent_window *w);
/* The one end of every run; nothing for one that has ended. Listeners hear of it, and the waiting
 * run's turn may come. */
void window_end_run(struct agent_run *run, enum agent_run_status status);

/* run.c */
/* command is copied, env (or NULL) referenced. Returns 0 and *out with one reference, or UV_ENOMEM
 * or why there is no group for it. */
TR_MUST_CHECK int run_new(struct agent_window *w, const char *command, size_t len, json_t *env,
                          struct agent_run **out);
/* Has it not ended? run: NULL is none. */
bool run_is_active(const struct agent_run *run);
void run_drop_group(struct agent_run *run);
/* Keep an ended one for those who ask. */
void run_remember(struct agent_window *w, struct agent_run *run);
/* The active or the waiting one, if seq is its. */
struct agent_run *run_by_seq(struct agent_window *w, uint64_t seq);

#endif
