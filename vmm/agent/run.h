/* SPDX-License-Identifier: MIT */
/* A run: one command in one window, and what is remembered of it once it is over. */
#ifndef VMM_AGENT_RUN_H
#define VMM_AGENT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#define AGENT_MAX_COMMAND 4096 /* bytes that are remembered of a command */
#define AGENT_RUN_ID_SIZE 48

struct agent_run;

enum agent_run_status { AGENT_RUNNING, AGENT_EXITED, AGENT_KILLED, AGENT_SHELL_GONE };

/* What others may read of a run. */
struct agent_run_view {
    const char *id;
    const char *command; /* UTF-8, secrets hidden, cut */
    enum agent_run_status status;
    uint64_t from, to; /* of its output in the window's stream; to grows while it runs */
    bool placed;       /* from is where the output begins; until then it is where it would by now */
    bool to_final; /* to is where the output ends, though the run may not be known to have ended */
    bool has_code, by_exit;
    int code;
    bool previews; /* it listens or listened on AGENT_PREVIEW_PORT */
    /* "exec PROGRAM": the run lasts until that ends, and the shell is gone then. */
    bool shell_taken;
    bool shell_replaced;          /* a shell that did not come back was replaced to start it */
    int64_t started_at, ended_at; /* wall ms; 0: not yet */
};

typedef void (*agent_run_cb)(struct agent_run *run, void *arg);

void agent_run_view(const struct agent_run *run, struct agent_run_view *out);
/* cb runs once when the run ends, not if it is given back before. One at a time. */
void agent_run_on_end(struct agent_run *run, agent_run_cb cb, void *arg);
void agent_run_ref(struct agent_run *run);
void agent_run_unref(struct agent_run *run);

const char *agent_run_status_name(enum agent_run_status status);

#endif
