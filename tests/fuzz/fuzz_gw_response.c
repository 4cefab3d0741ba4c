/* SPDX-License-Identifier: MIT */
/* A whole response of an app: interim heads, head, body, trailers. The first byte says what was
 * asked and how the bytes are cut. What comes out must be the same whether they come at once or in
 * pieces: whoever can make the edge read one thing and the client another has a response of his own
 * in somebody else's connection. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/body.h"

#define N_FIELDS 100

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum verdict { INCOMPLETE, WHOLE, REFUSED };

struct received {
    enum verdict verdict;
    int status;
    unsigned n_interim;
    enum gw_framing framing;
    char *body;
    size_t body_len, used, n_trailers;
};

struct reader {
    struct gw_http1_scan scan;
    struct gw_body body;
    enum gw_method method;
    bool in_body;
    char *buf;
    size_t len;
    struct received *out;
};

static const struct gw_http1_limits limits = {.head_bytes = 4096, .n_fields = N_FIELDS};

static void drop(struct reader *r, size_t n)
{
    r->out->used += n;
    r->len -= n;
    memmove(r->buf, r->buf + n, r->len);
}

/* Returns whether there may be more to do with the bytes that are there. */
static bool take_head(struct reader *r)
{
    struct gw_field fields[N_FIELDS];
    struct gw_response resp;
    const char *why = NULL;
    long end = gw_http1_find_end(&r->scan, r->buf, r->len);

    if (end == 0 && r->len < limits.head_bytes)
        return false;
    r->out->verdict = REFUSED;
    if (end <= 0 || end > (long)limits.head_bytes ||
        gw_http1_parse_response(r->buf, (size_t)end, &limits, r->method, fields, &resp, &why) != 0)
        return false;
    r->out->verdict = INCOMPLETE;
    memset(&r->scan, 0, sizeof(r->scan));
    drop(r, (size_t)end);
    if (resp.status == 101) { /* a tunnel, or refused: no body either way */
        r->out->status = resp.status;
        r->out->verdict = WHOLE;
        return false;
    }
    if (resp.status < 200) {
        assert(resp.framing == GW_BODY_NONE);
        r->out->n_interim++;
        return true;
    }
    r->out->status = resp.status;
    r->out->framing = resp.framing;
    gw_body_start(&r->body, resp.framing, resp.length);
    r->in_body = true;
    return true;
}

static bool take_body(struct reader *r)
{
    struct gw_field fields[N_FIELDS];
    struct gw_body_part part;
    enum gw_body_result result = gw_body_decode(&r->body, r->buf, r->len, limits.head_bytes, &part);

    if (result == GW_BODY_ERROR) {
        r->out->verdict = REFUSED;
        return false;
    }
    assert(part.plain <= part.used && part.used <= r->len);
    if (part.plain > 0) {
        memcpy(r->out->body + r->out->body_len, r->buf, part.plain);
        r->out->body_len += part.plain;
    }
    if (result == GW_BODY_DONE && part.trailers_len > 0) {
        assert(part.plain == 0); /* they come after the body has gone */
        if (gw_http1_parse_trailers(part.trailers, part.trailers_len, &limits, fields,
                                    &r->out->n_trailers) != 0)
            r->out->n_trailers = 0;
        for (size_t i = 0; i < r->out->n_trailers; i++)
            assert(fields[i].id == GW_FIELD_OTHER || fields[i].id == GW_FIELD_ACCEPT);
    }
    drop(r, part.used);
    if (result == GW_BODY_DONE)
        r->out->verdict = WHOLE;
    return result == GW_BODY_MORE && part.used > 0 && r->len > 0;
}

/* buf and out->body have room for size bytes. */
static void receive(const uint8_t *data, size_t size, size_t step, enum gw_method method, char *buf,
                    struct received *out)
{
    struct reader r = {.method = method, .buf = buf, .out = out};

    for (size_t at = 0; at < size && out->verdict == INCOMPLETE; at += step) {
        size_t n = size - at < step ? size - at : step;

        memcpy(r.buf + r.len, data + at, n);
        r.len += n;
        while (out->verdict == INCOMPLETE && (r.in_body ? take_body(&r) : take_head(&r)))
            ;
    }
    if (r.in_body && out->verdict == INCOMPLETE && out->framing == GW_BODY_CLOSE)
        out->verdict = WHOLE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum gw_method method;
    struct received whole = {0}, pieces = {0};
    char *buf;

    if (size < 1)
        return 0;
    buf = malloc(size);
    whole.body = malloc(size);
    pieces.body = malloc(size);
    if (buf == NULL || whole.body == NULL || pieces.body == NULL)
        abort();
    method = (data[0] & 1) != 0 ? GW_METHOD_HEAD : GW_METHOD_GET;
    receive(data + 1, size - 1, size, method, buf, &whole);
    receive(data + 1, size - 1, (size_t)(data[0] >> 3) + 1, method, buf, &pieces);
    assert(whole.verdict == pieces.verdict);
    if (whole.verdict == WHOLE) {
        assert(whole.status == pieces.status && whole.n_interim == pieces.n_interim);
        assert(whole.framing == pieces.framing && whole.n_trailers == pieces.n_trailers);
        assert(whole.used == pieces.used && whole.body_len == pieces.body_len);
        assert(memcmp(whole.body, pieces.body, whole.body_len) == 0);
        assert(whole.framing != GW_BODY_NONE || whole.body_len == 0);
    }
    free(buf);
    free(whole.body);
    free(pieces.body);
    return 0;
}
