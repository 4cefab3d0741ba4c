/* SPDX-License-Identifier: MIT */
/* transom sync status. */
#include <stdio.h>
#include <stdlib.h>
#include "vmm/cli/cli.h"

static long long number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_list(const json_t *told, const char *key, const char *title)
{
    const json_t *list = json_object_get(told, key), *item;
    size_t i;

    if (json_array_size(list) == 0)
        return;
    printf("%s:\n", title);
    json_array_foreach(list, i, item)
    {
        printf("  ");
        cli_print_text(cli_text(item, "path"));
        printf(": ");
        if (*cli_text(item, "side") != '\0')
            printf("%s: ", cli_text(item, "side"));
        if (*cli_text(item, "winner") != '\0')
            printf("%s; %s's version stays", cli_text(item, "kind"), cli_text(item, "winner"));
        else
            cli_print_text(cli_text(item, "why"));
        putchar('\n');
    }
}

static void print_more(const json_t *told, const char *key, const char *counter)
{
    long long more = number(told, counter) - (long long)json_array_size(json_object_get(told, key));

    if (more > 0)
        printf("  and %lld more\n", more);
}

static void print_status(const json_t *told)
{
    printf("%s\n", json_is_true(json_object_get(told, "in_step"))  ? "in step"
                   : json_is_true(json_object_get(told, "synced")) ? "not in step"
                                                                   : "the first sync is under way");
    printf("%lld paths; %lld changes to the sandbox, %lld to the store; %lld pending\n",
           number(told, "paths"), number(told, "to_sandbox"), number(told, "to_store"),
           number(told, "pending"));
    if (*cli_text(told, "error") != '\0') {
        printf("the last round failed: ");
        cli_print_text(cli_text(told, "error"));
        putchar('\n');
    }
    print_list(told, "conflicts", "conflicts");
    print_list(told, "faults", "cannot be done");
    print_more(told, "faults", "n_faults");
    print_list(told, "left_out", "left out");
    print_more(told, "left_out", "n_left_out");
}

int cmd_sync_status(struct cli *cli, int argc, char **argv)
{
    char *path = cli_sandbox_path(cli, "/sync");
    json_t *told = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    int status = told != NULL ? 0 : 1;

    (void)argc;
    (void)argv;
    free(path);
    if (told != NULL && cli->json) {
        cli_print_json(told);
    } else if (told != NULL && !json_is_true(json_object_get(told, "syncing"))) {
        printf("not kept in step: the sandbox is ");
        cli_print_text(cli_text(told, "state"));
        putchar('\n');
    } else if (told != NULL) {
        print_status(told);
    }
    json_decref(told);
    return status;
}
