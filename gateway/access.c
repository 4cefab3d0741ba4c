/* SPDX-License-Identifier: MIT */
#include "gateway/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include "gateway/http1.h"
#include "transom/hex.h"

#define MAC_LEN     32
#define MAC_TEXT    43 /* base64url without padding */
#define TRIES_MAX   8
#define PLAIN_NAME  "transom-preview"
#define SECURE_NAME "__Host-transom-preview"

/* ---- tokens ---- */

struct evp_mac_ctx_st *gw_token_mac_new(void)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac != NULL ? EVP_MAC_CTX_new(hmac) : NULL;

    EVP_MAC_free(hmac); /* the context holds it */
    if (mac != NULL && EVP_MAC_CTX_set_params(mac, params) != 1) {
        EVP_MAC_CTX_free(mac);
        return NULL;
    }
    return mac;
}

void gw_token_mac_free(struct evp_mac_ctx_st *mac)
{
    EVP_MAC_CTX_free(mac);
}

/* A decimal number without leading zeros, up to a "."; false: there is none up to max. */
static bool take_number(const char **p, const char *end, uint64_t max, uint64_t *out)
{
    const char *start = *p;
    uint64_t n = 0;

    while (*p < end && **p >= '0' && **p <= '9' && *p - start < 12)
        n = n * 10 + (uint64_t)(*(*p)++ - '0');
    if (*p == start || *start == '0' || n > max || *p == end || **p != '.')
        return false;
    *out = n;
    return true;
}

static int base64url_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* 43 digits are 258 bits: the last two must be zero, or there would be four ways to write a MAC. */
static bool decode_mac(const char *text, unsigned char out[MAC_LEN])
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t n = 0;

    for (int i = 0; i < MAC_TEXT; i++) {
        int v = base64url_value(text[i]);

        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (unsigned char)(bits >> n_bits);
        }
    }
    return (bits & 3) == 0;
}

bool gw_token_valid(EVP_MAC_CTX *mac, struct gw_str token, const uint8_t key[TR_ROUTE_KEY_SIZE],
                    const char *label, uint16_t port, uint64_t now, uint64_t *expires)
{
    const char *p = token.p, *end = p + token.len, *expiry;
    unsigned char given[MAC_LEN], want[MAC_LEN];
    char msg[3 + TR_LABEL_LEN + 1 + GW_TOKEN_MAX];
    uint64_t token_port, token_expires;
    size_t port_len, expiry_len, mac_len = 0, n = 0;
    bool same;

    if (token.len > GW_TOKEN_MAX || !take_number(&p, end, UINT16_MAX, &token_port))
        return false;
    port_len = (size_t)(p++ - token.p);
    expiry = p;
    if (!take_number(&p, end, UINT64_MAX, &token_expires))
        return false;
    expiry_len = (size_t)(p++ - expiry);
    if (end - p != MAC_TEXT || !decode_mac(p, given))
        return false;
    memcpy(msg, "v1", 3);
    n += 3;
    memcpy(msg + n, label, TR_LABEL_LEN);
    n += TR_LABEL_LEN;
    msg[n++] = '\0';
    memcpy(msg + n, token.p, port_len);
    n += port_len;
    msg[n++] = '\0';
    memcpy(msg + n, expiry, expiry_len);
    n += expiry_len;
    if (EVP_MAC_init(mac, key, TR_ROUTE_KEY_SIZE, NULL) != 1 ||
        EVP_MAC_update(mac, (unsigned char *)msg, n) != 1 ||
        EVP_MAC_final(mac, want, &mac_len, sizeof(want)) != 1 || mac_len != MAC_LEN)
        return false;
    same = CRYPTO_memcmp(want, given, MAC_LEN) == 0;
    if (!same || token_port != port || token_expires <= now)
        return false;
    *expires = token_expires;
    return true;
}

/* ---- where they stand ---- */

/* Is p..end our parameter's name, percent-encoded or not (an app would decode it)? */
static bool is_param(const char *p, const char *end)
{
    const char *name = GW_TOKEN_PARAM;

    while (p < end && *name != '\0') {
        int c = (unsigned char)*p++;

        if (c == '%' && end - p >= 2 && tr_hex_digit(p[0]) >= 0 && tr_hex_digit(p[1]) >= 0) {
            c = tr_hex_digit(p[0]) * 16 + tr_hex_digit(p[1]);
            p += 2;
        }
        if (c != *name++)
            return false;
    }
    return p == end && *name == '\0';
}

