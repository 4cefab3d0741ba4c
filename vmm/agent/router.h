/* SPDX-License-Identifier: MIT */
/* Which handler a request's method and path mean; path parameters and query, decoded. */
#ifndef VMM_AGENT_ROUTER_H
#define VMM_AGENT_ROUTER_H

#include <stdbool.h>
#include <stddef.h>

#include "transom/err.h"

#define AGENT_MAX_PARAMS 2
#define AGENT_MAX_QUERY  8

struct agent_request;
typedef void (*agent_handler_cb)(struct agent_request *req);

/* One row of the table. Pattern segments are literal or "*" (a parameter). */
struct agent_route {
    const char *method, *pattern;
    size_t body_limit; /* the handler runs once a body of at most this is here; 0: at the head */
    bool before_hello; /* allowed before the first hello */
    agent_handler_cb handle;
};

/* Bytes with a NUL behind them, which may hold NULs too. */
struct agent_text {
    const char *at;
    size_t len;
};

/* A request's target, decoded. Texts point into storage. */
struct agent_target {
    char *storage;
    struct agent_text params[AGENT_MAX_PARAMS];
    size_t n_params;
    struct {
        struct agent_text name, value;
    } query[AGENT_MAX_QUERY];
    size_t n_query;
};

/* Find the row. Returns 0 and *route, *out (to be released with agent_target_fini());
 * UV_ENOENT: no such path; UV_ENOTSUP: the path exists, for other methods; UV_EINVAL: a target that
 * cannot be decoded; UV_ENOMEM. */
TR_MUST_CHECK int agent_route_find(const struct agent_route *routes, size_t n_routes,
                                   const char *method, const char *target,
                                   const struct agent_route **route, struct agent_target *out);
void agent_target_fini(struct agent_target *t);

/* Value of a query parameter, or NULL. */
const struct agent_text *agent_target_query(const struct agent_target *t, const char *name);

#endif
