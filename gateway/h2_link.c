/* SPDX-License-Identifier: MIT */
#include "gateway/h2_link.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "gateway/worker.h"

#define OUT_MAX ((size_t)256 * 1024)

static void flush_out(struct gw_h2_link *l);

static struct gw_h2_link *link_of(struct gw_sock *sock)
{
    return (struct gw_h2_link *)((char *)sock - offsetof(struct gw_h2_link, sock));
}

/* The end of everything that the loop called. */
static void end_turn(struct gw_h2_link *l)
{
    if (l->h2 != NULL)
        tr_h2_run(l->h2); /* what the callbacks asked for */
    if (l->h2 != NULL)
        flush_out(l);
    if (l->over) {
        l->over = false;
        l->cbs->on_over(l->status, l->reason, l->arg);
    } else {
        l->cbs->on_turn(l->arg);
    }
}

static void on_writable(struct gw_sock *sock)
{
    struct gw_h2_link *l = link_of(sock);

    flush_out(l);
    if (l->out == NULL && l->h2 != NULL)
        tr_h2_writable(l->h2);
    end_turn(l);
}

static void flush_out(struct gw_h2_link *l)
{
    while (l->out != NULL) {
        struct iovec iov = {gw_buf_begin(l->out), l->out->len};
        ssize_t n = gw_sock_writev(&l->sock, &iov, 1);

        if (n < 0) {
            gw_buf_put(&l->w->bufs, l->out);
            l->out = NULL;
            tr_h2_abort_later(l->h2, (int)n, "the connection was closed");
            return;
        }
        if (n == 0) {
            gw_sock_write_start(&l->sock, on_writable);
            return;
        }
        gw_buf_consume(&l->w->bufs, &l->out, (size_t)n);
    }
}

static bool h2_send(const uint8_t *data, size_t len, void *arg)
{
    struct gw_h2_link *l = arg;
    char *room = gw_buf_room(&l->w->bufs, &l->out, len);

    if (room == NULL) {
        tr_h2_abort_later(l->h2, UV_ENOMEM, "out of memory");
        return false;
    }
    memcpy(room, data, len);
    l->out->len += (uint32_t)len;
    return l->out->len < OUT_MAX;
}

static void on_run(struct gw_timer *timer)
{
    end_turn((struct gw_h2_link *)((char *)timer - offsetof(struct gw_h2_link, run_timer)));
}

static void h2_wake(void *arg)
{
    struct gw_h2_link *l = arg;

    gw_timer_start(&l->w->t_now, &l->run_timer, on_run);
}

static void shut(struct gw_h2_link *l)
{
    struct tr_h2 *h2 = l->h2;

    l->h2 = NULL;
    gw_timer_stop(&l->run_timer);
    gw_sock_close(&l->sock);
    gw_buf_put(&l->w->bufs, l->out);
    l->out = NULL;
    tr_h2_free(h2);
}

static void h2_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct gw_h2_link *l = arg;

    (void)h2;
    if (status == UV_EPROTO)
        flush_out(l); /* GOAWAY tells the peer what was wrong */
    l->over = true;
    l->status = status;
    snprintf(l->reason, sizeof(l->reason), "%s", reason);
    shut(l);
}

static void on_read(struct gw_sock *sock)
{
    struct gw_h2_link *l = link_of(sock);
    char *p = gw_loop_scratch(l->w->loop);
    ssize_t n = gw_sock_read(sock, p, GW_SCRATCH_LEN);

    if (n == UV_EAGAIN)
        return;
    for (ssize_t i = 0; i < n && l->n_first < sizeof(l->first); i++)
        l->first[l->n_first++] = p[i];
    if (n <= 0)
        tr_h2_abort(l->h2, n == 0 ? UV_EOF : (int)n, "the connection was closed");
    else
        tr_h2_feed(l->h2, (const uint8_t *)p, (size_t)n);
    end_turn(l);
}

int gw_h2_link_open(struct gw_h2_link *l, struct gw_worker *w, struct gw_sock *sock,
                    const struct tr_h2_options *options, const struct gw_h2_link_cbs *cbs,
                    void *arg)
{
    static const struct tr_h2_cbs h2_cbs = {.send = h2_send, .wake = h2_wake, .on_over = h2_over};
    int r = tr_h2_new(false, options, &h2_cbs, l, &l->h2);

    if (r != 0) {
        gw_sock_close(sock);
        return r;
    }
    l->w = w;
    l->cbs = cbs;
    l->arg = arg;
    l->n_first = 0;
    l->over = false;
    gw_sock_move(sock, &l->sock);
    gw_sock_read_start(&l->sock, on_read);
    h2_wake(l);
    return 0;
}

void gw_h2_link_close(struct gw_h2_link *l)
{
    if (l->h2 != NULL)
        shut(l);
    l->over = false;
}

bool gw_h2_link_is_http1(const struct gw_h2_link *l)
{
    return l->n_first == sizeof(l->first) && memcmp(l->first, "HTTP/", sizeof(l->first)) == 0;
}
