/* SPDX-License-Identifier: MIT */
/* Between http.c and the two transports. */
#ifndef VMM_CLI_HTTP_INTERNAL_H
#define VMM_CLI_HTTP_INTERNAL_H

#include "vmm/cli/http.h"

struct http_transport {
    /* Returns the transport's own part, or NULL after saying why. */
    void *(*open)(const struct http_target *target);
    void (*close)(void *self);
    /* A request of which no more is wanted, or which is done, goes: free its part. */
    void (*forget)(void *self, struct http_req *req);
    /* May finish the request at once. */
    void (*start)(void *self, struct http_req *req);
    void (*resume)(void *self, struct http_req *req);
    void (*step)(void *self, struct pollfd *fds, unsigned int n_fds, int timeout_ms);
};
extern const struct http_transport http_unix_transport, http_curl_transport;

/* For transports: parts of an answer arrive. take_header: name in any case. take_body returns false
 * when the request is to be ended; the fault is set. */
void http_take_header(struct http_req *req, const char *name, size_t name_len, const char *value,
                      size_t value_len);
bool http_take_body(struct http_req *req, const char *data, size_t len);
/* The request is done. A fault that is set already stays. reason may be NULL. */
void http_finish(struct http_req *req, enum http_fault fault, const char *reason);

#endif
