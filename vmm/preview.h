/* SPDX-License-Identifier: MIT */
/* Settings of a sandbox's preview, as its record keeps them: where paths and ports lead, who may
 * come in, whether a request wakes it. */
#ifndef VMM_PREVIEW_H
#define VMM_PREVIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "transom/route.h"

#define VMM_PREVIEW_PORT 8080

struct vmm_preview {
    uint16_t port;    /* of the guest, for "/" */
    uint8_t protocol; /* enum tr_protocol, of that port */
    bool is_private;
    bool embed;                    /* its cookie may be sent from within other sites' frames */
    bool wake;                     /* a request may wake the sandbox */
    int64_t generation;            /* of its key; raising it ends all tokens */
    struct tr_route_extra *places; /* rules and ports, without a key; owned; NULL: none */
};

/* The settings of a new sandbox: public, port 8080, nothing else. */
void vmm_preview_init(struct vmm_preview *preview);
void vmm_preview_fini(struct vmm_preview *preview);
/* *to becomes a copy; both are to be given to vmm_preview_fini(). */
void vmm_preview_copy(struct vmm_preview *to, const struct vmm_preview *from);
bool vmm_preview_equal(const struct vmm_preview *a, const struct vmm_preview *b);

/* What the API takes. Each replaces what it names; absent members mean their defaults. Returns 0;
 * UV_EINVAL with a reason that begins with the member's name, or UV_ENOMEM: nothing was changed. */
TR_MUST_CHECK int vmm_preview_set_routes(struct vmm_preview *preview, const json_t *body,
                                         struct err *err);
TR_MUST_CHECK int vmm_preview_set_ports(struct vmm_preview *preview, const json_t *body,
                                        struct err *err);
TR_MUST_CHECK int vmm_preview_set_access(struct vmm_preview *preview, const json_t *body,
                                         struct err *err);

/* Is this port of the guest open to visitors under a host name of its own? */
bool vmm_preview_has_port(const struct vmm_preview *preview, uint16_t port);

/* Does what listens on this port serve the preview: on 8080, an opened or a routed port? */
bool vmm_preview_serves(const struct vmm_preview *preview, uint16_t port);

/* The member "preview" of a sandbox's record: a new reference, or NULL when out of memory. */
json_t *vmm_preview_record(const struct vmm_preview *preview);
/* *preview is new; record NULL (one from before there were settings): the defaults. Returns as
 * vmm_preview_set_routes(). */
TR_MUST_CHECK int vmm_preview_parse(struct vmm_preview *preview, const json_t *record,
                                    struct err *err);

/* Fill in what a route record says of the preview. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int vmm_preview_route(const struct vmm_preview *preview,
                                    const uint8_t master[TR_ROUTE_KEY_SIZE],
                                    struct tr_route *route);

#endif
