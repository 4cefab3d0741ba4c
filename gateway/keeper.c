/* SPDX-License-Identifier: MIT */
/* Path: rights given up -> sockets of a service manager -> serving process started -> ready ->
 * signals and messages -> stop -> end.
 * An upgrade is the same start beside the process that serves; only when the new one is ready is
 * the old one told to drain. Nothing else changes hands: both accept from the same sockets. */
#include "gateway/keeper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/control.h"
#include "gateway/options.h"
#include "gateway/privileges.h"
#include "transom/daemon.h"
#include "transom/log.h"

#define FIRST_PASSED_FD 3 /* sd_listen_fds(3) */
#define KEPT_MAX        16384
#define SERVING_MAX     16 /* processes at a time; the oldest has to go for another upgrade */

/* STARTING: not ready yet. SERVING: accepts connections; at most one. DRAINING: serves what it has.
 * ENDING: was told to stop. */
enum serving_state { STARTING, SERVING, DRAINING, ENDING };

struct serving {
    pid_t pid;
    int sock;
    enum serving_state state;
    bool killed; /* by us: how it ended says nothing */
    uint64_t since_ms;
};

struct kept {
    int fd;
    unsigned id;
    char name[GW_CONTROL_MAX];
};

struct keeper {
    char **argv;
    char program[4096];
    int program_dir; /* its folder, opened with the rights of the start; -1: unknown */
    int signals;
    struct kept *kept;
    size_t n_kept;
    unsigned next_id;
    struct serving serving[SERVING_MAX]; /* oldest first */
    size_t n;
    bool reload_due, upgrade_due; /* asked for during a start */
    bool stopping;
    int status; /* the exit status to be */
};

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static struct serving *in_state(struct keeper *k, enum serving_state state)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->serving[i].state == state)
            return &k->serving[i];
    return NULL;
}

/* The file to exec: by its name, so that a link which was turned to a new version is followed. */
static void find_program(struct keeper *k, const char *argv0)
{
    char cwd[2048], *slash;
    ssize_t n = 0;

    if (argv0[0] == '/')
        n = snprintf(k->program, sizeof(k->program), "%s", argv0);
    else if (strchr(argv0, '/') != NULL && getcwd(cwd, sizeof(cwd)) != NULL)
        n = snprintf(k->program, sizeof(k->program), "%s/%s", cwd, argv0);
    if (n <= 0 || (size_t)n >= sizeof(k->program)) {
        n = readlink("/proc/self/exe", k->program, sizeof(k->program) - 1);
        k->program[n > 0 ? n : 0] = '\0';
    }
    slash = strrchr(k->program, '/');
    k->program_dir = -1;
    if (slash == NULL)
        return;
    *slash = '\0';
    k->program_dir = open(slash > k->program ? k->program : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *slash = '/';
}

static int keep(struct keeper *k, const char *name, int fd)
{
    struct kept *kept =
        k->n_kept < KEPT_MAX ? realloc(k->kept, (k->n_kept + 1) * sizeof(*kept)) : NULL;

    if (kept == NULL) {
        close(fd);
        return -ENOMEM;
    }
    k->kept = kept;
    kept += k->n_kept++;
    kept->fd = fd;
    kept->id = k->next_id++;
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    return 0;
}

static void forget(struct keeper *k, unsigned id)
{
    for (size_t i = 0; i < k->n_kept; i++) {
        if (k->kept[i].id != id)
            continue;
        close(k->kept[i].fd);
        memmove(&k->kept[i], &k->kept[i + 1], (k->n_kept - i - 1) * sizeof(*k->kept));
        k->n_kept--;
        return;
    }
}

static void forget_all(struct keeper *k)
{
    while (k->n_kept > 0)
        forget(k, k->kept[k->n_kept - 1].id);
}

/* Sockets that a service manager passed (sd_listen_fds(3)), under "systemd/NAME". */
static int adopt_passed(struct keeper *k, struct err *err)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    int n = pid != NULL && fds != NULL && strtol(pid, NULL, 10) == (long)getpid() ? atoi(fds) : 0;

    for (int fd = FIRST_PASSED_FD; fd < FIRST_PASSED_FD + n; fd++) {
        size_t len = names != NULL ? strcspn(names, ":") : 0;
        int accepting = 0;
        socklen_t size = sizeof(accepting);
        char name[GW_CONTROL_MAX];

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) != 0 || !accepting)
            return tr_err_set(err, -EINVAL, "LISTEN_FDS: descriptor %d is not a listening socket",
                              fd);
        snprintf(name, sizeof(name), "systemd/%.*s", (int)(len < 100 ? len : 100),
                 len > 0 ? names : "");
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
            return tr_err_set(err, -errno, "LISTEN_FDS: %s", strerror(errno));
        if (keep(k, name, fd) != 0)
            return tr_err_set(err, -ENOMEM, "out of memory");
        if (names != NULL)
            names += len + (names[len] == ':');
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return 0;
}

