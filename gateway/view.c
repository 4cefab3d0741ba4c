/* SPDX-License-Identifier: MIT */
#include "gateway/view.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/certificates.h"

/* Takes folder, which may be NULL for want of memory. */
static int add(struct gw_view *view, char *folder, struct err *err)
{
    if (folder == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < view->n_read; i++) {
        if (strcmp(view->read[i], folder) == 0) {
            free(folder);
            return 0;
        }
    }
    if (view->n_read == GW_VIEW_MAX) {
        free(folder);
        return tr_err_set(err, -E2BIG,
                          "certificates lie in more than %d folders; put them below one folder",
                          GW_VIEW_MAX);
    }
    view->read[view->n_read++] = folder;
    return 0;
}

static char *folder_of(const char *path)
{
    char *copy = strdup(path), *folder = copy != NULL ? strdup(dirname(copy)) : NULL;

    free(copy);
    return folder;
}

/* Where a file is found, and where it really lies. */
static int add_file(struct gw_view *view, const char *path, struct err *err)
{
    char *real = realpath(path, NULL);
    int r = add(view, folder_of(path), err);

    if (r == 0 && real != NULL)
        r = add(view, folder_of(real), err);
    free(real);
    return r;
}

static int add_certificates(struct gw_view *view, const struct gw_options *opt, struct err *err)
{
    struct gw_certificate_files files;
    int r = gw_certificate_files_find(opt, &files, err);

    if (r != 0)
        return r;
    for (size_t i = 0; r == 0 && i < opt->n_certificates; i++) {
        struct stat st;

        if (stat(opt->certificates[i], &st) == 0 && S_ISDIR(st.st_mode))
            r = add(view, strdup(opt->certificates[i]), err);
    }
    for (size_t i = 0; r == 0 && i < files.n; i++) {
        r = add_file(view, files.files[i].certificate, err);
        if (r == 0)
            r = add_file(view, files.files[i].key, err);
    }
    gw_certificate_files_fini(&files);
    return r;
}

/* Has Redis' host a name that must be looked up? */
static bool has_name(const char *url)
{
    const char *host = strstr(url, "://"), *at;
    unsigned char address[16];
    char text[256];
    size_t n;

    if (host == NULL)
        return false; /* a unix socket */
    host += 3;
    at = strrchr(host, '@');
    if (at != NULL)
        host = at + 1;
    n = strcspn(host, ":/");
    if (host[0] == '[' || n >= sizeof(text))
        return host[0] != '[';
    memcpy(text, host, n);
    text[n] = '\0';
    return inet_pton(AF_INET, text, address) != 1;
}

/* The file with Redis' password is read at each connection. A name that had to be percent-encoded
 * is not found here; then a reconnection says so. */
static int add_password_file(struct gw_view *view, const char *url, struct err *err)
{
    const char *at = strstr(url, "password_file=");
    char path[512];

    if (at == NULL)
        return 0;
    at += strlen("password_file=");
    snprintf(path, sizeof(path), "%.*s", (int)strcspn(at, "&"), at);
    return add_file(view, path, err);
}

int gw_view_new(const struct gw_options *opt, const char *config_path, struct gw_view **out,
                struct err *err)
{
    struct gw_view *view = calloc(1, sizeof(*view));
    int r;

    if (view == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = add_file(view, config_path, err);
    if (r == 0)
        r = add_certificates(view, opt, err);
    if (r == 0)
        r = add_password_file(view, opt->redis_url, err);
    if (r == 0 && opt->access_log[0] == '/')
        view->append = folder_of(opt->access_log);
    view->resolver = has_name(opt->redis_url);
    if (r != 0) {
        gw_view_free(view);
        return r;
    }
    *out = view;
    return 0;
}

void gw_view_free(struct gw_view *view)
{
    for (size_t i = 0; i < view->n_read; i++)
        free((char *)view->read[i]);
    free((char *)view->append);
    free(view);
}
