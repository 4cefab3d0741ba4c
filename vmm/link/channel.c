/* SPDX-License-Identifier: MIT */
/* Path, host: open -> NOPs, HELLO -> READY seen -> on_open -> data -> wire ends -> on_end,
 * on_close. Path, guest: open -> HELLO seen -> READY sent, on_open -> data -> HELLO -> on_end,
 * on_open -> ...
 *
 * Until READY the host looks for its 17 bytes anywhere in what arrives: a guest that was cut off in
 * the middle of a frame does not finish it, so frames cannot be trusted before. */
#include "transom/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define FRAME_HELLO    0x01
#define FRAME_DATA     0x02
#define FRAME_READY    0x03
#define END_MARK       0xff
#define DATA_OVERHEAD  4 /* type, length, end mark */
#define NOP_RUN        (DATA_OVERHEAD + TR_CHANNEL_DATA_MAX + 64)
#define GREETING_LEN   (1 + TR_CHANNEL_NONCE_LEN)
#define HELLO_AGAIN_MS 500
#define NO_HOST_MS     50
#define READ_LEN       (64u << 10)
#define READS_PER_TURN 8 /* then others on the loop have their turn */
#define HIGH_WATER     (256u << 10)
#define LOW_WATER      (64u << 10)

struct tr_channel {
    uv_loop_t *loop;
    struct tr_channel_cbs cbs;
    void *arg;
    int fd_in, fd_out;
    bool host, serial;
    uv_poll_t poll_in, poll_out; /* poll_out only when the descriptors differ */
    int events_in, events_out;   /* what they watch for: changing it costs two system calls */
    uv_timer_t timer;            /* host: HELLO again; guest: no host, look again */
    uv_idle_t later;             /* what a call from outside leads to */
    int n_open;
    bool split;   /* fd_in != fd_out */
    bool open;    /* a conversation is under way; nonce is its */
    bool greeted; /* guest: nonce holds that of the last HELLO */
    bool hung_up; /* guest: no host at the other end, timer runs */
    bool full;    /* tr_channel_write() said 0 */
    bool ending;  /* the wire ended or close was called: only on_end and on_close follow */
    bool closing; /* handles are being closed */
    int status;
    uint8_t nonce[TR_CHANNEL_NONCE_LEN];
    size_t matched; /* host: bytes of READY and nonce seen so far */
    uint8_t *out;   /* waiting bytes: out[out_off .. out_off + out_len) */
    size_t out_off, out_len, out_cap;
    struct tr_channel_parser parser;
};

static void watch(struct tr_channel *ch);

/* ---- the end ---- */

static void on_handle_close(uv_handle_t *handle)
{
    struct tr_channel *ch = handle->data;

    if (--ch->n_open > 0)
        return;
    close(ch->fd_in);
    if (ch->split)
        close(ch->fd_out);
    if (ch->cbs.on_close != NULL)
        ch->cbs.on_close(ch, ch->status, ch->arg);
    free(ch->out);
    free(ch);
}

static void end_conversation(struct tr_channel *ch, int status)
{
    if (!ch->open)
        return;
    ch->open = false;
    ch->full = false;
    if (ch->cbs.on_end != NULL)
        ch->cbs.on_end(ch, status, ch->arg);
}

static void finish(struct tr_channel *ch)
{
    if (ch->closing)
        return;
    ch->closing = true;
    uv_poll_stop(&ch->poll_in);
    uv_close((uv_handle_t *)&ch->poll_in, on_handle_close);
    if (ch->split) {
        uv_poll_stop(&ch->poll_out);
        uv_close((uv_handle_t *)&ch->poll_out, on_handle_close);
    }
    uv_close((uv_handle_t *)&ch->timer, on_handle_close);
    uv_close((uv_handle_t *)&ch->later, on_handle_close);
    end_conversation(ch, ch->status);
}

static void on_later(uv_idle_t *idle)
{
    finish(idle->data);
}

/* End soon, never from inside the caller. The first status stays. */
static void end_later(struct tr_channel *ch, int status)
{
    if (ch->ending)
        return;
    ch->ending = true;
    ch->status = status;
    uv_idle_start(&ch->later, on_later);
}

