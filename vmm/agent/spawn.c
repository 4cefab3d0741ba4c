/* SPDX-License-Identifier: MIT */
/* The child shares our memory until it runs its program, as with posix_spawn(3), which cannot do
 * all that is needed here: to copy it costs more than all the rest. So it may only use
 * async-signal-safe calls (the loop's thread pool may have held any lock), and nothing of the C
 * library that speaks to other threads. What needs memory is prepared before. */
#include "vmm/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

enum stage { STAGE_CGROUP, STAGE_FDS, STAGE_TERMINAL, STAGE_USER, STAGE_CWD, STAGE_EXEC };
static const char *const stage_names[] = {"joining its process group", "setting its descriptors",
                                          "taking its terminal",       "changing user",
                                          "changing directory to",     "running"};

struct report {
    int stage, error;
};

static const char *env_get(char *const *envp, const char *name)
{
    size_t len = strlen(name);

    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return *envp + len + 1;
    }
    return NULL;
}

/* All places where name may be found. Returns NULL when out of memory. */
static char *candidates(const char *name, const char *path)
{
    size_t n = 1, size, at = 0;
    char *out;

    if (path == NULL || *path == '\0')
        path = "/usr/local/bin:/usr/bin:/bin";
    for (const char *p = path; *p != '\0'; p++)
        n += *p == ':';
    size = strlen(path) + n * (strlen(name) + 4) + 2;
    out = calloc(1, size);
    if (out == NULL || *name == '\0')
        return out;
    if (strchr(name, '/') != NULL) {
        memcpy(out, name, strlen(name)); /* there is room: size counts it */
        return out;
    }
    for (const char *p = path;;) {
        size_t len = strcspn(p, ":");

        at += (size_t)snprintf(out + at, size - at, "%.*s/%s", len > 0 ? (int)len : 1,
                               len > 0 ? p : ".", name) +
              1;
        p += len;
        if (*p++ == '\0')
            return out;
    }
}

__attribute__((noreturn)) static void fail(int fd, enum stage stage)
{
    struct report report = {stage, errno};

    while (write(fd, &report, sizeof(report)) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* The program inherits what is ignored, and nothing else. */
static void reset_signals(void)
{
    struct sigaction dfl, now;
    sigset_t none;

    memset(&dfl, 0, sizeof(dfl));
    dfl.sa_handler = SIG_DFL;
    for (int sig = 1; sig < NSIG; sig++) {
        if (sig != SIGKILL && sig != SIGSTOP && sigaction(sig, NULL, &now) == 0 &&
            now.sa_handler != SIG_DFL)
            sigaction(sig, &dfl, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The C library's own change every thread of the process whose memory this is: ours. */
static bool change_user(const struct agent_user *user)
{
    return syscall(SYS_setgroups, user->n_groups, user->groups) == 0 &&
           syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
           syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0;
}

/* Moves fds to 0..2. Each is first lifted above 2, since one may stand where another must go. */
static int place_fds(const int *fds)
{
    int high[3];

    for (int i = 0; i < 3; i++) {
        int fd = fds[i] >= 0 ? fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

        if (fd < 0 || (high[i] = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (dup2(high[i], i) < 0)
            return -1;
    }
    return 0;
}

static void set_limits(void)
{
    struct rlimit files;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, "0", 1) < 0) {
            /* Not permitted in a test on a host, where it is 0 anyway. */
        }
        close(fd);
    }
    /* The usual soft limit: programs that use select() rely on it; others raise it themselves. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 1024) {
        files.rlim_cur = 1024;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(022);
}

struct child {
    const struct agent_spawn *sp;
    const char *paths;
    int report_fd;
};

static int run_child(void *arg)
{
    const struct child *child = arg;
    const struct agent_spawn *sp = child->sp;
    int error = ENOENT, report_fd = child->report_fd;

    reset_signals();
    setsid();
    if (sp->procs_fd >= 0 && write(sp->procs_fd, "0", 1) < 0)
        fail(report_fd, STAGE_CGROUP);
    if (place_fds(sp->fds) != 0) /* before the limit: the agent itself may hold more than that */
        fail(report_fd, STAGE_FDS);
    set_limits();
    if (sp->terminal && ioctl(0, TIOCSCTTY, 0) != 0)
        fail(report_fd, STAGE_TERMINAL);
    if (sp->user != NULL && !change_user(sp->user))
        fail(report_fd, STAGE_USER);
    if (chdir(sp->cwd != NULL ? sp->cwd : "/") != 0)
        fail(report_fd, STAGE_CWD);
    syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (const char *p = child->paths; *p != '\0'; p += strlen(p) + 1) {
        execve(p, sp->argv, sp->envp);
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            break;
    }
    errno = error;
    fail(report_fd, STAGE_EXEC);
}

/* Returns its pid, or -1. We stand still until it has run its program or ended. */
static pid_t start_child(struct child *child)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    /* Their run time does not know of a process that shares its memory. */
    pid_t pid = fork();

    if (pid == 0)
        run_child(child);
    return pid;
#else
    static _Alignas(16) char stack[64 * 1024]; /* one loop, and one at a time */

    return clone(run_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, child);
#endif
}

/* Wait for exec (end of file) or a report. */
static int await_exec(int fd, const struct agent_spawn *sp, pid_t pid, struct err *err)
{
    struct report report;
    ssize_t n;

    do {
        n = read(fd, &report, sizeof(report));
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(report))
        return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return tr_err_set(err, -report.error, "%s%s%.200s: %s", stage_names[report.stage],
                      report.stage == STAGE_CWD || report.stage == STAGE_EXEC ? " " : "",
                      report.stage == STAGE_CWD    ? sp->cwd != NULL ? sp->cwd : "/"
                      : report.stage == STAGE_EXEC ? sp->path
                                                   : "",
                      strerror(report.error));
}

int agent_spawn(const struct agent_spawn *sp, pid_t *pid, struct err *err)
{
    char *paths = candidates(sp->path, env_get(sp->envp, "PATH"));
    sigset_t all, old;
    int ends[2], r;
    pid_t child;

    if (paths == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    if (pipe2(ends, O_CLOEXEC) != 0) {
        r = tr_err_set(err, -errno, "pipe: %s", strerror(errno));
        free(paths);
        return r;
    }
    /* No handler of ours may run in the child before its signals are reset. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    child = start_child(&(struct child){sp, paths, ends[1]});
    r = child < 0 ? tr_err_set(err, -errno, "a process cannot be made: %s", strerror(errno)) : 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    close(ends[1]);
    if (child > 0) {
        r = await_exec(ends[0], sp, child, err);
        *pid = child;
    }
    close(ends[0]);
    free(paths);
    return r;
}
