/* SPDX-License-Identifier: MIT */
#include "sync/path.h"

#include <string.h>

size_t sync_path_end(const char *path, size_t len, size_t from)
{
    const char *slash = from < len ? memchr(path + from, '/', len - from) : NULL;

    return slash != NULL ? (size_t)(slash - path) : len;
}

size_t sync_path_base(const char *path, size_t len)
{
    const char *slash = len > 0 ? memrchr(path, '/', len) : NULL;

    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

enum sync_path_fault sync_path_check(const char *path, size_t len)
{
    size_t from = 0, end;
    int depth = 0;

    if (len == 0)
        return SYNC_PATH_BAD;
    if (len > SYNC_PATH_MAX)
        return SYNC_PATH_TOO_LONG;
    if (memchr(path, '\0', len) != NULL)
        return SYNC_PATH_BAD;
    for (;; from = end + 1) {
        size_t n;

        end = sync_path_end(path, len, from);
        n = end - from;
        if (n == 0 || (n <= 2 && memcmp(path + from, "..", n) == 0))
            return SYNC_PATH_BAD;
        if (n > SYNC_NAME_MAX)
            return SYNC_PATH_TOO_LONG;
        if (++depth > SYNC_DEPTH_MAX)
            return SYNC_PATH_TOO_DEEP;
        if (end == len)
            return SYNC_PATH_OK;
    }
}
