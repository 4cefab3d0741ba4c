/* SPDX-License-Identifier: MIT */
/* Header blocks. nghttp2 has refused most of what RFC 9113 section 8 forbids when a field gets
 * here; what is written into another protocol is checked again all the same, and more strictly:
 * as HTTP/1.1 requests are. */
#include "gateway/h2_internal.h"

#include <string.h>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "gateway/ws_accept.h"

/* A client that goes on beyond the limits is answered as long as that costs little. */
#define HARD_BYTES(w)  (2 * (w)->opt->limits.head_bytes + (size_t)16 * 1024)
#define HARD_FIELDS(w) (2 * (w)->opt->limits.n_fields + 500)
#define FIELD_OVERHEAD 32 /* RFC 9113 section 6.5.2 */

/* A field in the block: this, then name and value. */
struct record {
    uint32_t name_len, value_len;
};

void gw_h2_head_begin(struct gw_h2_client *c)
{
    gw_h2_head_drop(c);
    c->head_open = true;
}

void gw_h2_head_drop(struct gw_h2_client *c)
{
    gw_buf_put(&c->w->bufs, c->block.buf);
    memset(&c->block, 0, sizeof(c->block));
    c->head_open = false;
}

int gw_h2_head_add(struct gw_h2_client *c, const uint8_t *name, size_t name_len,
                   const uint8_t *value, size_t value_len)
{
    const struct gw_http1_limits *limits = &c->w->opt->limits;
    struct record r = {(uint32_t)name_len, (uint32_t)value_len};
    size_t need = sizeof(r) + name_len + value_len;
    struct gw_h2_block *b = &c->block;
    char *p;

    b->bytes += (uint32_t)(name_len + value_len + FIELD_OVERHEAD);
    if (name_len > 0 && name[0] != ':')
        b->fields++;
    if (b->bytes > HARD_BYTES(c->w) || b->fields > HARD_FIELDS(c->w))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (b->too_large || b->bytes > limits->head_bytes || b->fields > limits->n_fields) {
        b->too_large = true;
        return 0;
    }
    p = gw_buf_room(&c->w->bufs, &b->buf, need);
    if (p == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(p, &r, sizeof(r));
    memcpy(p + sizeof(r), name, name_len);
    if (value_len > 0)
        memcpy(p + sizeof(r) + name_len, value, value_len);
    b->buf->len += (uint32_t)need;
    if (name_len == 6 && memcmp(name, "cookie", 6) == 0) {
        b->n_cookies++;
        b->cookie_bytes += (uint32_t)value_len + 2;
    }
    return 0;
}

/* The next field of a block; false at its end. */
static bool next_field(const char **p, const char *end, struct gw_field *f)
{
    struct record r;

    if (*p == end)
        return false;
    memcpy(&r, *p, sizeof(r));
    f->name = *p + sizeof(r);
    f->name_len = r.name_len;
    f->value = f->name + r.name_len;
    f->value_len = r.value_len;
    f->hop_by_hop = false;
    *p = f->value + r.value_len;
    return true;
}

/* Fields that belong to one connection have no place in HTTP/2 (RFC 9113 section 8.2.2). */
static bool of_connection(uint8_t id)
{
    switch (id) {
    case GW_FIELD_CONNECTION:
    case GW_FIELD_HTTP2_SETTINGS:
    case GW_FIELD_KEEP_ALIVE:
    case GW_FIELD_PROXY_CONNECTION:
    case GW_FIELD_TRANSFER_ENCODING:
    case GW_FIELD_UPGRADE:
        return true;
    default:
        return false;
    }
}

/* Name and value of a field that is no pseudo-header. Sets its id. */
static const char *check_field(struct gw_field *f)
{
    if (!gw_http1_is_lower_token(f->name, f->name_len))
        return "malformed header name";
    if (!gw_http1_is_value(f->value, f->value_len))
        return "malformed header value";
    f->id = gw_http1_classify(f->name, f->name_len);
    if (of_connection(f->id))
        return "header field of a connection";
    return NULL;
}

static bool str_is(struct gw_str s, const char *literal)
{
    return s.len == strlen(literal) && memcmp(s.p, literal, s.len) == 0;
}

struct pseudo {
    struct gw_str method, scheme, authority, path, protocol;
};

static const char *take_pseudo(const struct gw_field *f, struct pseudo *p)
{
    struct gw_str name = {f->name, f->name_len}, *to;

    if (str_is(name, ":method"))
        to = &p->method;
    else if (str_is(name, ":path"))
        to = &p->path;
    else if (str_is(name, ":scheme"))
        to = &p->scheme;
    else if (str_is(name, ":authority"))
        to = &p->authority;
    else if (str_is(name, ":protocol"))
        to = &p->protocol;
    else
        return "unknown pseudo-header";
    if (to->p != NULL)
        return "repeated pseudo-header";
    *to = (struct gw_str){f->value, f->value_len};
    return NULL;
}

/* What the regular fields say together. */
struct summary {
    struct gw_str host, length;
    size_t n_host, n_length;
    bool te_trailers, expect_continue, version_13;
};

static const char *note_field(const struct gw_field *f, struct summary *s)
{
    struct gw_str value = {f->value, f->value_len};

    switch (f->id) {
    case GW_FIELD_HOST:
        s->host = value;
        if (s->n_host++ > 0)
            return "more than one Host";
        break;
    case GW_FIELD_CONTENT_LENGTH:
        s->length = value;
        if (s->n_length++ > 0)
            return "more than one Content-Length";
        break;
    case GW_FIELD_TE:
        if (!gw_str_ieq(value, "trailers", 8))
            return "te says more than trailers";
        s->te_trailers = true;
        break;
    case GW_FIELD_EXPECT:
        s->expect_continue = gw_str_ieq(value, "100-continue", 12);
        break;
    case GW_FIELD_SEC_WEBSOCKET_VERSION:
        s->version_13 = str_is(value, "13");
        break;
    default:
        break;
    }
    return NULL;
}

static int read_length(struct gw_str text, uint64_t *out)
{
    uint64_t n = 0;

    if (text.len == 0 || text.len > 18)
        return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return -1;
        n = n * 10 + (uint64_t)(text.p[i] - '0');
    }
    *out = n;
    return 0;
}

