/* SPDX-License-Identifier: MIT */
/* Each direction: read into the loop's scratch, write what the other end takes, keep the rest and
 * stop reading until it has gone. An end that shuts down is passed on after its last byte; the
 * tunnel lives until both have. */
#include "gateway/tunnel.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/log.h"
#include "gateway/worker.h"
#include "gateway/ws_frames.h"

struct way {
    struct gw_buf *left; /* read, not yet taken by the other end */
    bool eof;            /* the source will send no more */
    bool shut;           /* and the other end was told */
    bool slow;           /* the other end had to be waited for */
    uint32_t head;       /* bytes of left that are the 101 itself: not counted */
    uint64_t bytes;
};

struct gw_tunnel {
    struct gw_sock client, app;
    struct gw_tunnel_peer *client_peer, *app_peer; /* instead of the socket; else NULL */
    struct gw_worker *w;
    struct gw_upstream_set *set;           /* NULL: none */
    struct gw_tunnel *prev, *next;         /* of the worker */
    struct gw_tunnel *set_prev, *set_next; /* of the set */
    struct gw_timer timer;
    struct way up, down;        /* client to app, app to client */
    struct gw_ws_frames frames; /* of down */
    char *note;                 /* for the log, or NULL */
    uint64_t start_ms;
    uint64_t admitted_until;   /* Unix seconds; 0: for ever */
    uint16_t client_slot, use; /* where it is counted (limits.h) */
    uint16_t host_port;        /* as in struct gw_exchange */
};

static void on_client_read(struct gw_sock *sock);
static void on_app_read(struct gw_sock *sock);
static void on_client_write(struct gw_sock *sock);
static void on_app_write(struct gw_sock *sock);

size_t gw_tunnel_size(void)
{
    return sizeof(struct gw_tunnel);
}

static struct gw_tunnel *of_client(struct gw_sock *sock)
{
    return (struct gw_tunnel *)((char *)sock - offsetof(struct gw_tunnel, client));
}

static struct gw_tunnel *of_app(struct gw_sock *sock)
{
    return (struct gw_tunnel *)((char *)sock - offsetof(struct gw_tunnel, app));
}

static void unlink_tunnel(struct gw_tunnel *t)
{
    if (t->next != NULL)
        t->next->prev = t->prev;
    if (t->prev != NULL)
        t->prev->next = t->next;
    else
        t->w->tunnels = t->next;
    if (t->set == NULL)
        return;
    if (t->set_next != NULL)
        t->set_next->set_prev = t->set_prev;
    if (t->set_prev != NULL)
        t->set_prev->set_next = t->set_next;
    else
        t->set->tunnels = t->set_next;
}

static void link_tunnel(struct gw_tunnel *t)
{
    t->next = t->w->tunnels;
    if (t->next != NULL)
        t->next->prev = t;
    t->w->tunnels = t;
    if (t->set == NULL)
        return;
    t->set_next = t->set->tunnels;
    if (t->set_next != NULL)
        t->set_next->set_prev = t;
    t->set->tunnels = t;
}

/* The ends, whatever they are. */

static struct gw_tunnel_peer *peer_of(const struct gw_tunnel *t, const struct gw_sock *end)
{
    return end == &t->client ? t->client_peer : t->app_peer;
}

static ssize_t put(struct gw_tunnel *t, struct gw_sock *to, const char *data, size_t len)
{
    struct gw_tunnel_peer *peer = peer_of(t, to);
    struct iovec iov = {(char *)data, len};

    return peer != NULL ? peer->ops->write(peer, data, len) : gw_sock_writev(to, &iov, 1);
}

/* Be told when to go on writing. */
static void wait_for(struct gw_tunnel *t, struct gw_sock *to, gw_sock_cb on_write)
{
    if (peer_of(t, to) == NULL)
        gw_sock_write_start(to, on_write);
}

static bool has_unsent(const struct gw_tunnel *t, const struct gw_sock *to)
{
    return peer_of(t, to) == NULL && gw_sock_has_unsent(to);
}

/* The tunnel may be gone afterwards. */
static void read_again(struct gw_tunnel *t, struct gw_sock *from, gw_sock_cb on_read)
{
    struct gw_tunnel_peer *peer = peer_of(t, from);

    if (peer != NULL)
        peer->ops->resume(peer);
    else if (!gw_sock_is_reading(from))
        gw_sock_read_start(from, on_read);
}

