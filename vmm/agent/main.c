/* SPDX-License-Identifier: MIT */
/* transom-agent: as the first process it mounts the machine's root (agent_init_stage()) and goes on
 * as a daemon beside systemd; it serves the agent protocol on the machine's channel. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/agent.h"
#include "vmm/agent/init.h"
#include "vmm/agent/server.h"
#include "vmm/agent/ssh_session.h"

static const char usage[] =
    "usage: transom-agent [options]\n"
    "Serves commands, terminals and files of this machine over the machine's channel.\n"
    "  --port NAME      virtio-serial port to serve on (" AGENT_DEFAULT_PORT ")\n"
    "  --stdio          serve on standard input and output instead\n"
    "  --unix PATH      listen on a unix socket instead\n"
    "  --run-dir DIR    side channels of windows (" AGENT_DEFAULT_RUN_DIR ")\n"
    "  --cgroup DIR     parent of our process groups, \"\" for none (" AGENT_DEFAULT_CGROUP ")\n"
    "  --home DIR       home of the sandbox user (from /etc/passwd)\n"
    "  --host-test      leave clock, names, network and accounts alone; run as the caller\n"
    "  -v, --verbose    log more\n"
    "  --help, --version\n";

enum {
    OPT_PORT = 256,
    OPT_STDIO,
    OPT_UNIX,
    OPT_RUN_DIR,
    OPT_CGROUP,
    OPT_HOME,
    OPT_TEST,
    OPT_HELP,
    OPT_VERSION
};

/* Returns -1 to go on, else the exit status. */
static int parse_options(int argc, char **argv, struct agent_options *o)
{
    static const struct option longs[] = {{"port", required_argument, NULL, OPT_PORT},
                                          {"stdio", no_argument, NULL, OPT_STDIO},
                                          {"unix", required_argument, NULL, OPT_UNIX},
                                          {"run-dir", required_argument, NULL, OPT_RUN_DIR},
                                          {"cgroup", required_argument, NULL, OPT_CGROUP},
                                          {"home", required_argument, NULL, OPT_HOME},
                                          {"host-test", no_argument, NULL, OPT_TEST},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, OPT_HELP},
                                          {"version", no_argument, NULL, OPT_VERSION},
                                          {0}};
    int c;

    while ((c = getopt_long(argc, argv, "v", longs, NULL)) != -1) {
        switch (c) {
        case OPT_PORT:
            o->port_name = optarg;
            break;
        case OPT_STDIO:
            o->stdio = true;
            break;
        case OPT_UNIX:
            o->unix_path = optarg;
            break;
        case OPT_RUN_DIR:
            o->run_dir = optarg;
            break;
        case OPT_CGROUP:
            o->cgroup = optarg;
            break;
        case OPT_HOME:
            o->home = optarg;
            break;
        case OPT_TEST:
            o->host_test = true;
            break;
        case 'v':
            tr_log_set_level(TR_LOG_DEBUG);
            break;
        case OPT_HELP:
            fputs(usage, stdout);
            return 0;
        case OPT_VERSION:
            printf("transom-agent %s\n", TRANSOM_VERSION);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fputs(usage, stderr);
        return 2;
    }
    return -1;
}

/* The last process to be ended when memory runs out; with room for many windows. */
static void protect_ourselves(void)
{
    struct rlimit files = {.rlim_cur = 65536, .rlim_max = 524288};
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, "-1000", 5) < 0)
            log_debug("oom_score_adj: %s", strerror(errno));
        close(fd);
    }
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        log_debug("RLIMIT_NOFILE: %s", strerror(errno));
}

/* The console is a terminal, which may take its time or be stopped for ever (by a hang of its port,
 * or by whoever is root in the guest): a line that it does not take at once is lost, so that nobody
 * waits for it. */
static void log_without_waiting(void)
{
    int fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return;
    if (dup2(fd, STDERR_FILENO) < 0)
        log_debug("console: %s", strerror(errno));
    if (fd != STDERR_FILENO)
        close(fd);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    uv_stop(handle->loop);
}

static void close_signal(uv_signal_t *handle)
{
    uv_close((uv_handle_t *)handle, NULL);
}

static int serve(const struct agent_options *options)
{
    uv_signal_t term, interrupt;
    struct err err = {0};
    struct agent agent;
    uv_loop_t loop;
    int r;

    if (uv_loop_init(&loop) != 0 || uv_signal_init(&loop, &term) != 0 ||
        uv_signal_init(&loop, &interrupt) != 0 || uv_signal_start(&term, on_signal, SIGTERM) != 0 ||
        uv_signal_start(&interrupt, on_signal, SIGINT) != 0) {
        log_error("no event loop");
        return 1;
    }
    r = agent_init(&agent, &loop, options, &err);
    if (r == 0)
        r = agent_server_start(&agent, &agent.server, &err);
    if (r == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    else
        log_error("%s", err.msg);
    agent_stop(&agent);
    close_signal(&term);
    close_signal(&interrupt);
    uv_run(&loop, UV_RUN_DEFAULT);
    agent_free(&agent);
    if (uv_loop_close(&loop) != 0)
        log_error("handles were left open");
    return r == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct agent_options options = {.port_name = AGENT_DEFAULT_PORT,
                                    .run_dir = AGENT_DEFAULT_RUN_DIR,
                                    .cgroup = AGENT_DEFAULT_CGROUP};
    int r;

    tr_log_init("agent", TR_LOG_INFO);
    if (getpid() == 1) { /* the kernel passes words that are not for us */
        if (agent_init_stage() != 0)
            return 1;
        log_without_waiting();
    } else if (argc == 3 && strcmp(argv[1], AGENT_SSH_SESSION_OPTION) == 0) {
        return agent_ssh_session(argv[2]);
    } else {
        r = parse_options(argc, argv, &options);
        if (r >= 0)
            return r;
    }
    signal(SIGPIPE, SIG_IGN);
    protect_ourselves();
    return serve(&options);
}
