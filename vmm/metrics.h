/* SPDX-License-Identifier: MIT */
/* The manager's figures for Prometheus, at http://ADDRESS/metrics (vmm.metrics). */
#ifndef VMM_METRICS_H
#define VMM_METRICS_H

#include <stddef.h>
#include "transom/err.h"

struct vmm;
struct vmm_metrics;

/* The figures as text (new; NULL: out of memory). */
char *vmm_metrics_text(struct vmm *vmm);

/* Listen. address: "ADDRESS:PORT" or "[IPV6]:PORT". Returns 0, or a fault that names the option. */
TR_MUST_CHECK int vmm_metrics_open(struct vmm *vmm, const char *address, struct vmm_metrics **out,
                                   struct err *err);
/* Ends at once; it is freed by the loop, later. NULL is allowed. */
void vmm_metrics_close(struct vmm_metrics *metrics);

/* Status of the answer to text[0..len), the beginning of a request (RFC 9112): 0 while its head is
 * not complete, 200 for /metrics, 404 for other paths, 405 for other methods, 421 for a Host that a
 * web page could choose by its own name server, else 400. */
int vmm_metrics_judge(const char *text, size_t len);

#endif