/* ---- sending ---- */

static int out_reserve(struct tr_channel *ch, size_t n)
{
    size_t cap = ch->out_cap == 0 ? 4096 : ch->out_cap;
    uint8_t *p;

    if (ch->out_off + ch->out_len + n <= ch->out_cap)
        return 0;
    while (cap < ch->out_len + n)
        cap *= 2;
    if (cap == ch->out_cap) { /* enough once moved to the front */
        memmove(ch->out, ch->out + ch->out_off, ch->out_len);
        ch->out_off = 0;
        return 0;
    }
    p = malloc(cap);
    if (p == NULL)
        return UV_ENOMEM;
    if (ch->out_len > 0)
        memcpy(p, ch->out + ch->out_off, ch->out_len);
    free(ch->out);
    ch->out = p;
    ch->out_cap = cap;
    ch->out_off = 0;
    return 0;
}

static uint8_t *out_end(struct tr_channel *ch)
{
    return ch->out + ch->out_off + ch->out_len;
}

/* Write until the wire takes no more. Returns 0 or the fault. */
static int flush(struct tr_channel *ch)
{
    while (ch->out_len > 0) {
        ssize_t n = write(ch->fd_out, ch->out + ch->out_off, ch->out_len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        ch->out_off += (size_t)n;
        ch->out_len -= (size_t)n;
    }
    if (ch->out_len == 0)
        ch->out_off = 0;
    return 0;
}

static void put_greeting(struct tr_channel *ch, uint8_t type)
{
    uint8_t *p = out_end(ch);

    *p++ = type;
    memcpy(p, ch->nonce, TR_CHANNEL_NONCE_LEN);
    ch->out_len += GREETING_LEN;
}

static void flush_or_end(struct tr_channel *ch)
{
    int r = flush(ch);

    if (r != 0)
        end_later(ch, r);
    else
        watch(ch);
}

int tr_channel_write(struct tr_channel *ch, const uint8_t *data, size_t len)
{
    size_t n_frames = (len + TR_CHANNEL_DATA_MAX - 1) / TR_CHANNEL_DATA_MAX;
    int r;

    if (!ch->open || ch->ending)
        return UV_EPIPE;
    r = out_reserve(ch, len + n_frames * DATA_OVERHEAD);
    if (r != 0)
        return r;
    while (len > 0) {
        size_t n = len < TR_CHANNEL_DATA_MAX ? len : TR_CHANNEL_DATA_MAX;
        uint8_t *p = out_end(ch);

        p[0] = FRAME_DATA;
        p[1] = (uint8_t)(n >> 8);
        p[2] = (uint8_t)n;
        memcpy(p + 3, data, n);
        p[3 + n] = END_MARK;
        ch->out_len += n + DATA_OVERHEAD;
        data += n;
        len -= n;
    }
    flush_or_end(ch);
    ch->full = ch->out_len >= HIGH_WATER;
    return ch->full ? 0 : 1;
}

/* ---- host: greeting ---- */

static int say_hello(struct tr_channel *ch)
{
    int r = out_reserve(ch, NOP_RUN + GREETING_LEN);

    if (r != 0)
        return r;
    memset(out_end(ch), 0, NOP_RUN);
    ch->out_len += NOP_RUN;
    put_greeting(ch, FRAME_HELLO);
    return 0;
}

static void on_hello_again(uv_timer_t *timer)
{
    struct tr_channel *ch = timer->data;

    if (ch->open || ch->ending || ch->out_len > 0)
        return;             /* what waits holds a HELLO that was not read yet */
    if (say_hello(ch) == 0) /* no memory: perhaps next time */
        flush_or_end(ch);
}

/* Returns how much of data precedes the conversation. */
static size_t seek_ready(struct tr_channel *ch, const uint8_t *data, size_t len)
{
    uint8_t want[GREETING_LEN];
    size_t i = 0;

    want[0] = FRAME_READY;
    memcpy(want + 1, ch->nonce, TR_CHANNEL_NONCE_LEN);
    while (i < len && ch->matched < GREETING_LEN) {
        if (data[i] == want[ch->matched]) {
            ch->matched++;
            i++;
        } else if (ch->matched > 0) {
            /* A partial match may hide the beginning of the real one: fall back to the longest
             * prefix of want that ends what was matched. */
            size_t k = ch->matched - 1;

            while (k > 0 && memcmp(want, want + ch->matched - k, k) != 0)
                k--;
            ch->matched = k;
        } else {
            i++;
        }
    }
    return i;
}

/* ---- receiving ---- */

static void begin_conversation(struct tr_channel *ch)
{
    ch->open = true;
    if (ch->cbs.on_open != NULL)
        ch->cbs.on_open(ch, ch->arg);
}

static void on_hello(struct tr_channel *ch, const uint8_t *nonce)
{
    bool again = ch->greeted && memcmp(nonce, ch->nonce, TR_CHANNEL_NONCE_LEN) == 0;

    if (!again) {
        end_conversation(ch, UV_ECONNRESET);
        if (ch->ending)
            return;
        ch->greeted = true;
        memcpy(ch->nonce, nonce, TR_CHANNEL_NONCE_LEN);
        ch->out_len = ch->out_off = 0; /* the new host must see nothing of the old */
    }
    if (out_reserve(ch, GREETING_LEN) != 0) {
        ch->greeted = false; /* the host asks again */
        return;
    }
    put_greeting(ch, FRAME_READY);
    flush_or_end(ch);
    if (!again && !ch->ending)
        begin_conversation(ch);
}

static void on_frame(enum tr_channel_event event, const uint8_t *data, size_t len, void *arg)
{
    struct tr_channel *ch = arg;

    if (ch->ending)
        return;
    if (event == TR_CHANNEL_HELLO && !ch->host)
        on_hello(ch, data);
    else if (event == TR_CHANNEL_BYTES && ch->open && ch->cbs.on_data != NULL)
        ch->cbs.on_data(ch, data, len, ch->arg);
}

static void received(struct tr_channel *ch, const uint8_t *data, size_t len)
{
    if (ch->host && !ch->open) {
        size_t n = seek_ready(ch, data, len);

        if (ch->matched < GREETING_LEN)
            return;
        uv_timer_stop(&ch->timer);
        data += n;
        len -= n;
        begin_conversation(ch);
    }
    if (!ch->ending)
        tr_channel_parse(&ch->parser, data, len, on_frame, ch);
}

static void on_look_again(uv_timer_t *timer)
{
    struct tr_channel *ch = timer->data;

    ch->hung_up = false;
    watch(ch);
}

static void on_no_data(struct tr_channel *ch)
{
    if (!ch->serial) {
        end_later(ch, UV_EOF);
        return;
    }
    ch->hung_up = true; /* no host: the device polls as ready all the time */
    uv_timer_start(&ch->timer, on_look_again, NO_HOST_MS, 0);
}

static void on_readable(struct tr_channel *ch)
{
    static _Thread_local uint8_t buf[READ_LEN]; /* parsed before anybody else reads */

    for (int i = 0; i < READS_PER_TURN && !ch->ending; i++) {
        ssize_t n = read(ch->fd_in, buf, sizeof(buf));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            end_later(ch, -errno);
            return;
        }
        if (n == 0) {
            on_no_data(ch);
            return;
        }
        received(ch, buf, (size_t)n);
    }
}

