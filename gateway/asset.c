/* SPDX-License-Identifier: MIT */
/* Path: send -> head -> body ... -> done. The bytes lie in the program: nothing is copied, and what
 * the client does not take waits here. */
#include "gateway/asset.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gateway/http1.h"
#include "gateway/pages.h"
#include "gateway/worker.h"

/* Scripts, styles, pictures and requests come from here alone, and nothing stands in the page
 * itself. blob: is for pictures among the files of a session. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "              \
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "                  \
    "form-action 'none'; frame-ancestors 'none'"
#define PREFIX "/assets/"

struct sending {
    const char *p;
    size_t left;
};

const struct gw_asset *gw_asset_find(struct gw_str target)
{
    const char *query = memchr(target.p, '?', target.len);
    size_t len = query != NULL ? (size_t)(query - target.p) : target.len;

    if (len == 0 || target.p[0] != '/')
        return NULL;
    if (len < sizeof(PREFIX) - 1 || memcmp(target.p, PREFIX, sizeof(PREFIX) - 1) != 0) {
        if (memchr(target.p, '.', len) != NULL)
            return NULL;
        target.p = "/";
        len = 1;
    }
    for (size_t i = 0; i < gw_n_assets; i++)
        if (strlen(gw_assets[i].path) == len && memcmp(gw_assets[i].path, target.p, len) == 0)
            return &gw_assets[i];
    return NULL;
}

/* One element of Accept-Encoding: its name, and whether it is wanted at all (q is not 0). */
static bool wanted(const char *p, const char *end, struct gw_str *name)
{
    const char *semicolon = memchr(p, ';', (size_t)(end - p));
    const char *stop = semicolon != NULL ? semicolon : end;

    while (p < stop && (*p == ' ' || *p == '\t'))
        p++;
    while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    *name = (struct gw_str){p, (size_t)(stop - p)};
    if (semicolon == NULL)
        return true;
    for (p = semicolon + 1; p < end; p++)
        if (*p >= '1' && *p <= '9')
            return true;
    return false;
}

enum gw_coding gw_asset_coding(const struct gw_request *req)
{
    enum gw_coding best = GW_CODING_IDENTITY;

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];
        const char *p = f->value, *end = p + f->value_len;

        if (!gw_str_ieq((struct gw_str){f->name, f->name_len}, "accept-encoding", 15))
            continue;
        while (p < end) {
            const char *stop = memchr(p, ',', (size_t)(end - p));
            struct gw_str name;

            if (stop == NULL)
                stop = end;
            if (wanted(p, stop, &name)) {
                if (gw_str_ieq(name, "br", 2))
                    best = GW_CODING_BROTLI;
                else if (gw_str_ieq(name, "gzip", 4) && best == GW_CODING_IDENTITY)
                    best = GW_CODING_GZIP;
            }
            p = stop < end ? stop + 1 : end;
        }
    }
    return best;
}

/* Does the client have it already (RFC 9110 section 13.1.2)? */
static bool has_it(const struct gw_request *req, const char *etag)
{
    size_t n = strlen(etag);

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (gw_str_ieq((struct gw_str){f->name, f->name_len}, "if-none-match", 13) &&
            memmem(f->value, f->value_len, etag, n) != NULL)
            return true;
    }
    return false;
}

static void add(struct gw_response *resp, const char *name, const char *value)
{
    resp->fields[resp->n_fields++] = (struct gw_field){.name = name,
                                                       .name_len = (uint32_t)strlen(name),
                                                       .value = value,
                                                       .value_len = (uint32_t)strlen(value)};
}

/* ---- the back half ---- */

static void let_go(struct gw_exchange *x)
{
    free(x->back);
    x->back = NULL;
    x->back_ops = NULL;
}

static void fail(struct gw_exchange *x)
{
    let_go(x);
    gw_exchange_back_failed(x, 503, "no_memory", "The edge is out of memory.");
}

static void pump(struct gw_exchange *x)
{
    struct sending *s = x->back;

    while (s->left > 0) {
        ssize_t n = x->front_ops->body(x, s->p, s->left, true);

        if (n < 0) {
            fail(x);
            return;
        }
        s->p += n;
        s->left -= (size_t)n;
        if (s->left > 0 && n == 0)
            return; /* back_resume() goes on */
    }
    if (x->front_ops->end(x, NULL, 0) != 0) {
        fail(x);
        return;
    }
    let_go(x);
    gw_exchange_back_done(x);
}

static ssize_t back_body(struct gw_exchange *x, const char *data, size_t len, bool last)
{
    (void)x;
    (void)data;
    (void)last;
    return (ssize_t)len; /* nobody wants it */
}

static int back_end(struct gw_exchange *x, const struct gw_field *trailers, size_t n_trailers)
{
    (void)x;
    (void)trailers;
    (void)n_trailers;
    return 0;
}

static int back_flush(struct gw_exchange *x)
{
    (void)x;
    return 0;
}

static const struct gw_back_ops ops = {
    .body = back_body,
    .end = back_end,
    .flush = back_flush,
    .resume = pump,
    .cancel = let_go,
};

void gw_asset_send(struct gw_exchange *x, const struct gw_request *req,
                   const struct gw_asset *asset)
{
    static const char *const codings[GW_CODINGS] = {NULL, "gzip", "br"};
    enum gw_coding coding = gw_asset_coding(req);
    bool page = asset->path[1] == '\0', known = has_it(req, asset->etag[coding]);
    struct sending *s = calloc(1, sizeof(*s));
    struct gw_field fields[16];
    struct gw_response resp = {.status = known ? 304 : 200, .minor = 1, .fields = fields};
    const char *reason = gw_status_reason(resp.status);

    if (s == NULL) {
        gw_exchange_back_failed(x, 503, "no_memory", "The edge is out of memory.");
        return;
    }
    add(&resp, "ETag", asset->etag[coding]);
    add(&resp, "Cache-Control", page ? "no-cache" : "public, max-age=31536000, immutable");
    add(&resp, "Vary", "Accept-Encoding");
    if (!known) {
        add(&resp, "Content-Type", asset->type);
        if (codings[coding] != NULL)
            add(&resp, "Content-Encoding", codings[coding]);
        resp.has_length = true;
        resp.length = (uint64_t)(asset->end[coding] - asset->data[coding]);
    }
    add(&resp, "Content-Security-Policy", POLICY);
    add(&resp, "X-Content-Type-Options", "nosniff");
    add(&resp, "Referrer-Policy", "no-referrer");
    add(&resp, "Cross-Origin-Opener-Policy", "same-origin");
    add(&resp, "Cross-Origin-Resource-Policy", "same-origin");
    add(&resp, "X-Frame-Options", "DENY");
    resp.reason = (struct gw_str){reason, strlen(reason)};
    resp.framing = known || x->method == GW_METHOD_HEAD ? GW_BODY_NONE : GW_BODY_LENGTH;
    if (resp.framing != GW_BODY_NONE) {
        s->p = (const char *)asset->data[coding];
        s->left = resp.length;
    }
    x->back = s;
    x->back_ops = &ops;
    if (gw_exchange_head(x, &resp) != 0)
        fail(x);
    else
        pump(x);
}