/* In the child: become the serving process. */
static void exec_serving(struct keeper *k, int sock)
{
    sigset_t none;
    char number[16];

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(number, sizeof(number), "%d", sock);
    if (fcntl(sock, F_SETFD, 0) != 0 || setenv(GW_CONTROL_ENV, number, 1) != 0 ||
        unsetenv("NOTIFY_SOCKET") != 0)
        _exit(126);
    execv(k->program, k->argv);
    /* A folder above it may be closed to the gateway's user, such as root's home. */
    if (errno == EACCES && k->program_dir >= 0)
        (void)syscall(SYS_execveat, k->program_dir, strrchr(k->program, '/') + 1, k->argv, environ,
                      0);
    log_error("%s: %s", k->program, strerror(errno));
    _exit(127);
}

static int hand_over(struct keeper *k, int sock)
{
    char text[GW_CONTROL_MAX + 32];
    int r = 0;

    for (size_t i = 0; r == 0 && i < k->n_kept; i++) {
        snprintf(text, sizeof(text), "have %u %s", k->kept[i].id, k->kept[i].name);
        r = gw_control_send(sock, text, k->kept[i].fd);
    }
    return r == 0 ? gw_control_send(sock, "go", -1) : r;
}

/* Start a serving process. It says "ready", or ends. */
static int start(struct keeper *k, struct err *err)
{
    struct timeval limit = {.tv_sec = 10};
    struct serving *s;
    int pair[2], r;
    pid_t pid;

    assert(k->n < SERVING_MAX);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return tr_err_set(err, -errno, "socketpair: %s", strerror(errno));
    pid = fork();
    if (pid < 0) {
        r = -errno;
        close(pair[0]);
        close(pair[1]);
        return tr_err_set(err, r, "fork: %s", strerror(-r));
    }
    if (pid == 0)
        exec_serving(k, pair[1]);
    close(pair[1]);
    s = &k->serving[k->n++];
    *s = (struct serving){.pid = pid, .sock = pair[0], .state = STARTING, .since_ms = now_ms()};
    /* One that does not even read is not worth waiting for. */
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    r = hand_over(k, pair[0]);
    if (r == -EAGAIN)
        kill(pid, SIGKILL);
    return 0; /* what else went wrong shows when it ends */
}

static void tell(struct serving *s, const char *word)
{
    if (s->sock >= 0)
        (void)!gw_control_send(s->sock, word, -1);
}

/* The new one is ready: all others serve only what they have. */
static void on_ready(struct keeper *k, struct serving *fresh)
{
    bool upgrade = false;

    fresh->state = SERVING;
    for (size_t i = 0; i < k->n; i++) {
        struct serving *s = &k->serving[i];

        if (s == fresh || s->state != SERVING)
            continue;
        upgrade = true;
        s->state = DRAINING;
        tell(s, "drain");
        log_info("upgraded: process %d serves, process %d drains", (int)fresh->pid, (int)s->pid);
    }
    tr_daemon_notify(upgrade ? "READY=1\nSTATUS=upgraded" : "READY=1\nSTATUS=serving");
}

