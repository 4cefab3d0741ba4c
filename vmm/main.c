/* SPDX-License-Identifier: MIT */
/* transom-vmm: see manager.c. */
#include <stdlib.h>
#include "transom/daemon.h"
#include "vmm/driver/driver.h"
#include "vmm/fetch.h"
#include "vmm/manager.h"
#include "vmm/repack.h"
#include "vmm/unzip.h"

int main(int argc, char **argv)
{
    static const struct tr_daemon daemon = {
        .program = "transom-vmm",
        .component = "vmm",
        .purpose = "Manager of sessions and their microVMs; serves the API.",
        .check = vmm_manager_check,
    };
    struct tr_config *config;
    int status;

    if (vm_role_main(argc, argv, &status) || vmm_repack_main(argc, argv, &status) ||
        vmm_unzip_main(argc, argv, &status) || vmm_fetch_main(argc, argv, &status))
        return status;
    status = tr_daemon_start(argc, argv, &daemon, &config);
    if (status != -1)
        return status;
    status = vmm_manager_run(config);
    tr_config_free(config);
    return status;
}