static void on_writable(struct tr_channel *ch)
{
    flush_or_end(ch);
    if (ch->full && ch->out_len <= LOW_WATER && !ch->ending) {
        ch->full = false;
        if (ch->cbs.on_drain != NULL)
            ch->cbs.on_drain(ch, ch->arg);
    }
}

/* ---- polling ---- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct tr_channel *ch = poll->data;

    if (ch->ending)
        return;
    if (status != 0) {
        /* libuv watches no more, and does not say why: the next read names the fault. */
        *(poll == &ch->poll_in ? &ch->events_in : &ch->events_out) = 0;
        on_readable(ch);
        if (!ch->ending && !ch->hung_up)
            end_later(ch, status);
        return;
    }
    if ((events & UV_READABLE) != 0 && poll == &ch->poll_in)
        on_readable(ch);
    if ((events & UV_WRITABLE) != 0 && !ch->ending)
        on_writable(ch);
    if (!ch->ending)
        watch(ch);
}

static void poll_for(struct tr_channel *ch, uv_poll_t *poll, int *now, int events)
{
    int r;

    if (*now == events)
        return;
    r = events == 0 ? uv_poll_stop(poll) : uv_poll_start(poll, events, on_poll);
    if (r == 0)
        *now = events;
    else
        end_later(ch, r);
}

