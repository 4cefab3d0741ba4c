/* SPDX-License-Identifier: MIT */
#include "vmm/cli/http.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http_internal.h"

#define COLLECT_MAX (64 * 1024 * 1024) /* longest answer kept in memory */
#define NO_SOCKET_HELP                                                                             \
    "is transom-vmm running? (its socket: --socket PATH or TRANSOM_SOCKET; a remote API: --api "   \
    "URL)"

struct http {
    struct http_target target;
    const struct http_transport *transport;
    void *self;
    bool finished_any; /* since the last step: nothing to wait for */
};

struct http *http_new(const struct http_target *target)
{
    struct http *http = calloc(1, sizeof(*http));

    if (http == NULL)
        abort();
    http->target = *target;
    http->transport = target->api != NULL ? &http_curl_transport : &http_unix_transport;
    http->self = http->transport->open(&http->target);
    if (http->self == NULL) {
        free(http);
        return NULL;
    }
    return http;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    http->transport->close(http->self);
    free(http);
}

const struct http_target *http_target_of(const struct http *http)
{
    return &http->target;
}

struct http_req *http_req_new(struct http *http, const char *method, const char *path)
{
    struct http_req *req = calloc(1, sizeof(*req));

    if (req == NULL)
        abort();
    req->http = http;
    req->method = cli_printf("%s", method);
    req->path = cli_printf("%s", path);
    return req;
}

void http_req_body(struct http_req *req, const char *content_type, const void *body, size_t len)
{
    req->content_type = cli_printf("%s", content_type);
    req->sent_body = malloc(len + 1);
    if (req->sent_body == NULL)
        abort();
    memcpy(req->sent_body, body, len);
    req->sent_len = len;
}

void http_req_stream_body(struct http_req *req, int64_t len)
{
    req->content_type = cli_printf("application/octet-stream");
    req->streamed = true;
    req->stream_len = len;
}

void http_req_header(struct http_req *req, const char *name, const char *value)
{
    assert(req->n_extra < HTTP_EXTRA_MAX);
    req->extra[req->n_extra].name = cli_printf("%s", name);
    req->extra[req->n_extra++].value = cli_printf("%s", value);
}

void http_start(struct http_req *req)
{
    req->http->transport->start(req->http->self, req);
}

void http_req_resume(struct http_req *req)
{
    if (!req->done)
        req->http->transport->resume(req->http->self, req);
}

void http_req_free(struct http_req *req)
{
    if (req == NULL)
        return;
    req->http->transport->forget(req->http->self, req);
    free(req->method);
    free(req->path);
    free(req->content_type);
    for (size_t i = 0; i < req->n_extra; i++) {
        free(req->extra[i].name);
        free(req->extra[i].value);
    }
    free(req->sent_body);
    free(req->body);
    free(req);
}

void http_step(struct http *http, struct pollfd *fds, unsigned int n_fds, int timeout_ms)
{
    if (http->finished_any)
        timeout_ms = 0;
    http->finished_any = false;
    http->transport->step(http->self, fds, n_fds, timeout_ms);
}

void http_wait(struct http_req *req)
{
    while (!req->done)
        http_step(req->http, NULL, 0, 1000);
}

bool http_ok(const struct http_req *req)
{
    return req->done && req->fault == HTTP_WHOLE && req->status / 100 == 2;
}

/* ---- for the transports ---- */

static bool is_named(const char *name, size_t len, const char *wanted)
{
    return len == strlen(wanted) && strncasecmp(name, wanted, len) == 0;
}

