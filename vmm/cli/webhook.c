/* SPDX-License-Identifier: MIT */
/* transom webhook create, list, delete. */
#include <stdio.h>
#include <stdlib.h>
#include "vmm/cli/cli.h"

int cmd_webhook_create(struct cli *cli, int argc, char **argv)
{
    json_t *body = json_pack("{s:s}", "url", argv[0]), *events, *hook;

    (void)argc;
    if (body == NULL)
        return cli_fail(CLI_USAGE, "the URL is not UTF-8");
    if (cli->events.n > 0) {
        events = json_array();
        for (size_t i = 0; i < cli->events.n; i++)
            json_array_append_new(events, json_string(cli->events.items[i]));
        json_object_set_new(body, "events", events);
    }
    if (cli->all)
        json_object_set_new(body, "all_owners", json_true());
    hook = cli_call(cli, "POST", "/v1/webhooks", body);
    json_decref(body);
    if (hook != NULL && !cli->json)
        fprintf(stderr, "transom: webhook %s; its secret is shown this once:\n",
                cli_text(hook, "id"));
    return cli_print_answer(cli, hook, "secret");
}

int cmd_webhook_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"id",       "url",         "delivered",  "given_up",
                                       "failures", "last_status", "last_error", NULL};
    static const char *const headers[] = {"ID",    "URL",    "DELIVERED", "GIVEN UP",
                                          "FAILS", "STATUS", "ERROR",     NULL};
    json_t *answer = cli_call_pages(cli, "/v1/webhooks?limit=1000", "after", "webhooks");

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(json_object_get(answer, "webhooks"), keys, headers);
    json_decref(answer);
    return 0;
}

int cmd_webhook_delete(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *id = cli_encode(argv[i]), *path = cli_printf("/v1/webhooks/%s", id);
        json_t *answer = cli_call(cli, "DELETE", path, NULL);

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
        free(id);
    }
    return status;
}
