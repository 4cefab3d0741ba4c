/* SPDX-License-Identifier: MIT */
#include "transom/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "transom/log.h"

struct args {
    const char *path; /* NULL: the default file */
    bool check, verbose;
};

static void print_usage(FILE *out, const struct tr_daemon *daemon)
{
    fprintf(out, "Usage: %s [-f FILE] [-n] [-d] [-v] [--help] [--version]\n", daemon->program);
}

static void print_help(const struct tr_daemon *daemon)
{
    print_usage(stdout, daemon);
    printf("%s\n\n"
           "  -f FILE        configuration (default %s, which may be missing)\n"
           "  -n, --check    check the configuration, say what is wrong, and exit\n"
           "  -d             stay in the foreground (always so)\n"
           "  -v             log level debug\n"
           "      --help     this text\n"
           "      --version  the version\n\n"
           "Options of the configuration file, in YAML:\n\n",
           daemon->purpose, TR_CONFIG_DEFAULT_PATH);
    tr_config_print_help(stdout);
}

/* Returns -1 to go on, else the exit status. */
static int parse_args(int argc, char **argv, const struct tr_daemon *daemon, struct args *parsed)
{
    static const struct option options[] = {
        {"check", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "f:ndv", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            parsed->path = optarg;
            break;
        case 'n':
            parsed->check = true;
            break;
        case 'd':
            break;
        case 'v':
            parsed->verbose = true;
            break;
        case 'h':
            print_help(daemon);
            return EXIT_SUCCESS;
        case 'V':
            printf("%s %s\n", daemon->program, TRANSOM_VERSION);
            return EXIT_SUCCESS;
        default:
            print_usage(stderr, daemon);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", daemon->program, argv[optind]);
        print_usage(stderr, daemon);
        return 2;
    }
    return -1;
}

/* Of the command line; set once, at the start. */
static struct args args;

const char *tr_daemon_config_path(void)
{
    return args.path != NULL ? args.path : TR_CONFIG_DEFAULT_PATH;
}

int tr_daemon_reload(struct tr_config **config, struct err *err)
{
    int r = tr_config_load(tr_daemon_config_path(), config, err);

    if (r == -ENOENT && args.path == NULL)
        r = tr_config_new(config);
    return r;
}

void tr_daemon_apply_log(const struct tr_config *config)
{
    enum tr_log_level level = TR_LOG_INFO;

    if (tr_log_parse_level(tr_config_str(config, "log.level"), &level) != 0)
        abort(); /* the option allows level names only */
    tr_log_set_level(args.verbose ? TR_LOG_DEBUG : level);
    tr_log_set_json(strcmp(tr_config_str(config, "log.format"), "json") == 0);
}

static int load(const struct tr_daemon *daemon, struct tr_config **config, struct err *err)
{
    int r = tr_daemon_reload(config, err);

    if (r != 0 || daemon->check == NULL)
        return r;
    r = daemon->check(*config, err);
    if (r != 0) {
        tr_err_wrap(err, "%.200s", tr_daemon_config_path());
        tr_config_free(*config);
        *config = NULL;
    }
    return r;
}

int tr_daemon_start(int argc, char **argv, const struct tr_daemon *daemon,
                    struct tr_config **config)
{
    struct err err = {.msg = "out of memory"};
    int r;

    *config = NULL;
    signal(SIGPIPE, SIG_IGN);
    tr_log_init(daemon->component, TR_LOG_INFO);
    memset(&args, 0, sizeof(args));
    r = parse_args(argc, argv, daemon, &args);
    if (r != -1)
        return r;
    if (load(daemon, config, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg); /* begins with FILE:LINE:COLUMN, as editors expect */
        return EXIT_FAILURE;
    }
    if (args.check) {
        printf("%s: ok\n", tr_daemon_config_path());
        tr_config_free(*config);
        *config = NULL;
        return EXIT_SUCCESS;
    }
    tr_daemon_apply_log(*config);
    return -1;
}

unsigned tr_daemon_watchdog(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    unsigned long long us = text != NULL ? strtoull(text, NULL, 10) : 0;

    if (us == 0 || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    tr_daemon_notify("WATCHDOG=1");
    return us / 2000 > 3600000 ? 3600000 : us / 2000 > 0 ? (unsigned)(us / 2000) : 1;
}

void tr_daemon_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t len = path != NULL ? strlen(path) : 0;
    int fd;

    if (len < 2 || len >= sizeof(sa.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(sa.sun_path, path, len);
    if (path[0] == '@')
        sa.sun_path[0] = '\0'; /* the abstract name space */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&sa,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        log_debug("service manager at %s: %s", path, strerror(errno));
    close(fd);
}
