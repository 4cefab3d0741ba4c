/* SPDX-License-Identifier: MIT */
/* The process that serves: what main() starts when the keeper has started it. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "transom/config.h"

/* Checks of -n: options that must agree, files that must be readable. */
TR_MUST_CHECK int gw_gateway_check(const struct tr_config *config, struct err *err);
/* Serve until the keeper or SIGTERM says to stop. Takes config. Returns the exit status; everything
 * was said. */
int gw_gateway_run(struct tr_config *config);

#endif
