/* SPDX-License-Identifier: MIT */
#include "vmm/cli/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "vmm/cli/cli.h"

#define COLLECT_MAX (64 * 1024 * 1024) /* longest answer kept in memory */
#define NO_SOCKET_HELP                                                                             \
    "is transom-vmm running? (its socket: --socket PATH or TRANSOM_SOCKET; a remote API: --api "   \
    "URL)"

struct http {
    struct http_target target;
    CURLM *multi;
};

struct http *http_new(const struct http_target *target)
{
    struct http *http = calloc(1, sizeof(*http));

    if (http == NULL)
        return NULL;
    http->target = *target;
    http->multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    if (http->multi == NULL) {
        free(http);
        return NULL;
    }
    return http;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    curl_multi_cleanup(http->multi);
    curl_global_cleanup();
    free(http);
}

const struct http_target *http_target_of(const struct http *http)
{
    return &http->target;
}

static void out_of_memory(void)
{
    cli_fail(1, "out of memory");
    exit(EXIT_FAILURE);
}

static bool collect(struct http_req *req, const char *data, size_t len)
{
    char *grown;

    if (len > COLLECT_MAX - req->body_len) {
        req->too_long = true;
        return false;
    }
    grown = realloc(req->body, req->body_len + len + 1);
    if (grown == NULL)
        out_of_memory();
    req->body = grown;
    memcpy(grown + req->body_len, data, len);
    req->body_len += len;
    grown[req->body_len] = '\0';
    return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct http_req *req = arg;
    long status = 0;
    bool go_on;

    curl_easy_getinfo(req->easy, CURLINFO_RESPONSE_CODE, &status);
    req->status = (int)status;
    if (req->on_data != NULL && status / 100 == 2)
        go_on = req->on_data(req, (const uint8_t *)data, size * n);
    else
        go_on = collect(req, data, size * n);
    return go_on ? size * n : 0;
}

/* Copy a header's value if line is that header. */
static bool take_header(const char *line, size_t len, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);

    if (len <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
        return false;
    line += n + 1;
    len -= n + 1;
    while (len > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        len--;
    }
    while (len > 0 && strchr("\r\n ", line[len - 1]) != NULL)
        len--;
    snprintf(out, size, "%.*s", (int)len, line);
    return true;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    struct http_req *req = arg;
    char number[32];

    take_header(data, size * n, "transom-mode", req->mode, sizeof(req->mode));
    if (take_header(data, size * n, "content-type", req->content_type, sizeof(req->content_type)))
        req->content_type[strcspn(req->content_type, "; ")] = '\0';
    if (take_header(data, size * n, "transom-from", number, sizeof(number)))
        req->from = strtoull(number, NULL, 10);
    return size * n;
}

static size_t on_upload(char *buf, size_t size, size_t n, void *arg)
{
    struct http_req *req = arg;
    long got = req->on_read(req, (uint8_t *)buf, size * n);

    if (got == -1)
        return CURL_READFUNC_PAUSE;
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static void add_header(struct http_req *req, const char *line)
{
    struct curl_slist *list = curl_slist_append(req->headers, line);

    if (list == NULL)
        out_of_memory();
    req->headers = list;
}

struct http_req *http_req_new(struct http *http, const char *method, const char *path)
{
    struct http_req *req = calloc(1, sizeof(*req));
    CURL *easy = curl_easy_init();
    const char *base = http->target.api != NULL ? http->target.api : "http://transom";
    size_t base_len = strlen(base);
    char *url;

    if (req == NULL || easy == NULL)
        out_of_memory();
    req->http = http;
    req->easy = easy;
    while (base_len > 0 && base[base_len - 1] == '/')
        base_len--;
    url = cli_printf("%.*s%s", (int)base_len, base, path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    free(url);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    if (http->target.api == NULL) {
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, http->target.socket);
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
        /* libcurl before 8.0 breaks a prior-knowledge connection that it uses a second time
         * (error 16), and a new one costs nothing here. */
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    }
    if (http->target.key != NULL) {
        char *line = cli_printf("authorization: Bearer %s", http->target.key);

        add_header(req, line);
        explicit_bzero(line, strlen(line));
        free(line);
    }
    add_header(req, "expect:"); /* no waiting for 100-continue */
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "transom/" TRANSOM_VERSION);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, req->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, req);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, req);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, req);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, 15000L);
    return req;
}

