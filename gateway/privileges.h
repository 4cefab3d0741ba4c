/* SPDX-License-Identifier: MIT */
/* Giving rights up: the keeper at its start, the serving process once everything is open. */
#ifndef GATEWAY_PRIVILEGES_H
#define GATEWAY_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

struct gw_view;

/* Before anything else: as many descriptors as the kernel lets us have. */
void gw_raise_descriptor_limit(void);
/* For a check by root: be that user for a moment, so that files are opened with its rights. Returns
 * whether anything was changed; then gw_return_user() must follow. */
bool gw_borrow_user(const char *user);
void gw_return_user(void);
/* Become user ("": the gateway's own), drop every capability, except CAP_NET_BIND_SERVICE if
 * keep_bind and it is there, and forbid gaining new ones. Programs started from here inherit it. */
TR_MUST_CHECK int gw_become(const char *user, bool keep_bind, struct err *err);
/* Drop what is left, see no files but those of view, and filter system calls. Call before any
 * thread is started. what gets one line for the log. */
TR_MUST_CHECK int gw_restrict(const struct gw_view *view, char *what, size_t what_len,
                              struct err *err);

#endif
