/* SPDX-License-Identifier: MIT */
/* transom file put, get, list, delete. Contents stream; nothing is held in memory whole. A copy
 * that is cut off goes on where it was: a get asks for the rest of the same state of the file, a
 * put asks how much arrived. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define PROGRESS_MS    250
#define RESUME_MS      60000 /* without progress */
#define RESUME_WAIT_MS 300

const char *cli_file_user(const struct cli *cli)
{
    return cli->user == NULL                   ? ""
           : strcmp(cli->user, "root") == 0    ? "&user=root"
           : strcmp(cli->user, "sandbox") == 0 ? ""
                                               : "&user=?"; /* refused with the reason */
}

void cli_add_mtime(json_t *entry)
{
    time_t s = (time_t)(json_integer_value(json_object_get(entry, "mtime_ms")) / 1000);
    char text[32] = "";
    struct tm tm;

    if (localtime_r(&s, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm);
    json_object_set_new(entry, "mtime", json_string(text));
}

struct transfer {
    struct http_req *req;
    int fd;
    const char *label;
    int64_t total; /* -1: unknown */
    int64_t moved, shown_at;
    bool show, shown;
    bool resumed;     /* the request is for the rest */
    int error;        /* local: negative errno */
    char etag[96];    /* of the file that is got; "": it cannot be resumed */
    int64_t tried_at; /* bytes at the last attempt */
    int64_t stuck_ms; /* attempts that moved nothing have lasted so long */
    bool changed;     /* it is another file by now, and what was shown cannot be taken back */
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void show_progress(struct transfer *t, size_t n, bool last)
{
    double mib = 1024.0 * 1024.0;

    t->moved += (int64_t)n;
    if (!t->show || (!last && now_ms() - t->shown_at < PROGRESS_MS) || (last && !t->shown))
        return;
    t->shown_at = now_ms();
    t->shown = true;
    if (t->total >= 0)
        fprintf(stderr, "\r%s: %.1f of %.1f MiB%s", t->label, (double)t->moved / mib,
                (double)t->total / mib, last ? "\n" : "");
    else
        fprintf(stderr, "\r%s: %.1f MiB%s", t->label, (double)t->moved / mib, last ? "\n" : "");
}

static long on_read(struct http_req *req, uint8_t *buf, size_t size)
{
    struct transfer *t = req->arg;
    ssize_t n;

    if (t->total >= 0 && (int64_t)size > t->total - t->moved)
        size = (size_t)(t->total - t->moved); /* it may have grown */
    do {
        n = size > 0 ? read(t->fd, buf, size) : 0;
    } while (n < 0 && errno == EINTR);
    if (n < 0 || (n == 0 && size > 0 && t->total >= 0)) {
        t->error = n < 0 ? -errno : -ESTALE;
        return -2;
    }
    show_progress(t, (size_t)n, false);
    return (long)n;
}

/* The whole file comes again, since it is another one by now. */
static bool start_over(struct transfer *t)
{
    t->changed = ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) < 0;
    t->moved = 0;
    t->total = -1;
    t->etag[0] = '\0';
    return !t->changed;
}

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct transfer *t = req->arg;

    if (t->moved > 0 && req->status == 200 && t->resumed && !start_over(t))
        return false;
    t->resumed = false;
    if (t->total < 0 && req->length > 0)
        t->total = t->moved + req->length;
    if (t->etag[0] == '\0')
        snprintf(t->etag, sizeof(t->etag), "%s", req->etag);
    t->error = cli_write_all(t->fd, data, len);
    show_progress(t, len, false);
    return t->error == 0;
}

/* Start and wait. Returns 0, the number of the signal that came in between, or -1. */
static int transfer(struct transfer *t)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    int signal_fd = term_signal_fd(signals, 3), number = 0;
    struct pollfd fds[1] = {{.fd = signal_fd, .events = POLLIN}};

    t->req->arg = t;
    t->show = isatty(STDERR_FILENO);
    t->shown_at = now_ms();
    http_start(t->req);
    while (!t->req->done && number == 0) {
        http_step(t->req->http, fds, 1, 1000);
        number = term_next_signal(signal_fd);
    }
    close(signal_fd);
    show_progress(t, 0, true);
    return number;
}

