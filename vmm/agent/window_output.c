/* SPDX-License-Identifier: MIT */
/* Path of a window's output: terminal -> masker -> ring (and the state of the screen at its begin)
 * -> listeners, who read the ring. One that comes late gets a replay. */
#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/window_internal.h"

#define PACE_MS      100 /* between looks whether a listener still deserves to be waited for */
#define REDRAW_MS    60  /* between two looks whether a program has drawn itself in another size: */
#define REDRAW_WAITS 32  /* so many looks at most */
#define REDRAW_QUIET 4   /* and so many without output when there was some */

/* ---- listeners ---- */

void agent_window_listen(struct agent_window *w, struct agent_window_listener *l)
{
    l->next = w->listeners;
    w->listeners = l;
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

void window_tell(struct agent_window *w)
{
    struct agent_window_listener *next;

    for (struct agent_window_listener *l = w->listeners; l != NULL; l = next) {
        next = l->next;
        l->on_output(l);
    }
}

void window_on_input_drain(void *arg)
{
    struct agent_window *w = arg;
    struct agent_window_listener *next;

    for (struct agent_window_listener *l = w->listeners; l != NULL; l = next) {
        next = l->next;
        if (l->on_input_drain != NULL)
            l->on_input_drain(l);
    }
}

/* ---- the one that lags ---- */

/* Is there a listener for whose sake the run has to wait? Once it waits, until half of that is
 * made up for. Nobody is waited for once the run is to end. */
static bool must_wait(const struct agent_window *w)
{
    uint64_t limit = w->ring.size / (w->paused ? 4 : 2);

    if (w->closed || w->waiting != NULL || !run_is_active(w->run) || w->run->cancelled)
        return false;
    for (const struct agent_window_listener *l = w->listeners; l != NULL; l = l->next) {
        if (l->lag != NULL && l->lag(l) > limit)
            return true;
    }
    return false;
}

static void on_pace(uv_timer_t *timer);

/* Who takes output steadily gets all of it: what prints faster than that waits, as on a wire. */
void window_pace(struct agent_window *w)
{
    bool wait = w->shell != NULL && must_wait(w);

    if (w->shell != NULL)
        agent_shell_pause(w->shell, wait);
    w->paused = wait;
    if (wait)
        window_start_timer(&w->pace_timer, on_pace, PACE_MS);
    else
        uv_timer_stop(&w->pace_timer);
}

static void on_pace(uv_timer_t *timer)
{
    window_pace(timer->data);
}

void agent_window_caught_up(struct agent_window *w)
{
    if (w->paused)
        window_pace(w);
}

/* ---- from the terminal to the ring ---- */

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

void window_show_held(struct agent_window *w)
{
    uv_timer_stop(&w->hold_timer);
    tr_masker_flush(w->masker);
}

static void on_held(uv_timer_t *timer)
{
    struct agent_window *w = timer->data;

    /* Timers come before descriptors: after a pause of our own the rest may be there. */
    if (w->shell != NULL)
        agent_shell_read(w->shell);
    if (uv_is_active((uv_handle_t *)timer))
        return; /* bytes came, and some of them are held */
    window_show_held(w);
    window_tell(w);
}

static void on_tell(uv_timer_t *timer)
{
    window_tell(timer->data);
}

void window_on_output(const uint8_t *data, size_t len, void *arg)
{
    struct agent_window *w = arg;

    window_touch(w);
    if (tr_masker_write(w->masker, data, len) != 0)
        log_error("output of a window is lost: out of memory");
    if (tr_masker_held(w->masker) == 0)
        uv_timer_stop(&w->hold_timer);
    else
        window_start_timer(&w->hold_timer, on_held, TR_MASK_HOLD_MS);
    /* A terminal gives some hundred bytes at a time: who listens hears of all of a turn's at once.
     */
    window_start_timer(&w->tell_timer, on_tell, 0);
    window_pace(w);
}

void agent_windows_secrets_changed(struct agent_windows *ws)
{
    for (struct agent_window *w = ws->list; w != NULL; w = w->next) {
        uv_timer_stop(&w->hold_timer);
        tr_masker_set(w->masker, ws->agent->secrets->mask);
        window_tell(w);
    }
}

int window_output_init(struct agent_window *w)
{
    int r = agent_ring_init(&w->ring, AGENT_RING_BYTES);

    agent_screen_init(&w->screen);
    return r == 0 ? tr_masker_new(w->windows->agent->secrets->mask, on_shown, w, &w->masker) : r;
}

void window_output_fini(struct agent_window *w)
{
    tr_masker_free(w->masker);
    agent_ring_fini(&w->ring);
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

    /* A slow program would find the size that it knows, and draw nothing: not before it has put
     * something out, and is quiet again. */
    if (w->ring.end != w->redraw_from) {
        w->redraw_from = w->ring.end;
        w->redraw_quiet = REDRAW_QUIET;
    } else if (w->redraw_quiet > 0) {
        w->redraw_quiet--;
    }
    if (w->redraw_quiet != 0 && w->redraw_waits++ < REDRAW_WAITS) {
        window_start_timer(timer, on_redraw, REDRAW_MS);
        return;
    }
    if (w->shell != NULL && agent_shell_resize(w->shell, w->rows, w->cols) != 0)
        log_warn("a window's size was not put back");
}

/* Programs draw themselves when their window gets another size, and some only then. */
static void redraw(struct agent_window *w)
{
    int rows = w->rows > 1 ? w->rows - 1 : w->rows + 1;

    if (w->shell == NULL || agent_shell_resize(w->shell, rows, w->cols) != 0)
        return;
    w->redraw_from = w->ring.end;
    w->redraw_waits = 0;
    w->redraw_quiet = -1; /* nothing yet */
    window_start_timer(&w->redraw_timer, on_redraw, REDRAW_MS);
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
