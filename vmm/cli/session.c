/* SPDX-License-Identifier: MIT */
/* transom session new, list, show, set, why, delete. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

/* "default" is 0. Returns false when it is no number of seconds. */
static bool parse_seconds(const char *text, long long *out)
{
    char *end;

    *out = 0;
    if (strcmp(text, "default") == 0)
        return true;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *out > 0;
}

/* --persist, --idle-timeout and the name given, as members of a body (new); NULL after saying what
 * is wrong. */
static json_t *settings(const struct cli *cli, const char *name)
{
    json_t *body = json_object();
    long long seconds = 0;

    if (cli->persist != NULL)
        json_object_set_new(body, "persist", json_boolean(strcmp(cli->persist, "on") == 0));
    if (cli->idle_timeout != NULL && !parse_seconds(cli->idle_timeout, &seconds))
        cli_fail(CLI_USAGE, "--idle-timeout is a number of seconds, or \"default\"");
    else if (cli->persist != NULL && strcmp(cli->persist, "on") != 0 &&
             strcmp(cli->persist, "off") != 0)
        cli_fail(CLI_USAGE, "--persist is \"on\" or \"off\"");
    else if (name != NULL && json_object_set_new(body, "name", json_string(name)) != 0)
        cli_fail(CLI_USAGE, "the name is not UTF-8");
    else if (cli->idle_timeout == NULL ||
             json_object_set_new(body, "idle_timeout_s", json_integer(seconds)) == 0)
        return body;
    json_decref(body);
    return NULL;
}

/* The body that asks for a repository (new); NULL after saying what is wrong. */
static json_t *repository(const struct cli *cli)
{
    json_t *body = json_object();
    char *end = NULL;
    long long depth = cli->depth != NULL ? strtoll(cli->depth, &end, 10) : 1;

    if (cli->depth != NULL && (end == cli->depth || *end != '\0' || depth < 1))
        cli_fail(CLI_USAGE, "--depth is a number of commits");
    else if (json_object_set_new(body, "url", json_string(cli->git)) != 0 ||
             (cli->ref != NULL && json_object_set_new(body, "ref", json_string(cli->ref)) != 0))
        cli_fail(CLI_USAGE, "URL or REF is not UTF-8");
    else if (cli->depth == NULL || json_object_set_new(body, "depth", json_integer(depth)) == 0)
        return body;
    json_decref(body);
    return NULL;
}

/* Fetch into the new session; if that fails, it goes again. */
static int clone_into(struct cli *cli, const json_t *session, const json_t *body)
{
    char *path = cli_printf("/v1/sessions/%s", cli_text(session, "id"));
    char *clone = cli_printf("%s/clone", path);
    json_t *answer;
    bool is_told = isatty(STDERR_FILENO) != 0, done;

    if (is_told)
        fprintf(stderr, "transom: fetching %s ...\n", cli->git);
    answer = cli_call(cli, "POST", clone, body);
    done = answer != NULL;
    if (done && is_told)
        fprintf(stderr, "transom: %lld files\n",
                (long long)json_integer_value(json_object_get(answer, "files")));
    json_decref(answer);
    if (!done)
        json_decref(cli_call(cli, "DELETE", path, NULL));
    free(clone);
    free(path);
    return done ? 0 : 1;
}

