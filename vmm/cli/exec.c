/* SPDX-License-Identifier: MIT */
/* transom exec and job attach: one request carries the output, a second one the input, short ones
 * the signals. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/frames.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define INTERRUPTS_TO_END 3 /* a program that ignores SIGINT can still be left */
#define EXIT_TIMED_OUT    124
#define EXIT_NOT_FOUND    127
#define RESUME_MS         60000 /* how long a job that cannot be reached is asked for */
#define RESUME_PAUSE_MS   300

struct exec {
    struct cli *cli;
    char *path; /* .../exec */
    char *id;   /* once started */
    struct http_req *main, *input, *signal;
    struct frames frames;
    int pending_signal; /* to be sent when the one under way has gone; 0: none */
    int n_interrupts;
    int status; /* exit status; -1: not known yet */
    int write_error;
    bool input_ready, interactive;
    uint64_t shown[2]; /* of a job: bytes of standard output and error */
};

static int on_started(struct exec *x, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    const char *id = cli_text(o, "id");

    if (*id != '\0' && x->id == NULL)
        x->id = cli_encode(id);
    json_decref(o);
    return x->id != NULL ? 0 : -EPROTO;
}

static int on_exit_frame(struct exec *x, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);

    x->status = cli_exit_status(o, 1);
    if (json_is_true(json_object_get(o, "timed_out")))
        x->status = cli_fail(EXIT_TIMED_OUT, "the time was up; the program was ended");
    json_decref(o);
    return 0;
}

/* Bytes that were no longer kept when we came to them. */
static void on_gap(struct exec *x, const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    const char *stream = cli_text(o, "stream");
    uint64_t from = (uint64_t)json_integer_value(json_object_get(o, "from"));
    uint64_t to = (uint64_t)json_integer_value(json_object_get(o, "to"));

    if (to > from) {
        cli_fail(0, "%llu bytes of %s are no longer kept", (unsigned long long)(to - from), stream);
        x->shown[strcmp(stream, "stderr") == 0] = to;
    }
    json_decref(o);
}

static int on_frame(uint8_t type, const uint8_t *data, size_t len, void *arg)
{
    struct exec *x = arg;

    switch (type) {
    case FRAME_STARTED:
        return on_started(x, (const char *)data);
    case FRAME_STDOUT:
    case FRAME_STDERR:
        x->write_error =
            cli_write_all(type == FRAME_STDOUT ? STDOUT_FILENO : STDERR_FILENO, data, len);
        x->shown[type == FRAME_STDERR] += len;
        return x->write_error;
    case FRAME_GAP:
        on_gap(x, (const char *)data);
        return 0;
    case FRAME_EXIT:
        return on_exit_frame(x, (const char *)data);
    default:
        return 0; /* a later version's */
    }
}

static bool on_output(struct http_req *req, const uint8_t *data, size_t len)
{
    struct exec *x = req->arg;

    return frames_feed(&x->frames, data, len, on_frame, x) == 0;
}

static long on_input(struct http_req *req, uint8_t *buf, size_t size)
{
    struct exec *x = req->arg;
    ssize_t n;

    if (!x->input_ready)
        return -1;
    x->input_ready = false;
    n = read(STDIN_FILENO, buf, size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return -1;
    return n > 0 ? (long)n : 0; /* an unreadable standard input is an empty one */
}

static void start_input(struct exec *x)
{
    char *path = cli_printf("%s/%s/stdin", x->path, x->id);

    x->input = http_req_new(x->cli->http, "POST", path);
    x->input->arg = x;
    x->input->on_read = on_input;
    http_req_stream_body(x->input, -1);
    http_start(x->input);
    free(path);
}

static void send_signal(struct exec *x)
{
    char *path = cli_printf("%s/%s/signal", x->path, x->id);
    char *body = cli_printf("{\"signal\":\"%s\"}", cli_signal_name(x->pending_signal));

    http_req_free(x->signal);
    x->signal = http_req_new(x->cli->http, "POST", path);
    http_req_body(x->signal, "application/json", body, strlen(body));
    http_start(x->signal);
    x->pending_signal = 0;
    free(path);
    free(body);
}

/* A signal came to us. Returns false to give up at once. */
static bool take_signal(struct exec *x, int number)
{
    if (x->id == NULL || (number == SIGINT && ++x->n_interrupts >= INTERRUPTS_TO_END)) {
        x->status = 128 + number; /* closing the connection ends the program, if it began */
        return false;
    }
    x->pending_signal = number;
    return true;
}

/* Until the output is over. */
static void exchange(struct exec *x, int signal_fd)
{
    struct pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN},
                            {.fd = STDIN_FILENO, .events = POLLIN}};
    int number;

    while (!x->main->done) {
        bool reading = x->input != NULL && !x->input->done && !x->input_ready;

        http_step(x->cli->http, fds, reading ? 2 : 1, 1000);
        if (reading && fds[1].revents != 0) {
            x->input_ready = true;
            http_req_resume(x->input);
        }
        while ((number = term_next_signal(signal_fd)) != 0) {
            if (!take_signal(x, number))
                return;
        }
        if (x->id != NULL && x->interactive && x->input == NULL)
            start_input(x);
        if (x->pending_signal != 0 && (x->signal == NULL || x->signal->done))
            send_signal(x);
    }
}

