/* SPDX-License-Identifier: MIT */
/* transom route list, set, clear; transom port list, open, close. A change reads what there is,
 * edits it and puts it back whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"

/* ---- what both have in common ---- */

int cli_port(const char *text)
{
    char *end;
    long port;

    errno = 0;
    port = strtol(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || port < 1 || port > 65535)
        return -cli_fail(CLI_USAGE, "'%s' is no port: it must be a number from 1 to 65535", text);
    return (int)port;
}

/* False after saying what is wrong. */
static bool protocol_is_valid(const char *protocol)
{
    if (protocol == NULL || strcmp(protocol, "http1") == 0 || strcmp(protocol, "h2c") == 0)
        return true;
    cli_fail(CLI_USAGE, "--protocol wants http1 or h2c");
    return false;
}

/* *path: of the sandbox's setting, for the caller to free. NULL after saying why; then there is
 * nothing to free. */
static json_t *get_setting(struct cli *cli, const char *name, char **path)
{
    json_t *setting;

    *path = cli_sandbox_path(cli, "/%s", name);
    setting = *path != NULL ? cli_call(cli, "GET", *path, NULL) : NULL;
    if (setting == NULL) {
        free(*path);
        *path = NULL;
    }
    return setting;
}

/* Put it back; the answer is new. Takes setting and path. */
static json_t *put_setting(struct cli *cli, char *path, json_t *setting)
{
    json_t *answer = cli_call(cli, "PUT", path, setting);

    json_decref(setting);
    free(path);
    return answer;
}

/* Index of the item whose member is this text or number, or -1. */
static int find_item(const json_t *array, const char *member, const char *text, int number)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);

        if (text != NULL ? strcmp(cli_text(item, member), text) == 0
                         : json_integer_value(json_object_get(item, member)) == number)
            return (int)i;
    }
    return -1;
}

/* ---- routes ---- */

/* Takes routes; NULL: what was asked for failed and said so. */
static int show_routes(const struct cli *cli, json_t *routes)
{
    static const char *const keys[] = {"prefix", "port", "strip", "protocol", NULL};
    static const char *const headers[] = {"PATH", "PORT", "STRIP", "PROTOCOL", NULL};
    json_t *rows;

    if (routes == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(routes);
    } else {
        rows = json_object_get(routes, "rules");
        json_array_append_new(rows, json_pack("{ss, sO, sO}", "prefix", "/", "port",
                                              json_object_get(routes, "port"), "protocol",
                                              json_object_get(routes, "protocol")));
        cli_print_table(rows, keys, headers);
    }
    json_decref(routes);
    return 0;
}

int cmd_route_list(struct cli *cli, int argc, char **argv)
{
    char *path;
    json_t *routes = get_setting(cli, "routes", &path);

    (void)argc;
    (void)argv;
    free(path);
    return show_routes(cli, routes);
}

int cmd_route_set(struct cli *cli, int argc, char **argv)
{
    const char *protocol = cli->protocol != NULL ? cli->protocol : "http1";
    int port = cli_port(argv[1]), at;
    json_t *routes, *rules, *rule;
    char *path;

    (void)argc;
    if (port < 0 || !protocol_is_valid(cli->protocol))
        return CLI_USAGE;
    if (strcmp(argv[0], "/") == 0 && cli->strip)
        return cli_fail(CLI_USAGE, "--strip: \"/\" has nothing to strip");
    rule = json_pack("{ss, si, sb, ss}", "prefix", argv[0], "port", port, "strip", (int)cli->strip,
                     "protocol", protocol);
    if (rule == NULL)
        return cli_fail(CLI_USAGE, "the path is not UTF-8");
    routes = get_setting(cli, "routes", &path);
    if (routes == NULL) {
        json_decref(rule);
        return 1;
    }
    rules = json_object_get(routes, "rules");
    at = find_item(rules, "prefix", argv[0], 0);
    if (strcmp(argv[0], "/") == 0) {
        json_object_set_new(routes, "port", json_integer(port));
        json_object_set_new(routes, "protocol", json_string(protocol));
        json_decref(rule);
    } else if (at >= 0) {
        json_array_set_new(rules, (size_t)at, rule);
    } else {
        json_array_append_new(rules, rule);
    }
    return show_routes(cli, put_setting(cli, path, routes));
}