static void shut_down(struct gw_tunnel *t, struct gw_sock *to)
{
    struct gw_tunnel_peer *peer = peer_of(t, to);

    if (peer != NULL)
        peer->ops->shutdown(peer);
    else
        gw_sock_shutdown(to);
}

static void leave(struct gw_tunnel_peer *peer, bool reset)
{
    if (peer == NULL || peer->t == NULL)
        return; /* none, or it was the first to know */
    peer->t = NULL;
    peer->ops->gone(peer, reset);
}

static void end(struct gw_tunnel *t, const char *why, bool reset)
{
    struct gw_worker *w = t->w;

    gw_log_tunnel(w, t->note, t->up.bytes, t->down.bytes, t->start_ms, why);
    w->n_timed -= t->admitted_until != 0;
    gw_timer_stop(&t->timer);
    if (reset) {
        gw_sock_reset(&t->client);
        gw_sock_reset(&t->app);
    } else {
        gw_sock_close(&t->client);
        gw_sock_close(&t->app);
    }
    gw_buf_put(&w->bufs, t->up.left);
    gw_buf_put(&w->bufs, t->down.left);
    unlink_tunnel(t);
    if (t->set != NULL) {
        t->set->n--;
        gw_pool_drop(&w->pool, t->set);
    }
    gw_count(&w->stats.bytes_in, t->up.bytes);
    gw_count(&w->stats.bytes_out, t->down.bytes);
    gw_gauge(&w->stats.open_tunnels, -1);
    gw_use_tunnel_end(w, t->use);
    if (t->client_peer == NULL) {
        gw_gauge(&w->stats.connections, -1);
        atomic_fetch_sub_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
        gw_limits_leave(&w->gw->limits, t->client_slot);
    }
    leave(t->client_peer, reset);
    leave(t->app_peer, reset);
    free(t);
}

void gw_tunnel_close(struct gw_tunnel *t, const char *why)
{
    end(t, why, false);
}

void gw_tunnel_go_away(struct gw_tunnel *t, const char *why)
{
    /* Nothing of the app's may be cut in half by it, here or in TLS. */
    if (t->down.left == NULL && !t->down.shut && !has_unsent(t, &t->client) &&
        gw_ws_frames_between(&t->frames))
        (void)!put(t, &t->client, GW_WS_GOING_AWAY, sizeof(GW_WS_GOING_AWAY) - 1);
    end(t, why, false);
}

void gw_tunnel_end_void(struct gw_worker *w, uint64_t now)
{
    for (struct gw_tunnel *t = w->tunnels, *next; t != NULL; t = next) {
        next = t->next;
        if (t->admitted_until != 0 && now >= t->admitted_until)
            gw_tunnel_go_away(t, "token expired");
    }
}

void gw_tunnel_end_ports(struct gw_upstream_set *set, const struct tr_route_extra *extra)
{
    for (struct gw_tunnel *t = set->tunnels, *next; t != NULL; t = next) {
        next = t->set_next;
        if (t->host_port != 0 && tr_route_port_find(extra, t->host_port) == NULL)
            gw_tunnel_go_away(t, "port closed");
    }
}

static void on_timeout(struct gw_timer *timer)
{
    end((struct gw_tunnel *)((char *)timer - offsetof(struct gw_tunnel, timer)), "idle", false);
}

static void touch(struct gw_tunnel *t)
{
    /* An end that is gone altogether looks like one that only shut down. */
    struct gw_timeout *limit = t->up.eof || t->down.eof ? &t->w->t_body : &t->w->t_tunnel;

    gw_timer_start(limit, &t->timer, on_timeout);
}

/* The source of a direction has ended and all its bytes have left: tell the other end. Returns
 * false when that was the tunnel's end. */
static bool pass_eof(struct gw_tunnel *t, struct way *way, struct gw_sock *to)
{
    if (!way->eof || way->left != NULL || way->shut)
        return true;
    way->shut = true;
    if (t->up.shut && t->down.shut) {
        end(t, "done", false);
        return false;
    }
    shut_down(t, to);
    return true;
}

static void count(struct way *way, size_t n)
{
    size_t head = n < way->head ? n : way->head;

    way->head -= (uint32_t)head;
    way->bytes += n - head;
}

