/* SPDX-License-Identifier: MIT */
/* Set-Cookie and Location of an app. The first byte picks which. Whatever comes out holds no byte
 * that did not go in, no shared domain, and does not change when it is looked at again. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/rewrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left is the value with whole attributes missing. */
static void check_cookie(struct gw_str value)
{
    char *out = malloc(value.len > 0 ? value.len : 1), *again;
    size_t n = gw_rewrite_cookie(value, "test", "preview.test", out), at = 0;
    const char *end;

    assert(n == 0 || n < value.len);
    for (size_t i = 0; i < n; i++) { /* a subsequence */
        while (at < value.len && value.p[at] != out[i])
            at++;
        assert(at < value.len);
        at++;
    }
    if (n > 0) {
        again = malloc(n);
        assert(gw_rewrite_cookie((struct gw_str){out, n}, "test", "preview.test", again) == 0);
        free(again);
        end = memchr(value.p, ';', value.len);
        if (end != NULL) /* the cookie itself stays */
            assert(memcmp(out, value.p, (size_t)(end - value.p)) == 0);
    }
    free(out);
}

static void check_location(struct gw_str value)
{
    static const struct gw_rewrite_own own = {
        .host = {"ab12.preview.test", 17}, .tls = true, .address = "100.64.0.6", .port = 8080};
    size_t room = value.len + own.host.len + GW_REWRITE_SCHEME, n, skip;
    char *out = malloc(room);

    n = gw_rewrite_location(value, &own, out);
    if (n > 0) {
        assert(n <= room);
        skip = memcmp(out, "https://", 8) == 0 ? 8 : 2;
        assert(memcmp(out + skip, own.host.p, own.host.len) == 0);
        skip += own.host.len;
        if (n > skip) /* and then the path, as it was */
            assert(memchr("/?#", out[skip], 3) != NULL && n - skip <= value.len &&
                   memcmp(out + skip, value.p + value.len - (n - skip), n - skip) == 0);
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *value;

    if (size == 0)
        return 0;
    value = malloc(size);
    if (value == NULL)
        return 0;
    memcpy(value, data + 1, size - 1);
    if (data[0] % 2 == 0)
        check_cookie((struct gw_str){value, size - 1});
    else
        check_location((struct gw_str){value, size - 1});
    free(value);
    return 0;
}
