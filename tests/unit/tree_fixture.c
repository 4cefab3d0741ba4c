/* SPDX-License-Identifier: MIT */
#include "tree_fixture.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char fx_dir[64];
struct sync_tree fx_tree;

void fx_setup(void)
{
    strcpy(fx_dir, "/tmp/transom-tree-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fx_dir));
    ck_assert_int_eq(mkdir(fx_path(""), 0755), 0);
    ck_assert_int_eq(sync_tree_open(&fx_tree, fx_path("")), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void fx_teardown(void)
{
    sync_tree_close(&fx_tree);
    nftw(fx_dir, remove_one, 64, FTW_DEPTH | FTW_PHYS);
    ck_assert_int_ne(access(fx_dir, F_OK), 0);
}

const char *fx_path(const char *path)
{
    static char out[4][PATH_MAX];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(out[turn], sizeof(out[turn]), "%s/tree/%s", fx_dir, path);
    return out[turn];
}

static void put(const char *path, const char *text, int flags)
{
    int fd = open(fx_path(path), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
    ck_assert_int_eq(close(fd), 0);
}

void fx_write(const char *path, const char *text)
{
    put(path, text, O_TRUNC);
}

void fx_append(const char *path, const char *text)
{
    put(path, text, O_APPEND);
}

void fx_mkdir(const char *path)
{
    ck_assert_int_eq(mkdir(fx_path(path), 0755), 0);
}

void fx_symlink(const char *target, const char *path)
{
    ck_assert_int_eq(symlink(target, fx_path(path)), 0);
}

const char *fx_read(const char *path)
{
    static char text[1 << 20];
    int fd = open(fx_path(path), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

bool fx_exists(const char *path)
{
    struct stat st;

    return lstat(fx_path(path), &st) == 0;
}

unsigned fx_mode(const char *path)
{
    struct stat st;

    ck_assert_int_eq(lstat(fx_path(path), &st), 0);
    return st.st_mode & 07777;
}

struct sync_sig fx_sig(const char *path)
{
    char target[SYNC_LINK_MAX + 1];
    struct sync_tree_entry entry;

    ck_assert_int_eq(sync_tree_stat(&fx_tree, path, strlen(path), &entry, target), 0);
    return entry.sig;
}

size_t fx_count(const char *path)
{
    DIR *dir = opendir(fx_path(path));
    size_t n = 0;

    if (dir == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}
