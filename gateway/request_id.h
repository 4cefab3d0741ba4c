/* SPDX-License-Identifier: MIT */
/* X-Request-Id: the name under which a request stands in the access log, and by which the app can
 * name it, too. A client's own is kept when it is plain: 1 to 64 letters, digits or -._~+/=:@ in
 * one field. Otherwise one is made. */
#ifndef GATEWAY_REQUEST_ID_H
#define GATEWAY_REQUEST_ID_H

#include "gateway/message.h"

#define GW_REQUEST_ID_LEN 16

/* Find the request's id. When it brings none that is kept, made[] gets one, to be passed on, and
 * what it brings is marked as ending here; else made[0] is 0. state: any value at first, of one
 * thread. Returns the id, which points into req or made. */
struct gw_str gw_request_id(struct gw_request *req, uint64_t *state,
                            char made[GW_REQUEST_ID_LEN + 1]);

#endif
