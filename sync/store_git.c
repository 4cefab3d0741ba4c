/* SPDX-License-Identifier: MIT */
/* The repository for those who clone it by Git's "dumb" HTTP protocol (gitprotocol-http(5)): files
 * as they are, but for two that tell what there is, made when they are asked for. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "sync/store_internal.h"

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)s[i]) && (s[i] < 'a' || s[i] > 'f'))
            return false;
    }
    return true;
}

static bool is_pack(const char *name, bool index_too)
{
    size_t len = strlen(name);
    const char *end = len > 45 ? name + 45 : "";

    return strncmp(name, "pack-", 5) == 0 && len > 45 && is_hex(name + 5, 40) &&
           (strcmp(end, ".pack") == 0 || (index_too && strcmp(end, ".idx") == 0));
}

/* Is it one of the files that a clone needs? */
static bool is_object(const char *path)
{
    if (strncmp(path, "objects/", 8) != 0)
        return false;
    path += 8;
    if (strncmp(path, "pack/", 5) == 0)
        return is_pack(path + 5, true);
    return strlen(path) == 41 && is_hex(path, 2) && path[2] == '/' && is_hex(path + 3, 38);
}

static int text_file(const char *text, size_t len, struct err *err)
{
    int fd = memfd_create("git", MFD_CLOEXEC), r;

    if (fd < 0)
        return tr_err_set(err, -errno, "memfd: %s", strerror(errno));
    r = sync_write_all(fd, text, len);
    if (r == 0)
        return fd;
    close(fd);
    return tr_err_set(err, r, "memfd: %s", strerror(-r));
}

static int refs(struct sync_store *store, struct err *err)
{
    static const char *const names[] = {SYNC_BRANCH, "refs/transom/kept"};
    char text[2 * (SYNC_ID_SIZE + 32)], hex[SYNC_ID_SIZE];
    size_t n = 0;
    git_oid id;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (git_reference_name_to_id(&id, store->repo, names[i]) != 0)
            continue;
        git_oid_tostr(hex, sizeof(hex), &id);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\t%s\n", hex, names[i]);
    }
    return text_file(text, n, err);
}

static int packs(struct sync_store *store, struct err *err)
{
    int fd = openat(store->dir_fd, "store.git/objects/pack", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct sync_buf text = {0};
    char **names = NULL, line[64];
    size_t n = 0;
    int r = fd < 0 ? (errno == ENOENT ? 0 : -errno) : sync_dir_names(fd, &names, &n);

    for (size_t i = 0; i < n && r == 0; i++) {
        if (is_pack(names[i], false))
            r = sync_buf_add(&text, line, (size_t)snprintf(line, sizeof(line), "P %s\n", names[i]));
    }
    if (r == 0)
        r = sync_buf_add(&text, "\n", 1);
    r = r == 0 ? text_file((const char *)text.data, text.len, err)
               : tr_err_set(err, r, "packs: %s", strerror(-r));
    sync_buf_free(&text);
    if (names != NULL)
        sync_dir_free_names(names, n);
    if (fd >= 0)
        close(fd);
    return r;
}

int sync_store_open_git(struct sync_store *store, const char *path, struct err *err)
{
    static const char head[] = "ref: " SYNC_BRANCH "\n";
    char full[128];
    int fd;

    if (strcmp(path, "HEAD") == 0)
        return text_file(head, sizeof(head) - 1, err);
    if (strcmp(path, "info/refs") == 0)
        return refs(store, err);
    if (strcmp(path, "objects/info/packs") == 0)
        return packs(store, err);
    if (!is_object(path))
        return tr_err_set(err, -ENOENT, "the repository has no such file to read");
    snprintf(full, sizeof(full), "store.git/%s", path);
    fd = openat(store->dir_fd, full, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
}
