/* SPDX-License-Identifier: MIT */
/* Life cycle of an HTTP/2 session.
 *
 * Every way in (feed, writable, run, abort, free) is enter(), the work, leave(). leave() settles:
 * sends what can be sent, reports what is due, until nothing changes; then ends the session if it
 * is over, and frees it if that was asked for meanwhile. So nghttp2 is never entered twice, and
 * nothing is freed under a caller's feet. */
#include "vmm/link/h2_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_STREAMS   256
#define DEFAULT_STREAM_WINDOW (256u << 10)
#define DEFAULT_RESET_RATE    33
#define RESET_BURST           30 /* times the rate */
#define MAX_WINDOW            0x7fffffffu
#define DEFAULT_MAX_HEAD      (64u << 10)
#define DEFAULT_HIGH_WATER    (256u << 10)
#define MAX_SENT_HEAD         (256u << 10) /* nghttp2's default would refuse one of max_head_bytes */
#define FRAME_MAX             (16384 + 9)
#define SCRATCH_LEN           (48u << 10)

/* nghttp2 gives one frame at a time; they are gathered here so that the transport gets few large
 * blocks. Empty between pumps, hence one per thread is enough. */
static _Thread_local uint8_t scratch[SCRATCH_LEN];
static _Thread_local bool scratch_busy;

/* nghttp2's memory comes from here as well, so that a test can let each allocation fail. */
static void *mem_malloc(size_t size, void *arg)
{
    (void)arg;
    return malloc(size);
}

static void mem_free(void *p, void *arg)
{
    (void)arg;
    free(p);
}

static void *mem_calloc(size_t n, size_t size, void *arg)
{
    (void)arg;
    return calloc(n, size);
}

static void *mem_realloc(void *p, size_t size, void *arg)
{
    (void)arg;
    return realloc(p, size);
}

int h2_errno(int ng_error)
{
    switch (ng_error) {
    case 0:
        return 0;
    case NGHTTP2_ERR_NOMEM:
        return -ENOMEM;
    case NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE:
        return -EAGAIN;
    case NGHTTP2_ERR_STREAM_CLOSED:
    case NGHTTP2_ERR_STREAM_CLOSING:
    case NGHTTP2_ERR_STREAM_SHUT_WR:
        return -EPIPE;
    default:
        return -EINVAL;
    }
}

/* ---- streams and their lists ---- */

void h2_list_add(struct h2_list *list, struct tr_h2_stream *st)
{
    st->next = NULL;
    st->prev = list->last;
    if (list->last != NULL)
        list->last->next = st;
    else
        list->first = st;
    list->last = st;
}

void h2_list_del(struct h2_list *list, struct tr_h2_stream *st)
{
    if (st->prev != NULL)
        st->prev->next = st->next;
    else
        list->first = st->next;
    if (st->next != NULL)
        st->next->prev = st->prev;
    else
        list->last = st->prev;
    st->prev = st->next = NULL;
}

struct tr_h2_stream *h2_stream_new(struct tr_h2 *h2, int32_t id)
{
    struct tr_h2_stream *st = calloc(1, sizeof(*st));

    if (st == NULL)
        return NULL;
    st->h2 = h2;
    st->id = id;
    h2_list_add(&h2->live, st);
    return st;
}

void h2_stream_free(struct tr_h2_stream *st)
{
    h2_queue_clear(st);
    h2_head_clear(&st->req);
    h2_head_clear(&st->cur);
    free(st->trailers);
    free(st);
}

void h2_stream_detach(struct tr_h2_stream *st)
{
    struct tr_h2 *h2 = st->h2;

    assert(!st->gone);
    st->gone = true;
    h2_list_del(&h2->live, st);
    h2_drain_forget(st);
    h2_queue_clear(st);
    (void)nghttp2_session_set_stream_user_data(h2->ng, st->id, NULL); /* fails when closed there */
    if (st->unconsumed > 0) {
        /* The stream's window is of no more use, but the session's is everybody's. */
        (void)nghttp2_session_consume_connection(h2->ng, st->unconsumed);
        st->unconsumed = 0;
    }
}

