/* SPDX-License-Identifier: MIT */
/* transom session new, list, show, delete. */
#include <stdio.h>
#include <stdlib.h>
#include "vmm/cli/cli.h"

int cmd_session_new(struct cli *cli, int argc, char **argv)
{
    json_t *body = json_object(), *session;

    if (argc > 0 && json_object_set_new(body, "name", json_string(argv[0])) != 0) {
        json_decref(body);
        return cli_fail(CLI_USAGE, "the name is not UTF-8");
    }
    session = cli_call(cli, "POST", "/v1/sessions", body);
    json_decref(body);
    return cli_print_answer(cli, session, "id");
}

/* What a list shows of a session's sandboxes: the state of the first. */
static void add_state(json_t *session)
{
    const json_t *first = json_array_get(json_object_get(session, "sandboxes"), 0);

    json_object_set_new(session, "state", json_string(cli_text(first, "state")));
    json_object_set_new(session, "url", json_string(cli_text(first, "url")));
}

int cmd_session_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"id", "name", "owner", "state", "created_at", "url", NULL};
    static const char *const headers[] = {"ID", "NAME", "OWNER", "STATE", "CREATED", "URL", NULL};
    json_t *answer = cli_call(cli, "GET", "/v1/sessions", NULL), *sessions;

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(answer);
    } else {
        sessions = json_object_get(answer, "sessions");
        for (size_t i = 0; i < json_array_size(sessions); i++)
            add_state(json_array_get(sessions, i));
        cli_print_table(sessions, keys, headers);
    }
    json_decref(answer);
    return 0;
}

/* The figures of a sandbox that runs, as cells of the table. */
static void add_figures(json_t *sandbox)
{
    const json_t *stats = json_object_get(sandbox, "stats");
    json_int_t total = json_integer_value(json_object_get(stats, "mem_total_kb"));
    json_int_t available = json_integer_value(json_object_get(stats, "mem_available_kb"));
    json_int_t disk = json_integer_value(json_object_get(stats, "disk_used_kb"));

    if (!json_is_object(stats))
        return;
    json_object_set_new(
        sandbox, "cpu_now",
        json_sprintf("%.0f%%", json_number_value(json_object_get(stats, "cpu_percent"))));
    json_object_set_new(sandbox, "memory_now", json_integer((total - available) / 1024));
    json_object_set_new(sandbox, "disk_now", json_integer(disk / 1024));
}

static void print_field(const json_t *object, const char *key, const char *label)
{
    const json_t *v = json_object_get(object, key);

    if (json_is_integer(v)) {
        printf("%-9s %lld\n", label, (long long)json_integer_value(v));
    } else if (json_is_string(v) && json_string_length(v) > 0) {
        printf("%-9s ", label);
        cli_print_text(json_string_value(v));
        putchar('\n');
    }
}

int cmd_session_show(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"name",      "state",      "vcpus",    "cpu_now",
                                       "memory_mb", "memory_now", "disk_now", "access",
                                       "url",       "reason",     NULL};
    static const char *const headers[] = {"SANDBOX",  "STATE",  "CPUS", "CPU",    "MIB", "MIB USED",
                                          "DISK MIB", "ACCESS", "URL",  "REASON", NULL};
    json_t *sandbox;
    size_t i;
    char *id = cli_session_id(cli, argc > 0 ? argv[0] : NULL), *path;
    json_t *session;

    if (id == NULL)
        return 1;
    path = cli_printf("/v1/sessions/%s", id);
    session = cli_call(cli, "GET", path, NULL);
    free(path);
    free(id);
    if (session == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(session);
    } else {
        print_field(session, "id", "id");
        print_field(session, "name", "name");
        print_field(session, "owner", "owner");
        print_field(session, "created_at", "created");
        putchar('\n');
        json_array_foreach(json_object_get(session, "sandboxes"), i, sandbox) add_figures(sandbox);
        cli_print_table(json_object_get(session, "sandboxes"), keys, headers);
    }
    json_decref(session);
    return 0;
}

int cmd_session_delete(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *id = cli_session_id(cli, argv[i]);
        char *path = id != NULL ? cli_printf("/v1/sessions/%s", id) : NULL;
        json_t *answer = path != NULL ? cli_call(cli, "DELETE", path, NULL) : NULL;

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
        free(id);
    }
    return status;
}
