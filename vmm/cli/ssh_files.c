/* SPDX-License-Identifier: MIT */
#include "vmm/cli/ssh_files.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY         "id_ed25519"
#define KEY_MAX     4096
#define ALIVE_S     20 /* below what gateways allow between two bytes */
#define ALIVE_COUNT 15

char *ssh_alias(const struct cli *cli, const char *session)
{
    if (cli->sandbox == NULL || strcmp(cli->sandbox, "primary") == 0)
        return cli_printf("transom-%s", session);
    return cli_printf("transom-%s-%s", session, cli->sandbox);
}

int ssh_files_key(const char *dir)
{
    char *path = cli_printf("%s/" KEY, dir);
    char *argv[] = {"ssh-keygen", "-q",      "-t", "ed25519", "-N", "",
                    "-C",         "transom", "-f", path,      NULL};
    int status = 0, r;
    pid_t pid;

    if (access(path, R_OK) == 0) {
        free(path);
        return 0;
    }
    r = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    while (r == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    free(path);
    if (r != 0)
        return cli_fail(1, "ssh-keygen: %s (is OpenSSH installed?)", strerror(r));
    if (status != 0)
        return cli_fail(1, "ssh-keygen made no key in %s", dir);
    return 0;
}

char *ssh_files_public_key(const char *dir)
{
    char *path = cli_printf("%s/" KEY ".pub", dir), *text = calloc(1, KEY_MAX);
    FILE *file = fopen(path, "re");

    if (text == NULL)
        abort();
    if (file == NULL || fgets(text, KEY_MAX, file) == NULL) {
        cli_fail(1, "%s: %s", path, file == NULL ? strerror(errno) : "is empty");
        free(text);
        text = NULL;
    }
    if (file != NULL)
        fclose(file);
    free(path);
    return text;
}

/* A host key goes into a file that OpenSSH reads: one line, printable. */
static bool is_line(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~')
            return false;
    }
    return true;
}

int ssh_files_known_hosts(const char *dir, const char *alias, const json_t *host_keys)
{
    char *path = cli_printf("%s/known_hosts", dir);
    char *fresh = cli_printf("%s.%ld", path, (long)getpid()); /* several may be at it */
    FILE *file = fopen(fresh, "we");
    bool good = file != NULL;
    int status = 0;

    for (size_t i = 0; good && i < json_array_size(host_keys); i++) {
        const char *key = json_string_value(json_array_get(host_keys, i));

        if (key != NULL && is_line(key))
            fprintf(file, "%s %s\n", alias, key);
    }
    good = good && !ferror(file);
    good = file != NULL && fclose(file) == 0 && good;
    if (!good || rename(fresh, path) != 0)
        status = cli_fail(1, "%s: %s", path, strerror(errno));
    free(fresh);
    free(path);
    return status;
}

/* Words of a command line for ProxyCommand: quoted for the shell, "%" doubled for ssh. */
static void put_command(FILE *out, int argc, char **argv)
{
    char *text = cli_shell_text(argc, argv);

    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '%')
            fputc('%', out);
        fputc(*at, out);
    }
    free(text);
}

static void put_file(FILE *out, const char *option, const char *dir, const char *name)
{
    fprintf(out, "    %s \"", option);
    for (const char *at = dir; *at != '\0'; at++) {
        if (*at == '%')
            fputc('%', out);
        else if (*at == '"' || *at == '\\')
            fputc('\\', out);
        fputc(*at, out);
    }
    fprintf(out, "/%s\"\n", name);
}

/* OpenSSH may start us from another folder. New. */
static char *absolute(const char *path)
{
    char *full = realpath(path, NULL);

    return full != NULL ? full : cli_printf("%s", path);
}

int ssh_files_block(FILE *out, const struct cli *cli, const char *session, const char *dir)
{
    char program[4096], *alias = ssh_alias(cli, session), *argv[16];
    char *from = absolute(cli->api != NULL || cli->socket == NULL ? "" : cli->socket);
    char *key_file = absolute(cli->key_file != NULL ? cli->key_file : "");
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    int n = 0;

    if (len <= 0) {
        free(from);
        free(key_file);
        free(alias);
        return cli_fail(1, "/proc/self/exe: %s", strerror(errno));
    }
    program[len] = '\0';
    argv[n++] = program;
    argv[n++] = "ssh-proxy";
    if (cli->profile != NULL) {
        argv[n++] = "--profile";
        argv[n++] = (char *)cli->profile;
    } else if (cli->api != NULL) {
        argv[n++] = "--api";
        argv[n++] = (char *)cli->api;
    } else {
        argv[n++] = "--socket";
        argv[n++] = from;
    }
    if (cli->key_file != NULL) {
        argv[n++] = "--key-file";
        argv[n++] = key_file;
    }
    if (cli->sandbox != NULL) {
        argv[n++] = "--sandbox";
        argv[n++] = (char *)cli->sandbox;
    }
    argv[n++] = "--files";
    argv[n++] = (char *)dir;
    argv[n++] = (char *)session;
    fprintf(out, "Host %s\n    HostName %s\n    User sandbox\n    ProxyCommand ", alias, alias);
    put_command(out, n, argv);
    free(from);
    free(key_file);
    fprintf(out, "\n");
    put_file(out, "IdentityFile", dir, KEY);
    put_file(out, "UserKnownHostsFile", dir, "known_hosts");
    fprintf(out,
            "    GlobalKnownHostsFile /dev/null\n    IdentitiesOnly yes\n"
            "    PreferredAuthentications publickey\n    HostKeyAlias %s\n"
            "    StrictHostKeyChecking yes\n    UpdateHostKeys no\n    CheckHostIP no\n"
            "    ServerAliveInterval %d\n    ServerAliveCountMax %d\n",
            alias, ALIVE_S, ALIVE_COUNT);
    free(alias);
    return 0;
}