void h2_stream_report(struct tr_h2_stream *st, uint32_t code)
{
    struct tr_h2 *h2 = st->h2;

    assert(st->gone);
    h2_list_add(&h2->dead, st);
    if (st->announced) {
        h2->n_announced--;
        if (st->cbs.on_close != NULL)
            st->cbs.on_close(st, code, st->arg);
    }
}

static void close_all(struct tr_h2 *h2)
{
    struct tr_h2_stream *st;
    struct h2_ping *ping;

    while ((st = h2->closing.first) != NULL) {
        h2_list_del(&h2->closing, st);
        h2_stream_report(st, st->code);
    }
    while ((st = h2->live.first) != NULL) {
        h2_stream_detach(st);
        h2_stream_report(st, NGHTTP2_CANCEL);
    }
    while ((ping = h2->pings) != NULL) {
        h2->pings = ping->next;
        if (h2->pings == NULL)
            h2->pings_tail = &h2->pings;
        if (ping->cb != NULL)
            ping->cb(h2->status != 0 ? h2->status : -ECANCELED, ping->arg);
        free(ping);
    }
}

/* ---- enter, settle, leave ---- */

void h2_touch(struct tr_h2 *h2)
{
    if (h2->depth > 0) {
        h2->dirty = true;
        return;
    }
    if (h2->woken || h2->over)
        return;
    h2->woken = true;
    if (h2->cbs.wake != NULL)
        h2->cbs.wake(h2->arg);
}

/* Keep the first fault. */
void h2_note(struct tr_h2 *h2, int status, const char *reason, size_t len)
{
    if (h2->status != 0)
        return;
    h2->status = status;
    snprintf(h2->reason, sizeof(h2->reason), "%.*s", (int)len, reason);
}

void h2_fail(struct tr_h2 *h2, int status, const char *reason)
{
    h2_note(h2, status, reason, strlen(reason));
    h2->aborting = true;
}

/* Offer frames until there are none or the transport is full. */
static void pump(struct tr_h2 *h2)
{
    bool gather = !scratch_busy; /* false: another session's pump is on the stack */
    size_t have = 0;

    scratch_busy = true;
    while (!h2->full && h2_alive(h2)) {
        const uint8_t *frame;
        ssize_t n = nghttp2_session_mem_send(h2->ng, &frame);

        if (n < 0)
            h2_fail(h2, n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO, nghttp2_strerror((int)n));
        if (n <= 0)
            break;
        if (!gather || (size_t)n > SCRATCH_LEN - have) {
            h2->full = !h2->cbs.send(frame, (size_t)n, h2->arg);
            continue;
        }
        memcpy(scratch + have, frame, (size_t)n);
        have += (size_t)n;
        if (have + FRAME_MAX > SCRATCH_LEN) {
            h2->full = !h2->cbs.send(scratch, have, h2->arg);
            have = 0;
        }
    }
    if (gather) {
        if (have > 0 && !h2->freed)
            h2->full = !h2->cbs.send(scratch, have, h2->arg) || h2->full;
        scratch_busy = false;
    }
}

static void report_due(struct tr_h2 *h2)
{
    struct tr_h2_stream *st;

    while (h2_alive(h2) && (st = h2->closing.first) != NULL) {
        h2_list_del(&h2->closing, st);
        h2_stream_report(st, st->code);
    }
    while (h2_alive(h2) && (st = h2->drains) != NULL) {
        h2->drains = st->drain_next;
        st->drain_due = st->want_drain = false;
        if (st->cbs.on_drain != NULL)
            st->cbs.on_drain(st, st->arg);
    }
}

static void enter(struct tr_h2 *h2)
{
    h2->depth++;
    h2->woken = false;
}

static void finish(struct tr_h2 *h2)
{
    h2->over = true;
    close_all(h2);
    if (!h2->freed && h2->cbs.on_over != NULL)
        h2->cbs.on_over(h2, h2->status, h2->reason, h2->arg);
}

