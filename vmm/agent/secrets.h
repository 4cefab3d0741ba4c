/* SPDX-License-Identifier: MIT */
/* Secrets that are active in this session: environment of whatever starts, and hidden in all that
 * leaves the machine. The manager sends the whole set at each change. */
#ifndef VMM_AGENT_SECRETS_H
#define VMM_AGENT_SECRETS_H

#include <jansson.h>
#include <stdbool.h>

#include "transom/mask.h"
#include "vmm/agent/agent.h"
#include "vmm/agent/child.h"
#include "vmm/agent/request.h"

#define AGENT_MAX_SECRETS 256

struct agent_secret {
    char *name;
    char *value; /* no NUL inside */
    size_t len;
};

struct agent_secrets {
    struct agent *agent;
    struct agent_secret *list;
    size_t n;
    struct tr_mask *mask; /* NULL: nothing to hide */
    json_int_t version;   /* of this set, as the manager counts since hello; 0: not told */
};

TR_MUST_CHECK int agent_secrets_new(struct agent *a, struct agent_secrets **out);
/* Wipes them. */
void agent_secrets_free(struct agent_secrets *s);

/* Hello was said: the manager may be another, which counts anew. */
void agent_secrets_greeted(struct agent_secrets *s);
/* PUT /v1/secrets {"secrets":[{"name","value_b64"}],"version"}: from now on these and no others. A
 * long set may arrive behind a short one that was sent after it: a version below the one in force
 * changes nothing, and is answered 204, too. */
void agent_secrets_handle_put(struct agent_request *req);

/* Borrowed; NULL: there is none of that name. */
const struct agent_secret *agent_secret_find(const struct agent_secrets *s, const char *name);
/* Add all to an environment. */
TR_MUST_CHECK int agent_secrets_set_env(const struct agent_secrets *s, struct agent_child *child);
/* Hide them in every text inside value (names of members are ours). */
void agent_secrets_hide_json(const struct agent_secrets *s, json_t *value);
/* The same in a NUL-terminated text of at most size bytes, in place; what no longer fits is cut. */
void agent_secrets_hide_text(const struct agent_secrets *s, char *text, size_t size);

#endif