bool gw_access_next_param(struct gw_str target, size_t *at, struct gw_str *value)
{
    const char *end = target.p + target.len, *p;

    if (*at == 0) {
        p = memchr(target.p, '?', target.len);
        if (p == NULL)
            return false;
        p++;
    } else {
        p = target.p + *at;
    }
    while (p < end) {
        const char *stop = memchr(p, '&', (size_t)(end - p)), *equals;

        if (stop == NULL)
            stop = end;
        equals = memchr(p, '=', (size_t)(stop - p));
        if (is_param(p, equals != NULL ? equals : stop)) {
            value->p = equals != NULL ? equals + 1 : stop;
            value->len = (size_t)(stop - value->p);
            *at = (size_t)(stop - target.p) + (stop < end);
            return true;
        }
        p = stop + 1;
    }
    return false;
}

size_t gw_access_clean_target(struct gw_str target, char *out)
{
    const char *end = target.p + target.len, *p = memchr(target.p, '?', target.len);
    bool removed = false, kept = false;
    size_t n = p != NULL ? (size_t)(p - target.p) + 1 : target.len, start = n;

    memcpy(out, target.p, n);
    while (p != NULL) {
        const char *stop, *equals;
        size_t len;

        p++;
        stop = memchr(p, '&', (size_t)(end - p));
        len = stop != NULL ? (size_t)(stop - p) : (size_t)(end - p);
        equals = memchr(p, '=', len);
        if (is_param(p, equals != NULL ? equals : p + len)) {
            removed = true;
        } else {
            if (kept)
                out[n++] = '&';
            memcpy(out + n, p, len);
            n += len;
            kept = true;
        }
        p = stop;
    }
    if (removed && n == start)
        n--; /* the "?" */
    return n;
}

/* One pair of a Cookie value. */
struct pair {
    const char *start, *end; /* up to its ";" or the value's end */
    const char *name, *value;
    size_t name_len, value_len;
};

static bool next_pair(const char **p, const char *end, struct pair *out)
{
    const char *stop, *equals, *q;

    if (*p >= end)
        return false;
    out->start = *p;
    stop = memchr(*p, ';', (size_t)(end - *p));
    if (stop == NULL)
        stop = end;
    out->end = stop;
    *p = stop < end ? stop + 1 : end;
    for (q = out->start; q < stop && (*q == ' ' || *q == '\t'); q++)
        ;
    out->name = q;
    equals = q < stop ? memchr(q, '=', (size_t)(stop - q)) : NULL;
    out->value = equals != NULL ? equals + 1 : stop;
    out->value_len = (size_t)(stop - out->value);
    while (out->value_len > 0 &&
           (out->value[out->value_len - 1] == ' ' || out->value[out->value_len - 1] == '\t'))
        out->value_len--;
    q = equals != NULL ? equals : stop;
    while (q > out->name && (q[-1] == ' ' || q[-1] == '\t'))
        q--;
    out->name_len = (size_t)(q - out->name);
    return true;
}

static bool is_named(const struct pair *c, const char *name)
{
    size_t n = strlen(name);

    return c->name_len == n && memcmp(c->name, name, n) == 0;
}

static bool is_ours(const struct pair *c)
{
    return is_named(c, PLAIN_NAME) || is_named(c, SECURE_NAME);
}

/* A pair that goes takes the ";" and the blanks behind it along, the last one those before it. */
size_t gw_access_clean_cookies(struct gw_str value, char *out)
{
    const char *p = value.p, *end = p + value.len;
    struct pair c;
    size_t n = 0;

    while (next_pair(&p, end, &c)) {
        if (!is_ours(&c)) {
            memcpy(out + n, c.start, (size_t)(p - c.start));
            n += (size_t)(p - c.start);
            continue;
        }
        if (p == end && c.end == end) { /* the last: what led to it goes */
            if (n > 0 && out[n - 1] == ';')
                n--;
            break;
        }
        if (n == 0)
            while (p < end && (*p == ' ' || *p == '\t'))
                p++;
    }
    return n;
}

static bool has_ours(struct gw_str value)
{
    const char *p = value.p, *end = p + value.len;
    struct pair c;

    if (value.len < sizeof(PLAIN_NAME) - 1 ||
        memmem(value.p, value.len, PLAIN_NAME, sizeof(PLAIN_NAME) - 1) == NULL)
        return false;
    while (next_pair(&p, end, &c))
        if (is_ours(&c))
            return true;
    return false;
}

/* ---- the request ---- */

bool gw_access_navigates(const struct gw_request *req, bool html)
{
    if (!html || req->upgrade ||
        (req->method_id != GW_METHOD_GET && req->method_id != GW_METHOD_HEAD))
        return false;
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (f->id == GW_FIELD_SEC_FETCH_MODE &&
            !gw_str_ieq((struct gw_str){f->value, f->value_len}, "navigate", 8))
            return false;
    }
    return true;
}

