/* SPDX-License-Identifier: MIT */
/* transom window attach: output comes on one long request; input goes in short ones, one at a time
 * so that bytes stay in order. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define DETACH_KEY  0x1d /* Ctrl-] */
#define INPUT_BYTES 4096 /* typed or pasted and not sent yet; more waits in the terminal */

struct attach {
    struct cli *cli;
    char *path; /* .../windows/NAME */
    struct http_req *output, *input, *resize;
    char typed[INPUT_BYTES];
    size_t n_typed;
    uint64_t at; /* next byte of the window to show; valid once placed */
    bool detached, input_over, resize_due, placed;
    int write_error;
};

static bool on_output(struct http_req *req, const uint8_t *data, size_t len)
{
    struct attach *a = req->arg;

    if (!a->placed)
        a->at = req->from - req->replay; /* where that ends, the window's own bytes begin */
    a->placed = true;
    a->at += len;
    a->write_error = cli_write_all(STDOUT_FILENO, data, len);
    return a->write_error == 0;
}

static json_t *size_object(void)
{
    uint16_t rows, cols;

    if (!term_size(&rows, &cols))
        return json_object();
    return json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols);
}

/* Make the window fit; open it when there is none. Returns 0, or 1 after saying why. */
static int prepare(struct attach *a)
{
    json_t *body = size_object();
    json_t *answer = cli_call(a->cli, "PUT", a->path, body);

    json_decref(body);
    if (answer == NULL)
        return 1;
    json_decref(answer);
    return 0;
}

static struct http_req *post(struct attach *a, const char *what, const char *type, const void *data,
                             size_t len)
{
    char *path = cli_printf("%s/%s", a->path, what);
    struct http_req *req = http_req_new(a->cli->http, "POST", path);

    http_req_body(req, type, data, len);
    http_start(req);
    free(path);
    return req;
}

static void send_size(struct attach *a)
{
    json_t *size = size_object();
    char *text = json_dumps(size, JSON_COMPACT);

    a->resize_due = false;
    if (text != NULL && json_object_size(size) > 0) {
        http_req_free(a->resize);
        a->resize = post(a, "resize", "application/json", text, strlen(text));
    }
    free(text);
    json_decref(size);
}

/* Take what was typed, up to the detach key. */
static void read_input(struct attach *a)
{
    ssize_t n = read(STDIN_FILENO, a->typed + a->n_typed, sizeof(a->typed) - a->n_typed);
    const char *key;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        a->input_over = true;
        return;
    }
    key = isatty(STDIN_FILENO) ? memchr(a->typed + a->n_typed, DETACH_KEY, (size_t)n) : NULL;
    if (key != NULL) {
        a->detached = true;
        a->n_typed = (size_t)(key - a->typed);
    } else {
        a->n_typed += (size_t)n;
    }
}

static void follow(struct attach *a)
{
    char *path =
        a->at > 0 ? cli_printf("%s/output?from=%llu&follow=1", a->path, (unsigned long long)a->at)
                  : cli_printf("%s/output?follow=1&screen=1", a->path);

    http_req_free(a->output);
    a->placed = false;
    a->output = http_req_new(a->cli->http, "GET", path);
    a->output->arg = a;
    a->output->on_data = on_output;
    http_start(a->output);
    free(path);
}

static bool is_idle(const struct http_req *req)
{
    return req == NULL || req->done;
}

/* Until detached or the window closes. The end of a piped input does not detach: what it set off
 * is still to be seen. */
static void exchange(struct attach *a, int signal_fd)
{
    struct pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN},
                            {.fd = STDIN_FILENO, .events = POLLIN}};

    for (;;) {
        bool reading = !a->detached && !a->input_over && a->n_typed < sizeof(a->typed);

        if (is_idle(a->input) && a->n_typed > 0) {
            http_req_free(a->input);
            a->input = post(a, "input", "application/octet-stream", a->typed, a->n_typed);
            a->n_typed = 0;
        }
        if (a->detached && is_idle(a->input) && a->n_typed == 0)
            return;
        if (a->resize_due && is_idle(a->resize))
            send_size(a);
        http_step(a->cli->http, fds, reading ? 2 : 1, 1000);
        if (reading && fds[1].revents != 0)
            read_input(a);
        while (term_next_signal(signal_fd) != 0)
            a->resize_due = true;
        if (!a->output->done)
            continue;
        if (!http_ok(a->output) || a->write_error != 0)
            return;
        follow(a); /* we were too slow for the window's memory, or it closes (then 404 follows) */
    }
}

int cmd_window_attach(struct cli *cli, int argc, char **argv)
{
    static const int signals[] = {SIGWINCH};
    const char *name = argc > 0 ? argv[0] : "main";
    struct attach a = {.cli = cli, .resize_due = true};
    char *window = cli_encode(name);
    int signal_fd, status = 0;

    a.path = cli_sandbox_path(cli, "/windows/%s", window);
    free(window);
    if (a.path == NULL || prepare(&a) != 0) {
        free(a.path);
        return 1;
    }
    signal_fd = term_signal_fd(signals, 1);
    term_raw();
    /* Only now: whoever reads this may press Ctrl-C, which is the window's. */
    if (isatty(STDIN_FILENO))
        fprintf(stderr, "transom: attached to window %s; Ctrl-] detaches%s\n", name,
                isatty(STDERR_FILENO) ? "\r" : "");
    follow(&a);
    exchange(&a, signal_fd);
    term_restore();
    close(signal_fd);
    if (a.detached)
        fprintf(stderr, "\ntransom: detached; window %s goes on\n", name);
    else if (a.write_error != 0)
        status = cli_fail(1, "output: %s", strerror(-a.write_error));
    else if (a.output->status == 404)
        fprintf(stderr, "\ntransom: window %s was closed\n", name);
    else
        status = http_explain(a.output);
    http_req_free(a.output);
    http_req_free(a.input);
    http_req_free(a.resize);
    free(a.path);
    return status;
}