/* Exit status of a transfer; says why it failed. */
static int outcome(const struct transfer *t, int signal_number, const char *local)
{
    if (signal_number != 0)
        return 128 + signal_number;
    if (t->changed || t->error == -ESTALE)
        return cli_fail(1, "%s: it changed while it was copied", t->label);
    if (t->error != 0)
        return cli_fail(1, "%s: %s", local, strerror(-t->error));
    return http_ok(t->req) ? 0 : http_explain(t->req);
}

/* Was the request cut off by something that may pass? Waits a moment then. */
static bool may_go_on(struct transfer *t, int signal_number)
{
    const struct http_req *req = t->req;
    bool cut = req->fault == HTTP_CUT || req->fault == HTTP_NO_CONNECTION ||
               (req->fault == HTTP_WHOLE && (req->status == 502 || req->status == 503));

    if (signal_number != 0 || t->error != 0 || t->changed || !cut || t->moved == 0)
        return false;
    t->stuck_ms = t->moved > t->tried_at ? 0 : t->stuck_ms + RESUME_WAIT_MS;
    t->tried_at = t->moved;
    if (t->stuck_ms > RESUME_MS)
        return false;
    poll(NULL, 0, RESUME_WAIT_MS); /* what comes meanwhile waits, signals too */
    return true;
}

/* Get path into t->fd. Returns the exit status; t->req stays for the caller. */
static int get_all(struct cli *cli, struct transfer *t, const char *path, const char *local)
{
    char range[40];
    int number;

    do {
        http_req_free(t->req);
        t->req = http_req_new(cli->http, "GET", path);
        t->req->on_data = on_data;
        t->resumed = t->moved > 0;
        if (t->resumed) {
            snprintf(range, sizeof(range), "bytes=%lld-", (long long)t->moved);
            http_req_header(t->req, "range", range);
            http_req_header(t->req, "if-range", t->etag);
        }
        number = transfer(t);
    } while (may_go_on(t, number) && t->etag[0] != '\0');
    return outcome(t, number, local);
}

static long no_bytes(struct http_req *req, uint8_t *buf, size_t size)
{
    (void)req;
    (void)buf;
    (void)size;
    return 0;
}

/* How much of an upload arrived? Sets t->moved and t->fd to it. Returns false when that cannot be
 * told at the moment. */
static bool ask_progress(struct cli *cli, struct transfer *t, const char *path)
{
    struct http_req *req = http_req_new(cli->http, "PUT", path);
    json_int_t received = -1;
    char range[40];
    json_t *answer;

    snprintf(range, sizeof(range), "bytes */%lld", (long long)t->total);
    http_req_header(req, "content-range", range);
    req->on_read = no_bytes;
    http_req_stream_body(req, 0);
    http_start(req);
    http_wait(req);
    answer = req->body != NULL && req->status == 202 ? json_loads(req->body, 0, NULL) : NULL;
    if (answer != NULL)
        received = json_integer_value(json_object_get(answer, "received"));
    json_decref(answer);
    http_req_free(req);
    if (received < 0 || received >= t->total || lseek(t->fd, received, SEEK_SET) < 0)
        return false;
    t->moved = received;
    return true;
}

/* Put a regular file, t->total bytes of it. Returns the exit status; t->req stays. */
static int put_all(struct cli *cli, struct transfer *t, const char *base, const char *local)
{
    uint64_t id[2];
    char range[80], *path;
    int number, status;
    json_t *answer;

    if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return cli_fail(1, "no random numbers: %s", strerror(errno));
    path = cli_printf("%s&upload=%016llx%016llx", base, (unsigned long long)id[0],
                      (unsigned long long)id[1]);
    for (;;) {
        http_req_free(t->req);
        t->req = http_req_new(cli->http, "PUT", path);
        t->req->on_read = on_read;
        http_req_stream_body(t->req, t->total - t->moved);
        snprintf(range, sizeof(range), "bytes %lld-%lld/%lld", (long long)t->moved,
                 (long long)t->total - 1, (long long)t->total);
        http_req_header(t->req, "content-range", range);
        number = transfer(t);
        if (!may_go_on(t, number))
            break;
        while (!ask_progress(cli, t, path) && may_go_on(t, number))
            ;
    }
    status = outcome(t, number, local);
    if (status != 0 && t->moved > 0) { /* nobody will go on with it */
        answer = cli_call_or_404(cli, "DELETE", path, NULL, &(bool){false});
        json_decref(answer);
    }
    free(path);
    return status;
}

