/* SPDX-License-Identifier: MIT */
/* A window's terminal bytes, in pieces that byte 0 sizes: what comes out must be what went in
 * without the marks, however it was cut. The rest of each input is also put through the ring and
 * the UTF-8 repair. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/marker.h"
#include "vmm/agent/ring.h"
#include "vmm/agent/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    uint8_t *bytes;
    size_t len, n_marks, mark_bytes;
};

static void on_bytes(const uint8_t *data, size_t len, void *arg)
{
    struct outcome *o = arg;

    memcpy(o->bytes + o->len, data, len);
    o->len += len;
}

static void on_mark(char kind, uint64_t number, void *arg)
{
    struct outcome *o = arg;

    (void)number;
    assert(kind == 'S' || kind == 'E');
    o->n_marks++;
}

static void feed(const uint8_t *data, size_t size, size_t step, struct outcome *o)
{
    static const struct agent_marker_cbs cbs = {on_bytes, on_mark};
    struct agent_marker m;

    *o = (struct outcome){.bytes = malloc(size + 1)};
    if (o->bytes == NULL)
        abort();
    agent_marker_init(&m, "0123456789abcdef01234567");
    for (size_t at = 0; at < size; at += step)
        agent_marker_feed(&m, data + at, size - at < step ? size - at : step, &cbs, o);
    agent_marker_flush(&m, &cbs, o);
    assert(o->len <= size && (o->n_marks > 0 || o->len == size));
}

static void try_ring(const uint8_t *data, size_t size, size_t step)
{
    struct agent_ring ring;
    uint8_t out[97];

    if (agent_ring_init(&ring, sizeof(out)) != 0)
        abort();
    for (size_t at = 0; at < size; at += step) {
        agent_ring_write(&ring, data + at, size - at < step ? size - at : step);
        agent_ring_copy(&ring, agent_ring_begin(&ring), ring.end, out);
        assert(memcmp(out, data + agent_ring_begin(&ring), ring.end - agent_ring_begin(&ring)) ==
               0);
    }
    agent_ring_fini(&ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, pieces;
    size_t step, len;
    char *text;

    if (size < 1)
        return 0;
    step = data[0] + 1u;
    data++;
    size--;
    feed(data, size, size + 1, &whole);
    feed(data, size, step, &pieces);
    assert(whole.len == pieces.len && whole.n_marks == pieces.n_marks);
    assert(memcmp(whole.bytes, pieces.bytes, whole.len) == 0);
    free(whole.bytes);
    free(pieces.bytes);
    try_ring(data, size, step);
    text = agent_utf8_repair((const char *)data, size, &len);
    if (text == NULL)
        abort();
    assert(agent_utf8_valid(text, len));
    assert(!agent_utf8_valid((const char *)data, size) || len == size);
    free(text);
    return 0;
}
