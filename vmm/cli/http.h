/* SPDX-License-Identifier: MIT */
/* HTTP requests of the transom command, several at a time, on libcurl. */
#ifndef VMM_CLI_HTTP_H
#define VMM_CLI_HTTP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

struct http;

struct http_target {
    const char *socket; /* unix socket; used when api is NULL */
    const char *api;    /* URL such as https://api.example.com */
    const char *key;    /* bearer key, or NULL */
};

/* Strings are borrowed for the object's life. Returns NULL without memory. */
struct http *http_new(const struct http_target *target);
void http_free(struct http *http);
const struct http_target *http_target_of(const struct http *http);

/* One request. Set it up with http_req_new() and the members below, then http_start(). */
struct http_req {
    void *arg;
    /* Body of a 2xx answer, as it comes; returns false to end the request. NULL: collected in
     * body. Other answers are always collected. */
    bool (*on_data)(struct http_req *req, const uint8_t *data, size_t len);
    /* Bytes to send, for a streamed body: returns the count, 0 at the end, -1 for none at the
     * moment (http_req_resume() later), -2 to end the request. */
    long (*on_read)(struct http_req *req, uint8_t *buf, size_t size);

    /* Answer. */
    bool done;
    int code;   /* once done: CURLcode; 0: an answer came whole */
    int status; /* HTTP; 0: none yet */
    char *body; /* collected; NUL-terminated; NULL when empty */
    size_t body_len;
    char mode[16];         /* header transom-mode */
    char content_type[64]; /* without parameters */
    uint64_t from;         /* header transom-from */

    struct http *http; /* the rest is http.c's own */
    void *easy, *headers;
    char error[256];
    bool too_long;
};

/* url is a path of the API. body (copied; may be NULL) of body_len bytes; streamed bodies set
 * on_read instead and body_len to their length, or -1 when unknown. Aborts without memory. */
struct http_req *http_req_new(struct http *http, const char *method, const char *path);
void http_req_body(struct http_req *req, const char *content_type, const void *body, size_t len);
void http_req_stream_body(struct http_req *req, int64_t len);
void http_start(struct http_req *req);
void http_req_resume(struct http_req *req);
/* Ends it if need be. NULL is allowed. */
void http_req_free(struct http_req *req);

/* Let all requests go on, waiting at most timeout_ms for them or for one of the descriptors. */
void http_step(struct http *http, struct pollfd *fds, unsigned int n_fds, int timeout_ms);
/* Until this request is done. */
void http_wait(struct http_req *req);

/* Say on standard error why the request failed: no connection, cut short, or the API's message
 * with what to do. Returns the exit status, 1. */
int http_explain(const struct http_req *req);
bool http_ok(const struct http_req *req); /* done, whole, 2xx */

#endif
