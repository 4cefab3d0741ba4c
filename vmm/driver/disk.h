/* SPDX-License-Identifier: MIT */
/* A machine's own disk: a sparse file with an empty ext4 file system. Blocking; launcher only. */
#ifndef VMM_DISK_H
#define VMM_DISK_H

#include "transom/err.h"

/* Open path for reading and writing; make it first when it is not there (under a temporary name, so
 * a broken attempt leaves nothing), as a copy of from unless that is "". Returns a descriptor
 * (close-on-exec), or < 0 with err. */
TR_MUST_CHECK int disk_open(const char *path, unsigned size_mb, const char *from, struct err *err);

/* Make a file with the content of another, sharing its blocks where the file system can, else
 * copying what is not a hole. Nothing is synced. Returns 0 or a negative errno. */
TR_MUST_CHECK int disk_copy(int from_fd, int to_fd);

#endif
