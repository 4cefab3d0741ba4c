/* SPDX-License-Identifier: MIT */
/* One name for a request from the edge to the agent: x-request-id, which the gateway makes or takes
 * over, and W3C's traceparent, which is passed on and logged but not judged. */
#ifndef VMM_TRACE_H
#define VMM_TRACE_H

#include <stdbool.h>
#include "transom/h2.h"
#include "vmm/request.h"

#define VMM_TRACE_IDS (VMM_REQ_ID_MAX + VMM_TRACE_LEN + 16)

/* Set req->id and req->trace from the head. */
void vmm_trace_read(struct vmm_request *req);
/* "req=ID" or "req=ID trace=TRACEPARENT", for tr_log(). */
const char *vmm_trace_ids(const struct vmm_request *req, char out[VMM_TRACE_IDS]);

/* "VV-<32 hex>-<16 hex>-<2 hex>" in lower case, no part all zeros, version not ff
 * (W3C Trace Context section 3.2). */
bool vmm_traceparent_valid(const char *text);

#endif
