/* SPDX-License-Identifier: MIT */
#include "h2_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    struct side *s = arg;

    if (s->out.len + len > s->out.cap) {
        s->out.cap = (s->out.len + len) * 2;
        s->out.bytes = realloc(s->out.bytes, s->out.cap);
        if (s->out.bytes == NULL)
            abort();
    }
    memcpy(s->out.bytes + s->out.len, data, len);
    s->out.len += len;
    s->out.full = s->out.limit != 0 && s->out.len >= s->out.limit;
    return !s->out.full;
}

static void on_wake(void *arg)
{
    ((struct side *)arg)->woken = true;
}

static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct side *s = arg;

    s->n_over++;
    s->over_status = status;
    snprintf(s->over_reason, sizeof(s->over_reason), "%s", reason);
    s->h2 = NULL;
    tr_h2_free(h2);
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    struct side *s = arg;

    s->on_request(h2, st, head, end, s);
}

int pair_open(struct h2_pair *pair, const struct tr_h2_options *client,
              const struct tr_h2_options *server)
{
    struct tr_h2_cbs cbs = {.send = on_send, .wake = on_wake, .on_over = on_over};
    int r;

    memset(&pair->client, 0, sizeof(pair->client));
    pair->server = (struct side){.on_request = pair->server.on_request};
    r = tr_h2_new(false, client, &cbs, &pair->client, &pair->client.h2);
    if (r != 0)
        return r;
    if (pair->server.on_request != NULL)
        cbs.on_request = on_request;
    r = tr_h2_new(true, server, &cbs, &pair->server, &pair->server.h2);
    if (r != 0) {
        tr_h2_free(pair->client.h2);
        pair->client.h2 = NULL;
        return r;
    }
    tr_h2_writable(pair->client.h2);
    if (pair->server.h2 != NULL)
        tr_h2_writable(pair->server.h2);
    return 0;
}

bool pair_deliver(struct side *from, struct side *to, size_t piece)
{
    uint8_t *copy; /* exact size, so that ASan sees a read beyond it */
    size_t n = from->out.len < piece ? from->out.len : piece;

    if (n == 0)
        return false;
    copy = malloc(n);
    if (copy == NULL)
        abort();
    memcpy(copy, from->out.bytes, n);
    from->out.len -= n;
    memmove(from->out.bytes, from->out.bytes + n, from->out.len);
    if (to->h2 != NULL)
        tr_h2_feed(to->h2, copy, n);
    free(copy);
    if (from->out.full && from->out.len == 0) {
        from->out.full = false;
        if (from->h2 != NULL)
            tr_h2_writable(from->h2);
    }
    return true;
}

static bool run_woken(struct side *s)
{
    if (!s->woken)
        return false;
    s->woken = false;
    if (s->h2 != NULL)
        tr_h2_run(s->h2);
    return true;
}

void pair_run(struct h2_pair *pair)
{
    bool moved;

    do {
        moved = run_woken(&pair->client);
        moved = run_woken(&pair->server) || moved;
        moved = pair_deliver(&pair->client, &pair->server, 65536) || moved;
        moved = pair_deliver(&pair->server, &pair->client, 65536) || moved;
    } while (moved);
}

void pair_close(struct h2_pair *pair)
{
    tr_h2_free(pair->client.h2);
    tr_h2_free(pair->server.h2);
    pair->client.h2 = pair->server.h2 = NULL;
    free(pair->client.out.bytes);
    free(pair->server.out.bytes);
    pair->client.out = pair->server.out = (struct wire){0};
}

const struct tr_h2_field *pair_get_fields(const char *path, size_t *n)
{
    static struct tr_h2_field f[4];

    f[0] = TR_H2_FIELD(":method", "GET");
    f[1] = TR_H2_FIELD(":scheme", "http");
    f[2] = TR_H2_FIELD(":authority", "test");
    f[3] = TR_H2_FIELD(":path", path);
    *n = 4;
    return f;
}

void pair_write(struct tr_h2_stream *st, size_t len)
{
    static const uint8_t zeros[10000];

    while (len > 0) {
        size_t n = len < sizeof(zeros) ? len : sizeof(zeros);

        if (tr_h2_write(st, zeros, n) < 0)
            abort();
        len -= n;
    }
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct record *rec = arg;

    (void)st;
    if (head->status < 200) {
        rec->n_info++;
        return;
    }
    rec->n_head++;
    rec->status = head->status;
    rec->head_end = end;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct record *rec = arg;

    if (rec->body_len + len > rec->body_cap) {
        rec->body_cap = (rec->body_len + len) * 2;
        rec->body = realloc(rec->body, rec->body_cap);
        if (rec->body == NULL)
            abort();
    }
    memcpy(rec->body + rec->body_len, data, len);
    rec->body_len += len;
    if (rec->hold)
        rec->held += len;
    else
        tr_h2_stream_consume(st, len);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct record *rec = arg;
    const char *sum = trailers == NULL ? NULL : tr_h2_head_get(trailers, "x-sum");

    (void)st;
    rec->n_end++;
    if (sum != NULL)
        snprintf(rec->trailer, sizeof(rec->trailer), "%s", sum);
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    (void)st;
    ((struct record *)arg)->n_drain++;
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct record *rec = arg;

    (void)st;
    rec->n_close++;
    rec->code = code;
    rec->st = NULL;
}

const struct tr_h2_stream_cbs record_cbs = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_drain = on_drain,
    .on_close = on_close,
};

void record_clear(struct record *rec)
{
    free(rec->body);
    memset(rec, 0, sizeof(*rec));
}