static void watch(struct tr_channel *ch)
{
    int in = ch->hung_up ? 0 : UV_READABLE;
    int out = ch->out_len > 0 && !ch->hung_up ? UV_WRITABLE : 0;

    if (ch->closing)
        return;
    if (ch->split) {
        poll_for(ch, &ch->poll_in, &ch->events_in, in);
        poll_for(ch, &ch->poll_out, &ch->events_out, out);
    } else {
        poll_for(ch, &ch->poll_in, &ch->events_in, in | out);
    }
}

/* ---- public ---- */

static int set_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return -errno;
    return 0;
}

/* What can fail, before any handle is live. */
static int prepare(struct tr_channel *ch)
{
    int r = set_nonblock(ch->fd_in);

    if (r == 0 && ch->split)
        r = set_nonblock(ch->fd_out);
    if (r != 0)
        return r;
    if (!ch->host)
        return 0;
    if (getrandom(ch->nonce, sizeof(ch->nonce), 0) != (ssize_t)sizeof(ch->nonce))
        return -errno;
    return say_hello(ch);
}

/* The first handle whose descriptor cannot be polled leaves nothing behind but itself unopened:
 * libuv refuses before it registers anything. */
static int init_handles(struct tr_channel *ch)
{
    int r = uv_poll_init(ch->loop, &ch->poll_in, ch->fd_in);

    if (r != 0)
        return r;
    ch->poll_in.data = ch->poll_out.data = ch->timer.data = ch->later.data = ch;
    ch->n_open = 3;
    if (uv_timer_init(ch->loop, &ch->timer) != 0 || uv_idle_init(ch->loop, &ch->later) != 0)
        abort(); /* cannot fail on Unix */
    if (ch->split) {
        r = uv_poll_init(ch->loop, &ch->poll_out, ch->fd_out);
        if (r == 0) {
            ch->n_open = 4;
        } else { /* told through on_close, since handles are live */
            close(ch->fd_out);
            ch->split = false;
            end_later(ch, r);
        }
    }
    return 0;
}

int tr_channel_open(uv_loop_t *loop, int fd_in, int fd_out, bool host, bool serial,
                    const struct tr_channel_cbs *cbs, void *arg, struct tr_channel **out)
{
    struct tr_channel *ch = calloc(1, sizeof(*ch));
    int r;

    if (ch == NULL)
        return UV_ENOMEM;
    ch->loop = loop;
    ch->cbs = *cbs;
    ch->arg = arg;
    ch->fd_in = fd_in;
    ch->fd_out = fd_out;
    ch->split = fd_in != fd_out;
    ch->host = host;
    ch->serial = serial;
    tr_channel_parser_init(&ch->parser);
    r = prepare(ch);
    if (r == 0)
        r = init_handles(ch);
    if (r != 0) {
        free(ch->out);
        free(ch);
        return r;
    }
    if (host && uv_timer_start(&ch->timer, on_hello_again, HELLO_AGAIN_MS, HELLO_AGAIN_MS) != 0)
        abort(); /* cannot fail with a callback */
    if (!ch->ending)
        watch(ch); /* the greeting leaves from the loop */
    *out = ch;
    return 0;
}

void tr_channel_close(struct tr_channel *ch)
{
    end_later(ch, 0);
}

uv_loop_t *tr_channel_loop(const struct tr_channel *ch)
{
    return ch->loop;
}
