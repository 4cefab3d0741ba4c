/* SPDX-License-Identifier: MIT */
/* One HTTP request: collects a bounded body, hands it to its route's handler, answers. */
#ifndef VMM_AGENT_REQUEST_H
#define VMM_AGENT_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "transom/h2.h"
#include "vmm/agent/agent.h"
#include "vmm/agent/router.h"

/* Events for handlers that go on after they returned. Any may be NULL. */
struct agent_request_cbs {
    /* Body bytes (routes without body_limit). Give back with agent_request_consume(). */
    void (*on_data)(struct agent_request *req, const uint8_t *data, size_t len);
    void (*on_end)(struct agent_request *req); /* the body is complete */
    void (*on_drain)(struct agent_request *req);
    /* Last event: the stream is gone and the request is freed when this returns. */
    void (*on_close)(struct agent_request *req, uint32_t code);
};

/* What the client takes, by its accept field or ?stream=ndjson|sse. */
#define AGENT_RUN_TYPE "application/vnd.transom.run"

enum agent_form { AGENT_FORM_JSON, AGENT_FORM_NDJSON, AGENT_FORM_SSE, AGENT_FORM_FRAMES };

struct agent_request {
    struct agent *agent;
    struct tr_h2_stream *stream;
    const struct agent_route *route;
    struct agent_target target;
    const struct tr_h2_head *head; /* while a handler without body_limit runs; else NULL */
    const char *authority;         /* CONNECT; valid until the request is freed */
    char *body;                    /* complete when a handler with body_limit runs; NUL behind it */
    size_t body_len;
    bool body_ended; /* nothing more comes from the peer */
    bool handed;     /* the handler ran */
    bool answered;   /* a final head was sent */
    bool head_only;  /* HEAD: no content is sent, not even that of an error */
    enum agent_form form;
    const struct agent_request_cbs *cbs;
    void *ctx; /* the handler's */
};

/* tr_h2 on_request. arg is the struct agent. */
void agent_request_start(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                         bool end, void *arg);

/* The route table (routes.c). */
extern const struct agent_route agent_routes[];
extern const size_t agent_n_routes;

/* The body as a JSON object (new), or NULL: an error was answered. An empty body is {}. */
json_t *agent_request_json(struct agent_request *req);

/* False, and answered, when nothing is to be carried out. Handlers ask when all is well so far. */
bool agent_request_may_act(struct agent_request *req);

/* Answer with JSON (stolen). */
void agent_request_answer(struct agent_request *req, int status, json_t *body);
void agent_request_empty(struct agent_request *req, int status);
/* Answer {code, message}. After a head was sent the stream is reset instead. */
void agent_request_error(struct agent_request *req, int status, const char *code, const char *fmt,
                         ...) TR_PRINTF(4, 5);
/* Map an errno-like code to status and word, with err's text. */
void agent_request_fail(struct agent_request *req, int code, const struct err *err);
/* Send a head with a body to follow; name may be NULL, else one more field. */
void agent_request_head(struct agent_request *req, int status, const char *content_type,
                        const char *name, const char *value);
/* The same with n fields. Without a body (end, HEAD) this is all of the answer. */
void agent_request_fields(struct agent_request *req, int status, const struct tr_h2_field *fields,
                          size_t n, bool end);
/* As tr_h2_write(). */
TR_MUST_CHECK int agent_request_write(struct agent_request *req, const void *data, size_t len);
void agent_request_finish(struct agent_request *req);
void agent_request_consume(struct agent_request *req, size_t len);

/* Fields of a JSON object. Missing or null: the default stays. A wrong type or range: false, an
 * error was answered. Strings are borrowed from the object. */
bool agent_json_string(struct agent_request *req, json_t *obj, const char *name, const char **out);
bool agent_json_int(struct agent_request *req, json_t *obj, const char *name, int64_t min,
                    int64_t max, int64_t *out);
bool agent_json_bool(struct agent_request *req, json_t *obj, const char *name, bool *out);
/* An object whose values are all strings and whose names can be environment variables. */
bool agent_json_env(struct agent_request *req, json_t *obj, const char *name, json_t **out);

#endif
