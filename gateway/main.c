/* SPDX-License-Identifier: MIT */
/* transom-gateway: see gateway.c. */
#include "gateway/gateway.h"
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
    status = gw_gateway_run(config);
    tr_config_free(config);
    return status;
}
