/* SPDX-License-Identifier: MIT */
/* The table of the API: every endpoint with the scope it needs and the body it takes. */
#ifndef VMM_ROUTER_H
#define VMM_ROUTER_H

#include <jansson.h>
#include "vmm/request.h"

enum vmm_body {
    VMM_BODY_NONE,   /* a body is read and dropped */
    VMM_BODY_JSON,   /* the handler runs when the whole object is there */
    VMM_BODY_RAW,    /* the handler runs when all bytes, raw_max at most, are there */
    VMM_BODY_STREAM, /* the handler runs at once and takes the bytes as they come */
};

/* What an agent-backed endpoint does when the sandbox is asleep. */
enum vmm_asleep {
    VMM_ASLEEP_START, /* wake it */
    VMM_ASLEEP_EMPTY, /* answer with empty, an empty list */
    VMM_ASLEEP_404,   /* what is asked for cannot exist in a sleeping sandbox */
    VMM_ASLEEP_204,   /* a deletion of what is gone */
};

/* Members of a JSON body that are looked at before a machine is started for it. */
struct vmm_member {
    const char *name;
    json_type type; /* JSON_TRUE stands for a boolean */
    bool required;
};

struct vmm_endpoint {
    const char *method, *path; /* {x}: one segment, percent-decoded */
    enum vmm_scope scope;      /* VMM_SCOPE_NONE: no key needed */
    enum vmm_body body;
    void (*handle)(struct vmm_request *req);
    const struct vmm_member *members; /* VMM_BODY_JSON; ends with a NULL name; may be NULL */
    size_t raw_max;                   /* VMM_BODY_RAW */
    enum vmm_asleep asleep;           /* agent-backed */
    const char *empty;                /* VMM_ASLEEP_EMPTY: the answer */
    bool tail;                        /* the last {x} takes the rest of the path, "/" and all, and
                                       * its bytes need not be UTF-8 */
    bool websocket;                   /* it may be asked for as one */
    bool activity;                    /* it counts for the idle rule */
    const char *needs_query;          /* a query member that must be there, or NULL */
    bool creates;                     /* an idempotency key counts; VMM_BODY_JSON only */
    bool quiet;                       /* not in the audit: it goes with what is there */
    bool gateway_only;                /* for everybody else it does not exist; not described */
};

extern const struct vmm_endpoint vmm_endpoints[];
extern const size_t vmm_n_endpoints;

/* Find the endpoint for req->path and fill in its parameters. Returns 200 (req->endpoint is set),
 * 404, 405 (req->allow lists the methods) or 400 (a broken escape in the path). */
int vmm_route(struct vmm_request *req, const char *method);

/* Check the members of a body. Returns 0, or -EINVAL and the member's name in err. */
TR_MUST_CHECK int vmm_check_members(const json_t *body, const struct vmm_member *members,
                                    struct err *err);

#endif
