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

static void print_status(const json_t *told, const char *side)
{
    char *to = cli_printf("to_%s", side);

    printf("%s\n", json_is_true(json_object_get(told, "in_step"))  ? "in step"
                   : json_is_true(json_object_get(told, "synced")) ? "not in step"
                                                                   : "the first sync is under way");
    printf("%lld paths; %lld changes to the %s, %lld to the store; %lld pending\n",
           number(told, "paths"), number(told, to), side, number(told, "to_store"),
           number(told, "pending"));
    free(to);
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

static void print_sandbox(const json_t *told)
{
    if (json_is_true(json_object_get(told, "syncing"))) {
        print_status(told, "sandbox");
        return;
    }
    printf("not kept in step: the sandbox is ");
    cli_print_text(cli_text(told, "state"));
    putchar('\n');
}

static void print_bindings(const json_t *bindings)
{
    const json_t *item;
    size_t i;

    json_array_foreach(bindings, i, item)
    {
        printf("\nfolder ");
        cli_print_text(*cli_text(item, "name") != '\0' ? cli_text(item, "name")
                                                       : cli_text(item, "folder"));
        printf(": ");
        print_status(item, "folder");
    }
}

/* The folders that transom up binds now (new); NULL after saying why. */
static json_t *get_bindings(struct cli *cli)
{
    char *path = cli_session_path(cli, "/bindings");
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    json_t *list = json_incref(json_object_get(answer, "bindings"));

    json_decref(answer);
    free(path);
    return list;
}

int cmd_sync_status(struct cli *cli, int argc, char **argv)
{
    char *path = cli_sandbox_path(cli, "/sync");
    json_t *told = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    json_t *bindings = told != NULL ? get_bindings(cli) : NULL;
    int status = bindings != NULL ? 0 : 1;

    (void)argc;
    (void)argv;
    free(path);
    if (bindings != NULL && cli->json) {
        json_object_set(told, "bindings", bindings);
        cli_print_json(told);
    } else if (bindings != NULL) {
        print_sandbox(told);
        print_bindings(bindings);
    }
    json_decref(bindings);
    json_decref(told);
    return status;
}
