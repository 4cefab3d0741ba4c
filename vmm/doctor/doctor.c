/* SPDX-License-Identifier: MIT */
#include "vmm/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_LIMIT_MS 10000

static const char *const verdict_names[] = {"ok", "warning", "bad"};

void doctor_report(struct doctor *d, const char *name, enum doctor_verdict verdict,
                   const char *mend, const char *fmt, ...)
{
    char found[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(found, sizeof(found), fmt, ap);
    va_end(ap);
    for (char *s = found; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
            *s = '?'; /* it may quote what others wrote */
    }
    d->n_bad += verdict == DOCTOR_BAD;
    d->n_warn += verdict == DOCTOR_WARN;
    if (json_array_append_new(d->checks,
                              json_pack("{ss, ss, ss, ss}", "name", name, "verdict",
                                        verdict_names[verdict], "found", found, "mend", mend)) != 0)
        abort();
}

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Read until the end or the deadline. Returns whether it ended. */
static bool collect(int fd, char *out, size_t size)
{
    long deadline = now_ms() + RUN_LIMIT_MS;
    char drop[4096];
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        long left = deadline - now_ms();
        bool room = n + 1 < size;
        ssize_t got;

        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            break;
        got = read(fd, room ? out + n : drop, room ? size - 1 - n : sizeof(drop));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            out[n] = '\0';
            return true;
        }
        n += room ? (size_t)got : 0;
    }
    out[n] = '\0';
    return false;
}

int doctor_run(const char *const *argv, char *out, size_t size)
{
    posix_spawn_file_actions_t actions;
    int ends[2], status = 0, r;
    pid_t pid;

    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 127;
    if (posix_spawn_file_actions_init(&actions) != 0)
        abort();
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    r = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (r != 0) {
        close(ends[0]);
        snprintf(out, size, "%s", strerror(r));
        return 127;
    }
    if (!collect(ends[0], out, size))
        kill(pid, SIGKILL);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    for (char *s = out + strlen(out); s > out && s[-1] == '\n';)
        *--s = '\0';
    for (char *s = out; *s != '\0'; s++) {
        if (*s == '\n')
            *s = ' ';
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool doctor_has_program(const char *name)
{
    const char *path = getenv("PATH");
    char full[1024];

    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0;
    for (path = path != NULL ? path : "/usr/sbin:/usr/bin:/sbin:/bin"; *path != '\0';) {
        size_t len = strcspn(path, ":");

        snprintf(full, sizeof(full), "%.*s/%s", (int)len, path, name);
        if (access(full, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}
