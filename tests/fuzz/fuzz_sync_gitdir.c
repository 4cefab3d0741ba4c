/* SPDX-License-Identifier: MIT */
/* The stream of a .git folder, as a host sends it to an agent. The first byte is the length of the
 * pieces it comes in. Whatever comes, nothing appears outside of the folder, and what is put there
 * can be read and put once more. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sync/gitdir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char base[] = "/tmp/fuzz-gitdir-XXXXXX";
static int to = -1, stage = -1, again = -1, out = -1;

static void leave(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -rf %s", base);
    if (system(command) != 0)
        abort();
}

static int make(const char *name)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", base, name);
    if (mkdir(path, 0700) != 0)
        abort();
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

static size_t count(int dir)
{
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    size_t n = 0;

    assert(d != NULL);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static int put(int dir, const uint8_t *data, size_t size, size_t step)
{
    struct sync_gitdir_unpack *u;
    int r = sync_gitdir_unpack_new(dir, stage, &u);

    if (r != 0)
        return r;
    for (size_t at = 0; at < size && r == 0; at += step)
        r = sync_gitdir_unpack_feed(u, data + at, size - at < step ? size - at : step);
    if (r == 0)
        r = sync_gitdir_unpack_end(u);
    sync_gitdir_unpack_free(u);
    assert(count(stage) == 0);
    return r;
}

static void clear(int dir)
{
    char command[128];

    if (count(dir) == 0)
        return;
    snprintf(command, sizeof(command), "rm -rf /proc/%d/fd/%d/.git", getpid(), dir);
    if (system(command) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t buf[65536];
    struct sync_gitdir_pack *p;
    size_t len = 0;
    int64_t n = 0;

    if (to < 0) {
        if (mkdtemp(base) == NULL || atexit(leave) != 0)
            abort();
        to = make("to");
        stage = make("stage");
        again = make("again");
        out = make("out");
    }
    if (size == 0)
        return 0;
    if (put(to, data + 1, size - 1, data[0] > 0 ? data[0] : 1) == 0) {
        assert(count(to) == 1);
        if (sync_gitdir_pack_new(to, &p) == 0) {
            while (sizeof(buf) - len >= 8192 &&
                   (n = sync_gitdir_pack_next(p, buf + len, sizeof(buf) - len)) > 0)
                len += (size_t)n;
            sync_gitdir_pack_free(p);
            if (n == 0 && len > 0)
                assert(put(again, buf, len, 4096) == 0);
        }
    }
    assert(count(out) == 0);
    clear(to);
    clear(again);
    return 0;
}