int cmd_route_clear(struct cli *cli, int argc, char **argv)
{
    json_t *routes, *rules;
    char *path;

    routes = get_setting(cli, "routes", &path);
    if (routes == NULL)
        return 1;
    if (argc == 0)
        json_object_clear(routes);
    rules = json_object_get(routes, "rules");
    for (int i = 0; i < argc; i++) {
        int at = find_item(rules, "prefix", argv[i], 0);

        if (strcmp(argv[i], "/") == 0) {
            json_object_del(routes, "port");
            json_object_del(routes, "protocol");
        } else if (at >= 0) {
            json_array_remove(rules, (size_t)at);
        } else {
            json_decref(routes);
            free(path);
            return cli_fail(1, "there is no route for '%s' (transom route list)", argv[i]);
        }
    }
    return show_routes(cli, put_setting(cli, path, routes));
}

/* ---- ports ---- */

int cmd_port_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"port", "protocol", "url", NULL};
    static const char *const headers[] = {"PORT", "PROTOCOL", "URL", NULL};
    char *path;
    json_t *ports = get_setting(cli, "ports", &path);

    (void)argc;
    (void)argv;
    free(path);
    if (ports == NULL)
        return 1;
    if (cli->json)
        cli_print_json(ports);
    else
        cli_print_table(json_object_get(ports, "ports"), keys, headers);
    json_decref(ports);
    return 0;
}

int cmd_port_open(struct cli *cli, int argc, char **argv)
{
    const char *protocol = cli->protocol != NULL ? cli->protocol : "http1";
    json_t *setting, *ports;
    char *path;

    if (!protocol_is_valid(cli->protocol))
        return CLI_USAGE;
    for (int i = 0; i < argc; i++) {
        if (cli_port(argv[i]) < 0)
            return CLI_USAGE;
    }
    setting = get_setting(cli, "ports", &path);
    if (setting == NULL)
        return 1;
    ports = json_object_get(setting, "ports");
    for (int i = 0; i < argc; i++) {
        int port = cli_port(argv[i]), at = find_item(ports, "port", NULL, port);
        json_t *item = json_pack("{si, ss}", "port", port, "protocol", protocol);

        if (at >= 0)
            json_array_set_new(ports, (size_t)at, item);
        else
            json_array_append_new(ports, item);
    }
    setting = put_setting(cli, path, setting);
    if (setting == NULL)
        return 1;
    if (cli->json)
        cli_print_json(setting);
    ports = json_object_get(setting, "ports");
    for (int i = 0; !cli->json && i < argc; i++) { /* the URLs of those that were asked for */
        int at = find_item(ports, "port", NULL, cli_port(argv[i]));

        cli_print_text(cli_text(json_array_get(ports, at < 0 ? 0 : (size_t)at), "url"));
        putchar('\n');
    }
    json_decref(setting);
    return 0;
}

int cmd_port_close(struct cli *cli, int argc, char **argv)
{
    json_t *setting, *ports;
    char *path;

    for (int i = 0; i < argc; i++) {
        if (cli_port(argv[i]) < 0)
            return CLI_USAGE;
    }
    setting = get_setting(cli, "ports", &path);
    if (setting == NULL)
        return 1;
    ports = json_object_get(setting, "ports");
    for (int i = 0; i < argc; i++) {
        int at = find_item(ports, "port", NULL, cli_port(argv[i]));

        if (at >= 0) /* closing again is fine */
            json_array_remove(ports, (size_t)at);
    }
    setting = put_setting(cli, path, setting);
    if (setting == NULL)
        return 1;
    if (cli->json)
        cli_print_json(setting);
    json_decref(setting);
    return 0;
}
