/* SPDX-License-Identifier: MIT */
/* A server session, as the agent has one, fed with arbitrary bytes. Byte 0: what the handlers do.
 * Unless its high bit is set the client's preface comes first, so that inputs get to the frames. */
#include "fuzz_h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz f;

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    (void)!tr_h2_write(st, data, len); /* echo */
    tr_h2_stream_consume(st, len);
    if (len == 7)
        tr_h2_reset(st, 8);
    if (len == 9)
        tr_h2_stream_discard(st);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct tr_h2_field sum = TR_H2_FIELD("x-sum", "1");

    (void)arg;
    if (trailers != NULL)
        tr_h2_end(st, &sum, 1);
    else
        tr_h2_end(st, NULL, 0);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    (void)arg;
    f.n_closed++;
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    static const struct tr_h2_stream_cbs cbs = {
        .on_data = on_data, .on_end = on_end, .on_close = on_close};
    size_t path_len = head->path != NULL ? strlen(head->path) : 0;

    (void)arg;
    f.n_opened++;
    assert(head->method != NULL);
    assert(tr_h2_n_streams(h2) <= 8);
    for (size_t i = 0; i < head->n_fields; i++) {
        assert(strlen(head->fields[i].name) == head->fields[i].name_len);
        assert(strlen(head->fields[i].value) == head->fields[i].value_len);
    }
    tr_h2_stream_set(st, &cbs, NULL);
    if (path_len == 3) {
        tr_h2_reset(st, 7);
        return;
    }
    if (path_len == 4)
        (void)!tr_h2_respond(st, 103, head->fields, head->n_fields, false);
    (void)!tr_h2_respond(st, 200, NULL, 0, path_len == 5);
    if (path_len == 5 && !end)
        tr_h2_stream_discard(st);
    if (path_len == 6)
        tr_h2_shutdown(h2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct tr_h2_cbs cbs = {.on_request = on_request, .send = fuzz_send, .on_over = fuzz_over};
    struct tr_h2_options o = {.max_streams = 8, .max_head_bytes = 2000, .connect_protocol = true};

    if (size < 1)
        return 0;
    f = (struct fuzz){.mode = data[0]};
    if (tr_h2_new(true, &o, &cbs, &f, &f.h2) != 0)
        abort();
    tr_h2_writable(f.h2);
    if ((data[0] & 0x80) == 0)
        tr_h2_feed(f.h2, (const uint8_t *)preface, sizeof(preface) - 1);
    fuzz_feed(&f, data + 1, size - 1);
    fuzz_finish(&f);
    return 0;
}
