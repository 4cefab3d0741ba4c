/* SPDX-License-Identifier: MIT */
#include "vmm/bind_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/ancestor.h"
#include "transom/log.h"
#include "vmm/file.h"

/* FNV-1a. */
uint64_t vmm_bind_instance(const char *folder)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (const char *c = folder; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return hash;
}

void vmm_bind_ancestor(const char *dir, const char *folder, char *out, size_t size)
{
    snprintf(out, size, "%s/bindings/%s", dir, folder);
}

/* Is anything in it? */
static int look(int files, bool *has_files)
{
    int fd = openat(files, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    *has_files = false;
    if (d == NULL) {
        int r = -errno;

        if (fd >= 0)
            close(fd);
        return r;
    }
    while (!*has_files && (entry = readdir(d)) != NULL)
        *has_files = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(d);
    return 0;
}

/* Remove the ancestors that were not used for longest, so that there is room for one more. */
static void make_room(const char *dir)
{
    for (;;) {
        struct timespec oldest_time = {0};
        char oldest[256] = "";
        const struct dirent *entry;
        struct stat st;
        size_t n = 0;
        DIR *d = opendir(dir);

        while (d != NULL && (entry = readdir(d)) != NULL) {
            if (*entry->d_name == '.' || fstatat(dirfd(d), entry->d_name, &st, 0) != 0)
                continue;
            if (n++ == 0 || st.st_mtim.tv_sec < oldest_time.tv_sec ||
                (st.st_mtim.tv_sec == oldest_time.tv_sec &&
                 st.st_mtim.tv_nsec < oldest_time.tv_nsec)) {
                oldest_time = st.st_mtim;
                snprintf(oldest, sizeof(oldest), "%s", entry->d_name);
            }
        }
        if (d == NULL)
            return;
        if (n < VMM_BIND_KEPT_MAX || unlinkat(dirfd(d), oldest, 0) != 0) {
            closedir(d);
            return;
        }
        closedir(d);
    }
}

/* Nothing in common yet. */
static int begin(const char *dir, const char *path, uint64_t instance, struct sync_state *st,
                 struct err *err)
{
    uint8_t *bytes = NULL;
    size_t len;
    int r;

    sync_state_clear(st);
    make_room(dir);
    r = sync_ancestor_encode(st, instance, &bytes, &len);
    if (r != 0)
        return tr_err_set(err, r, "out of memory");
    r = sync_ancestor_write(path, bytes, len, err);
    free(bytes);
    return r;
}

int vmm_bind_check(const struct vmm_bind_ask *ask, enum vmm_bind_verdict *out, struct err *err)
{
    const uint64_t instance = vmm_bind_instance(ask->folder);
    char dir[VMM_PATH_SIZE], path[VMM_PATH_SIZE + VMM_PATH_SIZE];
    bool is_fresh = true, has_files = false;
    struct sync_state *st = NULL;
    struct err why = {0};
    int r;

    snprintf(dir, sizeof(dir), "%s/bindings", ask->dir);
    vmm_bind_ancestor(ask->dir, ask->folder, path, sizeof(path));
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return tr_err_set(err, -errno, "%s: %s", dir, strerror(errno));
    r = look(ask->files, &has_files);
    if (r != 0)
        return tr_err_set(err, r, "the session's files: %s", strerror(-r));
    if (sync_state_new((size_t)2 * SYNC_STATE_NODES_MAX, 0, &st) != 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = sync_ancestor_read(path, instance, st, &is_fresh, &why);
    if (r != 0) {
        sync_state_free(st);
        return tr_err_set(err, r, "out of memory");
    }
    if (why.code != 0)
        log_warn("a folder is as good as unknown: %s", why.msg);
    *out = VMM_BIND_GOOD;
    if (is_fresh && !ask->is_empty && has_files && !ask->may_merge)
        *out = VMM_BIND_UNRELATED;
    if (!is_fresh && ask->is_empty && has_files && sync_state_count(st) > 0 && !ask->may_merge)
        *out = VMM_BIND_EMPTIED;
    if (*out == VMM_BIND_GOOD && (is_fresh || (ask->is_empty && sync_state_count(st) > 0)))
        r = begin(dir, path, instance, st, err);
    else if (*out == VMM_BIND_GOOD)
        (void)utimensat(AT_FDCWD, path, NULL, 0); /* in use: not among the oldest */
    sync_state_free(st);
    return r;
}
