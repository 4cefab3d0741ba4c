/* SPDX-License-Identifier: MIT */
/* Giving rights up, once everything that needs them is open. */
#ifndef GATEWAY_PRIVILEGES_H
#define GATEWAY_PRIVILEGES_H

#include <stddef.h>
#include "transom/err.h"

/* Before anything else: as many descriptors as the kernel lets us have. */
void gw_raise_descriptor_limit(void);
/* Become user ("" : stay), drop every capability, forbid gaining new ones, and filter system calls.
 * Call before any thread is started. what gets one line for the log. */
TR_MUST_CHECK int gw_drop_privileges(const char *user, char *what, size_t what_len,
                                     struct err *err);

#endif
