/* SPDX-License-Identifier: MIT */
/* The gateway without a dashboard (-DTRANSOM_DASHBOARD=OFF). */
#include "gateway/asset.h"

const struct gw_asset gw_assets[] = {{.path = ""}};
const size_t gw_n_assets = 0;
