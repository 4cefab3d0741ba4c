/* SPDX-License-Identifier: MIT */
#include "gateway/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#include "gateway/worker.h"

#define BODY_MAX 4096

const char *gw_status_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } table[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {303, "See Other"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].reason;
    return "";
}

static bool contains(const struct gw_field *f, const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; i + n <= f->value_len; i++)
        if (strncasecmp(f->value + i, word, n) == 0)
            return true;
    return false;
}

bool gw_accepts_html(const struct gw_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].id == GW_FIELD_ACCEPT && contains(&fields[i], "text/html"))
            return true;
    return false;
}

/* Bounded text that never splits an escape. */
struct text {
    char *p, *end;
};

static void add(struct text *t, const char *s)
{
    while (*s != '\0' && t->p < t->end)
        *t->p++ = *s++;
}

static void add_html(struct text *t, const char *s)
{
    for (; *s != '\0' && t->end - t->p > 8; s++) {
        switch (*s) {
        case '<':
            add(t, "&lt;");
            break;
        case '>':
            add(t, "&gt;");
            break;
        case '&':
            add(t, "&amp;");
            break;
        case '"':
            add(t, "&quot;");
            break;
        default:
            *t->p++ = *s;
        }
    }
}

static void add_json(struct text *t, const char *s)
{
    for (; *s != '\0' && t->end - t->p > 8; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\') {
            *t->p++ = '\\';
            *t->p++ = *s;
        } else if (c < ' ') {
            t->p += snprintf(t->p, 8, "\\u%04x", c);
        } else {
            *t->p++ = *s;
        }
    }
}

static void html_page(struct text *t, const struct gw_page *page)
{
    char line[128];

    add(t, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    if (page->retry_after_s > 0) {
        snprintf(line, sizeof(line), "<meta http-equiv=\"refresh\" content=\"%d\">\n",
                 page->retry_after_s);
        add(t, line);
    }
    add(t, "<meta name=\"robots\" content=\"noindex\">\n"
           "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    snprintf(line, sizeof(line), "%d %s", page->status, gw_status_reason(page->status));
    add(t, line);
    add(t, "</title>\n<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh "
           "auto;padding:0 1em;color:#222;background:#fff}code{color:#666}"
           "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}</style>\n"
           "</head><body><main><h1>");
    add(t, line);
    add(t, "</h1>\n<p>");
    add_html(t, page->message);
    add(t, "</p>\n");
    if (page->command != NULL) {
        add(t, "<pre><code>");
        add_html(t, page->command);
        add(t, "</code></pre>\n");
    }
    if (page->retry_after_s > 0)
        add(t, "<p>This page reloads by itself.</p>\n");
    add(t, "<p><code>transom: ");
    add_html(t, page->code);
    add(t, "</code></p>\n</main></body></html>\n");
}

struct gw_buf *gw_page_body(struct gw_bufs *bufs, const struct gw_page *page, bool html)
{
    struct gw_buf *buf = gw_buf_get(bufs, BODY_MAX);
    struct text t;

    if (buf == NULL)
        return NULL;
    t.p = buf->data;
    t.end = buf->data + BODY_MAX;
    if (html) {
        html_page(&t, page);
    } else {
        add(&t, "{\"code\":\"");
        add_json(&t, page->code);
        add(&t, "\",\"message\":\"");
        add_json(&t, page->message);
        if (page->command != NULL) {
            add(&t, "\",\"command\":\"");
            add_json(&t, page->command);
        }
        add(&t, "\"}\n");
    }
    buf->len = (uint32_t)(t.p - buf->data);
    return buf;
}

static void set_field(struct gw_field *f, const char *name, const char *value)
{
    f->name = name;
    f->name_len = (uint32_t)strlen(name);
    f->value = value;
    f->value_len = (uint32_t)strlen(value);
    f->id = GW_FIELD_OTHER;
    f->hop_by_hop = false;
}

int gw_page_send(struct gw_exchange *x, const struct gw_page *page)
{
    struct gw_bufs *bufs = &x->worker->bufs;
    struct gw_buf *body = gw_page_body(bufs, page, x->wants_html);
    const char *reason = gw_status_reason(page->status);
    struct gw_field fields[8];
    struct gw_response resp = {.status = page->status, .minor = 1, .fields = fields};
    char seconds[16];
    int r;

    if (body == NULL)
        return UV_ENOMEM;
    set_field(&fields[resp.n_fields++], "Content-Type",
              x->wants_html ? "text/html; charset=utf-8" : "application/json");
    set_field(&fields[resp.n_fields++], "Cache-Control", "no-store");
    set_field(&fields[resp.n_fields++], "Vary", "Accept");
    if (page->retry_after_s > 0) {
        snprintf(seconds, sizeof(seconds), "%d", page->retry_after_s);
        set_field(&fields[resp.n_fields++], "Retry-After", seconds);
    }
    if (page->location != NULL)
        set_field(&fields[resp.n_fields++], "Location", page->location);
    if (page->set_cookie != NULL)
        set_field(&fields[resp.n_fields++], "Set-Cookie", page->set_cookie);
    if (page->authenticate != NULL)
        set_field(&fields[resp.n_fields++], "WWW-Authenticate", page->authenticate);
    if (page->no_referrer)
        set_field(&fields[resp.n_fields++], "Referrer-Policy", "no-referrer");
    resp.reason = (struct gw_str){reason, strlen(reason)};
    resp.framing = x->method == GW_METHOD_HEAD ? GW_BODY_NONE : GW_BODY_LENGTH;
    resp.has_length = true;
    resp.length = body->len;
    x->status = page->status;
    x->head_sent = true;
    gw_count(&x->worker->stats.pages, 1);
    r = x->front_ops->page(x, &resp, body->data, body->len);
    gw_buf_put(bufs, body);
    return r;
}

int gw_page_refusal(struct gw_bufs *bufs, struct gw_out *out, int status, const char *why)
{
    struct gw_page page = {.status = status, .code = "bad_request", .message = why};
    struct gw_buf *body = gw_page_body(bufs, &page, false);
    char head[256];
    int n, r;

    if (body == NULL)
        return UV_ENOMEM;
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
                 "Content-Length: %u\r\nConnection: close\r\n\r\n",
                 status, gw_status_reason(status), (unsigned)body->len);
    gw_out_reset(bufs, out);
    out->framing = GW_BODY_LENGTH;
    r = gw_out_append(bufs, out, head, (size_t)n);
    if (r == 0)
        r = gw_out_append(bufs, out, body->data, body->len);
    gw_buf_put(bufs, body);
    return r;
}
