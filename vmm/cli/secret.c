/* SPDX-License-Identifier: MIT */
/* transom secret set, list, delete, activate, deactivate, rotate-key. A value comes from a file,
 * standard input or a prompt, never from the command line, where everybody could read it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"

#define VALUE_MAX 65536

struct value {
    char bytes[VALUE_MAX + 1];
    size_t len;
};

/* Read to the end, or one line of a terminal. Returns 0, or an exit status after saying why. */
static int read_all(int fd, const char *name, bool one_line, struct value *v)
{
    while (v->len < sizeof(v->bytes)) {
        ssize_t n = read(fd, v->bytes + v->len, sizeof(v->bytes) - v->len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cli_fail(1, "%s: %s", name, strerror(errno));
        v->len += (size_t)n;
        if (n == 0 || (one_line && v->bytes[v->len - 1] == '\n'))
            return 0;
    }
    return cli_fail(1, "%s: a secret has at most %d bytes", name, VALUE_MAX);
}

static void drop_line_end(struct value *v)
{
    if (v->len > 0 && v->bytes[v->len - 1] == '\n')
        v->len--;
    if (v->len > 0 && v->bytes[v->len - 1] == '\r')
        v->len--;
}

/* Ask at the terminal, without showing what is typed. */
static int prompt(const char *name, struct value *v)
{
    struct termios old;
    int fd = term_hidden("Value of", name, &old), status;

    if (fd < 0)
        return cli_fail(1, "there is no terminal to ask at: use standard input or --file");
    status = read_all(fd, "terminal", true, v);
    term_shown(fd, &old);
    drop_line_end(v);
    return status;
}

static int read_value(const struct cli *cli, const char *name, struct value *v)
{
    int fd, status;

    if (cli->file != NULL && strcmp(cli->file, "-") != 0) {
        fd = open(cli->file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            return cli_fail(1, "%s: %s", cli->file, strerror(errno));
        status = read_all(fd, cli->file, false, v);
        close(fd);
        return status;
    }
    if (isatty(STDIN_FILENO))
        return prompt(name, v);
    status = read_all(STDIN_FILENO, "standard input", false, v);
    drop_line_end(v);
    return status;
}

static void tell_note(const json_t *answer)
{
    const char *note = cli_text(answer, "note");

    if (*note != '\0')
        fprintf(stderr, "transom: note: %s is %s\n", cli_text(answer, "name"), note);
}

int cmd_secret_set(struct cli *cli, int argc, char **argv)
{
    struct value *v = calloc(1, sizeof(*v));
    char *encoded = cli_encode(argv[0]), *path = cli_printf("/v1/secrets/%s", encoded);
    struct http_req *req;
    json_t *answer = NULL;
    int status;

    (void)argc;
    if (v == NULL)
        abort();
    status = read_value(cli, argv[0], v);
    if (status == 0) {
        req = http_req_new(cli->http, "PUT", path);
        http_req_body(req, "application/octet-stream", v->bytes, v->len);
        http_start(req);
        http_wait(req);
        if (http_ok(req))
            answer = json_loadb(req->body, req->body_len, 0, NULL);
        else
            status = http_explain(req);
        http_req_free(req);
    }
    if (answer != NULL) {
        tell_note(answer);
        if (cli->json)
            cli_print_json(answer);
    }
    json_decref(answer);
    explicit_bzero(v, sizeof(*v));
    free(v);
    free(path);
    free(encoded);
    return status;
}

int cmd_secret_list(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"name", "updated_at", NULL};
    static const char *const headers[] = {"NAME", "CHANGED", NULL};
    json_t *answer = cli_call_pages(cli, "/v1/secrets?limit=1000", "after", "secrets");

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        cli_print_table(json_object_get(answer, "secrets"), keys, headers);
    json_decref(answer);
    return 0;
}

/* The same call for each name at prefix/NAME. */
static int for_each_name(struct cli *cli, const char *method, const char *prefix, int argc,
                         char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *encoded = cli_encode(argv[i]), *path = cli_printf("%s/%s", prefix, encoded);
        json_t *answer = cli_call(cli, method, path, NULL);

        if (answer == NULL)
            status = 1;
        else
            tell_note(answer);
        json_decref(answer);
        free(path);
        free(encoded);
    }
    return status;
}

int cmd_secret_delete(struct cli *cli, int argc, char **argv)
{
    return for_each_name(cli, "DELETE", "/v1/secrets", argc, argv);
}

static int in_session(struct cli *cli, const char *method, int argc, char **argv)
{
    char *id = cli_session_id(cli, NULL), *prefix;
    int status;

    if (id == NULL)
        return 1;
    prefix = cli_printf("/v1/sessions/%s/secrets", id);
    status = for_each_name(cli, method, prefix, argc, argv);
    free(prefix);
    free(id);
    return status;
}

int cmd_secret_activate(struct cli *cli, int argc, char **argv)
{
    return in_session(cli, "PUT", argc, argv);
}

int cmd_secret_deactivate(struct cli *cli, int argc, char **argv)
{
    return in_session(cli, "DELETE", argc, argv);
}

int cmd_secret_rotate(struct cli *cli, int argc, char **argv)
{
    json_t *answer = cli_call(cli, "POST", "/v1/secrets/rotate-key", NULL);

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return 1;
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%lld secrets sealed by a new key\n",
               (long long)json_integer_value(json_object_get(answer, "sealed")));
    json_decref(answer);
    return 0;
}
