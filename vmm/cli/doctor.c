/* SPDX-License-Identifier: MIT */
/* transom doctor: runs transom-doctor, which stands beside this program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

#define NAME "transom-doctor"

int cmd_doctor(struct cli *cli, int argc, char **argv)
{
    char self[4096] = "", *args[5] = {NAME}, *slash, *path;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int n = 1;

    (void)argc;
    (void)argv;
    if (cli->json)
        args[n++] = "--json";
    if (cli->config != NULL) {
        args[n++] = "-f";
        args[n++] = (char *)cli->config;
    }
    slash = len > 0 ? strrchr(self, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
        path = cli_printf("%s/" NAME, self);
        execv(path, args);
        free(path);
    }
    execvp(NAME, args);
    return cli_fail(1, NAME ": %s (it is installed beside transom)", strerror(errno));
}
