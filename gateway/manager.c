/* SPDX-License-Identifier: MIT */
#include "gateway/manager.h"

#include "gateway/worker.h"

void gw_manager_start(struct gw_exchange *x, const struct gw_request *req,
                      const struct sockaddr *peer)
{
    (void)req;
    (void)peer;
    gw_exchange_back_failed(x, 502, "no_manager", "not built yet");
}

void gw_manager_close(struct gw_worker *w)
{
    (void)w;
}
