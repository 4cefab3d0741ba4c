/* SPDX-License-Identifier: MIT */
/* Requests to a URL, through a gateway: HTTP/1.1 on libcurl, a connection for each request that
 * goes on beside others. It is loaded only when there is a URL: libcurl and the libraries that it
 * needs take two thirds of a short command's time. */
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http_internal.h"

static struct {
    __typeof__(curl_easy_cleanup) *easy_cleanup;
    __typeof__(curl_easy_getinfo) *easy_getinfo;
    __typeof__(curl_easy_init) *easy_init;
    __typeof__(curl_easy_pause) *easy_pause;
    __typeof__(curl_easy_setopt) *easy_setopt;
    __typeof__(curl_easy_strerror) *easy_strerror;
    __typeof__(curl_global_cleanup) *global_cleanup;
    __typeof__(curl_global_init) *global_init;
    __typeof__(curl_multi_add_handle) *multi_add_handle;
    __typeof__(curl_multi_cleanup) *multi_cleanup;
    __typeof__(curl_multi_info_read) *multi_info_read;
    __typeof__(curl_multi_init) *multi_init;
    __typeof__(curl_multi_perform) *multi_perform;
    __typeof__(curl_multi_poll) *multi_poll;
    __typeof__(curl_multi_remove_handle) *multi_remove_handle;
    __typeof__(curl_slist_append) *slist_append;
    __typeof__(curl_slist_free_all) *slist_free_all;
} curl;

static const struct {
    const char *name;
    void *function; /* a pointer to one */
} functions[] = {
    {"curl_easy_cleanup", &curl.easy_cleanup},
    {"curl_easy_getinfo", &curl.easy_getinfo},
    {"curl_easy_init", &curl.easy_init},
    {"curl_easy_pause", &curl.easy_pause},
    {"curl_easy_setopt", &curl.easy_setopt},
    {"curl_easy_strerror", &curl.easy_strerror},
    {"curl_global_cleanup", &curl.global_cleanup},
    {"curl_global_init", &curl.global_init},
    {"curl_multi_add_handle", &curl.multi_add_handle},
    {"curl_multi_cleanup", &curl.multi_cleanup},
    {"curl_multi_info_read", &curl.multi_info_read},
    {"curl_multi_init", &curl.multi_init},
    {"curl_multi_perform", &curl.multi_perform},
    {"curl_multi_poll", &curl.multi_poll},
    {"curl_multi_remove_handle", &curl.multi_remove_handle},
    {"curl_slist_append", &curl.slist_append},
    {"curl_slist_free_all", &curl.slist_free_all},
};

struct transport {
    const struct http_target *target;
    CURLM *multi;
};

struct part {
    CURL *easy;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
};

static bool load(void)
{
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL)
        lib = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib != NULL && i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *found = dlsym(lib, functions[i].name);

        memcpy(functions[i].function, &found, sizeof(found));
        if (found == NULL)
            lib = NULL;
    }
    if (lib == NULL)
        cli_fail(1, "--api needs libcurl (Debian's package libcurl4): %s", dlerror());
    return lib != NULL;
}

static void *open_transport(const struct http_target *target)
{
    struct transport *t;

    if (!load())
        return NULL;
    t = calloc(1, sizeof(*t));
    if (t == NULL || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        (t->multi = curl.multi_init()) == NULL)
        abort();
    t->target = target;
    return t;
}

static void close_transport(void *self)
{
    struct transport *t = self;

    curl.multi_cleanup(t->multi);
    curl.global_cleanup();
    free(t);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct http_req *req = arg;
    struct part *part = req->transport;
    long status = 0;

    curl.easy_getinfo(part->easy, CURLINFO_RESPONSE_CODE, &status);
    req->status = (int)status;
    return http_take_body(req, data, size * n) ? size * n : 0;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    size_t len = size * n;
    const char *colon = memchr(data, ':', len), *value;

    while (len > 0 && strchr("\r\n ", data[len - 1]) != NULL)
        len--;
    if (colon == NULL || colon >= data + len)
        return size * n;
    value = colon + 1;
    while (value < data + len && *value == ' ')
        value++;
    http_take_header(arg, data, (size_t)(colon - data), value, (size_t)(data + len - value));
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

static void add_header(struct part *part, const char *name, const char *value)
{
    char *line = cli_printf("%s:%s%s", name, *value != '\0' ? " " : "", value);
    struct curl_slist *list = curl.slist_append(part->headers, line);

    if (list == NULL)
        abort();
    part->headers = list;
    explicit_bzero(line, strlen(line));
    free(line);
}

static void set_body(struct part *part, struct http_req *req)
{
    if (req->content_type != NULL)
        add_header(part, "content-type", req->content_type);
    if (req->streamed) {
        curl.easy_setopt(part->easy, CURLOPT_UPLOAD, 1L);
        curl.easy_setopt(part->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)req->stream_len);
        curl.easy_setopt(part->easy, CURLOPT_READFUNCTION, on_upload);
        curl.easy_setopt(part->easy, CURLOPT_READDATA, req);
    } else if (req->sent_body != NULL) {
        curl.easy_setopt(part->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->sent_len);
        curl.easy_setopt(part->easy, CURLOPT_POSTFIELDS, req->sent_body);
    }
}