static enum gw_method method_of(struct gw_str m)
{
    if (str_is(m, "GET"))
        return GW_METHOD_GET;
    if (str_is(m, "HEAD"))
        return GW_METHOD_HEAD;
    if (str_is(m, "OPTIONS"))
        return GW_METHOD_OPTIONS;
    if (str_is(m, "TRACE"))
        return GW_METHOD_TRACE;
    return GW_METHOD_OTHER;
}

/* Method, scheme, path and authority. Returns 0 or a status. */
static int check_pseudo(const struct pseudo *p, const struct summary *s, struct gw_request *out,
                        const char **why)
{
    bool extended = p->protocol.p != NULL;

    *why = "malformed method";
    if (!gw_http1_is_token(p->method.p, p->method.len))
        return 400;
    if (str_is(p->method, "CONNECT") != extended) {
        *why = extended ? "a protocol without CONNECT" : "CONNECT is not supported";
        return 400;
    }
    *why = "unknown scheme";
    if (!str_is(p->scheme, "https") && !str_is(p->scheme, "http"))
        return 400;
    *why = "malformed path";
    if (p->path.p == NULL || !gw_http1_is_target(p->path.p, p->path.len))
        return 400;
    if (p->path.p[0] != '/' && !(str_is(p->path, "*") && str_is(p->method, "OPTIONS")))
        return 400;
    *why = "exactly one authority is needed";
    out->host = p->authority.len > 0 ? p->authority : s->host;
    if (out->host.len == 0)
        return 400;
    *why = "Host is not the authority";
    if (s->n_host > 0 && !gw_str_ieq(s->host, out->host.p, out->host.len))
        return 400;
    *why = "this protocol is not supported";
    if (extended && !str_is(p->protocol, "websocket"))
        return 501;
    out->method = p->method;
    out->method_id = method_of(p->method);
    out->target = p->path;
    return 0;
}

/* A WebSocket handshake as HTTP/1.1 makes it (RFC 8441 section 5): with a key of ours. */
static int make_upgrade(const struct summary *s, bool end, struct gw_request *out, char accept[32],
                        const char **why)
{
    static _Thread_local char key[25];
    unsigned char nonce[16];
    struct gw_field *f = &out->fields[out->n_fields];

    *why = "malformed WebSocket handshake";
    if (!s->version_13 || s->n_length > 0 || end)
        return 400;
    *why = "no random numbers";
    if (RAND_bytes(nonce, sizeof(nonce)) != 1)
        return 500;
    EVP_EncodeBlock((unsigned char *)key, nonce, sizeof(nonce));
    gw_ws_accept(key, 24, accept);
    *f = (struct gw_field){.name = "Sec-WebSocket-Key",
                           .name_len = 17,
                           .value = key,
                           .value_len = 24,
                           .id = GW_FIELD_SEC_WEBSOCKET_KEY};
    out->n_fields++;
    out->method = GW_STR("GET");
    out->method_id = GW_METHOD_GET;
    out->upgrade = true;
    out->framing = GW_BODY_NONE;
    return 0;
}

