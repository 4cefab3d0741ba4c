/* SPDX-License-Identifier: MIT */
#include "gateway/certificates.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTION    "gateway.certificates"
#define FILES_MAX 10000

/* Takes both strings, which may be NULL for want of memory. */
static int add(struct gw_certificate_files *out, const char *option, char *certificate, char *key,
               struct err *err)
{
    struct gw_certificate_file *files = NULL;

    if (certificate != NULL && key != NULL && out->n < FILES_MAX)
        files = realloc(out->files, (out->n + 1) * sizeof(*files));
    if (files == NULL) {
        free(certificate);
        free(key);
        return out->n < FILES_MAX
                   ? tr_err_set(err, -ENOMEM, "out of memory")
                   : tr_err_set(err, -E2BIG, OPTION ": more than %d certificates", FILES_MAX);
    }
    out->files = files;
    files[out->n++] = (struct gw_certificate_file){option, certificate, key};
    return 0;
}

static char *join(const char *folder, const char *name, const char *more)
{
    char *path;

    return asprintf(&path, "%s/%s%s", folder, name, more) >= 0 ? path : NULL;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* A file or folder of a folder. */
static int look_at(struct gw_certificate_files *out, const char *folder, const char *name,
                   struct err *err)
{
    char *path = join(folder, name, ""), *key = NULL, *chain;
    struct stat st;
    int r = 0;

    if (path == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    if (stat(path, &st) != 0) {
        r = tr_err_set(err, -errno, OPTION ": %s: %s", path, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        chain = join(path, "fullchain.pem", "");
        if (chain == NULL || access(chain, F_OK) == 0)
            r = add(out, OPTION, chain, join(path, "privkey.pem", ""), err);
        else if (errno != ENOENT)
            r = tr_err_set(err, -errno, OPTION ": %s: %s", chain, strerror(errno));
        else
            free(chain);
    } else if (ends_with(name, ".crt") || ends_with(name, ".pem")) {
        if (asprintf(&key, "%.*s.key", (int)strlen(path) - 4, path) < 0)
            key = NULL;
        if (key != NULL && ends_with(name, ".pem") && access(key, F_OK) != 0) {
            free(key);
            key = strdup(path);
        }
        return add(out, OPTION, path, key, err);
    }
    free(path);
    return r;
}

static int no_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int scan(struct gw_certificate_files *out, const char *folder, struct err *err)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, no_dots, alphasort), r = 0;

    if (n < 0)
        return tr_err_set(err, -errno, OPTION ": %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (r == 0)
            r = look_at(out, folder, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return r;
}

int gw_certificate_files_find(const struct gw_options *opt, struct gw_certificate_files *out,
                              struct err *err)
{
    int r = 0;

    memset(out, 0, sizeof(*out));
    if (opt->certificate[0] != '\0' && opt->key[0] != '\0')
        r = add(out, "gateway.tls_certificate", strdup(opt->certificate), strdup(opt->key), err);
    for (size_t i = 0; r == 0 && i < opt->n_certificates; i++) {
        const char *path = opt->certificates[i];
        struct stat st;

        if (stat(path, &st) != 0)
            r = tr_err_set(err, -errno, OPTION ": %s: %s", path, strerror(errno));
        else if (S_ISDIR(st.st_mode))
            r = scan(out, path, err);
        else
            r = add(out, OPTION, strdup(path), strdup(path), err);
    }
    if (r != 0)
        gw_certificate_files_fini(out);
    return r;
}

void gw_certificate_files_fini(struct gw_certificate_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->files[i].certificate);
        free(files->files[i].key);
    }
    free(files->files);
    memset(files, 0, sizeof(*files));
}