/* Write what is left of a direction. Returns false when the tunnel is gone. */
static bool drain(struct gw_tunnel *t, struct way *way, struct gw_sock *to, gw_sock_cb on_write)
{
    while (way->left != NULL) {
        ssize_t n = put(t, to, gw_buf_begin(way->left), way->left->len);

        if (n < 0) {
            end(t, "reset", true);
            return false;
        }
        if (n == 0) {
            wait_for(t, to, on_write);
            return true;
        }
        count(way, (size_t)n);
        gw_buf_consume(&t->w->bufs, &way->left, (size_t)n);
    }
    if (has_unsent(t, to))
        wait_for(t, to, on_write);
    return true;
}

static void on_read(struct gw_tunnel *t, struct way *way, struct gw_sock *from, struct gw_sock *to,
                    gw_sock_cb on_write)
{
    char *p = gw_loop_scratch(t->w->loop), *room;
    ssize_t n = gw_sock_read(from, p, way->slow ? GW_SLOW_LEN : GW_SCRATCH_LEN), sent;

    if (n == UV_EAGAIN)
        return;
    if (n < 0) {
        end(t, "reset", true);
        return;
    }
    touch(t);
    if (way == &t->down)
        gw_ws_frames_pass(&t->frames, p, (size_t)n);
    if (n == 0) {
        way->eof = true;
        gw_sock_read_stop(from);
        touch(t);
        pass_eof(t, way, to);
        return;
    }
    sent = put(t, to, p, (size_t)n);
    if (sent < 0) {
        end(t, "reset", true);
        return;
    }
    count(way, (size_t)sent);
    if (sent < n) {
        room = gw_buf_room(&t->w->bufs, &way->left, (size_t)(n - sent));
        if (room == NULL) {
            end(t, "no memory", true);
            return;
        }
        memcpy(room, p + sent, (size_t)(n - sent));
        way->left->len = (uint32_t)(n - sent);
        way->slow = true;
        gw_sock_read_stop(from);
    }
    if (sent < n || has_unsent(t, to))
        wait_for(t, to, on_write);
}

static void on_writable(struct gw_tunnel *t, struct way *way, struct gw_sock *from,
                        struct gw_sock *to, gw_sock_cb read_cb, gw_sock_cb write_cb)
{
    touch(t);
    if (!drain(t, way, to, write_cb) || !pass_eof(t, way, to))
        return;
    if (way->left == NULL && !way->eof)
        read_again(t, from, read_cb);
}

static void on_client_read(struct gw_sock *sock)
{
    struct gw_tunnel *t = of_client(sock);

    on_read(t, &t->up, &t->client, &t->app, on_app_write);
}

static void on_app_read(struct gw_sock *sock)
{
    struct gw_tunnel *t = of_app(sock);

    on_read(t, &t->down, &t->app, &t->client, on_client_write);
}

static void on_client_write(struct gw_sock *sock)
{
    struct gw_tunnel *t = of_client(sock);

    on_writable(t, &t->down, &t->app, &t->client, on_app_read, on_client_write);
}

static void on_app_write(struct gw_sock *sock)
{
    struct gw_tunnel *t = of_app(sock);

    on_writable(t, &t->up, &t->client, &t->app, on_client_read, on_app_write);
}

size_t gw_tunnel_peer_data(struct gw_tunnel_peer *peer, const char *data, size_t len)
{
    struct gw_tunnel *t = peer->t;
    bool up = peer == t->client_peer;
    struct way *way = up ? &t->up : &t->down;
    struct gw_sock *to = up ? &t->app : &t->client;
    ssize_t n = 0;

    if (way->left == NULL)
        n = put(t, to, data, len);
    touch(t);
    if (n < 0) {
        end(t, "reset", true);
        return len;
    }
    count(way, (size_t)n);
    if (!up)
        gw_ws_frames_pass(&t->frames, data, (size_t)n);
    if ((size_t)n < len || has_unsent(t, to))
        wait_for(t, to, up ? on_app_write : on_client_write);
    return (size_t)n;
}

void gw_tunnel_peer_eof(struct gw_tunnel_peer *peer)
{
    struct gw_tunnel *t = peer->t;
    bool up = peer == t->client_peer;
    struct way *way = up ? &t->up : &t->down;

    way->eof = true;
    touch(t);
    pass_eof(t, way, up ? &t->app : &t->client);
}

