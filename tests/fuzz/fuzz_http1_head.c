/* SPDX-License-Identifier: MIT */
/* Request, response and trailer heads. The first byte picks which, and how the bytes are cut: a
 * head must be found at the same place whether it comes at once or in pieces. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http1.h"

#define N_FIELDS 100

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_str(struct gw_str s, const char *buf, size_t len)
{
    /* "/" and "*" of a reduced absolute-form are constants. */
    if (s.len > 1 || (s.len == 1 && *s.p != '/' && *s.p != '*'))
        assert(s.p >= buf && s.p + s.len <= buf + len);
}

static void check_fields(const struct gw_field *fields, size_t n, const char *buf, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        assert(fields[i].name_len > 0);
        check_str((struct gw_str){fields[i].name, fields[i].name_len}, buf, len);
        check_str((struct gw_str){fields[i].value, fields[i].value_len}, buf, len);
        assert(memchr(fields[i].name, ' ', fields[i].name_len) == NULL);
        assert(memchr(fields[i].value, '\r', fields[i].value_len) == NULL);
        assert(memchr(fields[i].value, '\n', fields[i].value_len) == NULL);
        assert(memchr(fields[i].value, '\0', fields[i].value_len) == NULL);
    }
}

static void check_request(const char *buf, size_t len)
{
    struct gw_http1_limits limits = {.head_bytes = 65536, .n_fields = N_FIELDS};
    struct gw_field fields[N_FIELDS];
    struct gw_request req;
    const char *why = NULL;
    int status = gw_http1_parse_request(buf, len, &limits, fields, &req, &why);

    if (status != 0) {
        assert(why != NULL && status >= 400 && status <= 505);
        return;
    }
    check_fields(fields, req.n_fields, buf, len);
    check_str(req.method, buf, len);
    check_str(req.target, buf, len);
    assert(req.method.len > 0 && req.target.len > 0);
    assert(req.target.p[0] == '/' || req.target.p[0] == '*');
    assert(memchr(req.target.p, ' ', req.target.len) == NULL);
    assert(req.minor <= 1);
    assert(req.framing != GW_BODY_CHUNKED || req.minor == 1);
    assert(!req.upgrade || req.framing == GW_BODY_NONE);
}

static void check_response(const char *buf, size_t len, enum gw_method method)
{
    struct gw_http1_limits limits = {.head_bytes = 65536, .n_fields = N_FIELDS};
    struct gw_field fields[N_FIELDS];
    struct gw_response resp;
    const char *why = NULL;

    if (gw_http1_parse_response(buf, len, &limits, method, fields, &resp, &why) != 0) {
        assert(why != NULL);
        return;
    }
    check_fields(fields, resp.n_fields, buf, len);
    check_str(resp.reason, buf, len);
    assert(resp.status >= 100 && resp.status <= 599);
    if (resp.status < 200 || resp.status == 204 || resp.status == 304 || method == GW_METHOD_HEAD)
        assert(resp.framing == GW_BODY_NONE);
    assert(resp.framing != GW_BODY_CLOSE || !resp.keep_alive);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gw_http1_scan whole = {0}, pieces = {0};
    struct gw_http1_limits limits = {.head_bytes = 65536, .n_fields = N_FIELDS};
    struct gw_field fields[N_FIELDS];
    size_t n, step;
    long end, end2 = 0;
    char *buf;

    if (size < 2)
        return 0;
    step = (size_t)(data[0] >> 3) + 1;
    buf = malloc(size - 1); /* exact bounds */
    if (buf == NULL)
        return 0;
    memcpy(buf, data + 1, size - 1);
    n = size - 1;
    end = gw_http1_find_end(&whole, buf, n);
    for (size_t have = step; end2 == 0 && have < n + step; have += step)
        end2 = gw_http1_find_end(&pieces, buf, have < n ? have : n);
    assert((end < 0 && end2 < 0) || end == end2);
    if (end > 0) {
        switch (data[0] & 7) {
        case 0:
            check_response(buf, (size_t)end, GW_METHOD_HEAD);
            break;
        case 1:
            check_response(buf, (size_t)end, GW_METHOD_GET);
            break;
        case 2:
            if (gw_http1_parse_trailers(buf, (size_t)end, &limits, fields, &n) == 0)
                check_fields(fields, n, buf, (size_t)end);
            break;
        default:
            check_request(buf, (size_t)end);
        }
    }
    free(buf);
    return 0;
}
