/* SPDX-License-Identifier: MIT */
/* transom-gateway: the keeper (keeper.c), or the serving process that it starts (gateway.c). */
#include <stdlib.h>

#include "gateway/gateway.h"
#include "gateway/keeper.h"
#include "transom/daemon.h"

int main(int argc, char **argv)
{
    static const struct tr_daemon daemon = {
        .program = "transom-gateway",
        .component = "gateway",
        .purpose = "HTTP edge: serves previews of sandboxes and forwards the API.",
        .check = gw_gateway_check,
    };
    struct tr_config *config;
    int status = tr_daemon_start(argc, argv, &daemon, &config);

    if (status != -1)
        return status;
    if (getenv(GW_CONTROL_ENV) != NULL)
        return gw_gateway_run(config);
    status = gw_keeper_run(argv, config);
    tr_config_free(config);
    return status;
}
