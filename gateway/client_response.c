/* SPDX-License-Identifier: MIT */
/* Responses to an HTTP/1 client: what the exchange asks of its front half. */
#include "gateway/client.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "gateway/tunnel.h"
#include "gateway/worker.h"

/* 1xx from an app that never comes to the point, to a client that does not read. */
#define INTERIM_MAX ((size_t)64 * 1024)

/* Append to a buffer known to have the room. */
static char *put(char *p, const char *s, size_t len)
{
    memcpy(p, s, len);
    return p + len;
}
#define PUT(p, literal) put(p, literal, sizeof(literal) - 1)

static char *put_number(char *p, uint64_t n)
{
    char digits[20];
    size_t len = 0;

    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (len > 0)
        *p++ = digits[--len];
    return p;
}

/* Status line and fields, into pending; extra is what this end adds, empty line included. */
static int write_head(struct gw_client *c, const struct gw_response *resp, const char *extra,
                      size_t extra_len)
{
    size_t need = 64 + resp->reason.len + extra_len;
    char *p, *start;

    for (size_t i = 0; i < resp->n_fields; i++)
        need += resp->fields[i].name_len + resp->fields[i].value_len + 4;
    start = p = gw_buf_room(&c->w->bufs, &c->out.pending, need);
    if (p == NULL)
        return UV_ENOMEM;
    p = PUT(p, "HTTP/1.1 ");
    p = put_number(p, (uint64_t)resp->status);
    p = PUT(p, " ");
    p = put(p, resp->reason.p, resp->reason.len);
    p = PUT(p, "\r\n");
    for (size_t i = 0; i < resp->n_fields; i++) {
        const struct gw_field *f = &resp->fields[i];

        if (!gw_response_passes(f))
            continue;
        p = put(p, f->name, f->name_len);
        p = PUT(p, ": ");
        p = put(p, f->value, f->value_len);
        p = PUT(p, "\r\n");
    }
    p = put(p, extra, extra_len);
    c->out.pending->len += (uint32_t)(p - start);
    return 0;
}

static int flush(struct gw_client *c)
{
    if (gw_out_write(&c->w->bufs, &c->out, &c->sock, NULL, 0, false) < 0)
        return UV_EPIPE;
    if (gw_out_is_pending(&c->out))
        gw_client_write_wait(c);
    return 0;
}

static int front_interim(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_client *c = x->front;
    int r;

    if (x->minor == 0)
        return 0; /* RFC 9110 section 15.2 */
    if (gw_buf_len(c->out.pending) > INTERIM_MAX)
        return UV_ENOBUFS;
    r = write_head(c, resp, "\r\n", 2);
    return r == 0 ? flush(c) : r;
}

static int front_head(struct gw_exchange *x, const struct gw_response *resp)
{
    struct gw_client *c = x->front;
    char extra[128], *p = extra;

    c->out.framing = GW_BODY_LENGTH;
    c->out.ended = false;
    c->out.chunk_left = 0;
    c->no_body = resp->framing == GW_BODY_NONE;
    if (resp->has_length) {
        p = PUT(p, "Content-Length: ");
        p = put_number(p, resp->length);
        p = PUT(p, "\r\n");
    } else if (resp->framing != GW_BODY_NONE && x->minor > 0) {
        p = PUT(p, "Transfer-Encoding: chunked\r\n");
        c->out.framing = GW_BODY_CHUNKED;
    } else if (resp->framing != GW_BODY_NONE) {
        c->out.framing = GW_BODY_CLOSE;
        c->keep_alive = false;
    }
    /* An answer before the request's end: its rest may never come, or come for long. */
    if (!x->request_done || c->w->draining || c->eof)
        c->keep_alive = false;
    if (!c->keep_alive)
        p = PUT(p, "Connection: close\r\n");
    else if (c->said_keep_alive)
        p = PUT(p, "Connection: keep-alive\r\n");
    p = PUT(p, "\r\n");
    return write_head(c, resp, extra, (size_t)(p - extra));
}

static ssize_t front_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    struct gw_client *c = x->front;
    ssize_t n = gw_out_write(&c->w->bufs, &c->out, &c->sock, data, len, last);

    if (n < 0)
        return n;
    x->bytes_out += (uint64_t)n;
    if ((size_t)n < len || gw_out_is_pending(&c->out))
        gw_client_write_wait(c);
    else if (c->state == GW_CLIENT_WAIT && !c->eof)
        gw_timer_stop(&c->timer); /* the back's clock runs now */
    return n;
}

static int front_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    struct gw_client *c = x->front;
    int r = 0;

    if (!c->no_body && c->out.framing == GW_BODY_CHUNKED && !c->out.ended) {
        if (n_trailers > 0)
            r = gw_out_trailers(&c->w->bufs, &c->out, trailers, n_trailers);
        else if (gw_out_write(&c->w->bufs, &c->out, &c->sock, NULL, 0, true) < 0)
            return UV_EPIPE;
    }
    return r == 0 ? flush(c) : r;
}

static int front_flush(struct gw_exchange *x)
{
    return flush(x->front);
}

static int front_page(struct gw_exchange *x, const struct gw_response *resp, const char *body,
                      size_t len)
{
    struct gw_client *c = x->front;
    int r = front_head(x, resp);

    if (r == 0 && x->method != GW_METHOD_HEAD)
        r = gw_out_append(&c->w->bufs, &c->out, body, len);
    return r == 0 ? flush(c) : r;
}

static void front_resume(struct gw_exchange *x)
{
    gw_client_resume(x->front);
}

static void front_done(struct gw_exchange *x)
{
    struct gw_client *c = x->front;

    c->x = NULL;
    c->blocked = false;
    gw_client_finish(c);
}

static void front_broken(struct gw_exchange *x)
{
    struct gw_client *c = x->front;

    /* Without a length the end of the connection is the end of the body: only a reset tells that
     * something is missing. TLS tells by the missing close_notify. */
    c->x = NULL;
    if (c->out.framing == GW_BODY_CLOSE || c->sock.tls != NULL)
        gw_client_reset(c);
    else
        gw_client_close(c);
}

static int front_upgrade(struct gw_exchange *x, const struct gw_response *resp,
                         struct gw_tunnel_end *end)
{
    static const char extra[] = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    struct gw_client *c = x->front;
    int r = write_head(c, resp, extra, sizeof(extra) - 1);

    if (r == 0)
        gw_client_hand_over(c, end);
    return r;
}

const struct gw_front_ops gw_client_front = {
    .interim = front_interim,
    .head = front_head,
    .body = front_body,
    .end = front_end,
    .flush = front_flush,
    .page = front_page,
    .resume = front_resume,
    .done = front_done,
    .broken = front_broken,
    .upgrade = front_upgrade,
};
