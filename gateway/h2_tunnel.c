/* SPDX-License-Identifier: MIT */
/* WebSockets over HTTP/2 (RFC 8441): the stream is the client's end of a tunnel. END_STREAM is a
 * half-close, RST_STREAM a reset, the stream's window the backpressure. */
#include "gateway/h2_internal.h"

#include <string.h>
#include <uv.h>

static struct gw_h2_stream *stream_of(struct gw_tunnel_peer *peer)
{
    return (struct gw_h2_stream *)((char *)peer - offsetof(struct gw_h2_stream, tunnel));
}

static ssize_t peer_write(struct gw_tunnel_peer *peer, const char *data, size_t len)
{
    return gw_h2_stream_send(stream_of(peer), data, len, false);
}

static void peer_shutdown(struct gw_tunnel_peer *peer)
{
    /* A fault comes as an event. */
    (void)!gw_h2_stream_finish(stream_of(peer), NULL, 0);
}

static void peer_resume(struct gw_tunnel_peer *peer)
{
    gw_h2_stream_resume(stream_of(peer));
}

static void peer_gone(struct gw_tunnel_peer *peer, bool reset)
{
    struct gw_h2_stream *s = stream_of(peer);

    s->discard = true;
    gw_h2_stream_go_on(s);
    gw_h2_stream_drop_in(s);
    if (reset || s->ended) {
        gw_h2_stream_reset(s, reset ? NGHTTP2_CANCEL : NGHTTP2_NO_ERROR);
        return;
    }
    /* Should the client go on sending, its stream is reset once this has gone. */
    (void)!gw_h2_stream_finish(s, NULL, 0);
    if (!s->closed)
        gw_timer_start(&s->c->w->t_body, &s->timer, gw_h2_stream_timeout);
    gw_h2_stream_release(s);
}

static const struct gw_tunnel_peer_ops peer_ops = {
    .write = peer_write,
    .shutdown = peer_shutdown,
    .resume = peer_resume,
    .gone = peer_gone,
};

/* Take the field that answers our key out of the fields; false when it does not. */
static bool check_accept(const struct gw_h2_stream *s, const struct gw_response *resp)
{
    size_t n = 0;

    for (size_t i = 0; i < resp->n_fields; i++) {
        struct gw_field *f = &resp->fields[i];

        if (!gw_str_ieq((struct gw_str){f->name, f->name_len}, "sec-websocket-accept", 20))
            continue;
        if (n++ > 0 || f->value_len != strlen(s->accept) ||
            memcmp(f->value, s->accept, f->value_len) != 0)
            return false;
        f->hop_by_hop = true;
    }
    return n == 1;
}

int gw_h2_stream_upgrade(struct gw_exchange *x, const struct gw_response *resp,
                         struct gw_tunnel_end *end)
{
    struct gw_h2_stream *s = x->front;
    struct gw_response opened = *resp;
    int r;

    if (!check_accept(s, resp))
        return UV_EPROTO;
    opened.status = 200;
    opened.has_length = false;
    r = gw_h2_stream_submit(s, &opened, true);
    if (r != 0)
        return r;
    memset(end, 0, sizeof(*end));
    s->tunnel.ops = &peer_ops;
    end->peer = &s->tunnel;
    s->x = NULL;
    s->end_passed = s->blocked = false;
    gw_timer_stop(&s->timer);
    return 0;
}

void gw_h2_tunnel_deliver(struct gw_h2_stream *s)
{
    struct gw_h2_client *c = s->c;
    size_t len = gw_buf_len(s->in), n;

    if (s->blocked)
        return;
    if (len > 0) {
        n = gw_tunnel_peer_data(&s->tunnel, gw_buf_begin(s->in), len);
        if (s->tunnel.t == NULL || n == 0)
            goto out;
        (void)nghttp2_session_consume(c->ng, s->id, n);
        gw_buf_consume(&c->w->bufs, &s->in, n);
        gw_h2_touch(c);
    }
out:
    s->blocked = s->in != NULL;
    if (s->remote_ended && !s->end_passed && s->in == NULL && s->tunnel.t != NULL) {
        s->end_passed = true;
        gw_tunnel_peer_eof(&s->tunnel);
    }
}
