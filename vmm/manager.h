/* SPDX-License-Identifier: MIT */
/* The order in which the manager comes up and goes down. */
#ifndef VMM_MANAGER_H
#define VMM_MANAGER_H

#include "transom/config.h"

/* Run until a signal ends it. Returns the exit status; faults are logged. */
int vmm_manager_run(const struct tr_config *config);
/* For -n: what can be told without starting. */
TR_MUST_CHECK int vmm_manager_check(const struct tr_config *config, struct err *err);

#endif
