/* SPDX-License-Identifier: MIT */
/* The Host field: which of the node's names does it say, if any? */
#ifndef GATEWAY_HOST_H
#define GATEWAY_HOST_H

#include "gateway/message.h"
#include "transom/state.h"

enum gw_host_kind {
    GW_HOST_INVALID, /* not a Host at all (RFC 9112 section 3.2): 400 */
    GW_HOST_OTHER,   /* well-formed, not ours */
    GW_HOST_PREVIEW, /* label is valid, and port */
    GW_HOST_API,
    GW_HOST_ADMIN,
};

struct gw_host {
    enum gw_host_kind kind;
    uint16_t port; /* 0: the label alone */
    char label[TR_LABEL_LEN + 1];
};

/* Previews are LABEL.preview_domain, and PORT-LABEL.preview_domain for a port that was opened
 * (decimal, 1 to 65535, without leading zeros: one name for one thing).
 * value: as received, without surrounding blanks. domain, preview_domain: lower case. */
void gw_host_parse(struct gw_str value, const char *domain, const char *preview_domain,
                   struct gw_host *out);

#endif