void http_req_body(struct http_req *req, const char *content_type, const void *body, size_t len)
{
    char *line = cli_printf("content-type: %s", content_type);

    add_header(req, line);
    free(line);
    curl_easy_setopt(req->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    if (curl_easy_setopt(req->easy, CURLOPT_COPYPOSTFIELDS, body) != CURLE_OK)
        out_of_memory();
}

void http_req_stream_body(struct http_req *req, int64_t len)
{
    add_header(req, "content-type: application/octet-stream");
    curl_easy_setopt(req->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(req->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)len);
    curl_easy_setopt(req->easy, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(req->easy, CURLOPT_READDATA, req);
}

void http_start(struct http_req *req)
{
    curl_easy_setopt(req->easy, CURLOPT_HTTPHEADER, req->headers);
    if (curl_multi_add_handle(req->http->multi, req->easy) != CURLM_OK)
        out_of_memory();
}

void http_req_resume(struct http_req *req)
{
    if (!req->done)
        curl_easy_pause(req->easy, CURLPAUSE_CONT);
}

void http_req_free(struct http_req *req)
{
    if (req == NULL)
        return;
    curl_multi_remove_handle(req->http->multi, req->easy);
    curl_easy_cleanup(req->easy);
    curl_slist_free_all(req->headers);
    free(req->body);
    free(req);
}

/* Returns whether there was any. */
static bool take_finished(struct http *http)
{
    CURLMsg *msg;
    bool any = false;
    int left;

    while ((msg = curl_multi_info_read(http->multi, &left)) != NULL) {
        struct http_req *req = NULL;
        long status = 0;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&req);
        curl_easy_getinfo(msg->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        req->status = (int)status;
        req->code = (int)msg->data.result;
        req->done = true;
        any = true;
    }
    return any;
}

void http_step(struct http *http, struct pollfd *fds, unsigned int n_fds, int timeout_ms)
{
    struct curl_waitfd extra[8];
    int running;

    for (unsigned int i = 0; i < n_fds && i < 8; i++)
        extra[i] = (struct curl_waitfd){.fd = fds[i].fd,
                                        .events = fds[i].events & POLLIN ? CURL_WAIT_POLLIN : 0};
    /* First let new requests start, so that there is something to wait for. */
    curl_multi_perform(http->multi, &running);
    if (take_finished(http))
        timeout_ms = 0;
    curl_multi_poll(http->multi, extra, n_fds, timeout_ms, NULL);
    if (n_fds > 0 && poll(fds, n_fds, 0) < 0) { /* revents in full: libcurl leaves out POLLHUP */
        for (unsigned int i = 0; i < n_fds; i++)
            fds[i].revents = 0;
    }
    curl_multi_perform(http->multi, &running);
    take_finished(http);
}

void http_wait(struct http_req *req)
{
    while (!req->done)
        http_step(req->http, NULL, 0, 1000);
}

bool http_ok(const struct http_req *req)
{
    return req->done && req->code == 0 && req->status / 100 == 2;
}

static int explain_no_connection(const struct http_req *req)
{
    const struct http_target *t = &req->http->target;
    long os_errno = 0;

    if (t->api != NULL)
        return cli_fail(1, "cannot connect to %s: %s", t->api, req->error);
    curl_easy_getinfo(req->easy, CURLINFO_OS_ERRNO, &os_errno);
    if (os_errno == EACCES || os_errno == EPERM)
        return cli_fail(1,
                        "cannot connect to %s: permission denied. Run as the manager's user or as "
                        "root, or use the edge socket beside it with a key in TRANSOM_API_KEY",
                        t->socket);
    return cli_fail(1, "cannot connect to %s%s%s: " NO_SOCKET_HELP, t->socket,
                    os_errno != 0 ? ": " : "", os_errno != 0 ? strerror((int)os_errno) : "");
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

    if (req->too_long)
        return cli_fail(1, "the answer is longer than %d bytes", COLLECT_MAX);
    /* libcurl before 8.0 drops an answer that comes with a reset, as an early one may. */
    if (req->code == CURLE_HTTP2_STREAM && req->status >= 400)
        return cli_fail(1, "refused with HTTP status %d%s", req->status, advice(req));
    switch (req->code) {
    case CURLE_OK:
        break;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return explain_no_connection(req);
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return cli_fail(1, "the connection to the manager ended before the answer was whole (%s)",
                        req->error[0] != '\0' ? req->error : curl_easy_strerror(req->code));
    default:
        return cli_fail(1, "%s",
                        req->error[0] != '\0' ? req->error : curl_easy_strerror(req->code));
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
