/* SPDX-License-Identifier: MIT */
/* transom login, logout, profile list, profile use. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/profile.h"
#include "vmm/cli/term.h"

/* Is this http:// URL one of this computer, so that the key does not travel? */
static bool is_near(const char *url)
{
    char host[256];
    const char *rest;
    size_t len;

    url += strlen("http://");
    len = *url == '[' ? strcspn(url, "]") + 1 : strcspn(url, ":/");
    if (len >= sizeof(host) || len > strlen(url))
        return false;
    rest = url + len;
    if (*rest == ':') /* else the host may be behind an "@" */
        rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest != '\0' && *rest != '/')
        return false;
    snprintf(host, sizeof(host), "%.*s", (int)len, url);
    len = strlen(host);
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
           strcmp(host, "[::1]") == 0 ||
           (len > 10 && strcasecmp(host + len - 10, ".localhost") == 0);
}

/* One line, without its end. Returns 0, or 1 after saying why. */
static int read_line(int fd, const char *name, char *out, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t got = read(fd, out + n, 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cli_fail(1, "%s: %s", name, strerror(errno));
        if (got == 0 || out[n] == '\n')
            break;
        n++;
    }
    if (n == size)
        return cli_fail(1, "%s: that is too long for a key", name);
    out[n] = '\0';
    out[strcspn(out, "\r")] = '\0';
    return *out != '\0' ? 0 : cli_fail(1, "%s: there is no key", name);
}

/* From the terminal without showing it, or from standard input. */
static int ask_key(const char *url, char *key, size_t size)
{
    struct termios old;
    int fd, status;

    if (!isatty(STDIN_FILENO))
        return read_line(STDIN_FILENO, "standard input", key, size);
    fd = term_hidden("API key for", url, &old);
    if (fd < 0)
        return cli_fail(1, "there is no terminal to ask at: use standard input or --key-file");
    status = read_line(fd, "terminal", key, size);
    term_shown(fd, &old);
    return status;
}

/* Is the key good there? Returns 0, or 1 after saying why not. */
static int try_key(struct cli *cli, const char *url, const char *key)
{
    struct http_target target = {.api = url, .key = key};
    struct http *own = cli->http;
    json_t *answer = NULL;

    cli->http = http_new(&target);
    if (cli->http != NULL) {
        answer = cli_call(cli, "GET", "/v1/sessions?limit=1", NULL);
        http_free(cli->http);
    }
    cli->http = own;
    if (answer != NULL && !json_is_array(json_object_get(answer, "sessions"))) {
        json_decref(answer);
        return cli_fail(1, "%s is no Transom API", url);
    }
    json_decref(answer);
    return answer != NULL ? 0 : 1;
}

static int keep(const char *name, const char *url, const char *key)
{
    json_t *all = profiles_read();
    int status = 1;

    if (all == NULL)
        return 1;
    if (json_object_set_new(all, "current", json_string(name)) == 0 &&
        json_object_set_new(json_object_get(all, "profiles"), name,
                            json_pack("{ss, ss}", "api", url, "key", key)) == 0)
        status = profiles_write(all);
    json_decref(all);
    return status;
}

int cmd_login(struct cli *cli, int argc, char **argv)
{
    const char *name = cli->profile != NULL ? cli->profile : "default";
    char url[PROFILE_API_MAX + 1], key[PROFILE_KEY_MAX + 1] = "";
    const char *given = http_target_of(cli->http)->key;
    size_t len;
    int status = 0;

    (void)argc;
    if (!profile_name_valid(name) || strcmp(name, PROFILE_LOCAL) == 0)
        return cli_fail(CLI_USAGE,
                        "'%s' is no name for a profile: letters, digits and \"._-\", but "
                        "not \"" PROFILE_LOCAL "\"",
                        name);
    if (strlen(argv[0]) > PROFILE_API_MAX ||
        (strncmp(argv[0], "https://", 8) != 0 && strncmp(argv[0], "http://", 7) != 0))
        return cli_fail(CLI_USAGE, "login wants a URL such as https://api.example.com");
    if (strncmp(argv[0], "http://", 7) == 0 && !is_near(argv[0]) && !cli->insecure)
        return cli_fail(1, "the key would travel in the clear: use https://, or say --insecure");
    snprintf(url, sizeof(url), "%s", argv[0]);
    for (len = strlen(url); url[len - 1] == '/';)
        url[--len] = '\0';
    if (given != NULL && strlen(given) < sizeof(key))
        snprintf(key, sizeof(key), "%s", given);
    else
        status = ask_key(url, key, sizeof(key));
    if (status == 0)
        status = try_key(cli, url, key);
    if (status == 0)
        status = keep(name, url, key);
    explicit_bzero(key, sizeof(key));
    if (status == 0)
        fprintf(stderr, "transom: profile '%s' is %s, and is used from now on\n", name, url);
    return status;
}

int cmd_logout(struct cli *cli, int argc, char **argv)
{
    json_t *all = profiles_read();
    const char *name;
    int status;

    (void)cli;
    if (all == NULL)
        return 1;
    name = argc > 0 ? argv[0] : cli_text(all, "current");
    if (json_object_get(json_object_get(all, "profiles"), name) == NULL) {
        status = cli_fail(1, "there is no profile '%s'", *name != '\0' ? name : PROFILE_LOCAL);
        json_decref(all);
        return status;
    }
    fprintf(stderr,
            "transom: the key of '%s' is forgotten here; it is good until it is deleted "
            "(transom key delete)\n",
            name);
    json_object_del(json_object_get(all, "profiles"), name);
    if (strcmp(name, cli_text(all, "current")) == 0)
        json_object_del(all, "current");
    status = profiles_write(all);
    json_decref(all);
    return status;
}

int cmd_profile_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"name", "api", "current", NULL};
    static const char *const headers[] = {"NAME", "API", "CURRENT", NULL};
    json_t *all = profiles_read(), *rows, *profile;
    const char *current, *name;

    (void)argc;
    (void)argv;
    if (all == NULL)
        return 1;
    current = *cli_text(all, "current") != '\0' ? cli_text(all, "current") : PROFILE_LOCAL;
    rows = json_pack("[{ss, ss, sb}]", "name", PROFILE_LOCAL, "api", "", "current",
                     strcmp(current, PROFILE_LOCAL) == 0);
    json_object_foreach(json_object_get(all, "profiles"), name, profile)
    {
        json_array_append_new(rows, json_pack("{ss, ss, sb}", "name", name, "api",
                                              cli_text(profile, "api"), "current",
                                              strcmp(current, name) == 0));
    }
    if (cli->json) {
        json_t *answer = json_pack("{sO}", "profiles", rows);

        cli_print_json(answer);
        json_decref(answer);
    } else {
        cli_print_table(rows, keys, headers);
    }
    json_decref(rows);
    json_decref(all);
    return 0;
}

int cmd_profile_use(struct cli *cli, int argc, char **argv)
{
    json_t *all = profiles_read();
    int status;

    (void)cli;
    (void)argc;
    if (all == NULL)
        return 1;
    if (strcmp(argv[0], PROFILE_LOCAL) == 0)
        json_object_del(all, "current");
    else if (json_object_get(json_object_get(all, "profiles"), argv[0]) != NULL)
        json_object_set_new(all, "current", json_string(argv[0]));
    else {
        json_decref(all);
        return cli_fail(1, "there is no profile '%s' (transom profile list)", argv[0]);
    }
    status = profiles_write(all);
    json_decref(all);
    return status;
}
