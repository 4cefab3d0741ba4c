/* SPDX-License-Identifier: MIT */
/* transom access show, public, private; transom share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

/* Takes access; NULL: what was asked for failed and said so. */
static int show_access(const struct cli *cli, json_t *access)
{
    if (access == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(access);
    } else {
        printf("access  ");
        cli_print_text(cli_text(access, "mode"));
        printf("\nwake    %s\nembed   %s\n",
               json_is_true(json_object_get(access, "wake")) ? "yes" : "no",
               json_is_true(json_object_get(access, "embed")) ? "yes" : "no");
    }
    json_decref(access);
    return 0;
}

int cmd_access_show(struct cli *cli, int argc, char **argv)
{
    char *path = cli_sandbox_path(cli, "/access");
    json_t *access = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;

    (void)argc;
    (void)argv;
    free(path);
    return show_access(cli, access);
}

/* What is not said on the command line stays as it is. */
static int set_access(struct cli *cli, const char *mode)
{
    json_t *access, *answer;
    char *path;

    if ((cli->wake && cli->no_wake) || (cli->embed && cli->no_embed))
        return cli_fail(CLI_USAGE, "an option and its --no- form exclude each other");
    path = cli_sandbox_path(cli, "/access");
    access = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    if (access == NULL) {
        free(path);
        return 1;
    }
    json_object_set_new(access, "mode", json_string(mode));
    if (cli->wake || cli->no_wake)
        json_object_set_new(access, "wake", json_boolean(cli->wake));
    if (cli->embed || cli->no_embed)
        json_object_set_new(access, "embed", json_boolean(cli->embed));
    answer = cli_call(cli, "PUT", path, access);
    json_decref(access);
    free(path);
    return show_access(cli, answer);
}

int cmd_access_public(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return set_access(cli, "public");
}

int cmd_access_private(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return set_access(cli, "private");
}

/* "90s", "30m", "1h", "7d", or a plain number of seconds. Returns -1 when it is none of these. */
static long long duration_s(const char *text)
{
    static const struct {
        char unit;
        int s;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'\0', 1}};
    long long n;
    char *end;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || (*end != '\0' && end[1] != '\0'))
        return -1;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (units[i].unit == *end)
            return n > 1000000000 ? -1 : n * units[i].s;
    }
    return -1;
}

static int revoke_all(struct cli *cli)
{
    char *path = cli_sandbox_path(cli, "/access/revoke");
    json_t *access = path != NULL ? cli_call(cli, "POST", path, NULL) : NULL;

    free(path);
    if (access == NULL)
        return 1;
    if (cli->json)
        cli_print_json(access);
    else
        printf("all links, cookies and tokens of this preview are void\n");
    json_decref(access);
    return 0;
}

int cmd_share(struct cli *cli, int argc, char **argv)
{
    json_t *body = json_object(), *link = NULL;
    char *path = NULL;
    int status = 0;

    (void)argc;
    (void)argv;
    if (cli->revoke && (cli->expires != NULL || cli->port != NULL || cli->path != NULL))
        status = cli_fail(CLI_USAGE, "--revoke goes alone: it ends every link there is");
    if (status == 0 && cli->port != NULL) {
        int port = cli_port(cli->port);

        status = port < 0 ? CLI_USAGE : 0;
        json_object_set_new(body, "port", json_integer(port));
    }
    if (status == 0 && cli->expires != NULL) {
        long long s = duration_s(cli->expires);

        if (s < 0)
            status = cli_fail(CLI_USAGE, "--expires wants a time such as 30m, 1h or 7d");
        json_object_set_new(body, "expires_s", json_integer(s));
    }
    if (status == 0 && cli->path != NULL &&
        json_object_set_new(body, "path", json_string(cli->path)) != 0)
        status = cli_fail(CLI_USAGE, "--path: it is not UTF-8");
    if (status != 0 || cli->revoke) {
        json_decref(body);
        return status != 0 ? status : revoke_all(cli);
    }
    path = cli_sandbox_path(cli, "/links");
    if (path != NULL)
        link = cli_call(cli, "POST", path, body);
    json_decref(body);
    free(path);
    if (link != NULL && !cli->json && isatty(STDERR_FILENO))
        fprintf(stderr, "transom: good until %s\n", cli_text(link, "expires_at"));
    return cli_print_answer(cli, link, "url");
}