void http_take_header(struct http_req *req, const char *name, size_t name_len, const char *value,
                      size_t value_len)
{
    if (is_named(name, name_len, "transom-mode"))
        snprintf(req->mode, sizeof(req->mode), "%.*s", (int)value_len, value);
    if (is_named(name, name_len, "content-length") && value_len < 20) {
        char number[20];

        snprintf(number, sizeof(number), "%.*s", (int)value_len, value);
        req->length = strtoll(number, NULL, 10);
    }
    if (is_named(name, name_len, "etag") && value_len < sizeof(req->etag))
        snprintf(req->etag, sizeof(req->etag), "%.*s", (int)value_len, value);
    if (is_named(name, name_len, "transom-from") || is_named(name, name_len, "transom-replay")) {
        uint64_t *out = name_len == strlen("transom-from") ? &req->from : &req->replay;
        char number[32];

        snprintf(number, sizeof(number), "%.*s", (int)value_len, value);
        *out = strtoull(number, NULL, 10);
    }
}

static bool collect(struct http_req *req, const char *data, size_t len)
{
    char *grown;

    if (len > COLLECT_MAX - req->body_len) {
        req->fault = HTTP_TOO_LONG;
        return false;
    }
    grown = realloc(req->body, req->body_len + len + 1);
    if (grown == NULL)
        abort();
    req->body = grown;
    memcpy(grown + req->body_len, data, len);
    req->body_len += len;
    grown[req->body_len] = '\0';
    return true;
}

bool http_take_body(struct http_req *req, const char *data, size_t len)
{
    if (req->on_data == NULL || req->status / 100 != 2)
        return collect(req, data, len);
    if (req->on_data(req, (const uint8_t *)data, len))
        return true;
    req->fault = HTTP_STOPPED;
    return false;
}

void http_finish(struct http_req *req, enum http_fault fault, const char *reason)
{
    if (req->done)
        return;
    if (req->fault == HTTP_WHOLE)
        req->fault = fault;
    if (reason != NULL)
        snprintf(req->reason, sizeof(req->reason), "%s", reason);
    req->done = true;
    req->http->finished_any = true;
}

/* ---- for people ---- */

static int explain_no_connection(const struct http_req *req)
{
    const struct http_target *t = &req->http->target;

    if (t->api != NULL)
        return cli_fail(1, "cannot connect to %s: %s", t->api, req->reason);
    if (req->os_error == EACCES || req->os_error == EPERM)
        return cli_fail(1,
                        "cannot connect to %s: permission denied. Run as the manager's user or as "
                        "root, or use the edge socket beside it with a key in TRANSOM_API_KEY",
                        t->socket);
    return cli_fail(1, "cannot connect to %s: %s: " NO_SOCKET_HELP, t->socket,
                    strerror(req->os_error));
}

/* What a person can do about an answer that is an error. */
static const char *advice(const struct http_req *req)
{
    switch (req->status) {
    case 401:
        return req->http->target.key != NULL ? " (the key was not accepted)"
                                             : " (set TRANSOM_API_KEY, or use --key-file)";
    case 403:
        return " (the key's owner or scopes do not allow it)";
    case 429:
        return " (try again later)";
    case 502:
    case 503:
        return " (the manager's log says more)";
    default:
        return "";
    }
}

int http_explain(const struct http_req *req)
{
    json_error_t ignored;
    json_t *answer;
    const char *message;

    switch (req->fault) {
    case HTTP_WHOLE:
        break;
    case HTTP_NO_CONNECTION:
        return explain_no_connection(req);
    case HTTP_CUT:
        if (req->status >= 400 && req->body_len == 0)
            return cli_fail(1, "refused with HTTP status %d%s", req->status, advice(req));
        return cli_fail(1, "the connection to the manager ended before the answer was whole (%s)",
                        req->reason);
    case HTTP_TOO_LONG:
        return cli_fail(1, "the answer is longer than %d bytes", COLLECT_MAX);
    default:
        return cli_fail(1, "the request failed: %s", req->reason);
    }
    answer = req->body != NULL ? json_loadb(req->body, req->body_len, 0, &ignored) : NULL;
    message = json_string_value(json_object_get(answer, "message"));
    if (message != NULL)
        cli_fail(1, "%s%s", message, advice(req));
    else
        cli_fail(1, "unexpected answer: HTTP status %d%s", req->status, advice(req));
    json_decref(answer);
    return 1;
}