int cmd_session_new(struct cli *cli, int argc, char **argv)
{
    json_t *body = settings(cli, argc > 0 ? argv[0] : NULL), *session, *git = NULL;
    int status = 0;

    if (body != NULL && cli->git == NULL && (cli->ref != NULL || cli->depth != NULL))
        status = cli_fail(CLI_USAGE, "--ref and --depth go with --git");
    if (body != NULL && cli->git != NULL)
        git = repository(cli);
    if (body == NULL || status != 0 || (cli->git != NULL && git == NULL)) {
        json_decref(body);
        return CLI_USAGE;
    }
    session = cli_call(cli, "POST", "/v1/sessions", body);
    json_decref(body);
    if (session != NULL && git != NULL)
        status = clone_into(cli, session, git);
    json_decref(git);
    if (status != 0) {
        json_decref(session);
        return status;
    }
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
    json_t *answer = cli_call_pages(cli, "/v1/sessions?limit=1000", "after", "sessions"), *sessions;

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
        if (json_is_true(json_object_get(session, "persist")))
            printf("%-9s yes\n", "persists");
        if (json_integer_value(json_object_get(session, "idle_timeout_s")) > 0)
            printf("%-9s %lld s\n", "idle",
                   (long long)json_integer_value(json_object_get(session, "idle_timeout_s")));
        putchar('\n');
        json_array_foreach(json_object_get(session, "sandboxes"), i, sandbox) add_figures(sandbox);
        cli_print_table(json_object_get(session, "sandboxes"), keys, headers);
    }
    json_decref(session);
    return 0;
}

int cmd_session_set(struct cli *cli, int argc, char **argv)
{
    char *id, *path;
    json_t *body, *session;

    if (cli->persist == NULL && cli->idle_timeout == NULL && cli->name == NULL)
        return cli_fail(CLI_USAGE, "what is to be set? --persist, --idle-timeout or --name");
    body = settings(cli, cli->name);
    if (body == NULL)
        return CLI_USAGE;
    id = cli_session_id(cli, argc > 0 ? argv[0] : NULL);
    path = id != NULL ? cli_printf("/v1/sessions/%s", id) : NULL;
    session = path != NULL ? cli_call(cli, "PATCH", path, body) : NULL;
    free(path);
    free(id);
    json_decref(body);
    if (session != NULL && cli->json)
        cli_print_json(session);
    json_decref(session);
    return session != NULL ? 0 : 1;
}

static void print_holder(const json_t *holder)
{
    static const char *const keys[] = {"name", "run_id", "id", "command"};

    printf("  %s", cli_text(holder, "kind"));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (*cli_text(holder, keys[i]) != '\0') {
            putchar(' ');
            cli_print_text(cli_text(holder, keys[i]));
        }
    }
    putchar('\n');
}

static void print_why(const char *name, const json_t *told)
{
    const char *deadline = cli_text(told, "deadline_at");
    json_t *holder;
    size_t i;

    cli_print_text(name);
    printf(": ");
    cli_print_text(cli_text(told, "state"));
    if (*cli_text(told, "why") != '\0') {
        printf(": ");
        cli_print_text(cli_text(told, "why"));
    }
    putchar('\n');
    json_array_foreach(json_object_get(told, "holders"), i, holder) print_holder(holder);
    if (*deadline != '\0') {
        printf("  stops at ");
        cli_print_text(deadline);
        printf(" unless it is used before\n");
    }
}

int cmd_session_why(struct cli *cli, int argc, char **argv)
{
    char *id = cli_session_id(cli, argc > 0 ? argv[0] : NULL), *path;
    json_t *session, *sandbox, *all = json_object();
    int status = 1;
    size_t i;

    path = id != NULL ? cli_printf("/v1/sessions/%s", id) : NULL;
    session = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    free(path);
    json_array_foreach(json_object_get(session, "sandboxes"), i, sandbox)
    {
        const char *name = cli_text(sandbox, "name");
        char *part = cli_encode(name);
        json_t *told;

        path = cli_printf("/v1/sessions/%s/sandboxes/%s/idle", id, part);
        told = cli_call(cli, "GET", path, NULL);
        free(path);
        free(part);
        if (told == NULL)
            goto out;
        if (!cli->json)
            print_why(name, told);
        json_object_set_new(all, name, told);
    }
    if (session != NULL && cli->json)
        cli_print_json(all);
    status = session != NULL ? 0 : 1;
out:
    json_decref(all);
    json_decref(session);
    free(id);
    return status;
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
