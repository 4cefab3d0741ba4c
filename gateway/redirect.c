/* SPDX-License-Identifier: MIT */
#include "gateway/redirect.h"

#include <stdio.h>
#include <string.h>

#include "gateway/pages.h"
#include "gateway/worker.h"

#define ACME "/.well-known/acme-challenge/" /* RFC 8555 section 8.3: asked for without TLS */

bool gw_is_secure(const struct gw_exchange *x, const struct gw_request *req,
                  const struct sockaddr *peer)
{
    if (x->tls || !gw_options_trusts(x->worker->opt, peer))
        return x->tls;
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (f->id == GW_FIELD_X_FORWARDED_PROTO && !f->hop_by_hop)
            return gw_str_ieq((struct gw_str){f->value, f->value_len}, "https", 5);
    }
    return false;
}

static bool is_acme(struct gw_str target)
{
    return target.len >= sizeof(ACME) - 1 && memcmp(target.p, ACME, sizeof(ACME) - 1) == 0;
}

bool gw_redirect(struct gw_exchange *x, const struct gw_request *req, const struct sockaddr *peer)
{
    struct gw_page page = {
        .status = 308, .code = "use_https", .message = "This site is served over HTTPS only."};
    struct gw_bufs *bufs = &x->worker->bufs;
    unsigned port = x->worker->opt->https_redirect_port;
    const char *colon = memchr(req->host.p, ':', req->host.len); /* a name, not an IPv6 address */
    size_t host = colon != NULL ? (size_t)(colon - req->host.p) : req->host.len;
    bool path = req->target.len > 0 && req->target.p[0] == '/'; /* else OPTIONS * */
    struct gw_buf *location;
    size_t room;
    int n;

    if (gw_is_secure(x, req, peer) || is_acme(req->target))
        return false;
    room = host + req->target.len + 32;
    location = gw_buf_get(bufs, room);
    if (location == NULL) {
        page.status = 503;
        gw_exchange_answer(x, &page);
        return true;
    }
    n = snprintf(location->data, room, "https://%.*s", (int)host, req->host.p);
    if (port != 443)
        n += snprintf(location->data + n, room - (size_t)n, ":%u", port);
    snprintf(location->data + n, room - (size_t)n, "%.*s", path ? (int)req->target.len : 1,
             path ? req->target.p : "/");
    page.location = location->data;
    gw_exchange_answer(x, &page);
    gw_buf_put(bufs, location);
    return true;
}
