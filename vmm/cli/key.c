/* SPDX-License-Identifier: MIT */
/* transom key create, list, delete. */
#include <stdio.h>
#include <stdlib.h>
#include "vmm/cli/cli.h"

int cmd_key_create(struct cli *cli, int argc, char **argv)
{
    json_t *body = json_pack("{s:s}", "owner", argv[0]), *scopes, *key;

    (void)argc;
    if (body == NULL)
        return cli_fail(CLI_USAGE, "the owner is not UTF-8");
    if (cli->name != NULL)
        json_object_set_new(body, "name", json_string(cli->name));
    if (cli->scopes.n > 0) {
        scopes = json_array();
        for (size_t i = 0; i < cli->scopes.n; i++)
            json_array_append_new(scopes, json_string(cli->scopes.items[i]));
        json_object_set_new(body, "scopes", scopes);
    }
    key = cli_call(cli, "POST", "/v1/keys", body);
    json_decref(body);
    return cli_print_answer(cli, key, "key");
}

int cmd_key_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"id", "owner", "name", "scope_text", "created_at", NULL};
    static const char *const headers[] = {"ID", "OWNER", "NAME", "SCOPES", "CREATED", NULL};
    json_t *answer = cli_call_pages(cli, "/v1/keys?limit=1000", "after", "keys"), *rows;

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return 1;
    rows = json_object_get(answer, "keys");
    for (size_t i = 0; !cli->json && i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i), *scopes = json_object_get(row, "scopes");
        char *text = cli_printf("%s", "");

        for (size_t k = 0; k < json_array_size(scopes); k++) {
            const char *scope = json_string_value(json_array_get(scopes, k));
            char *longer = cli_printf("%s%s%s", text, k > 0 ? "," : "", scope != NULL ? scope : "");

            free(text);
            text = longer;
        }
        json_object_set_new(row, "scope_text", json_string(text));
        free(text);
    }
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(rows, keys, headers);
    json_decref(answer);
    return 0;
}

int cmd_key_delete(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *id = cli_encode(argv[i]);
        char *path = cli_printf("/v1/keys/%s", id);
        json_t *answer = cli_call(cli, "DELETE", path, NULL);

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
        free(id);
    }
    return status;
}
