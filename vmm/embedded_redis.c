/* SPDX-License-Identifier: MIT */
/* Path: passwords, configuration -> adopt a running one, or spawn -> watch it by its pidfd. One
 * that runs with other users than ours (redis.acl says which) is ended first. Fault: it ended ->
 * start it again, with growing pauses. One that will not come up three times in a row gets its data
 * set aside: all of it can be written anew from our records. */
#include "vmm/embedded_redis.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "transom/daemon.h"
#include "transom/log.h"
#include "transom/state.h"
#include "vmm/file.h"
#include "vmm/redis_users.h"
#include "vmm/text.h"

#define PAUSE_MIN_MS  100
#define PAUSE_MAX_MS  5000
#define STABLE_MS     10000 /* running this long counts as a good start */
#define FAILURES_MAX  3
#define KILL_AFTER_MS 5000
#define CONF_MAX      8192
#define ACL_FILE      "redis.acl"

struct vmm_redis {
    uv_loop_t *loop;
    const struct vmm_options *options;
    char socket[VMM_PATH_SIZE], conf[VMM_PATH_SIZE], data[VMM_PATH_SIZE];
    char acl[VMM_PATH_SIZE], users[VMM_REDIS_USERS_SIZE];
    gid_t group; /* of the socket */
    bool has_group;
    uv_process_t process; /* valid while spawned; for reaping */
    bool spawned;         /* process is open */
    uv_poll_t watch;      /* its pidfd, valid while watching */
    int pidfd;            /* -1: none */
    pid_t pid;
    bool watching;
    uv_timer_t timer; /* the next start, or the kill */
    uint64_t started_ms, pause_ms;
    unsigned n_failures;
    bool closing, stopping;
    int n_open;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void start_again(uv_timer_t *timer);
static void on_kill(uv_timer_t *timer);

static int pidfd_open_(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int pidfd_signal(int pidfd, int signal)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* ---- closing ---- */

static void maybe_closed(struct vmm_redis *r)
{
    if (r->n_open > 0)
        return;
    if (r->on_closed != NULL)
        r->on_closed(r->on_closed_arg);
    free(r);
}

static void on_handle_close(uv_handle_t *handle)
{
    struct vmm_redis *r = handle->data;

    r->n_open--;
    if (handle == (uv_handle_t *)&r->process)
        r->spawned = false;
    if (handle == (uv_handle_t *)&r->watch) {
        close(r->pidfd);
        r->pidfd = -1;
        r->watching = false;
    }
    if (r->closing)
        maybe_closed(r);
    else if (!r->spawned && !r->watching && !uv_is_active((uv_handle_t *)&r->timer))
        (void)uv_timer_start(&r->timer, start_again, r->pause_ms, 0);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_close);
}

static void close_all(struct vmm_redis *r)
{
    r->closing = true;
    if (r->spawned)
        close_handle((uv_handle_t *)&r->process);
    if (r->watching)
        close_handle((uv_handle_t *)&r->watch);
    close_handle((uv_handle_t *)&r->timer);
}

/* ---- it ended ---- */

static void remove_files(struct vmm_redis *r)
{
    char path[VMM_PATH_SIZE];

    (void)unlink(r->socket);
    (void)unlink(r->conf);
    (void)unlink(r->acl);
    vmm_redis_users_remove(r->options->run_dir);
    snprintf(path, sizeof(path), "%s/redis.log", r->options->run_dir);
    (void)unlink(path);
}

static void set_data_aside(struct vmm_redis *r)
{
    char aside[VMM_PATH_SIZE + 32];

    snprintf(aside, sizeof(aside), "%s.broken-%lld", r->data, (long long)vmm_wall_ms());
    if (rename(r->data, aside) == 0)
        log_error("redis-server does not start with its data, which is set aside as %s", aside);
    r->n_failures = 0;
}

/* What it said last, for the log. */
static void log_tail(struct vmm_redis *r)
{
    char path[VMM_PATH_SIZE], tail[600];
    ssize_t n = -1;
    off_t end;
    int fd;

    snprintf(path, sizeof(path), "%s/redis.log", r->options->run_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        end = lseek(fd, 0, SEEK_END);
        if (lseek(fd, end > 500 ? end - 500 : 0, SEEK_SET) >= 0)
            n = read(fd, tail, sizeof(tail) - 1);
        close(fd);
    }
    if (n > 0) {
        tail[n] = '\0';
        log_warn("redis-server said last: %s", tail);
    }
}

static void on_end(struct vmm_redis *r)
{
    uint64_t lived = uv_now(r->loop) - r->started_ms;

    (void)uv_timer_stop(&r->timer); /* it need not be killed any more */
    if (r->stopping) {
        remove_files(r);
        close_all(r);
        return;
    }
    if (lived >= STABLE_MS) {
        r->pause_ms = PAUSE_MIN_MS;
        r->n_failures = 0;
    } else {
        r->n_failures++;
        r->pause_ms = r->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : r->pause_ms * 2;
    }
    log_warn("redis-server %d ended; started again in %llu ms", (int)r->pid,
             (unsigned long long)r->pause_ms);
    log_tail(r);
    if (r->n_failures >= FAILURES_MAX)
        set_data_aside(r);
    /* The last handle's close callback arms the timer. */
    if (r->spawned)
        close_handle((uv_handle_t *)&r->process);
    if (r->watching)
        close_handle((uv_handle_t *)&r->watch);
}

static void on_exit_(uv_process_t *process, int64_t status, int signal)
{
    struct vmm_redis *r = process->data;

    if (status != 0)
        log_warn("redis-server ended with status %lld", (long long)status);
    else if (signal != 0 && !r->stopping)
        log_warn("redis-server was ended by signal %d", signal);
    on_end(r);
}

static void on_pidfd(uv_poll_t *watch, int status, int events)
{
    (void)status;
    (void)events;
    (void)uv_poll_stop(watch);
    on_end(watch->data); /* adopted: not our child, nothing to reap */
}

/* ---- starting ---- */

static int write_conf(struct vmm_redis *r, struct err *err)
{
    char text[CONF_MAX];
    int n;

    if (strpbrk(r->options->run_dir, "\"\\\n") != NULL ||
        strpbrk(r->options->state_dir, "\"\\\n") != NULL)
        return tr_err_set(err, -EINVAL,
                          "run_dir and state_dir must be free of quotes and backslashes");
    n = snprintf(text, sizeof(text),
                 "# Written by transom-vmm at each start.\n"
                 "port 0\n"
                 "unixsocket \"%s\"\n"
                 "unixsocketperm %s\n"
                 "daemonize no\n"
                 "databases 1\n"
                 "aclfile \"%s\"\n"
                 "dir \"%s\"\n"
                 "appendonly yes\n"
                 "appendfsync everysec\n"
                 "save \"\"\n"
                 "loglevel warning\n"
                 "logfile \"\"\n",
                 r->socket, r->has_group ? "770" : "700", r->acl, r->data);
    if (n < 0 || (size_t)n >= sizeof(text))
        return tr_err_set(err, -ENAMETOOLONG, "state_dir or run_dir is too long");
    return vmm_file_write(r->options->run_dir, "redis.conf", text, (size_t)n, err);
}

static int watch(struct vmm_redis *r)
{
    int e;

    r->pidfd = pidfd_open_(r->pid);
    if (r->pidfd < 0)
        return -errno;
    e = uv_poll_init(r->loop, &r->watch, r->pidfd);
    if (e != 0) {
        close(r->pidfd);
        r->pidfd = -1;
        return e;
    }
    r->watch.data = r;
    r->watching = true;
    r->n_open++;
    return uv_poll_start(&r->watch, UV_READABLE, on_pidfd);
}

/* The process that listens on the socket, told by the kernel; 0: nobody does. */
static pid_t find_running(const struct vmm_redis *r)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);

    if (fd < 0)
        return 0;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->socket);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        peer.pid = 0;
    close(fd);
    return peer.pid;
}

