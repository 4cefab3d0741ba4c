/* SPDX-License-Identifier: MIT */
/* Requests to a private preview: what is let in carries a token that we would have made, and what
 * goes on carries none. Input: the target, then field lines, as an HTTP/1.1 client sends them. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include "gateway/access.h"
#include "gateway/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LABEL "ab12ab12ab12ab12"
#define NOW   1900000000

static uint8_t key[TR_ROUTE_KEY_SIZE];
static struct evp_mac_ctx_st *mac;
static struct gw_field fields[64];

/* The token again, from what it says of itself. */
static void expect_ours(struct gw_str token, uint16_t port, uint64_t expires)
{
    char msg[128], text[128];
    unsigned char sum[EVP_MAX_MD_SIZE], base64[64];
    unsigned len = 0;
    int n = snprintf(msg, sizeof(msg), "v1%c%s%c%u%c%llu", 0, LABEL, 0, port, 0,
                     (unsigned long long)expires);

    assert(HMAC(EVP_sha256(), key, sizeof(key), (unsigned char *)msg, (size_t)n, sum, &len));
    EVP_EncodeBlock(base64, sum, 32);
    for (int i = 0; i < 44; i++)
        base64[i] = base64[i] == '+' ? '-' : base64[i] == '/' ? '_' : base64[i];
    n = snprintf(text, sizeof(text), "%u.%llu.%.43s", port, (unsigned long long)expires, base64);
    assert(token.len == (size_t)n && memcmp(token.p, text, token.len) == 0);
    assert(expires > NOW);
}

/* Is every byte of part found in whole, in this order? */
static void expect_within(struct gw_str part, struct gw_str whole)
{
    size_t at = 0;

    for (size_t i = 0; i < part.len; i++, at++) {
        while (at < whole.len && whole.p[at] != part.p[i])
            at++;
        assert(at < whole.len);
    }
}

static void check(struct gw_request *req, bool secure)
{
    struct gw_access a = {.mac = mac,
                          .key = key,
                          .label = LABEL,
                          .port = 3000,
                          .now = NOW,
                          .secure = secure,
                          .embed = secure};
    struct gw_bufs bufs = {0};
    struct gw_buf *text = NULL, *again = NULL;
    struct gw_str token = {NULL, 0}, target = req->target, none;
    bool navigates = gw_access_navigates(req, true);
    char cookie[GW_ACCESS_COOKIE_MAX], *location = malloc(target.len + 2);
    struct gw_field before[64];
    uint64_t expires = 0;
    enum gw_access_verdict v = gw_access_check(&a, req, navigates, &token, &expires);
    size_t n, at = 0;

    assert(location != NULL && (v != GW_ACCESS_ENTER || navigates));
    if (v != GW_ACCESS_DENIED) {
        expect_ours(token, a.port, expires);
        assert(gw_access_cookie(&a, token, expires, cookie) < sizeof(cookie));
    }
    n = gw_access_location(target, location);
    assert(n <= target.len + 2);
    if (target.p[0] == '/' && n > 1)
        assert(location[0] == '/' && location[1] != '/' && location[1] != '\\');
    memcpy(before, fields, sizeof(before));
    assert(gw_access_clean(&bufs, req, &text) == 0);
    expect_within(req->target, target);
    assert(!gw_access_next_param(req->target, &at, &none));
    for (size_t i = 0; i < req->n_fields; i++) {
        struct gw_str value = {fields[i].value, fields[i].value_len};

        expect_within(value, (struct gw_str){before[i].value, before[i].value_len});
        if (fields[i].id != GW_FIELD_COOKIE)
            assert(fields[i].value == before[i].value);
    }
    /* Nobody is let in by what is left, and nothing more is taken away. */
    if (secure)
        assert(gw_access_clean(&bufs, req, &again) == 0 && again == NULL);
    for (size_t i = 0; i < req->n_fields; i++)
        if (fields[i].hop_by_hop)
            fields[i].id = GW_FIELD_OTHER;
    assert(gw_access_check(&a, req, false, &token, &expires) == GW_ACCESS_DENIED);
    gw_buf_put(&bufs, text);
    gw_bufs_fini(&bufs);
    free(location);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gw_http1_limits limits = {.head_bytes = 65536, .n_fields = 64};
    const uint8_t *lf = memchr(data, '\n', size);
    size_t target = lf != NULL ? (size_t)(lf - data) : size, rest = size - target;
    char *head = malloc(size * 2 + 64), *p;
    struct gw_request req;
    const char *why;

    assert(head != NULL);
    if (mac == NULL)
        mac = gw_token_mac_new();
    for (unsigned i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    for (int secure = 0; secure < 2; secure++) {
        p = head +
            sprintf(head, "GET %.*s HTTP/1.1\r\nHost: h\r\n", (int)target, (const char *)data);
        for (size_t i = 1; i < rest; i++) {
            if (data[target + i] == '\n')
                *p++ = '\r';
            *p++ = (char)data[target + i];
        }
        (void)sprintf(p, "\r\n\r\n");
        /* Up to the first empty line, as the connection would. */
        p = strstr(head, "\r\n\r\n");
        if (p != NULL &&
            gw_http1_parse_request(head, (size_t)(p + 4 - head), &limits, fields, &req, &why) == 0)
            check(&req, secure != 0);
    }
    free(head);
    return 0;
}
