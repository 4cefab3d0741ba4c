/* SPDX-License-Identifier: MIT */
/* The floor: a byte relay that knows nothing of HTTP. One thread, epoll(7), one connection to the
 * server for each client, one read and one write per piece. What a proxy costs above it is what
 * HTTP costs. Usage: relay LISTEN-PORT SERVER-PORT (both on 127.0.0.1) */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE 65536
#define N_FDS 65536

struct end {
    int fd;
    struct end *peer;
    size_t n_held, at; /* bytes for this end that its socket did not take */
    char *held;
};

static int loop;
static struct end *ends[N_FDS];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static struct end *add(int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP};
    struct end *end = calloc(1, sizeof(*end));
    int yes = 1;

    if (end == NULL || fd >= N_FDS)
        die("relay: too many connections");
    end->fd = fd;
    ends[fd] = end;
    event.data.fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0)
        die("relay: epoll_ctl");
    return end;
}

static void drop(struct end *end)
{
    struct end *both[2] = {end, end->peer};

    for (int i = 0; i < 2; i++) {
        ends[both[i]->fd] = NULL;
        close(both[i]->fd);
        free(both[i]->held);
        free(both[i]);
    }
}

/* Returns false when the pair is gone. */
static bool move(struct end *from)
{
    static char piece[PIECE];
    struct end *to = from->peer;

    for (;;) {
        ssize_t n, sent = 0;

        if (to->n_held > 0)
            return true; /* goes on when to is writable */
        n = read(from->fd, piece, sizeof(piece));
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n > 0)
            sent = send(to->fd, piece, (size_t)n, MSG_NOSIGNAL);
        if (n <= 0 || (sent < 0 && errno != EAGAIN)) {
            drop(from);
            return false;
        }
        if (sent < 0)
            sent = 0;
        if (sent < n) {
            if (to->held == NULL && (to->held = malloc(PIECE)) == NULL)
                die("relay: malloc");
            to->n_held = (size_t)(n - sent);
            to->at = 0;
            memcpy(to->held, piece + sent, to->n_held);
        }
        if (n < PIECE)
            return true;
    }
}

static bool flush(struct end *end)
{
    while (end->n_held > 0) {
        ssize_t n = send(end->fd, end->held + end->at, end->n_held, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0) {
            drop(end);
            return false;
        }
        end->at += (size_t)n;
        end->n_held -= (size_t)n;
    }
    return true;
}

static int tcp(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        die("relay: socket");
    return fd;
}

static void accept_all(int listener, const struct sockaddr_in *server)
{
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), fd;
        struct end *a, *b;

        if (client < 0)
            return;
        fd = tcp();
        if (connect(fd, (const struct sockaddr *)server, sizeof(*server)) != 0 ||
            fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
            die("relay: connect");
        a = add(client);
        b = add(fd);
        a->peer = b;
        b->peer = a;
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in here = {.sin_family = AF_INET}, server = {.sin_family = AF_INET};
    struct epoll_event event = {.events = EPOLLIN}, events[256];
    int listener, yes = 1;

    if (argc != 3) {
        fprintf(stderr, "Usage: relay LISTEN-PORT SERVER-PORT\n");
        return 2;
    }
    here.sin_addr.s_addr = server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    here.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
    server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    listener = tcp();
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) != 0 ||
        listen(listener, 1024) != 0 || fcntl(listener, F_SETFL, O_NONBLOCK) != 0)
        die("relay: listen");
    loop = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = listener;
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event) != 0)
        die("relay: epoll");
    for (;;) {
        int n = epoll_wait(loop, events, 256, -1);

        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;

            if (fd == listener) {
                accept_all(listener, &server);
                continue;
            }
            if (ends[fd] == NULL)
                continue;
            if ((events[i].events & EPOLLOUT) != 0) {
                bool held = ends[fd]->n_held > 0;

                if (!flush(ends[fd]) || (held && ends[fd]->n_held == 0 && !move(ends[fd]->peer)))
                    continue;
            }
            if ((events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 &&
                ends[fd] != NULL)
                move(ends[fd]);
        }
    }
}
