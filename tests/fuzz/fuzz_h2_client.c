/* SPDX-License-Identifier: MIT */
/* A client session, as the manager has one towards a machine that may be hostile: three requests
 * are under way, then arbitrary bytes come back. Byte 0: what the handlers do. */
#include "fuzz_h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz f;

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    (void)arg;
    (void)end;
    assert(head->status >= 100 && head->status <= 999);
    if (head->status == 418)
        tr_h2_reset(st, 8);
    if (head->status == 500)
        tr_h2_end(st, NULL, 0);
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)arg;
    tr_h2_stream_consume(st, len);
    if (len == 3)
        tr_h2_end(st, NULL, 0);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    (void)arg;
    if (trailers != NULL)
        assert(trailers->status == 0);
    tr_h2_end(st, NULL, 0);
}

static void start(struct tr_h2 *h2);

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)code;
    (void)arg;
    f.n_closed++;
    if ((f.mode & 8) != 0 && f.n_opened < 20)
        start(tr_h2_stream_session(st));
}

static void start(struct tr_h2 *h2)
{
    static const struct tr_h2_stream_cbs cbs = {
        .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_close = on_close};
    struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", f.n_opened % 2 == 0 ? "POST" : "HEAD"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "m"),
        TR_H2_FIELD(":path", "/v1/exec"),
    };
    struct tr_h2_stream *st;

    if (tr_h2_request(h2, fields, 4, f.n_opened % 2 == 1, &cbs, NULL, &st) != 0)
        return;
    f.n_opened++;
    (void)!tr_h2_write(st, "0123456789", 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_h2_cbs cbs = {.send = fuzz_send, .on_over = fuzz_over};
    struct tr_h2_options o = {.max_head_bytes = 2000};

    if (size < 1)
        return 0;
    f = (struct fuzz){.mode = data[0]};
    if (tr_h2_new(false, &o, &cbs, &f, &f.h2) != 0)
        abort();
    for (int i = 0; i < 3; i++)
        start(f.h2);
    tr_h2_writable(f.h2);
    fuzz_feed(&f, data + 1, size - 1);
    fuzz_finish(&f);
    return 0;
}
