/* SPDX-License-Identifier: MIT */
#include "vmm/cli/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

#define FILE_MAX_BYTES (1024 * 1024)

/* ~/.config/transom, new; NULL without a home. */
static char *folder(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (config != NULL && *config == '/') /* others are to be ignored (XDG Base Directory) */
        return cli_printf("%s/transom", config);
    if (home == NULL || *home != '/')
        return NULL;
    return cli_printf("%s/.config/transom", home);
}

bool profile_name_valid(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= PROFILE_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

/* There are keys in it: it must be ours alone. Returns 0, or 1 after saying why. */
static int check_file(int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return cli_fail(1, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
        return cli_fail(1, "%s is no file of profiles", path);
    if (st.st_uid != geteuid())
        return cli_fail(1, "%s belongs to another user (uid %u): its keys are not used", path,
                        (unsigned)st.st_uid);
    if ((st.st_mode & 0077) != 0)
        return cli_fail(1,
                        "%s can be read or written by others: chmod 600 %s, and have new keys "
                        "made for those in it",
                        path, path);
    return 0;
}

static json_t *read_file(int fd, const char *path)
{
    json_error_t fault;
    FILE *file = fdopen(fd, "r");
    json_t *all = NULL;

    if (file == NULL)
        abort();
    all = json_loadf(file, JSON_REJECT_DUPLICATES, &fault);
    fclose(file);
    if (json_is_object(json_object_get(all, "profiles")))
        return all;
    json_decref(all);
    cli_fail(1, "%s is damaged%s%s: log in anew after removing it", path, all == NULL ? ": " : "",
             all == NULL ? fault.text : "");
    return NULL;
}

json_t *profiles_read(void)
{
    char *dir = folder(), *path;
    json_t *all = NULL;
    int fd = -1;

    if (dir == NULL)
        return json_pack("{s{}}", "profiles");
    path = cli_printf("%s/profiles.json", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        all = json_pack("{s{}}", "profiles");
    else if (fd < 0)
        cli_fail(1, "%s: %s", path, strerror(errno));
    else if (check_file(fd, path) == 0)
        all = read_file(fd, path);
    else
        close(fd);
    free(path);
    free(dir);
    return all;
}

/* The folder and those above it, for this user alone. */
static int make_folder(char *dir)
{
    for (char *slash = strchr(dir + 1, '/');; slash = strchr(slash + 1, '/')) {
        int r;

        if (slash != NULL)
            *slash = '\0';
        r = mkdir(dir, 0700) != 0 && errno != EEXIST ? errno : 0;
        if (slash != NULL)
            *slash = '/';
        if (r != 0)
            return cli_fail(1, "%s: %s", dir, strerror(r));
        if (slash == NULL)
            return 0;
    }
}

int profiles_write(const json_t *all)
{
    char *dir = folder(), *path, *temporary, *text = json_dumps(all, JSON_INDENT(2));
    int fd, status = 0;

    if (text == NULL)
        abort();
    if (dir == NULL) {
        free(text);
        return cli_fail(1, "there is no place for profiles: set HOME");
    }
    path = cli_printf("%s/profiles.json", dir);
    temporary = cli_printf("%s/.profiles.json.XXXXXX", dir);
    status = make_folder(dir);
    if (status == 0) {
        fd = mkostemp(temporary, O_CLOEXEC); /* 0600 */
        if (fd < 0 || cli_write_all(fd, text, strlen(text)) != 0 ||
            cli_write_all(fd, "\n", 1) != 0 || fsync(fd) != 0 || rename(temporary, path) != 0) {
            status = cli_fail(1, "%s: %s", path, strerror(errno));
            if (fd >= 0)
                unlink(temporary);
        }
        if (fd >= 0)
            close(fd);
    }
    explicit_bzero(text, strlen(text));
    free(text);
    free(temporary);
    free(path);
    free(dir);
    return status;
}

int profile_find(const char *name, struct profile *out)
{
    json_t *all = profiles_read(), *found;
    int status = 0;

    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", PROFILE_LOCAL);
    if (all == NULL)
        return 1;
    if (name == NULL)
        name = cli_text(all, "current");
    if (*name != '\0' && strcmp(name, PROFILE_LOCAL) != 0) {
        found = json_object_get(json_object_get(all, "profiles"), name);
        if (found == NULL || strlen(cli_text(found, "api")) > PROFILE_API_MAX ||
            *cli_text(found, "api") == '\0' || strlen(cli_text(found, "key")) > PROFILE_KEY_MAX) {
            status = cli_fail(1,
                              "there is no profile '%s' (transom profile list; transom login "
                              "--profile NAME URL)",
                              name);
        } else {
            snprintf(out->name, sizeof(out->name), "%s", name);
            snprintf(out->api, sizeof(out->api), "%s", cli_text(found, "api"));
            snprintf(out->key, sizeof(out->key), "%s", cli_text(found, "key"));
        }
    }
    json_decref(all);
    return status;
}