static void release(struct tr_h2 *h2)
{
    struct tr_h2_stream *st, *next;

    for (st = h2->dead.first; st != NULL; st = next) {
        next = st->next;
        h2_stream_free(st);
    }
    h2->dead = (struct h2_list){NULL, NULL};
    if (!h2->freed)
        return;
    nghttp2_session_del(h2->ng);
    free(h2);
}

static void leave(struct tr_h2 *h2)
{
    if (h2->depth == 1) {
        do {
            h2->dirty = false;
            pump(h2);
            report_due(h2);
        } while (h2->dirty && h2_alive(h2));
        if (!h2->freed && !h2->over &&
            (h2->aborting ||
             (!nghttp2_session_want_read(h2->ng) && !nghttp2_session_want_write(h2->ng))))
            finish(h2);
    }
    if (--h2->depth == 0)
        release(h2);
}

/* ---- public ---- */

static uint32_t or_default(uint32_t value, uint32_t def)
{
    return value != 0 ? value : def;
}

static uint32_t all_windows(const struct tr_h2_options *o)
{
    uint64_t all = (uint64_t)o->max_streams * o->stream_window * 2;

    return all < MAX_WINDOW ? (uint32_t)all : MAX_WINDOW;
}

static int submit_preface(struct tr_h2 *h2)
{
    const struct tr_h2_options *o = &h2->options;
    nghttp2_settings_entry iv[5];
    size_t n = 0;
    int r;

    iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, o->stream_window};
    iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, o->max_head_bytes};
    if (h2->server) {
        iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, o->max_streams};
        if (o->connect_protocol)
            iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1};
    } else {
        iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    }
    r = nghttp2_submit_settings(h2->ng, NGHTTP2_FLAG_NONE, iv, n);
    if (r == 0)
        r = nghttp2_session_set_local_window_size(h2->ng, NGHTTP2_FLAG_NONE, 0,
                                                  (int32_t)o->session_window);
    return r;
}

static int create_session(struct tr_h2 *h2)
{
    nghttp2_mem mem = {NULL, mem_malloc, mem_free, mem_calloc, mem_realloc};
    nghttp2_session_callbacks *cbs = NULL;
    nghttp2_option *option = NULL;
    int r;

    r = nghttp2_session_callbacks_new(&cbs);
    if (r == 0)
        r = nghttp2_option_new(&option);
    if (r != 0)
        goto out;
    h2_recv_callbacks(cbs);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(
        option, (uint64_t)h2->options.reset_rate * RESET_BURST, h2->options.reset_rate);
    nghttp2_option_set_max_send_header_block_length(option, MAX_SENT_HEAD);
    if (h2->server)
        r = nghttp2_session_server_new3(&h2->ng, cbs, h2, option, &mem);
    else
        r = nghttp2_session_client_new3(&h2->ng, cbs, h2, option, &mem);
    if (r == 0)
        r = submit_preface(h2);
out:
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cbs);
    return r == 0 ? 0 : -ENOMEM;
}

int tr_h2_new(bool server, const struct tr_h2_options *options, const struct tr_h2_cbs *cbs,
              void *arg, struct tr_h2 **out)
{
    struct tr_h2 *h2 = calloc(1, sizeof(*h2));

    if (h2 == NULL)
        return -ENOMEM;
    h2->server = server;
    h2->cbs = *cbs;
    h2->arg = arg;
    if (options != NULL)
        h2->options = *options;
    h2->options.max_streams = or_default(h2->options.max_streams, DEFAULT_MAX_STREAMS);
    h2->options.stream_window = or_default(h2->options.stream_window, DEFAULT_STREAM_WINDOW);
    h2->options.session_window = or_default(h2->options.session_window, all_windows(&h2->options));
    h2->options.reset_rate = or_default(h2->options.reset_rate, DEFAULT_RESET_RATE);
    h2->options.max_head_bytes = or_default(h2->options.max_head_bytes, DEFAULT_MAX_HEAD);
    if (h2->options.stream_high_water == 0)
        h2->options.stream_high_water = DEFAULT_HIGH_WATER;
    h2->pings_tail = &h2->pings;
    if (create_session(h2) != 0) {
        nghttp2_session_del(h2->ng);
        free(h2);
        return -ENOMEM;
    }
    *out = h2;
    return 0;
}