static void start(void *self, struct http_req *req)
{
    struct transport *t = self;
    struct part *part = calloc(1, sizeof(*part));
    size_t base_len = strlen(t->target->api);
    char *url, *key;

    if (part == NULL || (part->easy = curl.easy_init()) == NULL)
        abort();
    req->transport = part;
    while (base_len > 0 && t->target->api[base_len - 1] == '/')
        base_len--;
    url = cli_printf("%.*s%s", (int)base_len, t->target->api, req->path);
    curl.easy_setopt(part->easy, CURLOPT_URL, url);
    free(url);
    set_body(part, req);
    curl.easy_setopt(part->easy, CURLOPT_CUSTOMREQUEST, req->method);
    curl.easy_setopt(part->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl.easy_setopt(part->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    for (size_t i = 0; i < req->n_extra; i++)
        add_header(part, req->extra[i].name, req->extra[i].value);
    if (t->target->key != NULL) {
        key = cli_printf("Bearer %s", t->target->key);
        add_header(part, "authorization", key);
        explicit_bzero(key, strlen(key));
        free(key);
    }
    add_header(part, "expect", ""); /* no waiting for 100-continue */
    curl.easy_setopt(part->easy, CURLOPT_HTTPHEADER, part->headers);
    curl.easy_setopt(part->easy, CURLOPT_USERAGENT, "transom/" TRANSOM_VERSION);
    curl.easy_setopt(part->easy, CURLOPT_ERRORBUFFER, part->error);
    curl.easy_setopt(part->easy, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(part->easy, CURLOPT_PRIVATE, req);
    curl.easy_setopt(part->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl.easy_setopt(part->easy, CURLOPT_WRITEDATA, req);
    curl.easy_setopt(part->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(part->easy, CURLOPT_HEADERDATA, req);
    curl.easy_setopt(part->easy, CURLOPT_CONNECTTIMEOUT_MS, 15000L);
    if (curl.multi_add_handle(t->multi, part->easy) != CURLM_OK)
        abort();
}

static void resume(void *self, struct http_req *req)
{
    struct part *part = req->transport;

    (void)self;
    curl.easy_pause(part->easy, CURLPAUSE_CONT);
}

static void forget(void *self, struct http_req *req)
{
    struct transport *t = self;
    struct part *part = req->transport;

    if (part == NULL)
        return;
    curl.multi_remove_handle(t->multi, part->easy);
    curl.easy_cleanup(part->easy);
    curl.slist_free_all(part->headers);
    free(part);
    req->transport = NULL;
}

static enum http_fault fault_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return HTTP_WHOLE;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return HTTP_NO_CONNECTION;
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return HTTP_CUT;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
        return HTTP_STOPPED;
    default:
        return HTTP_OTHER;
    }
}

/* Returns whether any request was finished. */
static bool take_finished(struct transport *t)
{
    CURLMsg *msg;
    bool any = false;
    int left;

    while ((msg = curl.multi_info_read(t->multi, &left)) != NULL) {
        struct http_req *req = NULL;
        const struct part *part;
        long status = 0;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl.easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&req);
        curl.easy_getinfo(msg->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        part = req->transport;
        req->status = (int)status;
        http_finish(req, fault_of(msg->data.result),
                    part->error[0] != '\0' ? part->error : curl.easy_strerror(msg->data.result));
        any = true;
    }
    return any;
}

static void step(void *self, struct pollfd *fds, unsigned int n_fds, int timeout_ms)
{
    struct transport *t = self;
    struct curl_waitfd extra[8];
    int running;

    for (unsigned int i = 0; i < n_fds && i < 8; i++)
        extra[i] = (struct curl_waitfd){.fd = fds[i].fd,
                                        .events = fds[i].events & POLLIN ? CURL_WAIT_POLLIN : 0};
    /* First let new requests start, so that there is something to wait for. */
    curl.multi_perform(t->multi, &running);
    if (take_finished(t))
        timeout_ms = 0;
    curl.multi_poll(t->multi, extra, n_fds, timeout_ms, NULL);
    if (n_fds > 0 && poll(fds, n_fds, 0) < 0) { /* revents in full: libcurl leaves out POLLHUP */
        for (unsigned int i = 0; i < n_fds; i++)
            fds[i].revents = 0;
    }
    curl.multi_perform(t->multi, &running);
    take_finished(t);
}

const struct http_transport http_curl_transport = {.open = open_transport,
                                                   .close = close_transport,
                                                   .start = start,
                                                   .resume = resume,
                                                   .forget = forget,
                                                   .step = step};
