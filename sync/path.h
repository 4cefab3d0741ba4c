/* SPDX-License-Identifier: MIT */
/* Paths of a session's files: bytes relative to the home folder, with "/" between components. They
 * come from a guest and are hostile; nothing says that they are UTF-8. */
#ifndef SYNC_PATH_H
#define SYNC_PATH_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SYNC_PATH_MAX = 4095, /* bytes */
    SYNC_NAME_MAX = 255,  /* bytes of one component */
    SYNC_DEPTH_MAX = 128, /* components */
};

enum sync_path_fault {
    SYNC_PATH_OK = 0,
    SYNC_PATH_BAD,      /* empty, absolute, "." or "..", an empty component, a NUL */
    SYNC_PATH_TOO_LONG, /* the path, or one component of it */
    SYNC_PATH_TOO_DEEP,
};

/* Is the path fit to be stored? */
enum sync_path_fault sync_path_check(const char *path, size_t len);

/* Where the component that begins at `from` ends: the index of its "/" or len. */
size_t sync_path_end(const char *path, size_t len, size_t from);

/* Where the last component begins. */
size_t sync_path_base(const char *path, size_t len);

#endif
