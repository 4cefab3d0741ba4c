/* SPDX-License-Identifier: MIT */
/* transom files ls, get, put, mkdir, mv, rm: what the session keeps, whether a machine runs or not.
 */
#include <errno.h>
#include <fts.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

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
    char *dir = cli_encode(argc > 0 && strcmp(argv[0], ".") != 0 ? argv[0] : "");
    char *path = cli_session_path(cli, "/files?dir=%s&recursive=%d", dir, cli->recursive);
    json_t *answer = path != NULL ? cli_call_pages(cli, path, "after", "entries") : NULL;
    json_t *all = json_object_get(answer, "entries");
    int status = answer != NULL ? 0 : 1;

    if (status == 0 && cli->json) {
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
    free(path);
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

/* ---- a folder with all that is in it ---- */

/* PUT bytes, as a link's target. */
static int put_bytes(struct cli *cli, const char *path, const char *data, size_t len)
{
    struct http_req *req = http_req_new(cli->http, "PUT", path);
    int status;

    http_req_body(req, "application/octet-stream", data, len);
    http_start(req);
    http_wait(req);
    status = http_ok(req) ? 0 : http_explain(req);
    if (status == 0 && cli->json && req->body != NULL)
        printf("%s\n", req->body);
    http_req_free(req);
    return status;
}

static int put_entry(struct cli *cli, const FTSENT *e, const char *remote)
{
    char target[PATH_MAX], *path;
    ssize_t n;
    int status = 1;

    switch (e->fts_info) {
    case FTS_D:
        path = file_path(cli, remote, "?type=directory");
        status = path != NULL ? put_bytes(cli, path, "", 0) : 1;
        break;
    case FTS_F:
        path = file_path(cli, remote,
                         e->fts_statp->st_mode & S_IXUSR ? "?executable=1" : "?executable=0");
        status = path != NULL ? cli_put_file(cli, path, e->fts_accpath) : 1;
        break;
    case FTS_SL:
    case FTS_SLNONE:
        n = readlink(e->fts_accpath, target, sizeof(target));
        if (n < 0)
            return cli_fail(1, "%s: %s", e->fts_path, strerror(errno));
        path = file_path(cli, remote, "?type=symlink");
        status = path != NULL ? put_bytes(cli, path, target, (size_t)n) : 1;
        break;
    case FTS_DP:
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return cli_fail(1, "%s: %s", e->fts_path, strerror(e->fts_errno));
    default:
        return cli_fail(1, "%s: neither file, folder nor link", e->fts_path);
    }
    free(path);
    return status;
}

/* What cannot be put is said, and the rest goes on. */
static int put_folder(struct cli *cli, const char *local, const char *remote)
{
    char *root = cli_printf("%s", local), *const roots[] = {root, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int status = 0;
    FTSENT *e;

    if (walk == NULL)
        abort();
    while ((e = fts_read(walk)) != NULL) {
        const char *below = e->fts_path + strlen(root);
        char *path;

        below += strspn(below, "/");
        if (e->fts_level > 0 && e->fts_info == FTS_D && strcasecmp(e->fts_name, ".git") == 0) {
            fprintf(stderr, "transom: %s: left out, it is Git's own\n", e->fts_path);
            (void)fts_set(walk, e, FTS_SKIP);
            continue;
        }
        if (e->fts_level == 0 && *remote == '\0' && e->fts_info == FTS_D)
            continue; /* the home folder is there */
        path = cli_printf("%s%s%s", remote, *remote != '\0' && *below != '\0' ? "/" : "", below);
        if (put_entry(cli, e, path) != 0)
            status = 1;
        free(path);
    }
    if (errno != 0)
        status = cli_fail(1, "%s: %s", local, strerror(errno));
    fts_close(walk);
    free(root);
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
    if (cli->recursive && strcmp(local, "-") != 0) {
        status = put_folder(cli, local, strcmp(remote, ".") == 0 ? "" : remote);
        path = NULL;
    } else {
        path = file_path(cli, remote, query);
        if (path != NULL)
            status = cli_put_file(cli, path, local);
    }
    free(path);
    free(remote);
    free(name);
    return status;
}

int cmd_files_unzip(struct cli *cli, int argc, char **argv)
{
    char *dir = cli_encode(argc > 1 && strcmp(argv[1], ".") != 0 ? argv[1] : "");
    char *path = cli_session_path(cli, "/files?dir=%s", dir);
    json_t *answer = NULL;
    json_int_t n, n_files;
    int status =
        path != NULL ? cli_send_file(cli, "POST", "application/zip", path, argv[0], &answer) : 1;

    n = json_integer_value(json_object_get(answer, "passed_over"));
    n_files = json_integer_value(json_object_get(answer, "files"));
    if (status == 0 && !cli->json)
        printf("%lld file%s\n", (long long)n_files, n_files == 1 ? "" : "s");
    if (n > 0)
        fprintf(stderr, "transom: %lld left out, they are Git's own: %s%s\n", (long long)n,
                json_string_value(json_object_get(answer, "passed_path")), n > 1 ? ", ..." : "");
    json_decref(answer);
    free(path);
    free(dir);
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
