/* SPDX-License-Identifier: MIT */
/* transom audit: who did what, oldest first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"

#define PAGE        1000
#define LIMIT_USUAL 100

/* How many are wanted; -CLI_USAGE after saying that it is no number. */
static long wanted(const char *text)
{
    char *end = NULL;
    long n = text != NULL ? strtol(text, &end, 10) : LIMIT_USUAL;

    if (text != NULL && (*text == '\0' || *end != '\0' || n < 1 || n > 100000000))
        return -cli_fail(CLI_USAGE, "--limit wants a number of entries");
    return n;
}

static void print_entry(const json_t *entry)
{
    const json_t *uid = json_object_get(entry, "uid");

    cli_print_text(cli_text(entry, "time"));
    putchar(' ');
    cli_print_text(cli_text(entry, "owner"));
    if (*cli_text(entry, "key") != '\0') {
        printf(" key=");
        cli_print_text(cli_text(entry, "key"));
    }
    putchar(' ');
    cli_print_text(cli_text(entry, "method"));
    putchar(' ');
    cli_print_text(cli_text(entry, "path"));
    printf(" %lld", (long long)json_integer_value(json_object_get(entry, "status")));
    if (*cli_text(entry, "from") != '\0') {
        printf(" from=");
        cli_print_text(cli_text(entry, "from"));
    } else if (uid != NULL) {
        printf(" uid=%lld", (long long)json_integer_value(uid));
    }
    printf(" req=");
    cli_print_text(cli_text(entry, "request"));
    putchar('\n');
}

/* The last n, newest first (new); NULL after saying why. */
static json_t *get_entries(struct cli *cli, size_t n)
{
    json_t *all = json_array(), *answer = NULL;
    char *before = NULL;

    do {
        size_t left = n - json_array_size(all);
        char *path = cli_printf("/v1/audit?limit=%zu%s%s", left < PAGE ? left : PAGE,
                                before != NULL ? "&before=" : "", before != NULL ? before : "");

        json_decref(answer);
        answer = cli_call(cli, "GET", path, NULL);
        free(path);
        free(before);
        if (answer == NULL) {
            json_decref(all);
            return NULL;
        }
        json_array_extend(all, json_object_get(answer, "entries"));
        before = cli_encode(cli_text(answer, "next"));
    } while (*before != '\0' && json_array_size(all) < n);
    free(before);
    json_decref(answer);
    return all;
}

int cmd_audit(struct cli *cli, int argc, char **argv)
{
    long limit = wanted(cli->limit);
    json_t *entries = limit < 0 ? NULL : get_entries(cli, (size_t)limit);

    (void)argc;
    (void)argv;
    if (entries == NULL)
        return limit < 0 ? CLI_USAGE : 1;
    for (size_t i = json_array_size(entries); i-- > 0;) {
        const json_t *entry = json_array_get(entries, i);

        if (cli->json) {
            json_dumpf(entry, stdout, JSON_COMPACT);
            putchar('\n');
        } else {
            print_entry(entry);
        }
    }
    json_decref(entries);
    return 0;
}
