/* SPDX-License-Identifier: MIT */
/* transom doctor: runs transom-doctor, which stands beside this program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

#define NAME "transom-doctor"

int cli_run_beside(const char *name, const char *const *argv)
{
    char self[4096] = "", *slash, *path;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    slash = len > 0 ? strrchr(self, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
        path = cli_printf("%s/%s", self, name);
        execv(path, (char *const *)argv);
        free(path);
    }
    execvp(name, (char *const *)argv);
    return cli_fail(1, "%s: %s (it is installed beside transom)", name, strerror(errno));
}

int cmd_doctor(struct cli *cli, int argc, char **argv)
{
    const char *args[5] = {NAME};
    int n = 1;

    (void)argc;
    (void)argv;
    if (cli->json)
        args[n++] = "--json";
    if (cli->config != NULL) {
        args[n++] = "-f";
        args[n++] = cli->config;
    }
    return cli_run_beside(NAME, args);
}
