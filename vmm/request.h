/* SPDX-License-Identifier: MIT */
/* One API request: who asks, for what, its body, its answer. */
#ifndef VMM_REQUEST_H
#define VMM_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include "transom/h2.h"
#include "vmm/auth.h"
#include "vmm/sandbox.h"

struct vmm;
struct vmm_endpoint;
struct vmm_replay;
struct vmm_request;

#define VMM_PARAMS_MAX 4
#define VMM_REQ_ID_MAX 64
#define VMM_TRACE_LEN  55 /* of traceparent */

enum vmm_dismissal { VMM_DISMISS_SHUTDOWN, VMM_DISMISS_REVOKED };

/* For handlers that stream. Any may be NULL. */
struct vmm_request_cbs {
    /* Body bytes; give them back with tr_h2_stream_consume(req->st, len). */
    void (*on_data)(struct vmm_request *req, const uint8_t *data, size_t len);
    void (*on_end)(struct vmm_request *req, const struct tr_h2_head *trailers);
    void (*on_drain)(struct vmm_request *req);
    /* The stream is closed: req->st is NULL. Last. */
    void (*on_gone)(struct vmm_request *req, uint32_t code);
    /* The manager ends soon, or the client's key is deleted: say goodbye. NULL: at the end of the
     * manager the stream is cut with its connection; one of a deleted key at once. */
    void (*on_dismiss)(struct vmm_request *req, enum vmm_dismissal why);
};

struct vmm_request {
    struct vmm *vmm;
    struct tr_h2_stream *st;       /* NULL once the client is gone or the answer is out */
    const struct tr_h2_head *head; /* valid while st is */
    const struct vmm_endpoint *endpoint;
    struct vmm_identity who;
    char *path;                   /* without query, as sent */
    char *query;                  /* "" when there is none */
    char *params[VMM_PARAMS_MAX]; /* decoded path parameters, in order */
    size_t n_params;
    struct vmm_session *session; /* of {s}; borrowed, looked up right before the handler runs */
    struct vmm_sandbox *sandbox; /* of {n}; likewise: do not keep */
    json_t *body;                /* JSON bodies: the object, an empty one for no body */
    char *raw;                   /* and its bytes; raw bodies: these alone */
    size_t raw_len, raw_size;
    char id[VMM_REQ_ID_MAX + 1];   /* the gateway's or the client's, or made here */
    char trace[VMM_TRACE_LEN + 1]; /* traceparent as it came; "": none, or no such thing */
    char allow[64];                /* 405: the methods that this path has */
    unsigned retry_after_s;        /* goes with the answer; 0: nothing */
    struct vmm_replay *replay;     /* where the answer is kept for a later try; or NULL */
    bool replayed;                 /* the answer is one of before */
    int status;                    /* of the answer; 0: none yet */
    uid_t uid;                     /* of the peer on the socket; -1: not known */
    bool from_gateway;    /* the gateway asks for itself, not for a client; set before routing */
    bool websocket;       /* CONNECT with the protocol "websocket" (RFC 8441): routed as GET */
    bool has_body;        /* the head said that a body follows */
    bool ended;           /* the body is complete */
    bool answered;        /* a final head was sent */
    size_t dropped;       /* bytes of the body that came after the answer */
    uint64_t deadline_ms; /* for the whole body, of a JSON request or one answered early; 0: none */
    const struct vmm_request_cbs *cbs;
    void *arg; /* of the streaming handler */
    int refs;
    struct vmm_request *prev, *next; /* of the server */
};

/* The final head of an answer goes out now. Whoever answers without the functions below says so. */
void vmm_request_answered(struct vmm_request *req, int status);

/* A handler that answers later holds a reference and looks at req->st when it does. */
struct vmm_request *vmm_request_ref(struct vmm_request *req);
void vmm_request_unref(struct vmm_request *req);

/* Answer. All do nothing when the client is gone or has its answer. body is taken (also on a
 * fault); NULL is answered as 500, since it means that there was no memory for it. */
void vmm_reply_json(struct vmm_request *req, int status, json_t *body);
void vmm_reply_empty(struct vmm_request *req, int status);
void vmm_reply_bytes(struct vmm_request *req, int status, const char *type, const void *data,
                     size_t len);
/* {"code","message"}; code is derived from the status. */
void vmm_reply_error(struct vmm_request *req, int status, const char *fmt, ...) TR_PRINTF(3, 4);
/* The same with a code of its own. */
void vmm_reply_fault(struct vmm_request *req, int status, const char *code, const char *fmt, ...)
    TR_PRINTF(4, 5);
/* Drop body bytes that nobody wants. A client that is still sending is let finish, within bounds:
 * some take a stream that ends under their hands for a failure and never look at the answer. */
void vmm_request_drop(struct vmm_request *req, size_t len);
/* The status that fits a negative errno of ours. */
void vmm_reply_err(struct vmm_request *req, const struct err *err);
const char *vmm_error_code(int status);

#endif
