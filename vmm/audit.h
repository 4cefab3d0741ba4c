/* SPDX-License-Identifier: MIT */
/* Who did what: a line in the log and an entry of a bounded Redis stream for each API request that
 * needs more than the right to read, and for each that was refused. While Redis is away the last
 * ones wait for it. */
#ifndef VMM_AUDIT_H
#define VMM_AUDIT_H

#include "vmm/request.h"

#define VMM_AUDIT_WAITING 1000

struct vmm_audit_entry;

/* Zeroed memory is an empty one. */
struct vmm_audit {
    struct vmm_audit_entry *first, *last; /* those that wait for Redis */
    size_t n;
    size_t lost;   /* that did not fit, since the last flush */
    size_t n_lost; /* and in all */
};

/* The request has its answer: req->status. Called once for each. */
void vmm_audit_answered(struct vmm_request *req);
/* Redis is there (again). */
void vmm_audit_flush(struct vmm *vmm);
void vmm_audit_fini(struct vmm_audit *audit);

#endif
