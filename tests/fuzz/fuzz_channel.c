/* SPDX-License-Identifier: MIT */
/* The machine channel. The first byte chooses: the parser alone (split in two ways, which must
 * agree), a guest or a host end over a real socket, or two of them with the bytes between. */
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "transom/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the parser ---- */

struct digest {
    uint64_t sum;
    size_t n;
};

static void on_event(enum tr_channel_event event, const uint8_t *data, size_t len, void *arg)
{
    struct digest *d = arg;

    assert(event == TR_CHANNEL_BYTES ? len >= 1 && len <= TR_CHANNEL_DATA_MAX
                                     : len == TR_CHANNEL_NONCE_LEN);
    d->n++;
    d->sum = d->sum * 31 + (uint64_t)event;
    for (size_t i = 0; i < len; i++)
        d->sum = d->sum * 31 + data[i];
}

static struct digest parse(const uint8_t *data, size_t size, size_t piece)
{
    static struct tr_channel_parser p;
    struct digest d = {0, 0};

    tr_channel_parser_init(&p);
    for (size_t i = 0; i < size; i += piece)
        tr_channel_parse(&p, data + i, size - i < piece ? size - i : piece, on_event, &d);
    return d;
}

/* ---- a whole end ---- */

static struct {
    int n_open, n_end, n_close;
    size_t bytes;
} seen;

static void on_open(struct tr_channel *ch, void *arg)
{
    (void)arg;
    assert(seen.n_open++ == seen.n_end);
    (void)!tr_channel_write(ch, (const uint8_t *)"hello", 5);
}

static void on_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    assert(seen.n_open == seen.n_end + 1);
    seen.bytes += len;
    (void)!tr_channel_write(ch, data, len); /* echo */
    if (len == 13)
        tr_channel_close(ch);
}

static void on_end(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)status;
    (void)arg;
    assert(++seen.n_end == seen.n_open);
}

static void on_close(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)status;
    (void)arg;
    seen.n_close++;
    assert(seen.n_open == seen.n_end);
}

static void drain(int fd)
{
    char buf[4096];

    while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
}

static void whole(const uint8_t *data, size_t size, bool host, bool serial)
{
    static const struct tr_channel_cbs cbs = {
        .on_open = on_open, .on_data = on_data, .on_end = on_end, .on_close = on_close};
    struct tr_channel *ch = NULL;
    uv_loop_t loop;
    int fd[2];

    memset(&seen, 0, sizeof(seen));
    if (uv_loop_init(&loop) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) != 0)
        abort();
    if (tr_channel_open(&loop, fd[0], fd[0], host, serial, &cbs, NULL, &ch) != 0)
        abort();
    while (size > 0) {
        size_t n = 1 + data[0] % 97u < size ? 1 + data[0] % 97u : size;
        ssize_t w = send(fd[1], data, n, MSG_NOSIGNAL);

        if (w <= 0)
            break;
        data += w;
        size -= (size_t)w;
        uv_run(&loop, UV_RUN_NOWAIT);
        drain(fd[1]);
    }
    assert(!host || seen.n_open == 0); /* nobody guesses a nonce */
    close(fd[1]);
    if (seen.n_close == 0 && serial)
        tr_channel_close(ch); /* a device never ends by itself */
    uv_run(&loop, UV_RUN_DEFAULT);
    assert(seen.n_close == 1);
    if (uv_loop_close(&loop) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct digest a, b;

    signal(SIGPIPE, SIG_IGN);
    if (size < 2)
        return 0;
    switch (data[0] % 4) {
    case 0:
        a = parse(data + 1, size - 1, SIZE_MAX / 2);
        b = parse(data + 1, size - 1, 1 + data[1] % 7u);
        assert(a.sum == b.sum && a.n == b.n);
        break;
    case 1:
        whole(data + 1, size - 1, true, false);
        break;
    default:
        whole(data + 1, size - 1, false, data[0] % 4 == 3);
        break;
    }
    return 0;
}
