/* SPDX-License-Identifier: MIT */
/* transom backup, restore: run transom-backup, which stands beside this program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/config.h"
#include "transom/daemon.h"
#include "vmm/cli/cli.h"

#define NAME "transom-backup"

static int run(const struct cli *cli, const char *what, const char *file)
{
    const char *path = cli->config != NULL ? cli->config : TR_CONFIG_DEFAULT_PATH;
    struct tr_config *config = NULL;
    struct err err = {0};
    bool usual = cli->config == NULL && access(path, F_OK) != 0;
    int r = usual ? tr_config_new(&config) : tr_config_load(path, &config, &err);
    int status;

    if (r != 0)
        return cli_fail(1, "%s", r == -ENOMEM ? "out of memory" : err.msg);
    status = cli_run_beside(
        NAME, (const char *const[]){NAME, what, tr_config_str(config, "state_dir"), file, NULL});
    tr_config_free(config);
    return status;
}

int cmd_backup(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    return run(cli, "create", argv[0]);
}

int cmd_restore(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    return run(cli, "restore", argv[0]);
}