static int set_framing(const struct summary *s, bool end, struct gw_request *out, const char **why)
{
    *why = "malformed Content-Length";
    if (s->n_length > 0 && read_length(s->length, &out->length) != 0)
        return 400;
    *why = "the body is not as long as Content-Length says";
    if (end && out->length > 0)
        return 400;
    if (end)
        out->framing = GW_BODY_NONE;
    else
        out->framing = s->n_length > 0 ? GW_BODY_LENGTH : GW_BODY_CHUNKED;
    return 0;
}

/* Cookies come in pieces, which one field holds again (RFC 9113 section 8.2.3). */
static void add_crumb(struct gw_field *cookie, char *joined, const struct gw_field *crumb)
{
    char *p = joined + cookie->value_len;

    p[0] = ';';
    p[1] = ' ';
    memcpy(p + 2, crumb->value, crumb->value_len);
    cookie->value_len += 2 + crumb->value_len;
}

int gw_h2_head_request(struct gw_worker *w, struct gw_h2_block *block, bool end,
                       struct gw_request *out, char accept[32], const char **why)
{
    struct gw_field *fields = w->fields, f, *cookie = NULL;
    struct summary s = {0};
    struct pseudo pseudo = {0};
    const char *p, *stop;
    char *joined;
    int r;

    memset(out, 0, sizeof(*out));
    accept[0] = '\0';
    /* The limit may have been lowered since the fields came, and the worker's array with it. */
    *why = "too many header fields, or too large ones";
    if (block->too_large || block->fields > w->opt->limits.n_fields)
        return 431;
    *why = "out of memory";
    joined = gw_buf_room(&w->bufs, &block->buf, block->cookie_bytes);
    if (joined == NULL)
        return 503;
    out->http2 = true;
    out->minor = 1;
    out->fields = fields;
    out->n_fields = 1; /* Host comes first */
    p = gw_buf_begin(block->buf);
    stop = p + block->buf->len;
    while (next_field(&p, stop, &f)) {
        if (f.name_len > 0 && f.name[0] == ':') {
            *why = take_pseudo(&f, &pseudo);
            if (*why != NULL)
                return 400;
            continue;
        }
        *why = check_field(&f);
        if (*why == NULL)
            *why = note_field(&f, &s);
        if (*why != NULL)
            return 400;
        if (f.id == GW_FIELD_HOST)
            continue;
        if (pseudo.protocol.p != NULL && f.id == GW_FIELD_SEC_WEBSOCKET_KEY)
            continue;
        if (block->n_cookies > 1 && f.id == GW_FIELD_COOKIE) {
            if (cookie != NULL) {
                add_crumb(cookie, joined, &f);
                continue;
            }
            cookie = &fields[out->n_fields];
            memcpy(joined, f.value, f.value_len);
            f.value = joined;
        }
        fields[out->n_fields++] = f;
    }
    r = check_pseudo(&pseudo, &s, out, why);
    if (r == 0)
        r = set_framing(&s, end, out, why);
    if (r != 0)
        return r;
    fields[0] = (struct gw_field){.name = "Host",
                                  .name_len = 4,
                                  .value = out->host.p,
                                  .value_len = (uint32_t)out->host.len,
                                  .id = GW_FIELD_HOST};
    out->keep_alive = true;
    out->te_trailers = s.te_trailers;
    out->expect_continue = s.expect_continue;
    return pseudo.protocol.p != NULL ? make_upgrade(&s, end, out, accept, why) : 0;
}

long gw_h2_head_trailers(struct gw_worker *w, struct gw_buf *block)
{
    const char *p, *stop;
    struct gw_field f;
    long n = 0;

    if (block == NULL)
        return 0;
    p = gw_buf_begin(block);
    stop = p + block->len;
    while (next_field(&p, stop, &f)) {
        if (check_field(&f) != NULL || f.id == GW_FIELD_CONTENT_LENGTH || f.id == GW_FIELD_HOST ||
            f.id == GW_FIELD_TE)
            return -1;
        if (f.id != GW_FIELD_OTHER && f.id != GW_FIELD_ACCEPT)
            continue;
        if ((size_t)n == w->opt->limits.n_fields) /* lowered since they came */
            return -1;
        w->fields[n++] = f;
    }
    return n;
}
