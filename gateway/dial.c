/* SPDX-License-Identifier: MIT */
/* Path: direct -> connected. Refused -> agent -> its answer -> connected.
 * A port that was found on loopback just now is asked of the agent first, and directly when the
 * agent says no: the app may have moved. */
#include "gateway/dial.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "gateway/worker.h"

/* How long a port counts as one on loopback. After that a refused connection, which costs next to
 * nothing, finds out again. */
#define REMEMBER_MS 10000

#define ANSWER_LEN 2 /* "+\n" or "-\n" */

struct gw_dial {
    struct gw_sock sock;
    struct gw_worker *w;
    struct gw_upstream_set *set;
    gw_dial_cb cb;
    void *arg;
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } addr;
    uint16_t port, agent_port;
    bool agent_asked, direct_refused;
    char answer[ANSWER_LEN];
    uint8_t n_answer;
};

static int connect_direct(struct gw_dial *d);
static int connect_agent(struct gw_dial *d);

static struct gw_dial *dial_of(struct gw_sock *sock)
{
    return (struct gw_dial *)((char *)sock - offsetof(struct gw_dial, sock));
}

static struct gw_loopback *find_note(struct gw_dial *d)
{
    for (size_t i = 0; i < GW_LOOPBACK_PORTS; i++)
        if (d->set->loopback[i].port == d->port)
            return &d->set->loopback[i];
    return NULL;
}

static void remember(struct gw_dial *d)
{
    struct gw_loopback *note = find_note(d);

    for (size_t i = 0; i < GW_LOOPBACK_PORTS && note == NULL; i++)
        if (d->set->loopback[i].until_ms <= gw_loop_now(d->w->loop))
            note = &d->set->loopback[i];
    if (note == NULL)
        return; /* more such ports than anybody has: found out again each time */
    note->port = d->port;
    note->until_ms = gw_loop_now(d->w->loop) + REMEMBER_MS;
}

static void finish(struct gw_dial *d, int status)
{
    if (status != 0)
        gw_sock_close(&d->sock);
    d->cb(&d->sock, status, d->arg);
    gw_sock_close(&d->sock); /* nothing, when it was moved */
    free(d);
}

/* The agent does not lead to the port. */
static void agent_failed(struct gw_dial *d)
{
    struct gw_loopback *note = find_note(d);

    gw_sock_close(&d->sock);
    if (note != NULL)
        note->until_ms = 0;
    if (d->direct_refused || connect_direct(d) != 0)
        finish(d, UV_ECONNREFUSED);
}

static void on_answer(struct gw_sock *sock)
{
    struct gw_dial *d = dial_of(sock);
    ssize_t n = gw_sock_read(sock, d->answer + d->n_answer, ANSWER_LEN - d->n_answer);

    if (n == UV_EAGAIN)
        return;
    if (n <= 0) {
        agent_failed(d);
        return;
    }
    d->n_answer = (uint8_t)(d->n_answer + n);
    if (d->n_answer < ANSWER_LEN)
        return;
    gw_sock_read_stop(sock);
    if (memcmp(d->answer, "+\n", ANSWER_LEN) != 0) {
        agent_failed(d);
        return;
    }
    remember(d);
    finish(d, 0);
}

static void on_agent(struct gw_sock *sock, int status)
{
    struct gw_dial *d = dial_of(sock);
    char line[8];
    struct iovec iov = {line, 0};

    if (status == 0) {
        iov.iov_len = (size_t)snprintf(line, sizeof(line), "%u\n", d->port);
        /* A fresh connection takes a line whole. */
        if (gw_sock_writev(sock, &iov, 1) == (ssize_t)iov.iov_len) {
            gw_sock_read_start(sock, on_answer);
            return;
        }
    }
    agent_failed(d);
}

static void on_direct(struct gw_sock *sock, int status)
{
    struct gw_dial *d = dial_of(sock);

    if (status == UV_ECONNREFUSED && d->agent_port != 0 && !d->agent_asked) {
        d->direct_refused = true;
        gw_sock_close(sock);
        if (connect_agent(d) == 0)
            return;
    }
    finish(d, status);
}

static int connect_to(struct gw_dial *d, uint16_t port, gw_sock_status_cb cb)
{
    if (d->addr.sa.sa_family == AF_INET) {
        d->addr.in.sin_port = htons(port);
        return gw_sock_connect(d->w->loop, &d->sock, &d->addr.sa, sizeof(d->addr.in), cb);
    }
    d->addr.in6.sin6_port = htons(port);
    return gw_sock_connect(d->w->loop, &d->sock, &d->addr.sa, sizeof(d->addr.in6), cb);
}

static int connect_direct(struct gw_dial *d)
{
    return connect_to(d, d->port, on_direct);
}

static int connect_agent(struct gw_dial *d)
{
    d->agent_asked = true;
    return connect_to(d, d->agent_port, on_agent);
}

int gw_dial_start(struct gw_worker *w, struct gw_upstream_set *set, const struct gw_route *route,
                  gw_dial_cb cb, void *arg, struct gw_dial **out)
{
    struct gw_dial *d = calloc(1, sizeof(*d));
    const struct gw_loopback *note;
    int r;

    if (d == NULL)
        return UV_ENOMEM;
    d->w = w;
    d->set = set;
    d->cb = cb;
    d->arg = arg;
    d->port = route->port;
    d->agent_port = route->agent_port;
    d->addr.sa.sa_family = route->family;
    if (route->family == AF_INET)
        d->addr.in.sin_addr = route->address.v4;
    else
        d->addr.in6.sin6_addr = route->address.v6;
    note = find_note(d);
    if (d->agent_port != 0 && note != NULL && note->until_ms > gw_loop_now(w->loop))
        r = connect_agent(d);
    else
        r = connect_direct(d);
    if (r != 0) {
        free(d);
        return r;
    }
    gw_count(&w->stats.upstream_connects, 1);
    *out = d;
    return 0;
}

void gw_dial_cancel(struct gw_dial *d)
{
    if (d == NULL)
        return;
    gw_sock_close(&d->sock);
    free(d);
}
