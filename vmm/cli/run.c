/* SPDX-License-Identifier: MIT */
/* transom run: start the run and read its events (frames, see vmm/agent/window_stream.h) to the
 * end. When they are cut off, the run goes on in the sandbox: its events are asked for again from
 * where they were cut, and the run is never started a second time. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/frames.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define RESUME_MS         60000   /* how long a lost manager is waited for */
#define RESUME_PAUSE_MS   300     /* between attempts */
#define JSON_WAIT_MS      3600000 /* --json: one answer at the end */
#define INTERRUPTS_TO_END 3
#define INTERRUPTS_IN_MS  3000 /* ... within so long of one another */

struct run {
    struct cli *cli;
    char *window_path; /* .../windows/NAME */
    const char *window;
    char *run_id; /* NULL: the run is not known to have begun */
    struct http_req *stream, *input;
    struct frames frames;
    uint64_t at; /* offset in the window of the next byte to show */
    bool detached, told_url;
    json_t *end;     /* its last event */
    int64_t lost_at; /* 0: in touch */
    int64_t next_at; /* when to ask again */
    int64_t interrupted_at;
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

/* ---- events ---- */

static uint64_t offset(const json_t *event, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(event, key));
}

static int take_output(struct run *r, const uint8_t *bytes, size_t len)
{
    r->at += len;
    r->write_error = cli_write_all(STDOUT_FILENO, bytes, len);
    return r->write_error;
}

static void take_event(struct run *r, uint8_t kind, const json_t *event)
{
    if (kind == FRAME_STARTED && r->run_id == NULL) {
        r->run_id = cli_encode(cli_text(event, "run_id"));
        r->at = offset(event, "from");
    } else if (kind == FRAME_GAP) {
        cli_fail(0, "%llu bytes of output are lost",
                 (unsigned long long)(offset(event, "to") - offset(event, "from")));
        r->at = offset(event, "to");
    } else if (kind == FRAME_LISTEN) {
        tell_url(r, event);
    } else if (kind == FRAME_EXIT && r->end == NULL) {
        tell_url(r, event);
        r->end = json_deep_copy(event);
    }
}

static int on_frame(uint8_t kind, const uint8_t *data, size_t len, void *arg)
{
    struct run *r = arg;
    json_t *event;

    r->lost_at = 0;
    if (kind == FRAME_STDOUT)
        return take_output(r, data, len);
    event = json_loadb((const char *)data, len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(event)) {
        json_decref(event);
        return -EPROTO;
    }
    take_event(r, kind, event);
    json_decref(event);
    return 0;
}

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct run *r = req->arg;

    return frames_feed(&r->frames, data, len, on_frame, r) == 0;
}

static void start_stream(struct run *r, const char *method, char *path, const json_t *body)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    http_req_free(r->stream);
    frames_init(&r->frames);
    r->stream = http_req_new(r->cli->http, method, path);
    r->stream->arg = r;
    r->stream->on_data = on_data;
    if (text != NULL)
        http_req_body(r->stream, "application/json", text, strlen(text));
    http_start(r->stream);
    free(text);
    free(path);
}

/* ---- the events are cut off ---- */

static void ask_again(struct run *r)
{
    start_stream(r, "GET",
                 cli_printf("%s/output?run=%s&from=%llu&follow=1&stream=frames", r->window_path,
                            r->run_id, (unsigned long long)r->at),
                 NULL);
}

/* The stream is over, but not the run. Returns false when there is no way to go on. */
static bool resume(struct run *r)
{
    bool gone = r->stream->status == 404 && r->run_id != NULL;

    if (gone) { /* the window was closed, or has forgotten the run, and how it ended with it */
        r->end = json_pack("{s:s}", "status", "killed");
        return true;
    }
    if (r->run_id == NULL || r->stream->status / 100 == 4)
        return false;
    if (r->lost_at == 0)
        r->lost_at = now_ms(); /* asked at once, unless the last attempt was a moment ago */
    if (now_ms() - r->lost_at > RESUME_MS)
        return false;
    if (now_ms() < r->next_at)
        return true;
    r->next_at = now_ms() + RESUME_PAUSE_MS;
    ask_again(r);
    return true;
}

/* ---- interrupts ---- */

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

/* Returns false when the run could not be started, or was lost. */
static bool watch(struct run *r, int signal_fd)
{
    struct pollfd fds[1] = {{.fd = signal_fd, .events = POLLIN}};

    while (r->end == NULL && !r->detached && r->write_error == 0) {
        http_step(r->cli->http, fds, 1, r->stream->done ? RESUME_PAUSE_MS : 500);
        while (term_next_signal(signal_fd) != 0)
            take_interrupt(r);
        if (r->pending_interrupts > 0 && r->run_id != NULL && (r->input == NULL || r->input->done))
            send_interrupts(r);
        if (r->stream->done && r->end == NULL && r->write_error == 0 && !resume(r))
            return false;
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

static int explain_loss(struct run *r)
{
    int status = http_ok(r->stream) ? cli_fail(1, "the answer ended before the run did")
                                    : http_explain(r->stream);

    if (r->run_id != NULL)
        cli_fail(0, "the run may go on in window %s", r->window);
    return status;
}

static int follow_run(struct run *r, const json_t *body)
{
    static const int interrupts[] = {SIGINT};
    int signal_fd = term_signal_fd(interrupts, 1), status;
    bool in_touch;

    start_stream(r, "POST", cli_printf("%s/run?stream=frames", r->window_path), body);
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
        status = explain_loss(r);
    else
        status = exit_status(r);
    http_req_free(r->stream);
    http_req_free(r->input);
    free(r->run_id);
    json_decref(r->end);
    return status;
}

/* One answer: --json, --detach. */
static int run_whole(struct run *r, const json_t *body)
{
    char *path = cli_printf("%s/run", r->window_path);
    json_t *answer = cli_call(r->cli, "POST", path, body);
    int status = 1;

    free(path);
    if (answer == NULL)
        return 1;
    if (r->cli->json)
        cli_print_json(answer);
    else
        tell_url(r, answer);
    if (r->cli->detach)
        status = 0;
    else
        status =
            cli_exit_status(answer, strcmp(cli_text(answer, "status"), "running") == 0 ? 0 : 1);
    json_decref(answer);
    return status;
}

int cmd_run(struct cli *cli, int argc, char **argv)
{
    struct run r = {.cli = cli, .window = cli->window != NULL ? cli->window : "main"};
    json_t *body = request_body(cli, argc, argv);
    char *window;
    int status = 1;

    if (body == NULL)
        return CLI_USAGE;
    window = cli_encode(r.window);
    r.window_path = cli_sandbox_path(cli, "/windows/%s", window);
    free(window);
    if (r.window_path != NULL)
        status = cli->json || cli->detach ? run_whole(&r, body) : follow_run(&r, body);
    json_decref(body);
    free(r.window_path);
    return status;
}
