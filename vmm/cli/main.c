/* SPDX-License-Identifier: MIT */
/* transom: finds the command in the table, reads its options, runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/config.h"
#include "transom/daemon.h"
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/profile.h"

#define KEY_MAX 512

static int usage_error(const char *what)
{
    if (what != NULL)
        fprintf(stderr, "transom: '%s' is not a command\n", what);
    fprintf(stderr, "See: transom --help\n");
    return CLI_USAGE;
}

/* The command whose words begin argv[1..]. *n_words is set to their number. */
static const struct cli_command *find_command(int argc, char **argv, int *n_words)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const char *name = cli_commands[i].name;
        const char *space = strchr(name, ' ');
        size_t first = space != NULL ? (size_t)(space - name) : strlen(name);

        if (strlen(argv[1]) != first || strncmp(argv[1], name, first) != 0)
            continue;
        *n_words = space != NULL ? 2 : 1;
        if (space == NULL || (argc > 2 && strcmp(argv[2], space + 1) == 0))
            return &cli_commands[i];
    }
    return NULL;
}

/* `transom session`, `transom session --help`: the commands that begin so. */
static int group_help(const char *group, bool asked)
{
    FILE *out = asked ? stdout : stderr;
    size_t n = 0, len = strlen(group);

    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = &cli_commands[i];

        if (strncmp(c->name, group, len) != 0 || c->name[len] != ' ')
            continue;
        if (n++ == 0)
            fprintf(out, "Usage: transom %s COMMAND [OPTION...] [ARGUMENT...]\n\n", group);
        fprintf(out, "  transom %-14s %-20s %s\n", c->name, c->args, c->summary);
    }
    if (n == 0)
        return usage_error(group);
    return asked ? EXIT_SUCCESS : CLI_USAGE;
}

/* First line of a file, for the key. Returns 0, or 1 after saying why. */
static int read_key(const char *path, char *key, size_t size)
{
    FILE *f = fopen(path, "re");

    if (f == NULL || fgets(key, (int)size, f) == NULL) {
        int why = errno;

        if (f != NULL)
            fclose(f);
        return cli_fail(1, "key file %s: %s", path, f == NULL ? strerror(why) : "is empty");
    }
    fclose(f);
    key[strcspn(key, "\r\n")] = '\0';
    return 0;
}

/* The socket that the node's configuration names; "" when that cannot be read. */
static void default_socket(char *path, size_t size)
{
    struct tr_config *config = NULL;

    if (tr_config_load(TR_CONFIG_DEFAULT_PATH, &config, NULL) != 0 && tr_config_new(&config) != 0)
        abort();
    snprintf(path, size, "%s/admin.sock", tr_config_str(config, "run_dir"));
    tr_config_free(config);
}

/* Does the command ask the API that a profile names? */
static bool asks_the_api(const struct cli_command *command)
{
    static int (*const others[])(struct cli *, int, char **) = {
        cmd_login, cmd_logout, cmd_profile_list, cmd_profile_use, cmd_completion,
        cmd_man,   cmd_doctor, cmd_backup,       cmd_restore};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (command->run == others[i])
            return false;
    }
    return true;
}

/* The profile that is meant, when neither --api nor a socket is named. Sets cli->api and
 * cli->profile, which is NULL for the local socket. Its key goes to its API and nowhere else. */
static int use_profile(struct cli *cli, struct http_target *target)
{
    static struct profile profile; /* named by cli until the process ends */
    const char *env = getenv("TRANSOM_PROFILE");
    const char *name = cli->profile != NULL          ? cli->profile
                       : env != NULL && *env != '\0' ? env
                                                     : NULL;

    if (profile_find(name, &profile) != 0)
        return 1;
    cli->profile = *profile.api != '\0' ? profile.name : NULL;
    if (cli->profile == NULL)
        return 0;
    cli->api = profile.api;
    if (cli->key_file == NULL)
        target->key = profile.key;
    return 0;
}

static int connect_target(struct cli *cli, const struct cli_command *command,
                          struct http_target *target, char *socket_path, size_t socket_size,
                          char *key, size_t key_size)
{
    const char *env_key = getenv("TRANSOM_API_KEY"), *env_socket = getenv("TRANSOM_SOCKET");

    if (cli->api != NULL && strncmp(cli->api, "http://", 7) != 0 &&
        strncmp(cli->api, "https://", 8) != 0) {
        cli_fail(CLI_USAGE, "--api wants a URL such as https://api.example.com");
        return CLI_USAGE;
    }
    if (cli->key_file != NULL) {
        if (read_key(cli->key_file, key, key_size) != 0)
            return 1;
        target->key = key;
    } else if (env_key != NULL && *env_key != '\0') {
        target->key = env_key;
    }
    if (cli->profile != NULL && (cli->api != NULL || cli->socket != NULL))
        return cli_fail(CLI_USAGE, "--profile says where already: leave --api and --socket out");
    if (cli->profile == NULL && cli->socket == NULL && cli->api == NULL && env_socket != NULL &&
        *env_socket != '\0')
        cli->socket = env_socket;
    if (asks_the_api(command) && cli->socket == NULL && cli->api == NULL &&
        use_profile(cli, target) != 0)
        return 1;
    target->api = cli->api;
    if (cli->socket == NULL && cli->api == NULL) {
        default_socket(socket_path, socket_size);
        cli->socket = socket_path;
    }
    target->socket = cli->socket;
    return 0;
}

static int run_command(struct cli *cli, const struct cli_command *command, int argc, char **argv)
{
    static char socket_path[256], key[KEY_MAX]; // named by cli until the process ends
    struct http_target target = {0};
    int first = cli_parse_options(cli, command, argc, argv);
    int n = argc - first, status;

    if (first < 0)
        return CLI_USAGE;
    if (cli->help) {
        cli_print_command_help(command);
        return EXIT_SUCCESS;
    }
    if (n < command->min_args || (command->max_args >= 0 && n > command->max_args)) {
        fprintf(stderr, "Usage: transom %s [OPTION...] %s\nSee: transom %s --help\n", command->name,
                command->args, command->name);
        return CLI_USAGE;
    }
    status =
        connect_target(cli, command, &target, socket_path, sizeof(socket_path), key, sizeof(key));
    if (status != 0)
        return status;
    cli->http = http_new(&target);
    if (cli->http == NULL)
        return 1;
    status = command->run(cli, n, argv + first);
    http_free(cli->http);
    if (fflush(stdout) != 0 || ferror(stdout))
        status = status != 0 ? status : cli_fail(1, "standard output: %s", strerror(errno));
    return status;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    const struct cli_command *command;
    int n_words = 1, status;

    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        fprintf(stderr, "Usage: transom COMMAND [OPTION...] [ARGUMENT...]\n");
        return usage_error(NULL);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        cli_print_overview();
        return EXIT_SUCCESS;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("transom %s\n", TRANSOM_VERSION);
        return EXIT_SUCCESS;
    }
    command = find_command(argc, argv, &n_words);
    if (command == NULL)
        return group_help(argv[1], argc > 2 && strcmp(argv[2], "--help") == 0);
    /* getopt names the program by its argv[0]. */
    argv[n_words] = "transom"; // the last word of the command's name
    status = run_command(&cli, command, argc - n_words, argv + n_words);
    free(cli.env.items);
    free(cli.scopes.items);
    free(cli.events.items);
    return status;
}