void tr_h2_free(struct tr_h2 *h2)
{
    if (h2 == NULL || h2->freed)
        return;
    h2->depth++;
    h2->freed = true;
    h2->over = true;
    close_all(h2);
    if (--h2->depth == 0)
        release(h2);
}

void tr_h2_feed(struct tr_h2 *h2, const uint8_t *data, size_t len)
{
    ssize_t n;

    assert(h2->depth == 0); /* nghttp2 cannot be entered twice */
    if (!h2_alive(h2))
        return;
    enter(h2);
    n = nghttp2_session_mem_recv(h2->ng, data, len);
    if (n < 0 && h2_alive(h2))
        h2_fail(h2, n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO, nghttp2_strerror((int)n));
    leave(h2);
}

void tr_h2_writable(struct tr_h2 *h2)
{
    h2->full = false;
    tr_h2_run(h2);
}

void tr_h2_run(struct tr_h2 *h2)
{
    if (h2->freed || h2->over)
        return;
    if (h2->depth > 0) {
        h2->dirty = true; /* the entry on the stack does it when it leaves */
        return;
    }
    enter(h2);
    leave(h2);
}

void tr_h2_abort(struct tr_h2 *h2, int status, const char *reason)
{
    if (h2->freed || h2->over)
        return;
    h2_fail(h2, status, reason);
    tr_h2_run(h2);
}

void tr_h2_abort_later(struct tr_h2 *h2, int status, const char *reason)
{
    if (h2->freed || h2->over)
        return;
    h2_fail(h2, status, reason);
    h2_touch(h2);
}

/* Second half of a server's shutdown: by now the client knows, so what it sent before is here. */
static void on_shutdown_ping(int status, void *arg)
{
    struct tr_h2 *h2 = arg;

    if (status == 0)
        (void)nghttp2_submit_goaway(h2->ng, NGHTTP2_FLAG_NONE,
                                    nghttp2_session_get_last_proc_stream_id(h2->ng),
                                    NGHTTP2_NO_ERROR, NULL, 0);
}

void tr_h2_shutdown(struct tr_h2 *h2)
{
    int r;

    if (!h2_alive(h2) || h2->shutting)
        return;
    h2->shutting = true;
    if (h2->server) {
        r = nghttp2_submit_shutdown_notice(h2->ng);
        if (r == 0)
            r = tr_h2_ping(h2, on_shutdown_ping, h2);
    } else {
        r = nghttp2_submit_goaway(h2->ng, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    }
    if (r != 0)
        h2_fail(h2, -ENOMEM, "no memory for GOAWAY");
    h2_touch(h2);
}

int tr_h2_ping(struct tr_h2 *h2, void (*cb)(int status, void *arg), void *arg)
{
    struct h2_ping *ping;
    uint8_t opaque[8];
    int r;

    if (!h2_alive(h2))
        return -EPIPE;
    ping = calloc(1, sizeof(*ping));
    if (ping == NULL)
        return -ENOMEM;
    ping->id = ++h2->ping_id;
    ping->cb = cb;
    ping->arg = arg;
    memcpy(opaque, &ping->id, sizeof(opaque));
    r = nghttp2_submit_ping(h2->ng, NGHTTP2_FLAG_NONE, opaque);
    if (r != 0) {
        free(ping);
        return -ENOMEM;
    }
    *h2->pings_tail = ping;
    h2->pings_tail = &ping->next;
    h2_touch(h2);
    return 0;
}

size_t tr_h2_n_streams(const struct tr_h2 *h2)
{
    return h2->n_announced;
}

bool tr_h2_can_request(const struct tr_h2 *h2)
{
    return !h2->server && h2_alive(h2) && !h2->shutting && !h2->goaway_seen &&
           h2->n_wire < nghttp2_session_get_remote_settings(
                            h2->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) &&
           nghttp2_session_check_request_allowed(h2->ng);
}

bool tr_h2_peer_connect_protocol(const struct tr_h2 *h2)
{
    return nghttp2_session_get_remote_settings(h2->ng, NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) ==
           1;
}