/* Its log, begun anew. Not our own stderr: whoever reads that would wait for redis-server, too. */
static int open_log(const struct vmm_redis *r)
{
    char path[VMM_PATH_SIZE];
    int fd;

    snprintf(path, sizeof(path), "%s/redis.log", r->options->run_dir);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

static int spawn(struct vmm_redis *r)
{
    char program[] = "redis-server";
    char *argv[] = {program, r->conf, NULL};
    int log = open_log(r);
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = log},
                                     {.flags = UV_INHERIT_FD, .data.fd = log}};
    uv_process_options_t options = {.file = program,
                                    .args = argv,
                                    .exit_cb = on_exit_,
                                    .stdio = stdio,
                                    .stdio_count = 3,
                                    /* A terminal's Ctrl-C is for us: we end it in good order. */
                                    .flags = UV_PROCESS_DETACHED};
    int e;

    if (r->has_group) {
        options.flags |= UV_PROCESS_SETGID;
        options.gid = r->group;
    }
    if (log < 0)
        return log;
    r->process.data = r;
    r->spawned = true;
    r->n_open++;
    e = uv_spawn(r->loop, &r->process, &options);
    close(log);
    if (e != 0) { /* the handle is open all the same */
        close_handle((uv_handle_t *)&r->process);
        return e;
    }
    r->pid = r->process.pid;
    r->started_ms = uv_now(r->loop);
    return 0;
}

