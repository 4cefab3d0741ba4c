/* SPDX-License-Identifier: MIT */
/* transom window list, close. */
#include <stdio.h>
#include <stdlib.h>
#include "vmm/cli/cli.h"

int cmd_window_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"name", "busy", "pid", "run_id", "to", NULL};
    static const char *const headers[] = {"NAME", "BUSY", "PID", "RUN", "BYTES", NULL};
    char *path = cli_sandbox_path(cli, "/windows");
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;

    (void)argc;
    (void)argv;
    free(path);
    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(json_object_get(answer, "windows"), keys, headers);
    json_decref(answer);
    return 0;
}

int cmd_window_close(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *window = cli_encode(argv[i]);
        char *path = cli_sandbox_path(cli, "/windows/%s", window);
        json_t *answer = path != NULL ? cli_call(cli, "DELETE", path, NULL) : NULL;

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
        free(window);
    }
    return status;
}
