/* SPDX-License-Identifier: MIT */
/* transom file stat, move, mkdir, watch. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

#define LINE_MAX_BYTES 65536

int cmd_file_stat(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"type",  "mode", "uid",    "gid", "size",
                                       "mtime", "path", "target", NULL};
    static const char *const headers[] = {"TYPE",    "MODE", "UID",    "GID", "SIZE",
                                          "CHANGED", "PATH", "TARGET", NULL};
    json_t *rows = json_array();
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *encoded = cli_encode(argv[i]);
        char *path = cli_sandbox_path(cli, "/files/stat?path=%s%s", encoded, cli_file_user(cli));
        json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;

        if (answer == NULL) {
            status = 1;
        } else {
            cli_add_mtime(answer);
            json_array_append_new(rows, answer);
        }
        free(path);
        free(encoded);
    }
    if (cli->json)
        cli_print_json(rows);
    else if (json_array_size(rows) > 0)
        cli_print_table(rows, keys, headers);
    json_decref(rows);
    return status;
}

/* body is taken. */
static int post(struct cli *cli, const char *where, json_t *body)
{
    char *path = cli_sandbox_path(cli, "%s", where);
    json_t *answer;

    if (cli->user != NULL)
        json_object_set_new(body, "user", json_string(cli->user));
    answer = path != NULL ? cli_call(cli, "POST", path, body) : NULL;
    if (answer != NULL && cli->json)
        cli_print_json(answer);
    json_decref(body);
    json_decref(answer);
    free(path);
    return answer != NULL ? 0 : 1;
}

int cmd_file_move(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    return post(
        cli, "/files/move",
        json_pack("{s:s, s:s, s:b}", "from", argv[0], "to", argv[1], "replace", (int)cli->force));
}

int cmd_file_mkdir(struct cli *cli, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        json_t *body = json_pack("{s:s}", "path", argv[i]);

        if (cli->mode != NULL)
            json_object_set_new(body, "mode", json_string(cli->mode));
        if (post(cli, "/files/mkdir", body) != 0)
            status = 1;
    }
    return status;
}

/* ---- watch ---- */

struct watch {
    bool json;
    size_t n;
    char line[LINE_MAX_BYTES + 1];
};

static void show(const struct watch *w)
{
    json_t *o = json_loads(w->line, 0, NULL);
    const char *path = cli_text(o, "path");

    if (w->json) {
        printf("%s\n", w->line);
    } else if (o != NULL) {
        printf("%-10s ", cli_text(o, "type"));
        cli_print_text(*path != '\0' ? path : cli_text(o, "reason"));
        printf("%s\n", json_is_true(json_object_get(o, "dir")) ? "/" : "");
    }
    fflush(stdout);
    json_decref(o);
}

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct watch *w = req->arg;

    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n' && w->n < LINE_MAX_BYTES) {
            w->line[w->n++] = (char)data[i];
        } else if (data[i] == '\n') {
            w->line[w->n] = '\0';
            w->n = 0;
            show(w);
        }
    }
    return !ferror(stdout);
}

int cmd_file_watch(struct cli *cli, int argc, char **argv)
{
    char *encoded = cli_encode(argc > 0 ? argv[0] : ".");
    char *path = cli_sandbox_path(cli, "/files/watch?path=%s%s%s", encoded,
                                  cli->recursive ? "&recursive=1" : "", cli_file_user(cli));
    struct watch *w = calloc(1, sizeof(*w));
    struct http_req *req;
    int status = 1;

    if (w == NULL)
        abort();
    if (path != NULL) {
        w->json = cli->json;
        req = http_req_new(cli->http, "GET", path);
        req->arg = w;
        req->on_data = on_data;
        http_start(req);
        http_wait(req);
        status = ferror(stdout) ? 128 + SIGPIPE : http_ok(req) ? 0 : http_explain(req);
        http_req_free(req);
    }
    free(w);
    free(path);
    free(encoded);
    return status;
}
