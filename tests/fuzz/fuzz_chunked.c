/* SPDX-License-Identifier: MIT */
/* Chunked bodies: whatever the cuts, the same body comes out, and the decoder stops at the same
 * place. The first byte is the size of the pieces. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/body.h"

#define TRAILERS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    enum gw_body_result result;
    unsigned char *body;
    size_t body_len, trailers_len, rest;
};

/* Feed the bytes in pieces, the way a connection does: what is not used stays in front. */
static void decode(const uint8_t *data, size_t size, size_t step, struct outcome *out)
{
    struct gw_body b;
    char *waiting = malloc(size + 1);
    size_t n_waiting = 0, at = 0;

    memset(out, 0, sizeof(*out));
    out->body = malloc(size + 1);
    assert(waiting != NULL && out->body != NULL);
    gw_body_start(&b, GW_BODY_CHUNKED, 0);
    out->result = GW_BODY_MORE;
    while (at < size && out->result == GW_BODY_MORE) {
        size_t n = size - at < step ? size - at : step;
        struct gw_body_part part;

        memcpy(waiting + n_waiting, data + at, n);
        n_waiting += n;
        at += n;
        do {
            out->result = gw_body_decode(&b, waiting, n_waiting, TRAILERS_MAX, &part);
            assert(part.used <= n_waiting && part.plain <= part.used);
            memcpy(out->body + out->body_len, waiting, part.plain);
            out->body_len += part.plain;
            if (out->result == GW_BODY_ERROR)
                break;
            out->trailers_len = part.trailers_len;
            memmove(waiting, waiting + part.used, n_waiting - part.used);
            n_waiting -= part.used;
        } while (out->result == GW_BODY_MORE && part.used > 0 && n_waiting > 0);
    }
    out->rest = size - at + n_waiting;
    free(waiting);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, pieces;

    if (size < 2)
        return 0;
    decode(data + 1, size - 1, size, &whole);
    decode(data + 1, size - 1, (size_t)data[0] + 1, &pieces);
    /* A trailer section over the limit is an error as soon as that many bytes are there. */
    assert(whole.result == pieces.result || size > TRAILERS_MAX);
    if (whole.result == GW_BODY_DONE && pieces.result == GW_BODY_DONE) {
        assert(whole.body_len == pieces.body_len);
        assert(memcmp(whole.body, pieces.body, whole.body_len) == 0);
        assert(whole.trailers_len == pieces.trailers_len);
        assert(whole.rest == pieces.rest);
    }
    free(whole.body);
    free(pieces.body);
    return 0;
}