void gw_tunnel_peer_writable(struct gw_tunnel_peer *peer)
{
    struct gw_tunnel *t = peer->t;

    if (peer == t->client_peer)
        on_client_write(&t->client);
    else
        on_app_write(&t->app);
}

void gw_tunnel_peer_gone(struct gw_tunnel_peer *peer)
{
    struct gw_tunnel *t = peer->t;

    peer->t = NULL;
    end(t, "reset", true);
}

/* unsent goes to this end before what the other end has sent already. */
static int join(struct gw_bufs *bufs, struct gw_buf **unsent, struct gw_buf *received)
{
    char *room;

    if (received == NULL)
        return 0;
    if (*unsent == NULL) {
        *unsent = received;
        return 0;
    }
    room = gw_buf_room(bufs, unsent, received->len);
    if (room != NULL) {
        memcpy(room, gw_buf_begin(received), received->len);
        (*unsent)->len += received->len;
    }
    gw_buf_put(bufs, received);
    return room != NULL ? 0 : UV_ENOMEM;
}

void gw_tunnel_start(struct gw_worker *w, struct gw_tunnel_end *client, struct gw_tunnel_end *app,
                     struct gw_upstream_set *set, struct gw_exchange *x)
{
    struct gw_tunnel *t = calloc(1, sizeof(*t));
    uint32_t head = (uint32_t)gw_buf_len(client->unsent);
    int r;

    if (t != NULL && app->received != NULL)
        gw_ws_frames_pass(&t->frames, gw_buf_begin(app->received), app->received->len);
    r = join(&w->bufs, &client->unsent, app->received);
    if (r == 0)
        r = join(&w->bufs, &app->unsent, client->received);
    if (t == NULL || r != 0) {
        free(t);
        gw_sock_reset(&client->sock);
        gw_sock_reset(&app->sock);
        gw_buf_put(&w->bufs, client->unsent);
        gw_buf_put(&w->bufs, app->unsent);
        if (set != NULL) {
            set->n--;
            gw_pool_drop(&w->pool, set);
        }
        if (app->peer != NULL)
            app->peer->ops->gone(app->peer, true);
        if (client->peer != NULL)
            client->peer->ops->gone(client->peer, true);
        else
            atomic_fetch_sub_explicit(&w->gw->n_connections, 1, memory_order_relaxed);
        gw_limits_leave(&w->gw->limits, client->client_slot);
        gw_exchange_upgraded(x);
        return;
    }
    t->w = w;
    t->set = set;
    t->start_ms = x->start_ms;
    t->note = gw_log_take_note(x);
    t->client_slot = client->client_slot;
    t->use = x->use;
    x->use = 0;
    t->host_port = x->host_port;
    t->admitted_until = x->admitted_until;
    w->n_timed += t->admitted_until != 0;
    gw_use_becomes_tunnel(w, t->use);
    gw_exchange_upgraded(x);
    t->client_peer = client->peer;
    t->app_peer = app->peer;
    if (t->client_peer != NULL)
        t->client_peer->t = t;
    else
        gw_sock_move(&client->sock, &t->client);
    if (t->app_peer != NULL)
        t->app_peer->t = t;
    else
        gw_sock_move(&app->sock, &t->app);
    t->down.left = client->unsent;
    t->down.head = head;
    t->up.left = app->unsent;
    t->up.eof = client->eof;
    t->down.eof = app->eof;
    link_tunnel(t);
    gw_count(&w->stats.tunnels, 1);
    gw_gauge(&w->stats.open_tunnels, 1);
    if (t->client_peer == NULL)
        gw_gauge(&w->stats.connections, 1);
    touch(t);
    if (!drain(t, &t->down, &t->client, on_client_write) || !pass_eof(t, &t->down, &t->client) ||
        !drain(t, &t->up, &t->app, on_app_write) || !pass_eof(t, &t->up, &t->app))
        return;
    if (t->app_peer == NULL && t->down.left == NULL && !t->down.eof)
        gw_sock_read_start(&t->app, on_app_read); /* a peer sends by itself */
    if (t->up.left == NULL && !t->up.eof)
        read_again(t, &t->client, on_client_read);
}