static void start(struct vmm_redis *r)
{
    struct err err = {0};
    int e;

    (void)unlink(r->socket);
    e = vmm_file_mkdirs(r->data, 0700, &err);
    /* Here and nowhere else: what the file says is what the running server was started with. */
    if (e == 0)
        e = vmm_file_write(r->options->run_dir, ACL_FILE, r->users, strlen(r->users), &err);
    if (e == 0)
        e = spawn(r);
    if (e != 0)
        log_error("redis-server cannot be started: %s", err.code ? err.msg : uv_strerror(e));
    else
        log_info("redis-server started, pid %d", (int)r->pid);
}

static void start_again(uv_timer_t *timer)
{
    start(timer->data);
}

/* Was the server that runs started with the users that we know? */
static bool has_our_users(const struct vmm_redis *r)
{
    struct err err = {0};
    char *text;
    size_t len;
    bool same;

    if (vmm_file_read(r->acl, VMM_REDIS_USERS_SIZE, &text, &len, &err) != 0)
        return false;
    same = strcmp(text, r->users) == 0;
    free(text);
    return same;
}

static void adopt(struct vmm_redis *r)
{
    r->started_ms = uv_now(r->loop);
    if (has_our_users(r)) {
        log_info("redis-server %d runs on from before", (int)r->pid);
        return;
    }
    log_info("redis-server %d runs with other users than ours: started anew", (int)r->pid);
    if (pidfd_signal(r->pidfd, SIGTERM) != 0) /* on_end() goes on */
        log_error("redis-server %d: %s", (int)r->pid, strerror(errno));
    (void)uv_timer_start(&r->timer, on_kill, KILL_AFTER_MS, 0);
}

/* The gateway must reach the socket with the rights of its own user alone. */
static int find_group(struct vmm_redis *r, struct err *err)
{
    const char *name;
    uid_t uid;
    int e;

    if (getuid() != 0)
        return 0;
    e = tr_daemon_gateway_user(r->options->gateway_user, &uid, &r->group, &name, err);
    r->has_group = e == 0;
    return e;
}

int vmm_redis_open(uv_loop_t *loop, const struct vmm_options *options, struct vmm_redis **out,
                   struct err *err)
{
    struct vmm_redis *r = calloc(1, sizeof(*r));
    int e;

    if (r == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r->loop = loop;
    r->options = options;
    r->pidfd = -1;
    r->pause_ms = PAUSE_MIN_MS;
    snprintf(r->socket, sizeof(r->socket), "%s/" TR_REDIS_SOCKET, options->run_dir);
    snprintf(r->conf, sizeof(r->conf), "%s/redis.conf", options->run_dir);
    snprintf(r->acl, sizeof(r->acl), "%s/" ACL_FILE, options->run_dir);
    snprintf(r->data, sizeof(r->data), "%s/redis", options->state_dir);
    e = find_group(r, err);
    if (e == 0)
        e = vmm_redis_users_init(options->run_dir, r->has_group ? &r->group : NULL, r->users, err);
    if (e == 0)
        e = write_conf(r, err);
    if (e != 0) {
        free(r);
        return e;
    }
    if (uv_timer_init(loop, &r->timer) != 0)
        abort(); /* cannot fail on Unix */
    r->timer.data = r;
    r->n_open = 1;
    r->pid = find_running(r);
    if (r->pid > 0 && watch(r) == 0)
        adopt(r);
    else
        start(r);
    *out = r;
    return 0;
}

static void on_kill(uv_timer_t *timer)
{
    struct vmm_redis *r = timer->data;

    log_warn("redis-server %d does not end; killed", (int)r->pid);
    if (r->spawned)
        (void)uv_process_kill(&r->process, SIGKILL);
    else if (r->watching)
        (void)pidfd_signal(r->pidfd, SIGKILL);
}

void vmm_redis_close(struct vmm_redis *r, bool stop, void (*cb)(void *arg), void *arg)
{
    bool spawned = r->spawned && !uv_is_closing((uv_handle_t *)&r->process);
    bool watching = r->watching && !uv_is_closing((uv_handle_t *)&r->watch);

    r->on_closed = cb;
    r->on_closed_arg = arg;
    r->stopping = stop;
    if (!stop || (!spawned && !watching)) {
        if (stop)
            remove_files(r);
        close_all(r);
        return;
    }
    if (spawned)
        (void)uv_process_kill(&r->process, SIGTERM);
    else
        (void)pidfd_signal(r->pidfd, SIGTERM);
    (void)uv_timer_start(&r->timer, on_kill, KILL_AFTER_MS, 0);
}
