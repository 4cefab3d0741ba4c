/* SPDX-License-Identifier: MIT */
#include "vmm/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transom/log.h"
#include "vmm/text.h"

int vmm_file_mkdirs(const char *path, mode_t mode, struct err *err)
{
    char part[VMM_PATH_SIZE];
    size_t len = strlen(path);
    struct stat st;

    if (len == 0 || len >= sizeof(part))
        return tr_err_set(err, -ENAMETOOLONG, "%s: path too long", path);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, path[i] ? 0755 : mode) != 0 && errno != EEXIST)
            return tr_err_set(err, -errno, "cannot create folder %s: %s", part, strerror(errno));
    }
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return tr_err_set(err, -ENOTDIR, "%s is not a folder", path);
    return 0;
}

static int sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    if (fd < 0)
        return -errno;
    if (fsync(fd) != 0)
        r = -errno;
    close(fd);
    return r;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd) != 0 ? -errno : 0;
}

int vmm_file_write(const char *dir, const char *name, const void *data, size_t len, struct err *err)
{
    char tmp[VMM_PATH_SIZE], path[VMM_PATH_SIZE];
    int fd, r;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
        snprintf(tmp, sizeof(tmp), "%s/.%s.tmp", dir, name) >= (int)sizeof(tmp))
        return tr_err_set(err, -ENAMETOOLONG, "%s/%s: path too long", dir, name);
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return tr_err_set(err, -errno, "cannot write %s: %s", tmp, strerror(errno));
    r = write_all(fd, data, len);
    if (close(fd) != 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(tmp, path) != 0)
        r = -errno;
    if (r == 0)
        r = sync_dir(dir);
    else
        (void)unlink(tmp);
    return r == 0 ? 0 : tr_err_set(err, r, "cannot write %s: %s", path, strerror(-r));
}

int vmm_file_write_json(const char *dir, const char *name, const json_t *value, struct err *err)
{
    char *text = json_dumps(value, JSON_INDENT(1) | JSON_ENCODE_ANY);
    int r;

    if (text == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_write(dir, name, text, strlen(text), err);
    free(text);
    return r;
}

int vmm_file_read(const char *path, size_t max, char **out, size_t *len, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r = 0;
    struct stat st;
    size_t n = 0;
    char *data;

    if (fd < 0)
        return tr_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0 || (size_t)st.st_size > max) {
        close(fd);
        return tr_err_set(err, -EFBIG, "%s is not a file of at most %zu bytes", path, max);
    }
    data = malloc((size_t)st.st_size + 1);
    while (data != NULL && n < (size_t)st.st_size) {
        ssize_t got = read(fd, data + n, (size_t)st.st_size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            r = -errno;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    if (data == NULL || r != 0) {
        free(data);
        r = r ? r : -ENOMEM;
        return tr_err_set(err, r, "cannot read %s: %s", path, strerror(-r));
    }
    data[n] = '\0';
    *out = data;
    *len = n;
    return 0;
}

int vmm_file_read_json(const char *path, size_t max, json_t **out, struct err *err)
{
    json_error_t fault;
    json_t *value;
    size_t len = 0;
    char *text = NULL;
    int r;

    r = vmm_file_read(path, max, &text, &len, err);
    if (r != 0)
        return r;
    value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    free(text);
    if (!json_is_object(value)) {
        json_decref(value);
        return tr_err_set(err, -EBADMSG, "%s:%d:%d: %s", path, value ? 1 : fault.line,
                          value ? 1 : fault.column, value ? "not an object" : fault.text);
    }
    *out = value;
    return 0;
}

int vmm_file_remove(const char *dir, const char *name, struct err *err)
{
    char path[VMM_PATH_SIZE];
    int r;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return tr_err_set(err, -ENAMETOOLONG, "%s/%s: path too long", dir, name);
    if (unlink(path) != 0 && errno != ENOENT)
        return tr_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    r = sync_dir(dir);
    if (r != 0 && r != -ENOENT)
        return tr_err_set(err, r, "cannot sync %s: %s", dir, strerror(-r));
    return 0;
}

int vmm_file_sync_dir(const char *dir, struct err *err)
{
    int r = sync_dir(dir);

    return r == 0 ? 0 : tr_err_set(err, r, "cannot sync %s: %s", dir, strerror(-r));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

int vmm_file_remove_tree(const char *path, struct err *err)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 && errno != ENOENT)
        return tr_err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    return 0;
}

void vmm_file_set_aside(const char *path, const struct err *why)
{
    char aside[VMM_PATH_SIZE];

    snprintf(aside, sizeof(aside), "%s.broken-%lld", path, (long long)vmm_wall_ms());
    if (rename(path, aside) == 0)
        log_error("record set aside as %s: %s", aside, why->msg);
    else
        log_error("broken record %s stays: %s (%s)", path, strerror(errno), why->msg);
}
