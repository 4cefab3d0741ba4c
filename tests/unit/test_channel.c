/* SPDX-License-Identifier: MIT */
/* The machine channel: frames, conversations, hosts that come and go in the middle of a frame. */
#include "transom/channel.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static uv_loop_t loop;

/* Byte i of what a side says in conversation k: differs between conversations and sides. */
static uint8_t said(bool host, unsigned k, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ k * 40503u ^ (host ? 0x5bd1e995u : 0);

    return (uint8_t)(x >> 13 ^ x >> 21);
}

enum close_in { NOWHERE, IN_OPEN, IN_DATA, IN_DRAIN, IN_END };

struct side {
    struct tr_channel *ch;
    bool host;
    unsigned k; /* conversation, counted from 1 */
    size_t sent, got, bad;
    bool full, talkative;
    int n_open, n_end, n_close, n_drain, status;
    enum close_in close_in;
};

static void close_if(struct side *s, enum close_in where)
{
    if (s->close_in == where)
        tr_channel_close(s->ch);
}

static void on_open(struct tr_channel *ch, void *arg)
{
    struct side *s = arg;

    (void)ch;
    ck_assert_int_eq(s->n_open, s->n_end);
    s->n_open++;
    if (!s->host)
        s->k++;
    s->sent = s->got = 0;
    s->full = false;
    close_if(s, IN_OPEN);
}

static void on_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    struct side *s = arg;

    (void)ch;
    ck_assert_int_eq(s->n_open, s->n_end + 1);
    for (size_t i = 0; i < len; i++)
        s->bad += data[i] != said(!s->host, s->k, s->got + i);
    s->got += len;
    close_if(s, IN_DATA);
}

static void on_drain(struct tr_channel *ch, void *arg)
{
    struct side *s = arg;

    (void)ch;
    ck_assert(s->full);
    s->full = false;
    s->n_drain++;
    close_if(s, IN_DRAIN);
}

static void on_end(struct tr_channel *ch, int status, void *arg)
{
    struct side *s = arg;

    (void)ch;
    (void)status;
    s->n_end++;
    ck_assert_int_eq(s->n_open, s->n_end);
    close_if(s, IN_END);
}

static void on_close(struct tr_channel *ch, int status, void *arg)
{
    struct side *s = arg;

    ck_assert_ptr_eq(ch, s->ch);
    ck_assert_int_eq(s->n_open, s->n_end);
    s->n_close++;
    s->status = status;
    s->ch = NULL;
}

static const struct tr_channel_cbs cbs = {
    .on_open = on_open,
    .on_data = on_data,
    .on_drain = on_drain,
    .on_end = on_end,
    .on_close = on_close,
};

/* Say up to n more bytes. */
static void say(struct side *s, size_t n)
{
    uint8_t buf[3000];

    while (n > 0 && !s->full && s->ch != NULL && s->n_open > s->n_end) {
        size_t len = n < sizeof(buf) ? n : sizeof(buf);
        int r;

        for (size_t i = 0; i < len; i++)
            buf[i] = said(s->host, s->k, s->sent + i);
        r = tr_channel_write(s->ch, buf, len);
        if (r < 0)
            return; /* the wire broke: on_close follows */
        s->sent += len;
        s->full = r == 0;
        n -= len;
    }
}

static void sockets(int fd[2])
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

static void open_side(struct side *s, int fd, bool host, bool serial)
{
    s->host = host;
    ck_assert_int_eq(tr_channel_open(&loop, fd, fd, host, serial, &cbs, s, &s->ch), 0);
}

/* Turn the loop until cond holds; a hang ends in check's timeout. */
#define RUN_UNTIL(cond)                                                                            \
    while (!(cond))                                                                                \
    ck_assert_msg(uv_run(&loop, UV_RUN_ONCE) != 0 || (cond), "loop ended early: %s", #cond)

static struct side host, guest;

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&host, 0, sizeof(host));
    memset(&guest, 0, sizeof(guest));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    if (host.ch != NULL)
        tr_channel_close(host.ch);
    if (guest.ch != NULL)
        tr_channel_close(guest.ch);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(host.n_open, host.n_end);
    ck_assert_int_eq(guest.n_open, guest.n_end);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* ---- parser ---- */

