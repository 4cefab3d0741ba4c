/* SPDX-License-Identifier: MIT */
#include "vmm/agent/ssh_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define SFTP_SERVER   "/usr/lib/openssh/sftp-server"
#define INTERNAL_SFTP "internal-sftp" /* what the configuration names as subsystem */
#define ENV_MAX       (16u << 20)

bool agent_ssh_session_needed(const struct agent_child *child)
{
    for (size_t i = 0; i < child->n_env; i++) {
        if (strchr(child->envp[i], '\n') != NULL)
            return true;
    }
    return false;
}

static int copy_program(const char *to, struct err *err)
{
    char fresh[320];
    int in, out, r = 0;
    ssize_t n = 1;

    if (access(to, X_OK) == 0)
        return 0;
    snprintf(fresh, sizeof(fresh), "%s.new", to);
    unlink(fresh);
    in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    out = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    while (in >= 0 && out >= 0 && n > 0)
        n = sendfile(out, in, NULL, 1u << 20);
    if (in < 0 || out < 0 || n < 0)
        r = tr_err_set(err, -errno, "%s: %s", fresh, strerror(errno));
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    if (r == 0 && rename(fresh, to) != 0)
        r = tr_err_set(err, -errno, "%s: %s", to, strerror(errno));
    return r;
}

int agent_ssh_session_write(const char *dir, const char *id, const struct agent_child *child,
                            char *path, size_t size, struct err *err)
{
    char program[300];
    FILE *file;
    bool good;
    int fd, r;

    snprintf(program, sizeof(program), "%s/session", dir);
    r = copy_program(program, err);
    if (r != 0)
        return r;
    snprintf(path, size, "%s/%s.env", dir, id);
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return r;
    }
    good = !child->change_user || fchown(fd, child->user.uid, child->user.gid) == 0;
    for (size_t i = 0; i < child->n_env; i++) {
        if (strchr(child->envp[i], '\n') != NULL)
            fwrite(child->envp[i], 1, strlen(child->envp[i]) + 1, file);
    }
    good = !ferror(file) && good;
    good = fclose(file) == 0 && good;
    return good ? 0 : tr_err_set(err, UV_EIO, "%s cannot be written", path);
}

/* The buffer stays: it is the environment from now on. */
static int set_variables(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    size_t done = 0;
    char *text;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size > ENV_MAX)
        return -1;
    text = calloc(1, (size_t)st.st_size + 1);
    while (text != NULL && (n = read(fd, text + done, (size_t)st.st_size - done)) > 0)
        done += (size_t)n;
    close(fd);
    if (text == NULL)
        return -1;
    for (char *entry = text; entry < text + done; entry += strlen(entry) + 1) {
        if (putenv(entry) != 0)
            return -1;
    }
    return 0; // text is kept by the environment
}

int agent_ssh_session(const char *path)
{
    const char *shell = getenv("SHELL"), *name, *asked = getenv("SSH_ORIGINAL_COMMAND");
    char *command = asked != NULL ? strdup(asked) : NULL, login[280];

    if (set_variables(path) != 0)
        fprintf(stderr, "transom: some variables cannot be set: %s\n", strerror(errno));
    if (shell == NULL || *shell != '/')
        shell = "/bin/sh";
    name = strrchr(shell, '/') + 1;
    unsetenv("SSH_ORIGINAL_COMMAND");
    if (command != NULL && strcmp(command, INTERNAL_SFTP) == 0)
        execl(SFTP_SERVER, "sftp-server", (char *)NULL);
    else if (command != NULL)
        execl(shell, name, "-c", command, (char *)NULL);
    else if (snprintf(login, sizeof(login), "-%s", name) < (int)sizeof(login))
        execl(shell, login, (char *)NULL);
    perror(shell);
    free(command);
    return 127;
}
