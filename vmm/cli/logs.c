/* SPDX-License-Identifier: MIT */
/* transom logs: the bytes of a window, from the oldest kept on; with -f what comes, too. An answer
 * that ends early (we were too slow, the manager was restarted) is asked for again from where it
 * ended. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

#define TRIES    200 /* without a byte */
#define PAUSE_MS 300

struct logs {
    struct cli *cli;
    char *window_path, *run; /* run: NULL or encoded */
    uint64_t at;
    bool begun; /* at is known */
    bool placed;
    int n_tries;
    int write_error;
};

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct logs *l = req->arg;

    if (!l->placed && l->begun && req->from > l->at)
        cli_fail(0, "%llu bytes of output are lost", (unsigned long long)(req->from - l->at));
    if (!l->placed)
        l->at = req->from;
    l->placed = l->begun = true;
    l->n_tries = 0;
    l->at += len;
    l->write_error = cli_write_all(STDOUT_FILENO, data, len);
    return l->write_error == 0;
}

static struct http_req *ask(struct logs *l)
{
    char *path =
        cli_printf("%s/output?from=%llu&follow=%d%s%s", l->window_path, (unsigned long long)l->at,
                   l->cli->follow, l->run != NULL ? "&run=" : "", l->run != NULL ? l->run : "");
    struct http_req *req = http_req_new(l->cli->http, "GET", path);

    free(path);
    l->placed = false;
    req->arg = l;
    req->on_data = on_data;
    http_start(req);
    http_wait(req);
    return req;
}

/* Was the run's output shown to its end? */
static bool run_is_over(const struct logs *l)
{
    char *path = cli_printf("%s/runs/%s", l->window_path, l->run);
    bool missing = false, over;
    json_t *run = cli_call_or_404(l->cli, "GET", path, NULL, &missing);

    over = run == NULL || (strcmp(cli_text(run, "status"), "running") != 0 &&
                           l->at >= (uint64_t)json_integer_value(json_object_get(run, "to")));
    json_decref(run);
    free(path);
    return over;
}

/* Is asking again of use? */
static bool goes_on(struct logs *l, const struct http_req *req)
{
    if (!l->cli->follow || l->write_error != 0 || req->status / 100 == 4)
        return false;
    if (http_ok(req) && (!l->placed || (l->run != NULL && run_is_over(l))))
        return false;
    return (l->begun || http_ok(req)) && l->n_tries++ < TRIES;
}

int cmd_logs(struct cli *cli, int argc, char **argv)
{
    struct logs l = {.cli = cli};
    char *window = cli_encode(cli->window != NULL ? cli->window : "main");
    struct http_req *req = NULL;
    int status = 0;

    (void)argc;
    (void)argv;
    if (cli->json) {
        free(window);
        return cli_fail(CLI_USAGE, "logs are bytes, which --json cannot show");
    }
    l.window_path = cli_sandbox_path(cli, "/windows/%s", window);
    l.run = cli->run != NULL ? cli_encode(cli->run) : NULL;
    free(window);
    if (l.window_path == NULL)
        status = 1;
    while (l.window_path != NULL && (req = ask(&l)) != NULL && goes_on(&l, req)) {
        if (l.n_tries > 1)
            poll(NULL, 0, PAUSE_MS); /* not http_step(): that returns at once after an answer */
        http_req_free(req);
        req = NULL;
    }
    if (l.write_error == -EPIPE)
        status = 128 + SIGPIPE;
    else if (l.write_error != 0)
        status = cli_fail(1, "output: %s", strerror(-l.write_error));
    else if (req != NULL && !http_ok(req) && !(req->status == 404 && l.begun))
        status = http_explain(req);
    http_req_free(req);
    free(l.window_path);
    free(l.run);
    return status;
}
