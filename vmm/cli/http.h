/* SPDX-License-Identifier: MIT */
/* HTTP requests of the transom command, several at a time. Two transports: the manager's unix
 * socket (HTTP/2, http_unix.c) and a URL (HTTP/1.1 on libcurl, http_curl.c). */
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

/* Strings are borrowed for the object's life. Returns NULL after saying why. */
struct http *http_new(const struct http_target *target);
void http_free(struct http *http);
const struct http_target *http_target_of(const struct http *http);

#define HTTP_EXTRA_MAX 2

enum http_fault {
    HTTP_WHOLE,         /* none: an answer came whole */
    HTTP_NO_CONNECTION, /* see os_error */
    HTTP_CUT,           /* the connection or the answer ended early */
    HTTP_STOPPED,       /* on_data or on_read ended it */
    HTTP_TOO_LONG,      /* the answer is longer than is kept in memory */
    HTTP_OTHER,
};

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
    enum http_fault fault; /* once done */
    int status;            /* HTTP; 0: none yet */
    char *body;            /* collected; NUL-terminated; NULL when empty */
    size_t body_len;
    char mode[16];    /* header transom-mode */
    char etag[96];    /* header etag */
    int64_t length;   /* header content-length; 0: none */
    uint64_t from;    /* header transom-from */
    uint64_t replay;  /* header transom-replay: bytes of the answer before that offset */
    int os_error;     /* positive errno of a missing connection; 0: not known */
    char reason[256]; /* of the fault, for people; may be "" */

    /* Request, and what the transport keeps with it. */
    struct http *http;
    struct http_req *next;
    char *method, *path, *content_type, *sent_body;
    size_t sent_len;
    int64_t stream_len;
    bool streamed;
    struct {
        char *name, *value;
    } extra[HTTP_EXTRA_MAX]; /* further headers */
    size_t n_extra;
    void *transport; /* its own part */
};

/* url is a path of the API. body (copied; may be NULL) of body_len bytes; streamed bodies set
 * on_read instead and body_len to their length, or -1 when unknown. Aborts without memory. */
struct http_req *http_req_new(struct http *http, const char *method, const char *path);
void http_req_body(struct http_req *req, const char *content_type, const void *body, size_t len);
void http_req_stream_body(struct http_req *req, int64_t len);
/* One more header, HTTP_EXTRA_MAX at most. Both are copied. */
void http_req_header(struct http_req *req, const char *name, const char *value);
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