static void on_message(struct keeper *k, struct serving *s, const char *text, int fd)
{
    if (strncmp(text, "keep ", 5) == 0 && fd >= 0) {
        if (keep(k, text + 5, fd) != 0)
            log_warn("%s is not kept for an upgrade: out of memory", text + 5);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (strncmp(text, "forget ", 7) == 0)
        forget(k, (unsigned)strtoul(text + 7, NULL, 10));
    else if (strcmp(text, "ready") == 0 && s->state == STARTING)
        on_ready(k, s);
    else if (strcmp(text, "reloaded") == 0)
        tr_daemon_notify("READY=1\nSTATUS=reloaded");
    else if (strcmp(text, "refused") == 0)
        tr_daemon_notify("READY=1\nSTATUS=reload refused, see the log; serving as before");
}

/* Returns false when there is no more to read now. */
static bool on_readable(struct keeper *k, struct serving *s)
{
    char text[GW_CONTROL_MAX];
    int fd, r = s->sock >= 0 ? gw_control_receive(s->sock, text, &fd, false) : -EAGAIN;

    if (r == 1) {
        on_message(k, s, text, fd);
    } else if (r == 0) { /* it is ending; its exit status tells how */
        close(s->sock);
        s->sock = -1;
    } else if (r != -EAGAIN) {
        log_warn("process %d: control socket: %s", (int)s->pid, strerror(-r));
    }
    return r > 0;
}

static void reload(struct keeper *k)
{
    struct serving *s = in_state(k, SERVING);

    if (in_state(k, STARTING) != NULL) {
        k->reload_due = true; /* it may have read the old one already */
        return;
    }
    if (s == NULL)
        return;
    tr_daemon_notify("RELOADING=1");
    tell(s, "reload");
}

static void stop_oldest(struct keeper *k)
{
    struct serving *s = in_state(k, DRAINING);

    if (s == NULL)
        return;
    log_info("process %d, the oldest, has to end: %zu processes are running", (int)s->pid, k->n);
    s->state = ENDING;
    tell(s, "stop");
}

static void upgrade(struct keeper *k)
{
    struct err err = {0};

    if (in_state(k, STARTING) != NULL) {
        log_info("SIGUSR2: once the start under way is over");
        k->upgrade_due = true;
        return;
    }
    if (k->n >= SERVING_MAX - 1)
        stop_oldest(k);
    if (k->n >= SERVING_MAX) {
        log_error("SIGUSR2: no upgrade: %zu processes are draining still", k->n - 1);
        return;
    }
    log_info("SIGUSR2: starting %s", k->program);
    tr_daemon_notify("RELOADING=1");
    if (start(k, &err) != 0) {
        log_error("upgrade: %s; serving as before", err.msg);
        tr_daemon_notify("READY=1\nSTATUS=upgrade failed, see the log; serving as before");
    }
}

static void stop(struct keeper *k, unsigned number)
{
    if (k->stopping) { /* asked twice: no more patience */
        log_warn("second signal: ending at once");
        for (size_t i = 0; i < k->n; i++)
            kill(k->serving[i].pid, SIGKILL);
        k->status = EXIT_FAILURE;
        return;
    }
    log_info("%s: draining", number == SIGINT ? "SIGINT" : "SIGTERM");
    k->stopping = true;
    tr_daemon_notify("STOPPING=1");
    forget_all(k); /* so that the serving process closes the last copy */
    for (size_t i = 0; i < k->n; i++) {
        struct serving *s = &k->serving[i];

        s->killed = s->state == STARTING;
        if (s->killed)
            kill(s->pid, SIGKILL);
        else
            tell(s, "stop");
        s->state = ENDING;
    }
}

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void say_how(const struct serving *s, int status)
{
    if (WIFSIGNALED(status))
        log_error("serving process %d ended by signal %d (%s)", (int)s->pid, WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        log_error("serving process %d ended with %d", (int)s->pid, WEXITSTATUS(status));
    else
        log_info("process %d has ended", (int)s->pid);
}

static void on_end(struct keeper *k, struct serving *s, int status)
{
    enum serving_state state = s->state;
    bool first = state == STARTING && in_state(k, SERVING) == NULL, killed = s->killed;

    if (s->sock >= 0)
        close(s->sock);
    if (!first && !killed) /* that one said itself why it cannot start */
        say_how(s, status);
    memmove(s, s + 1, (size_t)(&k->serving[k->n] - (s + 1)) * sizeof(*s));
    k->n--;
    if (state == STARTING && !first && !k->stopping) {
        log_error("upgrade: the new process did not start; serving as before");
        tr_daemon_notify("READY=1\nSTATUS=upgrade failed, see the log; serving as before");
    } else if (first || state == SERVING) {
        k->status = exit_status(status);
        if (!k->stopping) { /* ended unasked: whoever starts us again should not have to wait */
            k->stopping = true;
            forget_all(k);
            for (size_t i = 0; i < k->n; i++) {
                k->serving[i].killed = true;
                kill(k->serving[i].pid, SIGKILL);
            }
        }
    } else if (state == ENDING && !killed && k->stopping && k->status == 0) {
        k->status = exit_status(status);
    }
}

static void reap(struct keeper *k)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < k->n; i++) {
            if (k->serving[i].pid != pid)
                continue;
            while (on_readable(k, &k->serving[i])) /* its last words */
                ;
            on_end(k, &k->serving[i], status);
            break;
        }
    }
}

