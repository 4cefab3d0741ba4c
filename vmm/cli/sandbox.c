/* SPDX-License-Identifier: MIT */
/* transom sandbox list, start, stop, reset; transom url. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

int cmd_sandbox_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"name",      "state", "instance", "vcpus",
                                       "memory_mb", "url",   "reason",   NULL};
    static const char *const headers[] = {"NAME", "STATE", "INSTANCE", "CPUS",
                                          "MIB",  "URL",   "REASON",   NULL};
    char *id = cli_session_id(cli, NULL), *path;
    json_t *answer;

    (void)argc;
    (void)argv;
    if (id == NULL)
        return 1;
    path = cli_printf("/v1/sessions/%s/sandboxes", id);
    answer = cli_call(cli, "GET", path, NULL);
    free(path);
    free(id);
    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(json_object_get(answer, "sandboxes"), keys, headers);
    json_decref(answer);
    return 0;
}

/* POST .../sandboxes/NAME/VERB, and show the sandbox that comes back. */
static int change(struct cli *cli, int argc, char **argv, const char *verb, const json_t *body)
{
    json_t *sandbox;
    char *path;

    if (argc > 0)
        cli->sandbox = argv[0];
    path = cli_sandbox_path(cli, "/%s", verb);
    sandbox = path != NULL ? cli_call(cli, "POST", path, body) : NULL;
    free(path);
    if (sandbox == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(sandbox);
    } else {
        cli_print_text(cli_text(sandbox, "name"));
        printf(": ");
        cli_print_text(cli_text(sandbox, "state"));
        printf("\n");
    }
    json_decref(sandbox);
    return 0;
}

int cmd_sandbox_start(struct cli *cli, int argc, char **argv)
{
    return change(cli, argc, argv, "start", NULL);
}

int cmd_sandbox_stop(struct cli *cli, int argc, char **argv)
{
    return change(cli, argc, argv, "stop", NULL);
}

/* Ask on the terminal. */
static bool is_sure(void)
{
    char answer[16] = "";

    fprintf(stderr, "What runs in the sandbox ends, and what was installed in it is gone. "
                    "Go on? [y/N] ");
    if (fgets(answer, sizeof(answer), stdin) == NULL)
        fputc('\n', stderr);
    return answer[0] == 'y' || answer[0] == 'Y';
}

int cmd_sandbox_reset(struct cli *cli, int argc, char **argv)
{
    json_t *body;
    int status;

    if (!cli->yes && !isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "reset asks before it acts; without a terminal it wants --yes");
    if (!cli->yes && !is_sure())
        return cli_fail(1, "nothing was done");
    body = json_pack("{s:b}", "confirm", 1);
    status = change(cli, argc, argv, "reset", body);
    json_decref(body);
    return status;
}

int cmd_url(struct cli *cli, int argc, char **argv)
{
    char *path = cli_sandbox_path(cli, "%s", "");
    json_t *sandbox = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;

    (void)argc;
    (void)argv;
    free(path);
    if (sandbox == NULL)
        return 1;
    if (cli->json) {
        json_t *part = json_pack("{s:s, s:s, s:s}", "url", cli_text(sandbox, "url"), "host",
                                 cli_text(sandbox, "host"), "state", cli_text(sandbox, "state"));

        cli_print_json(part);
        json_decref(part);
    } else {
        cli_print_text(cli_text(sandbox, cli->host ? "host" : "url"));
        putchar('\n');
    }
    json_decref(sandbox);
    return 0;
}
