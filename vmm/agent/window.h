/* SPDX-License-Identifier: MIT */
/* Windows: named terminals. A window keeps its ring of output while shells come and go; runs are
 * commands in it, one at a time: a new one ends the one before. */
#ifndef VMM_AGENT_WINDOW_H
#define VMM_AGENT_WINDOW_H

#include <jansson.h>

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"
#include "vmm/agent/ring.h"
#include "vmm/agent/run.h"

#define AGENT_RING_BYTES      (1u << 20)
#define AGENT_MAX_WINDOWS     128
#define AGENT_MAX_PAST_RUNS   32 /* ended ones that a window remembers */
#define AGENT_PREVIEW_PORT    8080
#define AGENT_DEFAULT_ROWS    24
#define AGENT_DEFAULT_COLS    80
#define AGENT_DEFAULT_IDLE_MS 600000
#define AGENT_DEFAULT_BACK_MS 2000

struct agent_windows;
struct agent_window;

struct agent_window_listener {
    struct agent_window_listener *next;
    /* Bytes were added to the ring, or a run began or ended. */
    void (*on_output)(struct agent_window_listener *l);
    void (*on_input_drain)(struct agent_window_listener *l);
    /* A process of the run listens on port. NULL: not of interest. */
    void (*on_listen)(struct agent_window_listener *l, const struct agent_run *run, uint16_t port);
    /* How many bytes of the ring are still to be sent to somebody who takes them steadily: the
     * window waits for such a one rather than lose some. NULL: never. */
    uint64_t (*lag)(const struct agent_window_listener *l);
    /* The window is closed; the listener is off the list already. */
    void (*on_close)(struct agent_window_listener *l);
};

TR_MUST_CHECK int agent_windows_new(struct agent *a, struct agent_windows **out);
void agent_windows_stop(struct agent_windows *ws);
void agent_windows_free(struct agent_windows *ws);
/* idle_ms: a window without input and output for that long is closed unless a process besides its
 * shell lives. back_ms: a shell that was told to leave a run must be back by then. */
void agent_windows_set_limits(struct agent_windows *ws, int64_t idle_ms, int64_t back_ms);

/* Which window, and which run in it, a process belongs to. run_id ("" when not known) holds at
 * least AGENT_RUN_ID_SIZE bytes. Returns NULL for none. */
struct agent_window *agent_windows_owner(struct agent_windows *ws, pid_t pid, char *run_id);

/* A process that belongs to the run listens on port. */
void agent_windows_listening(struct agent_windows *ws, const char *run_id, uint16_t port);

/* Output from here on hides the secrets that are active now. */
void agent_windows_secrets_changed(struct agent_windows *ws);

struct agent_window *agent_window_find(struct agent_windows *ws, const char *name);
struct agent_window *agent_window_first(struct agent_windows *ws);
struct agent_window *agent_window_next(struct agent_window *w);
/* Find, or make with its shell. Returns 0 and *out (borrowed), UV_ENOSPC (too many) or a fault. */
TR_MUST_CHECK int agent_window_open(struct agent_windows *ws, const char *name, int rows, int cols,
                                    struct agent_window **out, struct err *err);
/* End the whole tree. done (may be NULL) runs once it is gone. */
void agent_window_close(struct agent_window *w, const char *reason, agent_run_cb done, void *arg);

const char *agent_window_name(const struct agent_window *w);
const struct agent_ring *agent_window_ring(const struct agent_window *w);
struct agent_run *agent_window_run(struct agent_window *w); /* the last begun, or NULL */
/* The i-th of the runs that are remembered, oldest first, those under way last; borrowed, or NULL.
 */
struct agent_run *agent_window_nth_run(struct agent_window *w, size_t i);
struct agent_run *agent_window_find_run(struct agent_window *w, const char *id);
json_t *agent_window_json(struct agent_window *w); /* new */
size_t agent_window_input(struct agent_window *w, const void *data, size_t len);
int agent_window_resize(struct agent_window *w, int rows, int cols);
void agent_window_listen(struct agent_window *w, struct agent_window_listener *l);
void agent_window_unlisten(struct agent_window *w, struct agent_window_listener *l);
/* What a listener's lag() says became less. */
void agent_window_caught_up(struct agent_window *w);

/* For a viewer that comes late: the modes of the terminal, then what is kept of the output without
 * questions that the viewer's terminal would answer. *out is to be freed. A program in the
 * alternate screen is told to draw itself again. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int agent_window_replay(struct agent_window *w, uint8_t **out, size_t *len);

/* Start a command; whatever goes on in the window is ended first. Strings are copied, env is
 * referenced. Returns 0 and *out: referenced, to be given back with agent_run_unref(). */
TR_MUST_CHECK int agent_run_start(struct agent_window *w, const char *command, size_t len,
                                  json_t *env, struct agent_run **out, struct err *err);

#endif
