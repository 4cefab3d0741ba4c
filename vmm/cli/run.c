/* SPDX-License-Identifier: MIT */
/* transom run: start the run; ask until it has begun, which tells where in the window's output it
 * begins; follow the output from there, and ask beside it how it ended; stop when both the end is
 * known and the output up to there was shown. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define WAIT_MS           20000   /* how long one question for the end may be held by the agent */
#define ASK_AGAIN_MS      200     /* pause before the next when it is not held */
#define ASK_SOON_MS       20      /* ... and before the run has begun */
#define LAST_OUTPUT_MS    3000    /* after the end: time for output that is due */
#define JSON_WAIT_MS      3600000 /* --json: one answer at the end */
#define INTERRUPTS_TO_END 3
#define INTERRUPTS_IN_MS  3000 /* ... within so long of one another */

struct run {
    struct cli *cli;
    char *window_path; /* .../windows/NAME */
    const char *window;
    char *run_id;
    struct http_req *output, *question, *input;
    uint64_t at, to; /* offsets in the window: next byte to show, end of the run; valid once begun
                        and ended */
    bool begun, ended, detached, told_url;
    bool placed;            /* the output under way: its first offset was looked at */
    bool taken;             /* the answer to the question under way was looked at */
    uint64_t followed_from; /* ... and where it was to begin */
    json_t *end;            /* how it ended */
    int64_t asked_at, ended_at, interrupted_at;
    int n_interrupts, pending_interrupts;
    int write_error;
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void tell_url(struct run *r, const json_t *object)
{
    const char *url = cli_text(object, "preview_url");

    if (*url == '\0' || r->told_url)
        return;
    r->told_url = true;
    cli_fail(0, "preview: %s", url);
}

static bool on_output(struct http_req *req, const uint8_t *data, size_t len)
{
    struct run *r = req->arg;

    if (!r->placed && req->from > r->at) {
        cli_fail(0, "%llu bytes of output are lost", (unsigned long long)(req->from - r->at));
        r->at = req->from;
    }
    r->placed = true;
    if (r->ended && r->at + len > r->to)
        len = r->to > r->at ? (size_t)(r->to - r->at) : 0;
    r->at += len;
    r->write_error = cli_write_all(STDOUT_FILENO, data, len);
    return r->write_error == 0;
}

static void follow(struct run *r)
{
    char *path = cli_printf("%s/output?from=%llu&follow=1&run=%s", r->window_path,
                            (unsigned long long)r->at, r->run_id);

    http_req_free(r->output);
    r->placed = false;
    r->followed_from = r->at;
    r->output = http_req_new(r->cli->http, "GET", path);
    r->output->arg = r;
    r->output->on_data = on_output;
    http_start(r->output);
    free(path);
}

static void ask(struct run *r)
{
    char *path = cli_printf("%s?run=%s&wait_ms=%d", r->window_path, r->run_id, WAIT_MS);

    http_req_free(r->question);
    r->question = http_req_new(r->cli->http, "GET", path);
    r->asked_at = now_ms();
    r->taken = false;
    http_start(r->question);
    free(path);
}

/* The run has begun: show what it says. */
static void take_begin(struct run *r, const json_t *run)
{
    r->begun = true;
    r->at = (uint64_t)json_integer_value(json_object_get(run, "from"));
    follow(r);
}

static void take_end(struct run *r, const json_t *end)
{
    r->end = json_deep_copy(end);
    r->ended = true;
    r->ended_at = now_ms();
    r->to = (uint64_t)json_integer_value(json_object_get(end, "to"));
}

/* The window is closed or has gone on to other runs, and how ours ended is not known. */
static void take_loss(struct run *r)
{
    json_t *killed = json_pack("{s:s}", "status", "killed");

    take_end(r, killed);
    json_decref(killed);
}

/* The answer to ask() came. Returns false when there is no more use in asking. */
static bool take_answer(struct run *r)
{
    json_t *window, *run;

    if (!http_ok(r->question)) {
        if (r->question->status != 404)
            return false;
        take_loss(r);
        return true;
    }
    window = json_loadb(r->question->body != NULL ? r->question->body : "", r->question->body_len,
                        0, NULL);
    run = json_object_get(window, "last_run");
    tell_url(r, run);
    if (strcmp(cli_text(run, "run_id"), r->run_id) == 0) {
        if (!r->begun)
            take_begin(r, run);
        if (strcmp(cli_text(run, "status"), "running") != 0)
            take_end(r, run);
    } else if (strcmp(cli_text(window, "run_id"), r->run_id) != 0) {
        take_loss(r);
    } /* else it waits for the shell, or for the run before it to end */
    json_decref(window);
    return true;
}

static void send_interrupts(struct run *r)
{
    char bytes[INTERRUPTS_TO_END];
    char *path = cli_printf("%s/input", r->window_path);
    size_t n =
        r->pending_interrupts < INTERRUPTS_TO_END ? (size_t)r->pending_interrupts : sizeof(bytes);

    memset(bytes, 3, sizeof(bytes)); /* Ctrl-C */
    http_req_free(r->input);
    r->input = http_req_new(r->cli->http, "POST", path);
    http_req_body(r->input, "application/octet-stream", bytes, n);
    http_start(r->input);
    r->pending_interrupts = 0;
    free(path);
}

static void take_interrupt(struct run *r)
{
    int64_t now = now_ms();

    r->n_interrupts = now - r->interrupted_at < INTERRUPTS_IN_MS ? r->n_interrupts + 1 : 1;
    r->interrupted_at = now;
    if (r->n_interrupts >= INTERRUPTS_TO_END)
        r->detached = true;
    else
        r->pending_interrupts++;
}

/* Is there nothing more to show? */
static bool is_over(const struct run *r)
{
    if (r->detached || r->write_error != 0)
        return true;
    if (!r->ended)
        return false;
    return !r->begun || r->at >= r->to || r->output->status == 404 ||
           now_ms() - r->ended_at > LAST_OUTPUT_MS;
}

/* An output that ended although the run's has not: we were too slow, and the window's memory is
 * short. Go on with what it still has. */
static void resume_output(struct run *r)
{
    if (r->begun && http_ok(r->output) && r->write_error == 0 && r->at != r->followed_from)
        follow(r);
}

static int pause_ms(const struct run *r)
{
    return r->begun ? ASK_AGAIN_MS : ASK_SOON_MS;
}

/* Returns false when the manager was lost. */
static bool watch(struct run *r, int signal_fd)
{
    struct pollfd fds[1] = {{.fd = signal_fd, .events = POLLIN}};

    ask(r);
    while (!is_over(r)) {
        http_step(r->cli->http, fds, 1, r->question->done ? pause_ms(r) : 500);
        resume_output(r);
        while (term_next_signal(signal_fd) != 0)
            take_interrupt(r);
        if (r->pending_interrupts > 0 && (r->input == NULL || r->input->done))
            send_interrupts(r);
        if (r->ended || !r->question->done)
            continue;
        if (!r->taken && !take_answer(r))
            return false;
        r->taken = true;
        if (!r->ended && (now_ms() - r->asked_at >= pause_ms(r) || (r->begun && r->output->done)))
            ask(r); /* an output that is over most likely means that the run is */
    }
    return true;
}

static int exit_status(struct run *r)
{
    const char *status = cli_text(r->end, "status");

    if (strcmp(status, "shell_gone") == 0 && json_object_get(r->end, "exit_code") == NULL)
        cli_fail(1, "the window's shell ended; the next run gets a fresh one");
    if (strcmp(status, "killed") == 0 && json_object_get(r->end, "signal") == NULL)
        cli_fail(1, "the run was ended by another one, or its window was closed");
    return cli_exit_status(r->end, strcmp(status, "killed") == 0 ? 128 + SIGKILL : 1);
}

static json_t *request_body(struct cli *cli, int argc, char **argv)
{
    json_t *env = cli_env_object(&cli->env), *body;
    uint16_t rows, cols;
    char *text;

    if (env == NULL)
        return NULL;
    text = cli_shell_text(argc, argv);
    body = json_pack("{s:s, s:i, s:o}", "command", text, "wait_ms",
                     cli->json && !cli->detach ? JSON_WAIT_MS : 0, "env", env);
    free(text);
    if (body == NULL) {
        cli_fail(CLI_USAGE, "the command is not UTF-8");
        return NULL;
    }
    if (term_size(&rows, &cols)) {
        json_object_set_new(body, "rows", json_integer(rows));
        json_object_set_new(body, "cols", json_integer(cols));
    }
    return body;
}

/* Follow a run that has begun. */
static int follow_run(struct run *r, const json_t *answer)
{
    static const int interrupts[] = {SIGINT};
    int signal_fd, status;
    bool in_touch;

    r->run_id = cli_encode(cli_text(answer, "run_id"));
    if (strcmp(cli_text(answer, "status"), "running") != 0) {
        take_begin(r, answer);
        take_end(r, answer);
    }
    signal_fd = term_signal_fd(interrupts, 1);
    in_touch = watch(r, signal_fd);
    close(signal_fd);
    if (r->detached)
        status = cli_fail(128 + SIGINT, "left running in window %s (transom window attach %s)",
                          r->window, r->window);
    else if (r->write_error == -EPIPE)
        status = 128 + SIGPIPE;
    else if (r->write_error != 0)
        status = cli_fail(1, "output: %s", strerror(-r->write_error));
    else if (!in_touch)
        status = http_explain(r->question);
    else
        status = exit_status(r);
    http_req_free(r->output);
    http_req_free(r->question);
    http_req_free(r->input);
    free(r->run_id);
    json_decref(r->end);
    return status;
}

int cmd_run(struct cli *cli, int argc, char **argv)
{
    struct run r = {.cli = cli, .window = cli->window != NULL ? cli->window : "main"};
    json_t *body = request_body(cli, argc, argv), *answer = NULL;
    char *window, *path = NULL;
    int status = 1;

    if (body == NULL)
        return CLI_USAGE;
    window = cli_encode(r.window);
    r.window_path = cli_sandbox_path(cli, "/windows/%s", window);
    free(window);
    if (r.window_path != NULL) {
        path = cli_printf("%s/run", r.window_path);
        answer = cli_call(cli, "POST", path, body);
    }
    json_decref(body);
    if (answer == NULL)
        goto out;
    if (cli->json)
        cli_print_json(answer);
    else
        tell_url(&r, answer);
    if (cli->detach)
        status = 0;
    else if (cli->json)
        status =
            cli_exit_status(answer, strcmp(cli_text(answer, "status"), "running") == 0 ? 0 : 1);
    else
        status = follow_run(&r, answer);
out:
    json_decref(answer);
    free(path);
    free(r.window_path);
    return status;
}