struct seen {
    char log[256];
    size_t bytes;
};

static void on_event(enum tr_channel_event event, const uint8_t *data, size_t len, void *arg)
{
    struct seen *s = arg;
    size_t at = strlen(s->log);

    if (event == TR_CHANNEL_BYTES) {
        s->bytes += len;
        snprintf(s->log + at, sizeof(s->log) - at, "B%.*s ", (int)(len < 8 ? len : 8),
                 (const char *)data);
    } else {
        ck_assert_uint_eq(len, TR_CHANNEL_NONCE_LEN);
        snprintf(s->log + at, sizeof(s->log) - at, "%c%.4s ", event == TR_CHANNEL_HELLO ? 'H' : 'R',
                 (const char *)data);
    }
}

static void parse_pieces(const char *in, size_t len, size_t piece, struct seen *seen)
{
    static struct tr_channel_parser p;

    memset(seen, 0, sizeof(*seen));
    tr_channel_parser_init(&p);
    for (size_t i = 0; i < len; i += piece)
        tr_channel_parse(&p, (const uint8_t *)in + i, len - i < piece ? len - i : piece, on_event,
                         seen);
}

START_TEST(parser_gives_the_same_for_every_split)
{
    static const char in[] = "\x00\x00\x02\x00\x03"
                             "abc\xff"
                             "\x01"
                             "0123456789abcdef"
                             "\x07\x99\x03"
                             "fedcba9876543210"
                             "\x02\x00\x00"
                             "\x02\x00\x01"
                             "x\xff"
                             "\x02\x00\x02"
                             "yz\x00" /* no end mark: not whole */
                             "\x02\x00\x01"
                             "w\xff";
    struct seen seen;

    for (size_t piece = 1; piece <= sizeof(in); piece++) {
        parse_pieces(in, sizeof(in) - 1, piece, &seen);
        ck_assert_str_eq(seen.log, "Babc H0123 Rfedc Bx Bw ");
    }
}
END_TEST

START_TEST(parser_drops_a_frame_completed_by_nops)
{
    static const size_t lens[] = {1, 2, 255, 256, 65534, 65535};
    static char in[2 * 65600 + 17];
    struct seen seen;

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (size_t cut = 1; cut <= 3 + lens[i]; cut += cut < 8 ? 1 : lens[i] / 3 + 1) {
            size_t n = 0;
            const char head[3] = {2, (char)(lens[i] >> 8), (char)lens[i]};

            memset(in, 0, sizeof(in));
            for (size_t j = 0; j < cut; j++)
                in[j] = j < 3 ? head[j] : 'a';
            n = cut + 65540;
            in[n] = 1;
            memset(in + n + 1, 'N', TR_CHANNEL_NONCE_LEN);
            parse_pieces(in, n + 17, 4096, &seen);
            ck_assert_str_eq(seen.log, "HNNNN ");
        }
    }
}
END_TEST

/* ---- conversations ---- */

