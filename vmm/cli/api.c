/* SPDX-License-Identifier: MIT */
/* Calls that several commands make. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

#define ID_LEN      16
#define PATIENCE_MS 1500 /* silence after which a person is told what is being waited for */

/* Wait; a machine that has to boot first takes seconds, which looks like a hang. */
static void wait_patiently(struct http_req *req)
{
    bool told = !isatty(STDERR_FILENO);

    while (!req->done) {
        http_step(req->http, NULL, 0, told ? 60000 : PATIENCE_MS);
        if (!req->done && !told) {
            fprintf(stderr, "transom: waiting (a machine that is asleep starts first)...\n");
            told = true;
        }
    }
}

json_t *cli_call_or_404(struct cli *cli, const char *method, const char *path, const json_t *body,
                        bool *missing)
{
    struct http_req *req = http_req_new(cli->http, method, path);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_error_t why;
    json_t *answer = NULL;

    if (text != NULL)
        http_req_body(req, "application/json", text, strlen(text));
    free(text);
    http_start(req);
    wait_patiently(req);
    if (missing != NULL)
        *missing = req->fault == HTTP_WHOLE && req->status == 404;
    if (missing != NULL && *missing)
        goto out;
    if (!http_ok(req)) {
        http_explain(req);
        goto out;
    }
    answer = req->body_len > 0 ? json_loadb(req->body, req->body_len, 0, &why) : json_object();
    if (answer == NULL)
        cli_fail(1, "the answer to %s %s is not JSON: %s", method, path, why.text);
out:
    http_req_free(req);
    return answer;
}

json_t *cli_call(struct cli *cli, const char *method, const char *path, const json_t *body)
{
    return cli_call_or_404(cli, method, path, body, NULL);
}

json_t *cli_call_pages(struct cli *cli, const char *path, const char *cursor, const char *list)
{
    json_t *all = json_array(), *answer = NULL;
    char *next = cli_printf("%s", path);

    while (next != NULL) {
        json_decref(answer);
        answer = cli_call(cli, "GET", next, NULL);
        free(next);
        next = NULL;
        json_array_extend(all, json_object_get(answer, list));
        if (json_object_get(answer, "next") != NULL)
            next = cli_printf("%s&%s=%s", path, cursor, cli_text(answer, "next"));
    }
    if (answer != NULL)
        json_object_set(answer, list, all);
    json_decref(all);
    return answer;
}

char *cli_encode(const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    char *out = malloc(3 * strlen(text) + 1);
    char *at = out;

    if (out == NULL)
        abort();
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++) {
        bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                     (*s >= '0' && *s <= '9') || strchr("-_.~", *s) != NULL;

        if (plain) {
            *at++ = (char)*s;
        } else {
            *at++ = '%';
            *at++ = hex[*s >> 4];
            *at++ = hex[*s & 15];
        }
    }
    *at = '\0';
    return out;
}

static bool is_id(const char *s)
{
    return strlen(s) == ID_LEN && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ID_LEN;
}

/* The id of the only session of that name (NULL: of any). */
static char *find_in_list(struct cli *cli, const char *name)
{
    json_t *answer = cli_call_pages(cli, "/v1/sessions?limit=1000", "after", "sessions");
    json_t *sessions = json_object_get(answer, "sessions");
    const char *found = NULL;
    char *id = NULL;
    size_t n = 0;

    if (answer == NULL)
        return NULL;
    for (size_t i = 0; i < json_array_size(sessions); i++) {
        const json_t *s = json_array_get(sessions, i);

        if (name == NULL || strcmp(cli_text(s, "name"), name) == 0) {
            found = cli_text(s, "id");
            n++;
        }
    }
    if (n == 1 && is_id(found))
        id = cli_printf("%s", found);
    else if (n > 1 && name != NULL)
        cli_fail(1, "%zu sessions are called '%s'; name one by its id (transom session list)", n,
                 name);
    else if (n > 1)
        cli_fail(1,
                 "there are %zu sessions; choose one with -s SESSION or TRANSOM_SESSION "
                 "(transom session list)",
                 n);
    else if (name != NULL)
        cli_fail(1, "no session is called '%s' (transom session list)", name);
    else
        cli_fail(1, "there is no session yet; create one: transom session new");
    json_decref(answer);
    return id;
}

char *cli_session_id(struct cli *cli, const char *arg)
{
    const char *name = arg != NULL ? arg : cli->session;
    const char *env = getenv("TRANSOM_SESSION");
    bool missing = false;
    json_t *answer;
    char *path;

    if (name == NULL && env != NULL && *env != '\0')
        name = env;
    if (name == NULL || !is_id(name))
        return find_in_list(cli, name);
    path = cli_printf("/v1/sessions/%s", name);
    answer = cli_call_or_404(cli, "GET", path, NULL, &missing);
    free(path);
    if (missing) /* a name that looks like an id */
        return find_in_list(cli, name);
    if (answer == NULL)
        return NULL;
    json_decref(answer);
    return cli_printf("%s", name);
}

char *cli_sandbox_path(struct cli *cli, const char *fmt, ...)
{
    char *id = cli_session_id(cli, NULL);
    char *sandbox, *tail = NULL, *path;
    va_list ap;
    int n;

    if (id == NULL)
        return NULL;
    va_start(ap, fmt);
    n = vasprintf(&tail, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    sandbox = cli_encode(cli->sandbox != NULL ? cli->sandbox : "primary");
    path = cli_printf("/v1/sessions/%s/sandboxes/%s%s", id, sandbox, tail);
    free(sandbox);
    free(tail);
    free(id);
    return path;
}

char *cli_session_path(struct cli *cli, const char *fmt, ...)
{
    static char known[ID_LEN + 1]; /* whole folders ask again and again */
    char *tail = NULL, *path, *id;
    va_list ap;
    int n;

    if (*known == '\0') {
        id = cli_session_id(cli, NULL);
        if (id == NULL)
            return NULL;
        snprintf(known, sizeof(known), "%s", id);
        free(id);
    }
    va_start(ap, fmt);
    n = vasprintf(&tail, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    path = cli_printf("/v1/sessions/%s%s", known, tail);
    free(tail);
    return path;
}

json_t *cli_env_object(const struct cli_list *list)
{
    json_t *env = json_object();

    for (size_t i = 0; i < list->n; i++) {
        const char *equals = strchr(list->items[i], '=');
        char *name;
        int r;

        if (equals == NULL || equals == list->items[i]) {
            cli_fail(CLI_USAGE, "-e wants NAME=VALUE; its use number %zu has no name or no '='",
                     i + 1);
            json_decref(env);
            return NULL;
        }
        name = cli_printf("%.*s", (int)(equals - list->items[i]), list->items[i]);
        r = json_object_set_new(env, name, json_string(equals + 1));
        free(name);
        if (r != 0) {
            cli_fail(CLI_USAGE, "-e: variable %zu of the command line is not UTF-8", i + 1);
            json_decref(env);
            return NULL;
        }
    }
    return env;
}

/* 'it'\''s' */
static void quote(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=@%+,";

    if (*word != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

char *cli_shell_text(int argc, char **argv)
{
    char *text = NULL;
    size_t len;
    FILE *out;

    if (argc == 1)
        return cli_printf("%s", argv[0]);
    out = open_memstream(&text, &len);
    if (out == NULL)
        abort();
    for (int i = 0; i < argc; i++) {
        if (i > 0)
            fputc(' ', out);
        quote(out, argv[i]);
    }
    if (fclose(out) != 0)
        abort();
    return text;
}
