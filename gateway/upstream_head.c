/* SPDX-License-Identifier: MIT */
/* The request head as a machine sees it: what ends at this hop is gone, Host and everything else is
 * as sent, and X-Forwarded-* say what the edge itself knows. */
#include "gateway/upstream.h"

#include <arpa/inet.h>
#include <string.h>
#include <uv.h>

#include "gateway/address.h"
#include "gateway/worker.h"

static char *put(char *p, const char *s, size_t len)
{
    memcpy(p, s, len);
    return p + len;
}
#define PUT(p, literal) put(p, literal, sizeof(literal) - 1)

static char *put_field(char *p, const struct gw_field *f)
{
    p = put(p, f->name, f->name_len);
    p = PUT(p, ": ");
    p = put(p, f->value, f->value_len);
    return PUT(p, "\r\n");
}

static bool is_passed(const struct gw_field *f, bool trusted)
{
    switch (f->id) {
    case GW_FIELD_CONNECTION:
    case GW_FIELD_CONTENT_LENGTH:
    case GW_FIELD_FORWARDED:
    case GW_FIELD_HTTP2_SETTINGS:
    case GW_FIELD_KEEP_ALIVE:
    case GW_FIELD_PROXY_CONNECTION:
    case GW_FIELD_TE:
    case GW_FIELD_TRANSFER_ENCODING:
    case GW_FIELD_UPGRADE:
    case GW_FIELD_X_FORWARDED_FOR:
    case GW_FIELD_X_REAL_IP:
        return false;
    case GW_FIELD_X_FORWARDED:
    case GW_FIELD_X_FORWARDED_HOST:
    case GW_FIELD_X_FORWARDED_PROTO:
        return trusted && !f->hop_by_hop;
    default:
        return !f->hop_by_hop;
    }
}

/* One line, what trusted proxies said first, the peer last. */
static char *put_forwarded(char *p, struct gw_exchange *x, const struct gw_request *req,
                           const struct sockaddr *peer, bool trusted)
{
    bool has_host = false, has_proto = false;

    x->public_tls = x->tls;
    p = PUT(p, "X-Forwarded-For: ");
    for (size_t i = 0; i < req->n_fields && trusted; i++) {
        const struct gw_field *f = &req->fields[i];

        has_host |= f->id == GW_FIELD_X_FORWARDED_HOST && !f->hop_by_hop;
        if (f->id == GW_FIELD_X_FORWARDED_PROTO && !f->hop_by_hop) {
            has_proto = true;
            x->public_tls = gw_str_ieq((struct gw_str){f->value, f->value_len}, "https", 5);
        }
        if (f->id != GW_FIELD_X_FORWARDED_FOR || f->value_len == 0)
            continue;
        p = put(p, f->value, f->value_len);
        p = PUT(p, ", ");
    }
    p += gw_address_text(peer, p);
    if (!has_proto)
        p = x->tls ? PUT(p, "\r\nX-Forwarded-Proto: https") : PUT(p, "\r\nX-Forwarded-Proto: http");
    if (!has_host) {
        p = PUT(p, "\r\nX-Forwarded-Host: ");
        p = put(p, req->host.p, req->host.len);
    }
    return PUT(p, "\r\n");
}

int gw_upstream_head(struct gw_exchange *x, const struct gw_request *req,
                     const struct sockaddr *peer)
{
    struct gw_worker *w = x->worker;
    bool trusted = gw_options_trusts(w->opt, peer);
    size_t need = req->method.len + req->target.len + req->host.len + 384;
    struct gw_buf *buf;
    char *p;

    for (size_t i = 0; i < req->n_fields; i++)
        need += req->fields[i].name_len + req->fields[i].value_len + 4;
    buf = gw_buf_get(&w->bufs, need);
    if (buf == NULL)
        return UV_ENOMEM;
    p = buf->data;
    p = put(p, req->method.p, req->method.len);
    p = PUT(p, " ");
    p = put(p, req->target.p, req->target.len);
    p = PUT(p, " HTTP/1.1\r\n");
    for (size_t i = 0; i < req->n_fields; i++)
        if (is_passed(&req->fields[i], trusted)) {
            if (req->fields[i].id == GW_FIELD_HOST)
                x->host = (struct gw_str){p + 6, req->fields[i].value_len};
            p = put_field(p, &req->fields[i]);
        }
    p = put_forwarded(p, x, req, peer, trusted);
    if (x->request_id[0] != '\0') {
        p = PUT(p, "X-Request-Id: ");
        p = put(p, x->request_id, GW_REQUEST_ID_LEN);
        p = PUT(p, "\r\n");
    }
    if (req->upgrade)
        p = PUT(p, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    if (req->framing == GW_BODY_CHUNKED) {
        p = PUT(p, "Transfer-Encoding: chunked\r\n");
    } else {
        /* "Content-Length: 0" was said or not: an app may tell the difference for a POST. */
        for (size_t i = 0; i < req->n_fields; i++)
            if (req->fields[i].id == GW_FIELD_CONTENT_LENGTH)
                p = put_field(p, &req->fields[i]);
    }
    p = PUT(p, "\r\n");
    buf->len = (uint32_t)(p - buf->data);
    x->head = buf;
    return 0;
}