static void on_signal(struct keeper *k)
{
    struct signalfd_siginfo info;

    if (read(k->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    switch (info.ssi_signo) {
    case SIGCHLD:
        reap(k);
        break;
    case SIGHUP:
        reload(k);
        break;
    case SIGUSR2:
        if (!k->stopping)
            upgrade(k);
        break;
    default:
        stop(k, info.ssi_signo);
    }
}

/* A start takes too long: end it. Returns how long to wait for the next such moment. */
static int check_start(struct keeper *k)
{
    struct serving *s = in_state(k, STARTING);
    uint64_t now = now_ms();

    if (s == NULL)
        return -1;
    if (now - s->since_ms < GW_START_MAX_MS)
        return (int)(GW_START_MAX_MS - (now - s->since_ms));
    log_error("process %d is not ready after %d s", (int)s->pid, GW_START_MAX_MS / 1000);
    kill(s->pid, SIGKILL);
    return 1000;
}

/* What was asked for while a process started. */
static void catch_up(struct keeper *k)
{
    if (in_state(k, STARTING) != NULL || k->stopping)
        return;
    if (k->reload_due) {
        k->reload_due = false;
        reload(k);
    }
    if (k->upgrade_due) {
        k->upgrade_due = false;
        upgrade(k);
    }
}

/* Of two times to wait: < 0, and 0 as the second, are none. */
static int shorter(int a, int b)
{
    return b == 0 ? a : a < 0 || b < a ? b : a;
}

static void run(struct keeper *k)
{
    while (k->n > 0) {
        struct pollfd fds[1 + SERVING_MAX] = {{k->signals, POLLIN, 0}};
        pid_t pids[SERVING_MAX];
        size_t n = k->n;

        for (size_t i = 0; i < n; i++) {
            fds[i + 1] = (struct pollfd){k->serving[i].sock, POLLIN, 0};
            pids[i] = k->serving[i].pid;
        }
        if (poll(fds, n + 1, shorter(check_start(k), (int)tr_daemon_watchdog())) < 0)
            continue;
        /* Words first: a signal may come of somebody who has seen what they say. */
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; fds[i + 1].revents != 0 && j < k->n; j++)
                if (k->serving[j].pid == pids[i] && k->serving[j].sock == fds[i + 1].fd)
                    while (on_readable(k, &k->serving[j]))
                        ;
        if (fds[0].revents != 0)
            on_signal(k);
        catch_up(k);
    }
}

static int open_signals(struct keeper *k, struct err *err)
{
    static const int numbers[] = {SIGCHLD, SIGHUP, SIGUSR2, SIGTERM, SIGINT};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signals >= 0 ? 0 : tr_err_set(err, -errno, "signalfd: %s", strerror(errno));
}

int gw_keeper_run(char **argv, const struct tr_config *config)
{
    struct keeper *k = calloc(1, sizeof(*k));
    struct gw_options opt;
    struct err err = {.msg = "out of memory"};
    int r, status;

    if (k == NULL) {
        log_error("%s", err.msg);
        return EXIT_FAILURE;
    }
    k->argv = argv;
    find_program(k, argv[0]);
    gw_raise_descriptor_limit();
    r = gw_options_init(&opt, config, &err);
    if (r == 0)
        r = gw_become(opt.user, gw_options_bind_low_port(&opt), &err);
    gw_options_fini(&opt);
    if (r == 0)
        r = open_signals(k, &err);
    if (r == 0)
        r = adopt_passed(k, &err);
    if (r == 0)
        r = start(k, &err);
    if (r == 0)
        run(k);
    else
        log_error("%s", err.msg);
    status = r == 0 ? k->status : EXIT_FAILURE;
    forget_all(k);
    if (k->program_dir >= 0)
        close(k->program_dir);
    close(k->signals);
    free(k->kept);
    free(k);
    return status;
}
