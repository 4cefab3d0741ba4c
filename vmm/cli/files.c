/* SPDX-License-Identifier: MIT */
/* transom files ls, get, put, mkdir, mv, rm: what the session keeps, whether a machine runs or not.
 */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "vmm/cli/cli.h"

/* Path of the API for one of the session's files; NULL after saying why. */
static char *file_path(struct cli *cli, const char *file, const char *query)
{
    char *encoded = cli_encode(file);
    char *path = cli_session_path(cli, "/files/%s%s", encoded, query);

    free(encoded);
    return path;
}

int cmd_files_ls(struct cli *cli, int argc, char **argv)
{
    static const char *const keys[] = {"type", "executable", "size", "mtime",
                                       "path", "target",     NULL};
    static const char *const headers[] = {"TYPE", "RUN", "SIZE", "CHANGED", "PATH", "TARGET", NULL};
    char *dir = cli_encode(argc > 0 && strcmp(argv[0], ".") != 0 ? argv[0] : ""), *next = NULL;
    json_t *all = json_array(), *answer = NULL;
    int status = 0;

    do {
        char *path = cli_session_path(cli, "/files?dir=%s&recursive=%d%s%s", dir, cli->recursive,
                                      next != NULL ? "&after=" : "", next != NULL ? next : "");

        json_decref(answer);
        answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
        free(path);
        free(next);
        next = NULL;
        if (answer == NULL) {
            status = 1;
            break;
        }
        json_array_extend(all, json_object_get(answer, "entries"));
        if (json_object_get(answer, "next") != NULL)
            next = cli_printf("%s", cli_text(answer, "next"));
    } while (next != NULL);
    if (status == 0 && cli->json) {
        json_object_set(answer, "entries", all);
        cli_print_json(answer);
    } else if (status == 0) {
        for (size_t i = 0; i < json_array_size(all); i++) {
            json_t *entry = json_array_get(all, i);

            json_object_set_new(
                entry, "executable",
                json_string(json_is_true(json_object_get(entry, "executable")) ? "yes" : ""));
            cli_add_mtime(entry);
        }
        cli_print_table(all, keys, headers);
    }
    json_decref(answer);
    json_decref(all);
    free(dir);
    return status;
}

int cmd_files_get(struct cli *cli, int argc, char **argv)
{
    char *path = file_path(cli, argv[0], "");
    int status = path != NULL ? cli_get_file(cli, path, argv[0], argc > 1 ? argv[1] : NULL) : 1;

    free(path);
    return status;
}

int cmd_files_put(struct cli *cli, int argc, char **argv)
{
    const char *local = argv[0];
    char *name = cli_printf("%s", local), *base = basename(name), *remote, *path;
    const char *query = "";
    struct stat st;
    int status = 1;

    if (argc < 2 && strcmp(local, "-") == 0) {
        free(name);
        return cli_fail(CLI_USAGE, "standard input has no name; give FILE");
    }
    if (strcmp(local, "-") != 0 && stat(local, &st) == 0)
        query = st.st_mode & S_IXUSR ? "?executable=1" : "?executable=0";
    if (argc < 2)
        remote = cli_printf("%s", base);
    else if (argv[1][0] != '\0' && argv[1][strlen(argv[1]) - 1] == '/')
        remote = cli_printf("%s%s", argv[1], base);
    else
        remote = cli_printf("%s", argv[1]);
    path = file_path(cli, remote, query);
    if (path != NULL)
        status = cli_put_file(cli, path, local);
    free(path);
    free(remote);
    free(name);
    return status;
}

/* One call for each argument. */
static int each(struct cli *cli, const char *method, const char *query, int argc, char **argv)
{
    int status = 0;

    for (int i = 0; i < argc; i++) {
        char *path = file_path(cli, argv[i], query);
        json_t *answer = path != NULL ? cli_call(cli, method, path, NULL) : NULL;

        if (answer == NULL)
            status = 1;
        json_decref(answer);
        free(path);
    }
    return status;
}

int cmd_files_mkdir(struct cli *cli, int argc, char **argv)
{
    return each(cli, "PUT", "?type=directory", argc, argv);
}

int cmd_files_rm(struct cli *cli, int argc, char **argv)
{
    return each(cli, "DELETE", cli->recursive ? "?recursive=1" : "", argc, argv);
}

static char *base64(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = strlen(text);
    char *out = malloc((len + 2) / 3 * 4 + 1), *at = out;

    if (out == NULL)
        abort();
    for (size_t i = 0; i < len; i += 3) {
        unsigned bits = 0;

        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < len ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *at++ = i + k > len ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    *at = '\0';
    return out;
}

void cli_set_bytes(json_t *object, const char *key, const char *bytes)
{
    char *name, *text;

    if (json_object_set_new(object, key, json_string(bytes)) == 0)
        return;
    name = cli_printf("%s_b64", key); /* no UTF-8 */
    text = base64(bytes);
    if (json_object_set_new(object, name, json_string(text)) != 0)
        abort();
    free(text);
    free(name);
}

int cmd_files_mv(struct cli *cli, int argc, char **argv)
{
    char *path = cli_session_path(cli, "/files/move");
    json_t *body = json_pack("{s:b}", "replace", (int)cli->force), *answer;

    (void)argc;
    cli_set_bytes(body, "from", argv[0]);
    cli_set_bytes(body, "to", argv[1]);
    answer = path != NULL ? cli_call(cli, "POST", path, body) : NULL;
    if (answer != NULL && cli->json)
        cli_print_json(answer);
    json_decref(body);
    json_decref(answer);
    free(path);
    return answer != NULL ? 0 : 1;
}