static bool is_octal(const char *mode)
{
    return *mode != '\0' && strlen(mode) <= 5 && strspn(mode, "01234567") == strlen(mode);
}

/* Open the local file to send. Returns 0, or an exit status after saying why. */
static int open_local(const char *local, struct transfer *t, struct stat *st)
{
    if (strcmp(local, "-") == 0) {
        t->fd = STDIN_FILENO;
        t->total = -1;
        st->st_mode = 0644;
        return 0;
    }
    t->fd = open(local, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (t->fd < 0 || fstat(t->fd, st) != 0)
        return cli_fail(1, "%s: %s", local, strerror(errno));
    if (S_ISDIR(st->st_mode))
        return cli_fail(
            1,
            "%s is a folder; a session keeps it with: transom files put -r %s; a machine "
            "gets it as an archive: tar c %s | transom exec -i -- tar x",
            local, local, local);
    t->total = S_ISREG(st->st_mode) ? st->st_size : -1;
    return 0;
}

int cmd_file_put(struct cli *cli, int argc, char **argv)
{
    struct transfer t = {.fd = -1, .label = argv[0]};
    const char *local = argv[0];
    char *name = cli_printf("%s", local), *base = basename(name), *remote, *encoded, *path, *owner,
         mode[8];
    struct stat st = {0};
    int status;

    if (argc < 2 && strcmp(local, "-") == 0) {
        free(name);
        return cli_fail(CLI_USAGE, "standard input has no name; give REMOTE");
    }
    if (cli->mode != NULL && !is_octal(cli->mode)) {
        free(name);
        return cli_fail(CLI_USAGE, "--mode wants an octal number such as 0755");
    }
    status = open_local(local, &t, &st);
    if (argc < 2)
        remote = cli_printf("%s", base);
    else if (argv[1][0] != '\0' && argv[1][strlen(argv[1]) - 1] == '/')
        remote = cli_printf("%s%s", argv[1], base);
    else
        remote = cli_printf("%s", argv[1]);
    encoded = cli_encode(remote);
    if (cli->mode != NULL)
        snprintf(mode, sizeof(mode), "%s", cli->mode);
    else
        snprintf(mode, sizeof(mode), "%04o", (unsigned int)(st.st_mode & 0777));
    owner = cli_encode(cli->owner != NULL ? cli->owner : "");
    path = status != 0
               ? NULL
               : cli_sandbox_path(cli, "/files?path=%s&mode=%s%s%s%s", encoded, mode,
                                  cli_file_user(cli), *owner != '\0' ? "&owner=" : "", owner);
    free(owner);
    if (path != NULL) {
        if (t.total > 0) {
            status = put_all(cli, &t, path, local);
        } else {
            t.req = http_req_new(cli->http, "PUT", path);
            t.req->on_read = on_read;
            http_req_stream_body(t.req, t.total);
            status = outcome(&t, transfer(&t), local);
        }
        if (status == 0 && cli->json && t.req != NULL && t.req->body != NULL)
            printf("%s\n", t.req->body);
        http_req_free(t.req);
    } else if (status == 0) {
        status = 1;
    }
    if (t.fd > STDIN_FILENO)
        close(t.fd);
    free(path);
    free(encoded);
    free(remote);
    free(name);
    return status;
}

/* A temporary name beside local, opened. Returns 0, or 1 after saying why. */
static int open_temporary(const char *local, struct transfer *t, char **temporary)
{
    char *copy = cli_printf("%s", local), *dir = dirname(copy);

    *temporary = cli_printf("%s/.transom-XXXXXX", dir);
    t->fd = mkostemp(*temporary, O_CLOEXEC);
    if (t->fd < 0) {
        cli_fail(1, "%s: %s", dir, strerror(errno));
        free(copy);
        return 1;
    }
    free(copy);
    return 0;
}

/* Give the finished file its mode and its name. */
static int put_in_place(const struct transfer *t, const char *temporary, const char *local)
{
    mode_t mode = is_octal(t->req->mode) ? (mode_t)(strtoul(t->req->mode, NULL, 8) & 0777) : 0644;
    mode_t mask = umask(0);

    umask(mask);
    if (fchmod(t->fd, mode & ~mask) != 0 || rename(temporary, local) != 0)
        return cli_fail(1, "%s: %s", local, strerror(errno));
    return 0;
}

int cli_get_file(struct cli *cli, const char *path, const char *remote, const char *where)
{
    struct transfer t = {.fd = -1, .label = remote, .total = -1};
    char *name = cli_printf("%s", remote), *local, *temporary = NULL;
    bool to_stdout = where != NULL && strcmp(where, "-") == 0;
    struct stat st;
    int status = 1;

    if (where != NULL && !to_stdout && stat(where, &st) == 0 && S_ISDIR(st.st_mode))
        local = cli_printf("%s/%s", where, basename(name));
    else
        local = cli_printf("%s", where != NULL ? where : basename(name));
    if (to_stdout)
        t.fd = STDOUT_FILENO;
    if (to_stdout || open_temporary(local, &t, &temporary) == 0) {
        status = get_all(cli, &t, path, local);
        if (status == 0 && !to_stdout)
            status = put_in_place(&t, temporary, local);
        http_req_free(t.req);
    }
    if (t.fd >= 0 && !to_stdout) {
        close(t.fd);
        if (status != 0)
            unlink(temporary);
    }
    free(temporary);
    free(local);
    free(name);
    return status;
}

int cli_send_file(struct cli *cli, const char *method, const char *type, const char *path,
                  const char *local, json_t **answer)
{
    struct transfer t = {.fd = -1, .label = local};
    struct stat st = {0};
    int status = open_local(local, &t, &st);

    if (status == 0) {
        t.req = http_req_new(cli->http, method, path);
        t.req->on_read = on_read;
        http_req_stream_body(t.req, t.total);
        free(t.req->content_type);
        t.req->content_type = cli_printf("%s", type);
        status = outcome(&t, transfer(&t), local);
        if (status == 0 && cli->json && t.req->body != NULL)
            printf("%s\n", t.req->body);
        if (status == 0 && answer != NULL && t.req->body != NULL)
            *answer = json_loads(t.req->body, 0, NULL);
        http_req_free(t.req);
    }
    if (t.fd > STDIN_FILENO)
        close(t.fd);
    return status;
}

int cli_put_file(struct cli *cli, const char *path, const char *local)
{
    return cli_send_file(cli, "PUT", "application/octet-stream", path, local, NULL);
}

int cmd_file_get(struct cli *cli, int argc, char **argv)
{
    char *encoded = cli_encode(argv[0]);
    char *path = cli_sandbox_path(cli, "/files?path=%s%s", encoded, cli_file_user(cli));
    int status = path != NULL ? cli_get_file(cli, path, argv[0], argc > 1 ? argv[1] : NULL) : 1;

    free(path);
    free(encoded);
    return status;
}

int cmd_file_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"type", "mode", "size", "mtime", "name", "target", NULL};
    static const char *const headers[] = {"TYPE", "MODE",   "SIZE", "CHANGED",
                                          "NAME", "TARGET", NULL};
    char *encoded = cli_encode(argc > 0 ? argv[0] : ".");
    char *path = cli_sandbox_path(cli, "/files/list?path=%s%s", encoded, cli_file_user(cli));
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL, *entries;

    free(path);
    free(encoded);
    if (answer == NULL)
        return 1;
    entries = json_object_get(answer, "entries");
    for (size_t i = 0; !cli->json && i < json_array_size(entries); i++)
        cli_add_mtime(json_array_get(entries, i));
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(entries, keys, headers);
    json_decref(answer);
    return 0;
}

int cmd_file_delete(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *encoded = cli_encode(argv[i]);
        char *path = cli_sandbox_path(cli, "/files?path=%s%s%s", encoded,
                                      cli->recursive ? "&recursive=1" : "", cli_file_user(cli));
        json_t *answer = path != NULL ? cli_call(cli, "DELETE", path, NULL) : NULL;

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
        free(encoded);
    }
    return status;
}