struct search {
    const struct gw_access *a;
    struct gw_str *token;
    uint64_t *expires;
    unsigned n_tries;
};

static bool try_token(struct search *s, struct gw_str token)
{
    if (s->n_tries >= TRIES_MAX)
        return false;
    s->n_tries++;
    if (!gw_token_valid(s->a->mac, token, s->a->key, s->a->label, s->a->port, s->a->now,
                        s->expires))
        return false;
    *s->token = token;
    return true;
}

/* A cookie of the other scheme is not believed: without "__Host-" any neighbour may have set it. */
static bool try_cookies(struct search *s, const struct gw_field *f)
{
    const char *p = f->value, *end = p + f->value_len;
    struct pair c;

    while (next_pair(&p, end, &c))
        if (is_named(&c, s->a->secure ? SECURE_NAME : PLAIN_NAME) &&
            try_token(s, (struct gw_str){c.value, c.value_len}))
            return true;
    return false;
}

enum gw_access_verdict gw_access_check(const struct gw_access *a, const struct gw_request *req,
                                       bool navigates, struct gw_str *token, uint64_t *expires)
{
    struct search s = {.a = a, .token = token, .expires = expires};
    struct gw_str value;
    size_t at = 0;

    while (s.n_tries < TRIES_MAX / 2 && gw_access_next_param(req->target, &at, &value))
        if (try_token(&s, value))
            return navigates ? GW_ACCESS_ENTER : GW_ACCESS_GRANTED;
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (f->id == GW_FIELD_TRANSOM_TOKEN &&
            try_token(&s, (struct gw_str){f->value, f->value_len}))
            return GW_ACCESS_GRANTED;
        if (f->id == GW_FIELD_COOKIE && try_cookies(&s, f))
            return GW_ACCESS_GRANTED;
    }
    return GW_ACCESS_DENIED;
}

size_t gw_access_cookie(const struct gw_access *a, struct gw_str token, uint64_t expires,
                        char out[GW_ACCESS_COOKIE_MAX])
{
    const char *site = !a->secure ? "SameSite=Lax"
                       : a->embed ? "Secure; SameSite=None; Partitioned"
                                  : "Secure; SameSite=Lax";

    return (size_t)snprintf(out, GW_ACCESS_COOKIE_MAX,
                            "%s=%.*s; Path=/; HttpOnly; %s; Max-Age=%llu",
                            a->secure ? SECURE_NAME : PLAIN_NAME, (int)token.len, token.p, site,
                            (unsigned long long)(expires - a->now));
}

size_t gw_access_location(struct gw_str target, char *out)
{
    size_t n = 0;

    /* "//host/" would lead to another host, and to browsers "/\host/" is the same. */
    if (target.len > 1 && (target.p[1] == '/' || target.p[1] == '\\')) {
        out[n++] = '/';
        out[n++] = '.';
    }
    return n + gw_access_clean_target(target, out + n);
}

int gw_access_clean(struct gw_bufs *bufs, struct gw_request *req, struct gw_buf **text)
{
    struct gw_str value;
    size_t need = 0, at = 0;
    bool target = gw_access_next_param(req->target, &at, &value);

    *text = NULL;
    if (target)
        need += req->target.len;
    for (size_t i = 0; i < req->n_fields; i++) {
        struct gw_field *f = &req->fields[i];

        if (f->id == GW_FIELD_TRANSOM_TOKEN)
            f->hop_by_hop = true; /* ends here, like those that Connection names */
        else if (f->id == GW_FIELD_COOKIE && has_ours((struct gw_str){f->value, f->value_len}))
            need += f->value_len;
    }
    if (need == 0)
        return 0;
    *text = gw_buf_get(bufs, need);
    if (*text == NULL)
        return UV_ENOMEM;
    if (target) {
        char *to = (*text)->data + (*text)->len;
        size_t n = gw_access_clean_target(req->target, to);

        req->target = (struct gw_str){to, n};
        (*text)->len += (uint32_t)n;
    }
    for (size_t i = 0; i < req->n_fields; i++) {
        struct gw_field *f = &req->fields[i];
        char *to = (*text)->data + (*text)->len;

        if (f->id != GW_FIELD_COOKIE || !has_ours((struct gw_str){f->value, f->value_len}))
            continue;
        f->value_len =
            (uint32_t)gw_access_clean_cookies((struct gw_str){f->value, f->value_len}, to);
        f->value = to;
        f->hop_by_hop = f->value_len == 0;
        (*text)->len += f->value_len;
    }
    return 0;
}
