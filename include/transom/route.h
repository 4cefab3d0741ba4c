/* SPDX-License-Identifier: MIT */
/* The route record: where a preview label leads, and what the gateway must know to lead there.
 * Written by the manager, read by every gateway. Implemented in vmm/state/. */
#ifndef TRANSOM_ROUTE_H
#define TRANSOM_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

#define TR_LABEL_LEN        16
#define TR_ROUTE_RECORD_MAX 16384 /* bytes of JSON */
#define TR_ROUTE_RULES_MAX  32
#define TR_ROUTE_PORTS_MAX  64
#define TR_ROUTE_PREFIX_MAX 255
#define TR_ROUTE_KEY_SIZE   32

bool tr_label_valid(const char *s, size_t len); /* exactly [a-z0-9]{16} */

enum tr_sandbox_state {
    TR_SANDBOX_ASLEEP,
    TR_SANDBOX_STARTING,
    TR_SANDBOX_RUNNING,
    TR_SANDBOX_STOPPING,
    TR_SANDBOX_FAILED,
};
const char *tr_sandbox_state_name(enum tr_sandbox_state state);
TR_MUST_CHECK int tr_sandbox_state_parse(const char *name, enum tr_sandbox_state *state);

/* What the app behind a port speaks. */
enum tr_protocol {
    TR_PROTOCOL_HTTP1, /* the default */
    TR_PROTOCOL_H2C,   /* HTTP/2 without TLS, by prior knowledge (RFC 9113, 3.3) */
};
const char *tr_protocol_name(enum tr_protocol protocol);
TR_MUST_CHECK int tr_protocol_parse(const char *name, enum tr_protocol *protocol);

/* A path rule. The prefix matches whole segments: "/api" covers "/api" and "/api/x", not
 * "/apis". */
struct tr_route_rule {
    const char *prefix; /* as tr_route_prefix_valid() wants it */
    uint16_t prefix_len;
    uint16_t port;
    uint8_t protocol; /* enum tr_protocol */
    bool strip;       /* the app does not see the prefix */
};

/* A port opened under a host name of its own. */
struct tr_route_port {
    uint16_t port;
    uint8_t protocol; /* enum tr_protocol */
};

/* What most routes do not have: one block with all that it points to. It never changes, so threads
 * may share it; the last tr_route_extra_unref() frees it. */
struct tr_route_extra {
    unsigned n_refs;                   /* only by ref and unref */
    uint16_t n_rules, n_ports;         /* at most TR_ROUTE_RULES_MAX, TR_ROUTE_PORTS_MAX */
    bool is_private;                   /* key is valid, and no request passes without a token */
    bool embed;                        /* the cookie may be sent from within other sites' frames */
    uint8_t key[TR_ROUTE_KEY_SIZE];    /* of tokens */
    const struct tr_route_rule *rules; /* no two alike; longest prefix first */
    const struct tr_route_port *ports; /* no two alike; ascending */
};

/* rules and ports are copied and sorted; their order does not matter. key NULL: public. Returns 0;
 * UV_EINVAL with the reason (too many, the same twice, a bad prefix or port), the offending member
 * named as in JSON ("rules[1].prefix"); UV_ENOMEM. *out is NULL when there is nothing to hold. */
TR_MUST_CHECK int tr_route_extra_new(const struct tr_route_rule *rules, size_t n_rules,
                                     const struct tr_route_port *ports, size_t n_ports,
                                     const uint8_t *key, bool embed, struct tr_route_extra **out,
                                     struct err *err);
struct tr_route_extra *tr_route_extra_ref(struct tr_route_extra *extra); /* NULL is fine */
void tr_route_extra_unref(struct tr_route_extra *extra);                 /* NULL is fine */

/* The opened port of that number, or NULL. extra NULL is fine. */
const struct tr_route_port *tr_route_port_find(const struct tr_route_extra *extra, uint16_t port);

/* Is this a prefix for a path rule? It begins with "/", does not end with it, has at most
 * TR_ROUTE_PREFIX_MAX bytes, all of them of a path (RFC 3986, 3.3), and is the one normal way to
 * write itself (6.2.2): no "//", no dot segments, percent-encoding in capital letters and only
 * where it is needed, never for "/", "\" or controls. why (may be NULL) is set when it is not. */
bool tr_route_prefix_valid(const char *prefix, size_t len, const char **why);

/* Where a label leads. In Redis as JSON:
 * {"v":1,"state":"running","address":"100.64.0.6","port":8080,"instance":3,"node":"n1",
 *  "session":"...","owner":"...","reason":"",
 *  "protocol":"h2c","wake":true,"agent_port":982,
 *  "rules":[{"prefix":"/api","port":3000,"strip":true,"protocol":"http1"}],
 *  "ports":[{"port":3000,"protocol":"http1"}],
 *  "access":{"mode":"private","key":"<64 hex digits>","embed":false}}.
 * Members of the last four lines may be absent: http1, no, none, none, none, public. Unknown
 * members are ignored. */
struct tr_route {
    char label[TR_LABEL_LEN + 1];
    enum tr_sandbox_state state;
    char address[46];    /* numeric; "" unless running */
    uint16_t port;       /* of the guest, for "/" */
    uint8_t protocol;    /* enum tr_protocol, of that port */
    bool wake;           /* a request to a sandbox that is asleep wakes it */
    uint16_t agent_port; /* of the guest: leads to its loopback; 0: there is none */
    uint64_t instance;
    char node[64];
    char session[TR_LABEL_LEN + 1];
    char owner[65];
    char reason[128];             /* failed: why */
    struct tr_route_extra *extra; /* owned; NULL: public, no rules, no opened ports */
};

/* Parse a record (hostile bytes, bounded). Returns 0, and *out is to be given to tr_route_fini();
 * or UV_EINVAL with a reason, or UV_ENOMEM, and *out is untouched. */
TR_MUST_CHECK int tr_route_parse(const char *label, const char *json, size_t len,
                                 struct tr_route *out, struct err *err);
void tr_route_fini(struct tr_route *route);
/* Encode; returns a malloc'ed string or NULL when out of memory. */
char *tr_route_encode(const struct tr_route *route);

#endif
