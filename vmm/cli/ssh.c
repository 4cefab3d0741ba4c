/* SPDX-License-Identifier: MIT */
/* transom ssh and ssh-config: the user's own OpenSSH, told how to reach a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/ssh_files.h"

static volatile sig_atomic_t child; /* the ssh that runs */

static void pass_on(int number)
{
    if (child > 0)
        kill((pid_t)child, number);
}

/* ssh is interrupted by the terminal itself; what comes by kill goes on to it. */
static int run_ssh(char **argv)
{
    static const int passed[] = {SIGTERM, SIGHUP};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pass = {.sa_handler = pass_on}, old[2];
    posix_spawnattr_t attributes;
    sigset_t back, block, before;
    int status = 0, r;
    pid_t pid;

    sigemptyset(&back);
    sigaddset(&back, SIGINT);
    sigaddset(&back, SIGQUIT);
    sigaddset(&back, SIGPIPE);
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGQUIT, &ignore, NULL);
    sigemptyset(&block);
    for (int i = 0; i < 2; i++) {
        sigaddset(&block, passed[i]);
        sigaction(passed[i], &pass, &old[i]);
        if (old[i].sa_handler == SIG_IGN) /* nohup */
            sigaction(passed[i], &ignore, NULL);
    }
    sigprocmask(SIG_BLOCK, &block, &before);
    if (posix_spawnattr_init(&attributes) != 0)
        abort();
    posix_spawnattr_setsigdefault(&attributes, &back);
    posix_spawnattr_setsigmask(&attributes, &before);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    r = posix_spawnp(&pid, argv[0], NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    child = r == 0 ? pid : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return cli_fail(1, "ssh: %s (is OpenSSH installed?)", strerror(r));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A new folder, for this user alone. New; NULL after saying why. */
static char *make_temporary(void)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    char *dir;

    if (base == NULL || *base != '/' || access(base, W_OK) != 0)
        base = getenv("TMPDIR");
    if (base == NULL || *base != '/')
        base = "/tmp";
    dir = cli_printf("%s/transom-ssh-XXXXXX", base);
    if (mkdtemp(dir) != NULL) /* 0700 */
        return dir;
    cli_fail(1, "%s: %s", dir, strerror(errno));
    free(dir);
    return NULL;
}

static void remove_temporary(char *dir)
{
    static const char *const names[] = {"id_ed25519", "id_ed25519.pub", "known_hosts", "config"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = cli_printf("%s/%s", dir, names[i]);

        unlink(path);
        free(path);
    }
    rmdir(dir);
    free(dir);
}

/* The Host block, and behind it what the user has set for all hosts. */
static int write_config(struct cli *cli, const char *session, const char *dir, const char *path)
{
    FILE *file = fopen(path, "we");
    int status;

    if (file == NULL)
        return cli_fail(1, "%s: %s", path, strerror(errno));
    status = ssh_files_block(file, cli, session, dir);
    fprintf(file, "Match all\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\n");
    if (fclose(file) != 0 && status == 0)
        status = cli_fail(1, "%s: %s", path, strerror(errno));
    return status;
}

/* words: options of ssh and a command. */
static int connect_to(struct cli *cli, const char *session, bool is_command, int n, char **words)
{
    char *dir = make_temporary(), *config, *alias;
    char **argv = calloc((size_t)n + 6, sizeof(*argv));
    int status, at = 0;

    if (argv == NULL)
        abort();
    if (dir == NULL) {
        free(argv);
        return 1;
    }
    config = cli_printf("%s/config", dir);
    alias = ssh_alias(cli, session);
    status = ssh_files_key(dir);
    if (status == 0)
        status = write_config(cli, session, dir, config);
    argv[at++] = "ssh";
    argv[at++] = "-F";
    argv[at++] = config;
    argv[at++] = alias;
    if (is_command)
        argv[at++] = "--";
    memcpy(&argv[at], words, (size_t)n * sizeof(*words));
    if (status == 0)
        status = run_ssh(argv);
    remove_temporary(dir);
    free(config);
    free(alias);
    free(argv);
    return status;
}

int cli_ssh(struct cli *cli, const char *session, int n, char **words)
{
    return connect_to(cli, session, false, n, words);
}

int cmd_ssh(struct cli *cli, int argc, char **argv)
{
    /* "ssh -- COMMAND": the option parser took the "--". */
    bool is_command = argc > 0 && strcmp(argv[-1], "--") == 0;
    char *session = cli_session_id(cli, !is_command && argc > 0 ? argv[0] : NULL);
    int status, first = is_command || argc == 0 ? 0 : 1;

    if (cli->json)
        status = cli_fail(CLI_USAGE, "ssh passes bytes through; --json has no meaning for it");
    else
        status =
            session == NULL ? 1 : connect_to(cli, session, is_command, argc - first, argv + first);
    free(session);
    return status;
}

/* ~/.local/state/transom/ssh/ALIAS, made. New; NULL after saying why. */
static char *make_lasting(const struct cli *cli, const char *session)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *alias = ssh_alias(cli, session), *dir;

    if (state != NULL && *state == '/')
        dir = cli_printf("%s/transom/ssh/%s", state, alias);
    else
        dir = cli_printf("%s/.local/state/transom/ssh/%s", home != NULL ? home : "", alias);
    free(alias);
    for (char *slash = strchr(dir + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
            cli_fail(1, "%s: %s", dir, strerror(errno));
            free(dir);
            return NULL;
        }
        if (slash == NULL)
            return dir;
        *slash = '/';
    }
}

int cmd_ssh_config(struct cli *cli, int argc, char **argv)
{
    char *session = cli_session_id(cli, argc > 0 ? argv[0] : NULL);
    char *dir = session == NULL ? NULL : make_lasting(cli, session);
    int status = 1;

    if (dir != NULL)
        status = ssh_files_key(dir);
    if (status == 0)
        status = ssh_files_block(stdout, cli, session, dir);
    if (status == 0 && cli->api != NULL && cli->key_file == NULL && cli->profile == NULL)
        fprintf(stderr, "transom: TRANSOM_API_KEY must be set wherever this is used, or give "
                        "--key-file FILE\n");
    free(dir);
    free(session);
    return status;
}
