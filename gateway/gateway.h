/* SPDX-License-Identifier: MIT */
/* The gateway as a whole: what main() starts. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "transom/config.h"

/* Checks of -n: options that must agree, files that must be readable. */
TR_MUST_CHECK int gw_gateway_check(const struct tr_config *config, struct err *err);
/* Run until SIGTERM or SIGINT. Returns the exit status; everything was said. */
int gw_gateway_run(const struct tr_config *config);

#endif
