/* SPDX-License-Identifier: MIT */
/* transom job list, logs, kill: programs that were started by exec -d. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

int cmd_job_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"id",         "state",   "exit", "user",
                                       "started_at", "command", NULL};
    static const char *const headers[] = {"ID",      "STATE",   "EXIT", "USER",
                                          "STARTED", "COMMAND", NULL};
    char *path = cli_sandbox_path(cli, "/exec");
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL, *x;
    size_t i;

    (void)argc;
    (void)argv;
    free(path);
    if (answer == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(answer);
    } else {
        json_array_foreach(json_object_get(answer, "execs"), i, x)
        {
            const json_t *signal = json_object_get(x, "signal");

            json_object_set(x, "exit",
                            signal != NULL ? (json_t *)signal : json_object_get(x, "exit_code"));
        }
        cli_print_table(json_object_get(answer, "execs"), keys, headers);
    }
    json_decref(answer);
    return 0;
}

struct copy {
    int fd, error;
};

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct copy *c = req->arg;

    c->error = cli_write_all(c->fd, data, len);
    return c->error == 0;
}

static int copy_stream(struct cli *cli, const char *base, const char *stream, int fd)
{
    struct copy c = {.fd = fd};
    char *path = cli_printf("%s/output?stream=%s", base, stream);
    struct http_req *req = http_req_new(cli->http, "GET", path);
    int status = 0;

    req->arg = &c;
    req->on_data = on_data;
    http_start(req);
    http_wait(req);
    if (c.error == -EPIPE)
        status = 128 + SIGPIPE;
    else if (c.error != 0)
        status = cli_fail(1, "output: %s", strerror(-c.error));
    else if (!http_ok(req))
        status = http_explain(req);
    http_req_free(req);
    free(path);
    return status;
}

int cmd_job_logs(struct cli *cli, int argc, char **argv)
{
    char *id = cli_encode(argv[0]), *base = cli_sandbox_path(cli, "/exec/%s", id);
    int status = 1;

    (void)argc;
    if (cli->json)
        status = cli_fail(CLI_USAGE, "logs are bytes, which --json cannot show");
    else if (base != NULL)
        status = copy_stream(cli, base, "stdout", STDOUT_FILENO);
    if (status == 0)
        status = copy_stream(cli, base, "stderr", STDERR_FILENO);
    free(base);
    free(id);
    return status;
}

/* With a signal it is sent that; else it is ended with all it started, and forgotten. */
static json_t *end_job(struct cli *cli, const char *id)
{
    json_t *body = cli->signal != NULL ? json_pack("{s:s}", "signal", cli->signal) : NULL, *answer;
    char *path = cli_sandbox_path(cli, "/exec/%s%s", id, body != NULL ? "/signal" : "");

    answer = path != NULL ? cli_call(cli, body != NULL ? "POST" : "DELETE", path, body) : NULL;
    free(path);
    json_decref(body);
    return answer;
}

int cmd_job_kill(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *id = cli_encode(argv[i]);
        json_t *answer = end_job(cli, id);

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(id);
    }
    return status;
}