static json_t *request_body(struct cli *cli, int argc, char **argv)
{
    json_t *words = json_array(), *env = cli_env_object(&cli->env), *body;

    for (int i = 0; i < argc; i++) {
        if (json_array_append_new(words, json_string(argv[i])) != 0) {
            cli_fail(CLI_USAGE, "argument %d is not UTF-8", i + 1);
            json_decref(words);
            json_decref(env);
            return NULL;
        }
    }
    if (env == NULL) {
        json_decref(words);
        return NULL;
    }
    body = json_pack("{s:o, s:o, s:b}", "argv", words, "env", env, "stdin", (int)cli->interactive);
    if (cli->user != NULL)
        json_object_set_new(body, "user", json_string(cli->user));
    if (cli->detach)
        json_object_set_new(body, "detach", json_true());
    if (cli->cwd != NULL)
        json_object_set_new(body, "cwd", json_string(cli->cwd));
    if (cli->timeout != NULL)
        json_object_set_new(body, "timeout_ms",
                            json_integer((json_int_t)(strtod(cli->timeout, NULL) * 1000)));
    return body;
}

/* Did the agent find no such program? It says so with a status that no missing session has. */
static bool is_program_missing(const struct http_req *req)
{
    json_t *answer =
        req->status == 400 && req->body != NULL ? json_loads(req->body, 0, NULL) : NULL;
    bool missing = strcmp(cli_text(answer, "code"), "not_found") == 0;

    json_decref(answer);
    return missing;
}

static int explain(struct exec *x)
{
    if (x->status >= 0)
        return x->status;
    if (x->write_error == -EPIPE)
        return 128 + SIGPIPE; /* the reader has gone, as in `transom exec ... | head` */
    if (x->write_error != 0)
        return cli_fail(1, "output: %s", strerror(-x->write_error));
    if (!http_ok(x->main)) {
        int status = http_explain(x->main);

        return is_program_missing(x->main) ? EXIT_NOT_FOUND : status;
    }
    return cli_fail(1, "the answer ended before the program's exit status came");
}

static bool timeout_is_valid(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    return *text != '\0' && *end == '\0' && seconds > 0 && seconds < 1e9;
}

static struct exec *new_exec(struct cli *cli)
{
    struct exec *x = calloc(1, sizeof(*x));

    if (x == NULL)
        abort();
    *x = (struct exec){.cli = cli, .status = -1, .interactive = cli->interactive};
    frames_init(&x->frames);
    x->path = cli_sandbox_path(cli, "/exec");
    return x;
}

static void free_exec(struct exec *x)
{
    http_req_free(x->input);
    http_req_free(x->signal);
    http_req_free(x->main);
    free(x->path);
    free(x->id);
    free(x);
}

/* exec -d: started, and its id printed. */
static int start_job(struct cli *cli, const json_t *body)
{
    char *path = cli_sandbox_path(cli, "/exec");
    json_t *answer = path != NULL ? cli_call(cli, "POST", path, body) : NULL;

    free(path);
    return cli_print_answer(cli, answer, "id");
}

int cmd_exec(struct cli *cli, int argc, char **argv)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct exec *x;
    json_t *body;
    char *text;
    int fd, status = 1;

    if (cli->json && !cli->detach)
        return cli_fail(CLI_USAGE, "exec passes bytes through; --json has no meaning for it");
    if (cli->timeout != NULL && !timeout_is_valid(cli->timeout))
        return cli_fail(CLI_USAGE, "--timeout wants a number of seconds");
    body = request_body(cli, argc, argv);
    if (body == NULL)
        return CLI_USAGE;
    if (cli->detach) {
        status = start_job(cli, body);
        json_decref(body);
        return status;
    }
    x = new_exec(cli);
    text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (x->path != NULL && text != NULL) {
        fd = term_signal_fd(signals, 4);
        x->main = http_req_new(cli->http, "POST", x->path);
        x->main->arg = x;
        x->main->on_data = on_output;
        http_req_body(x->main, "application/json", text, strlen(text));
        http_start(x->main);
        exchange(x, fd);
        status = explain(x);
        close(fd);
    }
    free(text);
    free_exec(x);
    return status;
}

/* ---- job attach ---- */

/* Ask for what was not shown yet. */
static void ask_job(struct exec *x)
{
    char *path = cli_printf("%s/%s/attach?stdout_from=%llu&stderr_from=%llu", x->path, x->id,
                            (unsigned long long)x->shown[0], (unsigned long long)x->shown[1]);

    http_req_free(x->main);
    frames_init(&x->frames);
    x->main = http_req_new(x->cli->http, "GET", path);
    x->main->arg = x;
    x->main->on_data = on_output;
    http_start(x->main);
    free(path);
}

static bool was_cut(const struct exec *x)
{
    return x->status < 0 && x->write_error == 0 &&
           (x->main->fault == HTTP_CUT || x->main->fault == HTTP_NO_CONNECTION ||
            x->main->status == 502 || x->main->status == 503);
}

int cmd_job_attach(struct cli *cli, int argc, char **argv)
{
    static const int signals[] = {SIGINT};
    struct exec *x = new_exec(cli);
    uint64_t at = 0;
    int fd, status = 1, tries = 0;

    (void)argc;
    if (x->path != NULL) {
        x->id = cli_encode(argv[0]);
        fd = term_signal_fd(signals, 1);
        ask_job(x);
        exchange(x, fd);
        while (was_cut(x) && tries < RESUME_MS / RESUME_PAUSE_MS) {
            tries = at == x->shown[0] + x->shown[1] ? tries + 1 : 0;
            at = x->shown[0] + x->shown[1];
            poll(NULL, 0, RESUME_PAUSE_MS);
            ask_job(x);
            exchange(x, fd);
        }
        status = explain(x);
        close(fd);
    }
    free_exec(x);
    return status;
}
