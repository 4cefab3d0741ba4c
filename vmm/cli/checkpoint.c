/* SPDX-License-Identifier: MIT */
/* transom checkpoint, checkpoint list, show, diff, restore; transom changes; transom kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"

static const char *const change_keys[] = {"change", "type", "size", "path", NULL};
static const char *const change_headers[] = {"CHANGE", "TYPE", "SIZE", "PATH", NULL};

/* What made or found a checkpoint: its id, and a word on what was left out. Takes answer. */
static int print_made(const struct cli *cli, json_t *answer)
{
    const json_t *left = json_object_get(answer, "left_out");

    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s\n", cli_text(json_object_get(answer, "checkpoint"), "id"));
    if (!json_is_true(json_object_get(answer, "changed")))
        fprintf(stderr, "transom: nothing has changed\n");
    if (left != NULL)
        fprintf(stderr, "transom: left out: %lld, the first is %s (%s)\n",
                (long long)json_integer_value(json_object_get(left, "count")),
                cli_text(left, "first"), cli_text(left, "reason"));
    json_decref(answer);
    return 0;
}

int cmd_checkpoint(struct cli *cli, int argc, char **argv)
{
    char *path;
    json_t *body = json_object(), *answer;

    (void)argc;
    (void)argv;
    if (cli->message != NULL &&
        json_object_set_new(body, "message", json_string(cli->message)) != 0) {
        json_decref(body);
        return cli_fail(CLI_USAGE, "the message is not UTF-8");
    }
    path = cli_session_path(cli, "/checkpoints");
    answer = path != NULL ? cli_call(cli, "POST", path, body) : NULL;
    json_decref(body);
    free(path);
    return print_made(cli, answer);
}

int cmd_checkpoint_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"short", "time", "cause", "author", "subject", NULL};
    static const char *const headers[] = {"ID", "TIME", "CAUSE", "AUTHOR", "MESSAGE", NULL};
    char *path = cli_session_path(cli, "/checkpoints?limit=1000");
    json_t *answer = path != NULL ? cli_call_pages(cli, path, "before", "checkpoints") : NULL;
    json_t *all = json_object_get(answer, "checkpoints"), *c;
    int status = answer != NULL ? 0 : 1;
    size_t i;

    (void)argc;
    (void)argv;
    if (status == 0 && cli->json) {
        cli_print_json(answer);
    } else if (status == 0) {
        json_array_foreach(all, i, c)
        {
            const char *message = cli_text(c, "message");

            json_object_set_new(c, "short", json_sprintf("%.12s", cli_text(c, "id")));
            json_object_set_new(c, "subject", json_stringn(message, strcspn(message, "\n")));
        }
        cli_print_table(all, keys, headers);
    }
    json_decref(answer);
    free(path);
    return status;
}

int cmd_checkpoint_show(struct cli *cli, int argc, char **argv)
{
    static const char *const fields[] = {"id", "parent", "time", "cause", "author"};
    char *name = cli_encode(argv[0]);
    char *path = cli_session_path(cli, "/checkpoints/%s", name);
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL, *changes;
    json_int_t n;

    (void)argc;
    free(path);
    free(name);
    if (answer == NULL)
        return 1;
    changes = json_object_get(answer, "changes");
    n = json_integer_value(json_object_get(answer, "n_changes"));
    if (cli->json) {
        cli_print_json(answer);
    } else {
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
            if (*cli_text(answer, fields[i]) == '\0')
                continue;
            printf("%-8s ", fields[i]);
            cli_print_text(cli_text(answer, fields[i]));
            putchar('\n');
        }
        putchar('\n');
        cli_print_text(cli_text(answer, "message"));
        printf("\n\n");
        cli_print_table(changes, change_keys, change_headers);
        if (n > (json_int_t)json_array_size(changes))
            printf("and %lld more\n", (long long)(n - (json_int_t)json_array_size(changes)));
    }
    json_decref(answer);
    return 0;
}

int cmd_checkpoint_diff(struct cli *cli, int argc, char **argv)
{
    char *name = cli_encode(argv[0]);
    char *path = cli_session_path(cli, "/checkpoints/%s", name);
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    const char *parent = cli_text(answer, "parent");
    int status = 1;

    (void)argc;
    free(path);
    free(name);
    if (answer == NULL)
        return 1;
    path = cli_session_path(cli, "/changes?since=%s&to=%s&format=patch",
                            *parent ? parent : cli_text(answer, "id"), cli_text(answer, "id"));
    if (path != NULL)
        status = cli_get_file(cli, path, "changes", "-");
    free(path);
    json_decref(answer);
    return status;
}

int cmd_checkpoint_restore(struct cli *cli, int argc, char **argv)
{
    char *name = cli_encode(argv[0]);
    char *path = cli_session_path(cli, "/checkpoints/%s/restore", name);
    json_t *body = json_object(), *answer;

    if (argc > 1)
        cli_set_bytes(body, "path", argv[1]);
    answer = path != NULL ? cli_call(cli, "POST", path, body) : NULL;
    json_decref(body);
    free(path);
    free(name);
    return print_made(cli, answer);
}

/* ---- changes ---- */

static int list_changes(struct cli *cli, const char *path)
{
    json_t *answer = cli_call(cli, "GET", path, NULL);

    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(json_object_get(answer, "changes"), change_keys, change_headers);
    json_decref(answer);
    return 0;
}

int cmd_changes(struct cli *cli, int argc, char **argv)
{
    const char *format = cli->format != NULL ? cli->format : "list";
    bool is_list = strcmp(format, "list") == 0, is_zip = strcmp(format, "zip") == 0;
    char *since, *to, *path;
    int status = 1;

    if (!is_list && !is_zip && strcmp(format, "patch") != 0)
        return cli_fail(CLI_USAGE, "--format wants list, patch or zip");
    if (is_list && argc > 0)
        return cli_fail(CLI_USAGE, "LOCAL goes with --format patch or zip");
    since = cli_encode(cli->since != NULL ? cli->since : "latest");
    to = cli_encode(cli->to != NULL ? cli->to : "");
    path = cli_session_path(cli, "/changes?since=%s%s%s&format=%s", since, *to ? "&to=" : "", to,
                            is_list ? "json" : format);
    if (path != NULL && is_list)
        status = list_changes(cli, path);
    else if (path != NULL)
        status = cli_get_file(cli, path, is_zip ? "changes.zip" : "changes",
                              argc > 0 ? argv[0]
                              : is_zip ? NULL
                                       : "-");
    free(path);
    free(to);
    free(since);
    return status;
}

/* ---- kept ---- */

int cmd_kept_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"id", "time", "reason", "side", "path", NULL};
    static const char *const headers[] = {"ID", "TIME", "REASON", "WHOSE", "PATH", NULL};
    char *path = cli_session_path(cli, "/kept?limit=1000");
    json_t *answer = path != NULL ? cli_call_pages(cli, path, "after", "kept") : NULL;
    int status = answer != NULL ? 0 : 1;

    (void)argc;
    (void)argv;
    if (status == 0 && cli->json) {
        cli_print_json(answer);
    } else if (status == 0) {
        cli_print_table(json_object_get(answer, "kept"), keys, headers);
    }
    json_decref(answer);
    free(path);
    return status;
}

int cmd_kept_get(struct cli *cli, int argc, char **argv)
{
    char *id = cli_encode(argv[0]), *path = cli_session_path(cli, "/contents/%s", id);
    int status = path != NULL ? cli_get_file(cli, path, argv[0], argv[1]) : 1;

    (void)argc;
    free(path);
    free(id);
    return status;
}