START_TEST(bytes_travel_both_ways)
{
    size_t want = 8 << 20;
    int fd[2];

    sockets(fd);
    open_side(&host, fd[0], true, false);
    open_side(&guest, fd[1], false, false);
    host.k = 1;
    ck_assert_int_eq(tr_channel_write(host.ch, (const uint8_t *)"x", 1), UV_EPIPE);
    ck_assert_int_eq(tr_channel_write(guest.ch, (const uint8_t *)"x", 1), UV_EPIPE);
    RUN_UNTIL(host.n_open == 1 && guest.n_open == 1);
    while (guest.got < want || host.got < want) {
        if (host.sent < want)
            say(&host, want - host.sent);
        if (guest.sent < want)
            say(&guest, want - guest.sent);
        uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_uint_eq(guest.got, want);
    ck_assert_uint_eq(host.got, want);
    ck_assert_uint_eq(host.bad + guest.bad, 0);
    ck_assert_int_gt(host.n_drain, 0);
    tr_channel_close(host.ch);
    tr_channel_close(host.ch);
    RUN_UNTIL(guest.n_close == 1 && host.n_close == 1);
    ck_assert_int_eq(host.status, 0);
    ck_assert_int_eq(guest.status, UV_EOF);
}
END_TEST

/* What QEMU does between the machine's port and whoever is connected: the port stays, hosts come
 * and go, bytes under way may still arrive, in whole or in part. */
struct relay {
    int port; /* towards the guest */
    int host; /* -1: nobody */
    uint8_t to_port[1 << 17], to_host[1 << 17];
    size_t n_to_port, n_to_host;
};

static void relay_read(int fd, uint8_t *buf, size_t *n, size_t cap)
{
    ssize_t r = fd < 0 ? 0 : recv(fd, buf + *n, cap - *n, MSG_DONTWAIT);

    if (r > 0)
        *n += (size_t)r;
}

static void relay_write(int fd, uint8_t *buf, size_t *n, size_t limit)
{
    size_t want = *n < limit ? *n : limit;
    ssize_t r = fd < 0 || want == 0 ? 0 : send(fd, buf, want, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (r > 0) {
        *n -= (size_t)r;
        memmove(buf, buf + r, *n);
    }
}

static void relay_step(struct relay *r)
{
    relay_read(r->host, r->to_port, &r->n_to_port, sizeof(r->to_port));
    relay_read(r->port, r->to_host, &r->n_to_host, sizeof(r->to_host));
    relay_write(r->port, r->to_port, &r->n_to_port, SIZE_MAX);
    relay_write(r->host, r->to_host, &r->n_to_host, SIZE_MAX);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static size_t below(size_t n)
{
    return n == 0 ? 0 : (size_t)random() % n;
}

START_TEST(host_replaced_in_mid_frame_200_times)
{
    static struct relay relay;
    int port[2], fd[2], mid = 0;
    size_t guest_total = 0, host_total = 0;

    srandom(20);
    memset(&relay, 0, sizeof(relay));
    sockets(port);
    relay.port = port[1];
    open_side(&guest, port[0], false, true);
    for (unsigned round = 1; round <= 200; round++) {
        memset(&host, 0, sizeof(host));
        host.k = round;
        sockets(fd);
        relay.host = fd[1];
        open_side(&host, fd[0], true, false);
        while (host.n_open == 0 || guest.k < round)
            relay_step(&relay);
        for (size_t n = below(30) + 2; n > 0; n--) {
            say(&host, below(70000));
            say(&guest, below(70000));
            relay_step(&relay);
        }
        ck_assert_uint_eq(guest.k, round);
        ck_assert_uint_eq(host.bad, 0);
        ck_assert_uint_eq(guest.bad, 0);
        guest_total += guest.got;
        host_total += host.got;
        /* Cut: of what the old host said some part still arrives; of what the guest said to it
         * some part stays in the device and goes to the next host. */
        say(&host, below(70000));
        uv_run(&loop, UV_RUN_NOWAIT);
        relay_read(relay.host, relay.to_port, &relay.n_to_port, sizeof(relay.to_port));
        mid += relay.n_to_port > 0;
        relay.n_to_port = below(relay.n_to_port + 1);
        relay.n_to_host = below(relay.n_to_host + 1);
        close(relay.host);
        relay.host = -1;
        if (host.ch != NULL)
            tr_channel_close(host.ch);
        while (host.n_close == 0)
            uv_run(&loop, UV_RUN_ONCE);
        ck_assert_int_eq(host.n_open, 1);
    }
    ck_assert_int_eq(guest.n_open, 200);
    ck_assert_int_ge(guest.n_end, 199);
    ck_assert_int_gt(mid, 50); /* the test did cut frames */
    ck_assert_uint_gt(guest_total, 1 << 20);
    ck_assert_uint_gt(host_total, 1 << 20);
    close(relay.port);
    tr_channel_close(guest.ch);
    RUN_UNTIL(guest.n_close == 1);
    ck_assert_uint_eq(guest.bad, 0);
}
END_TEST

/* ---- a device without a host ---- */

static int n_turns;

static void on_turn(uv_prepare_t *prepare)
{
    (void)prepare;
    n_turns++;
}

static void on_stop(uv_timer_t *timer)
{
    (void)timer;
    uv_stop(&loop);
}

START_TEST(no_host_is_waited_out_without_spinning)
{
    char dir[] = "/tmp/test-channel-XXXXXX", in[64], out[64];
    uv_prepare_t prepare;
    uv_timer_t timer;
    int guest_in, guest_out, wr, rd;

    /* A FIFO without a writer polls and reads as virtio-serial without a host does. */
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(in, sizeof(in), "%s/in", dir);
    snprintf(out, sizeof(out), "%s/out", dir);
    ck_assert_int_eq(mkfifo(in, 0600), 0);
    ck_assert_int_eq(mkfifo(out, 0600), 0);
    guest_in = open(in, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    guest_out = open(out, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    unlink(in); /* from here on they have no name that could be left behind */
    unlink(out);
    rmdir(dir);
    snprintf(in, sizeof(in), "/proc/self/fd/%d", guest_in);
    snprintf(out, sizeof(out), "/proc/self/fd/%d", guest_out);
    ck_assert_int_eq(
        tr_channel_open(&loop, guest_in, guest_out, false, true, &cbs, &guest, &guest.ch), 0);
    for (unsigned round = 1; round <= 3; round++) {
        ck_assert_int_eq(uv_prepare_init(&loop, &prepare), 0);
        ck_assert_int_eq(uv_timer_init(&loop, &timer), 0);
        n_turns = 0;
        uv_prepare_start(&prepare, on_turn);
        uv_timer_start(&timer, on_stop, 500, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        uv_close((uv_handle_t *)&prepare, NULL);
        uv_close((uv_handle_t *)&timer, NULL);
        uv_run(&loop, UV_RUN_NOWAIT);
        if (round > 1)                    /* a FIFO reads as hung up once a writer has been there */
            ck_assert_int_gt(n_turns, 3); /* it does look again */
        ck_assert_int_lt(n_turns, 40);

        memset(&host, 0, sizeof(host));
        host.k = round;
        host.host = true;
        wr = open(in, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        rd = open(out, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ck_assert_int_eq(tr_channel_open(&loop, rd, wr, true, false, &cbs, &host, &host.ch), 0);
        RUN_UNTIL(host.n_open == 1 && guest.k == round);
        say(&host, 5000);
        RUN_UNTIL(guest.got == 5000);
        say(&guest, 5000);
        RUN_UNTIL(host.got == 5000);
        tr_channel_close(host.ch);
        RUN_UNTIL(host.n_close == 1);
        ck_assert_uint_eq(host.bad + guest.bad, 0);
    }
    ck_assert_int_eq(guest.n_close, 0);
    tr_channel_close(guest.ch);
    RUN_UNTIL(guest.n_close == 1);
}
END_TEST

/* ---- greeting ---- */

/* Read from fd until n bytes were seen or nothing more comes while the loop turns. */
static size_t slurp(int fd, uint8_t *buf, size_t cap, size_t want)
{
    size_t have = 0;

    while (have < want) {
        ssize_t n;

        uv_run(&loop, UV_RUN_NOWAIT);
        n = recv(fd, buf + have, cap - have, MSG_DONTWAIT);
        if (n > 0)
            have += (size_t)n;
    }
    return have;
}

START_TEST(hello_is_repeated_until_answered_with_its_nonce)
{
    static uint8_t buf[1 << 19];
    uint8_t ready[17], nonce[16];
    size_t n, run = 0;
    int fd[2];

    sockets(fd);
    open_side(&host, fd[0], true, false);
    n = slurp(fd[1], buf, sizeof(buf), 65541 + 17);
    while (run < n && buf[run] == 0)
        run++;
    ck_assert_uint_gt(run, 65540);
    ck_assert_uint_eq(n, run + 17);
    ck_assert_uint_eq(buf[run], 1);
    memcpy(nonce, buf + run + 1, 16);
    slurp(fd[1], buf, sizeof(buf), run + 17); /* 500 ms later, by the loop's own timer */
    ck_assert_int_eq(memcmp(buf + run + 1, nonce, 16), 0);

    /* Noise, a READY for somebody else, half of ours, then ours with data glued to it. */
    ready[0] = 3;
    memcpy(ready + 1, nonce, 16);
    ready[16] ^= 1;
    ck_assert_int_eq(write(fd[1], "\x02\xff\xffnoise", 8), 8);
    ck_assert_int_eq(write(fd[1], ready, 17), 17);
    ck_assert_int_eq(write(fd[1], ready, 9), 9);
    ready[16] ^= 1;
    for (int i = 0; i < 20; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(host.n_open, 0);
    ck_assert_int_eq(write(fd[1], ready, 17), 17);
    {
        uint8_t frame[] = {2, 0, 1, said(false, 0, 0), 0xff};

        ck_assert_int_eq(write(fd[1], frame, sizeof(frame)), (int)sizeof(frame));
    }
    RUN_UNTIL(host.n_open == 1);
    RUN_UNTIL(host.got == 1);
    ck_assert_uint_eq(host.bad, 0);
    close(fd[1]);
    RUN_UNTIL(host.n_close == 1);
}
END_TEST

START_TEST(repeated_hello_changes_nothing_a_new_one_begins_anew)
{
    uint8_t hello[17] = "\x01"
                        "aaaaaaaaaaaaaaaa",
            buf[200];
    int fd[2];

    sockets(fd);
    open_side(&guest, fd[0], false, false);
    ck_assert_int_eq(write(fd[1], hello, 17), 17);
    slurp(fd[1], buf, sizeof(buf), 17);
    ck_assert_uint_eq(buf[0], 3);
    ck_assert_int_eq(memcmp(buf + 1, hello + 1, 16), 0);
    ck_assert_int_eq(guest.n_open, 1);
    ck_assert_int_eq(write(fd[1], hello, 17), 17);
    slurp(fd[1], buf, sizeof(buf), 17);
    ck_assert_int_eq(guest.n_open, 1);
    ck_assert_int_eq(guest.n_end, 0);
    hello[5] = 'b';
    ck_assert_int_eq(write(fd[1], hello, 17), 17);
    slurp(fd[1], buf, sizeof(buf), 17);
    ck_assert_int_eq(memcmp(buf + 1, hello + 1, 16), 0);
    ck_assert_int_eq(guest.n_open, 2);
    ck_assert_int_eq(guest.n_end, 1);
    close(fd[1]);
    RUN_UNTIL(guest.n_close == 1);
}
END_TEST

START_TEST(a_new_host_does_not_wait_for_what_the_old_one_left)
{
    static uint8_t buf[1 << 20];
    uint8_t hello[17] = "\x01"
                        "aaaaaaaaaaaaaaaa";
    size_t n;
    int fd[2];

    sockets(fd);
    ck_assert_int_eq(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
    open_side(&guest, fd[0], false, false);
    ck_assert_int_eq(write(fd[1], hello, 17), 17);
    RUN_UNTIL(guest.n_open == 1);
    say(&guest, 1 << 20);
    ck_assert(guest.full);
    ck_assert_uint_gt(guest.sent, 256 << 10);
    hello[1] = 'b';
    ck_assert_int_eq(write(fd[1], hello, 17), 17);
    RUN_UNTIL(guest.n_open == 2);
    hello[0] = 3;
    for (n = 0; n < 17 || memcmp(buf + n - 17, hello, 17) != 0;)
        n += slurp(fd[1], buf + n, 1, 1);
    ck_assert_uint_lt(n, 100 << 10);
    close(fd[1]);
    RUN_UNTIL(guest.n_close == 1);
}
END_TEST

/* ---- ends ---- */

START_TEST(closed_at_any_point_it_ends_once)
{
    int fd[2];

    sockets(fd);
    host.close_in = (enum close_in)(_i % 5);
    guest.close_in = (enum close_in)(_i / 5);
    open_side(&host, fd[0], true, false);
    open_side(&guest, fd[1], false, false);
    host.k = 1;
    if (host.close_in == NOWHERE && guest.close_in == NOWHERE)
        tr_channel_close(host.ch); /* before anything moved */
    while (host.n_close == 0 || guest.n_close == 0) {
        say(&host, 1 << 20);
        say(&guest, 1 << 20);
        if (guest.n_open > 0 && (guest.n_drain > 0 || host.n_drain > 0 || guest.got > 1 << 20) &&
            host.ch != NULL)
            tr_channel_close(host.ch);
        ck_assert(uv_run(&loop, UV_RUN_ONCE) != 0 || host.n_close == 1);
    }
    ck_assert_int_eq(host.n_close, 1);
    ck_assert_int_eq(guest.n_close, 1);
    ck_assert_uint_eq(host.bad + guest.bad, 0);
}
END_TEST

START_TEST(lost_wire_is_reported_to_the_writer)
{
    uint8_t buf[1000] = {0};
    int fd[2];

    sockets(fd);
    open_side(&host, fd[0], true, false);
    open_side(&guest, fd[1], false, false);
    host.k = 1;
    RUN_UNTIL(host.n_open == 1);
    shutdown(fd[1], SHUT_RD); /* still open, but writing to it fails */
    while (tr_channel_write(host.ch, buf, sizeof(buf)) >= 0)
        ;
    ck_assert_int_eq(host.n_end, 0); /* not from inside the call */
    RUN_UNTIL(host.n_close == 1);
    ck_assert_int_eq(host.status, UV_EPIPE);
}
END_TEST

START_TEST(what_cannot_be_polled_is_refused)
{
    struct tr_channel *ch = NULL;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), pair[2];

    ck_assert_int_eq(tr_channel_open(&loop, fd, fd, true, false, &cbs, &host, &ch), UV_EPERM);
    ck_assert_ptr_null(ch);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still the caller's */
    sockets(pair);
    open_side(&host, pair[0], true, false);
    tr_channel_close(host.ch);
    host.n_close = 0;
    RUN_UNTIL(host.n_close == 1);
    close(pair[1]);
    /* Only the second descriptor is bad: one handle is live, so it is told through on_close. */
    sockets(pair);
    ck_assert_int_eq(tr_channel_open(&loop, pair[0], fd, true, false, &cbs, &host, &host.ch), 0);
    host.n_close = 0;
    RUN_UNTIL(host.n_close == 1);
    ck_assert_int_eq(host.status, UV_EPERM);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    close(pair[1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link/channel");
    TCase *tc = tcase_create("channel");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, parser_gives_the_same_for_every_split);
    tcase_add_test(tc, parser_drops_a_frame_completed_by_nops);
    tcase_add_test(tc, bytes_travel_both_ways);
    tcase_add_test(tc, host_replaced_in_mid_frame_200_times);
    tcase_add_test(tc, no_host_is_waited_out_without_spinning);
    tcase_add_test(tc, hello_is_repeated_until_answered_with_its_nonce);
    tcase_add_test(tc, repeated_hello_changes_nothing_a_new_one_begins_anew);
    tcase_add_test(tc, a_new_host_does_not_wait_for_what_the_old_one_left);
    tcase_add_loop_test(tc, closed_at_any_point_it_ends_once, 0, 25);
    tcase_add_test(tc, lost_wire_is_reported_to_the_writer);
    tcase_add_test(tc, what_cannot_be_polled_is_refused);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
