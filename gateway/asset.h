/* SPDX-License-Identifier: MIT */
/* Files that are part of the gateway: the dashboard, as gateway/dashboard/build.mjs embeds it. */
#ifndef GATEWAY_ASSET_H
#define GATEWAY_ASSET_H

#include "gateway/exchange.h"

enum gw_coding { GW_CODING_IDENTITY, GW_CODING_GZIP, GW_CODING_BROTLI, GW_CODINGS };

struct gw_asset {
    const char *path; /* "/assets/app-7F3A.js" has its hash in its name; "/" is the page */
    const char *type;
    const char *etag[GW_CODINGS]; /* with quotes (RFC 9110 section 8.8.3) */
    const unsigned char *data[GW_CODINGS], *end[GW_CODINGS];
};

/* Generated. None when the gateway is built without the dashboard. */
extern const struct gw_asset gw_assets[];
extern const size_t gw_n_assets;

/* The file of a target's path, whatever its query; for every path without a dot the page, which
 * looks at it itself. NULL: none. */
const struct gw_asset *gw_asset_find(struct gw_str target);
/* The best coding that the request accepts (RFC 9110 section 12.5.3). */
enum gw_coding gw_asset_coding(const struct gw_request *req);
/* Answer, with the file or 304. The exchange may be over when this returns. */
void gw_asset_send(struct gw_exchange *x, const struct gw_request *req,
                   const struct gw_asset *asset);

#endif
