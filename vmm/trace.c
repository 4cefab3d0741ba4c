/* SPDX-License-Identifier: MIT */
#include "vmm/trace.h"

#include <stdio.h>
#include <string.h>
#include "vmm/text.h"

#define MADE_LEN 16

bool vmm_traceparent_valid(const char *text)
{
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";

    if (strlen(text) != VMM_TRACE_LEN)
        return false;
    for (size_t i = 0; i < VMM_TRACE_LEN; i++) {
        if (form[i] == '-' ? text[i] != '-' : strchr("0123456789abcdef", text[i]) == NULL)
            return false;
    }
    return strncmp(text, "ff", 2) != 0 && strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

void vmm_trace_read(struct vmm_request *req)
{
    const char *id = tr_h2_head_get(req->head, "x-request-id");
    const char *trace = tr_h2_head_get(req->head, "traceparent");

    if (id != NULL && vmm_word_valid(id, VMM_REQ_ID_MAX, "~+/=:@"))
        snprintf(req->id, sizeof(req->id), "%s", id);
    else
        vmm_random_hex(req->id, MADE_LEN);
    if (trace != NULL && vmm_traceparent_valid(trace))
        snprintf(req->trace, sizeof(req->trace), "%s", trace);
}

const char *vmm_trace_ids(const struct vmm_request *req, char out[VMM_TRACE_IDS])
{
    snprintf(out, VMM_TRACE_IDS, "req=%s%s%s", req->id, *req->trace ? " trace=" : "", req->trace);
    return out;
}
