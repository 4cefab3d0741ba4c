/* SPDX-License-Identifier: MIT */
/* The folders that the serving process still needs: those of its configuration, certificates and
 * log. */
#ifndef GATEWAY_VIEW_H
#define GATEWAY_VIEW_H

#include "gateway/landlock.h"
#include "gateway/options.h"

/* Links are followed: both ends count. Without certificates of https listeners a folder that is not
 * there is left out. The view and its strings are freed together. */
TR_MUST_CHECK int gw_view_new(const struct gw_options *opt, const char *config_path,
                              struct gw_view **out, struct err *err);
void gw_view_free(struct gw_view *view);

#endif
