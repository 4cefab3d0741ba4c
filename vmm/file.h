/* SPDX-License-Identifier: MIT */
/* Durable files: a record is either the old one or the new one, whatever dies in between. */
#ifndef VMM_FILE_H
#define VMM_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>
#include "transom/err.h"

#define VMM_PATH_SIZE 1024

/* Create a folder and its parents. */
TR_MUST_CHECK int vmm_file_mkdirs(const char *path, mode_t mode, struct err *err);
/* Write dir/name: temporary name, fsync, rename, fsync of dir. Mode 0600. */
TR_MUST_CHECK int vmm_file_write(const char *dir, const char *name, const void *data, size_t len,
                                 struct err *err);
TR_MUST_CHECK int vmm_file_write_json(const char *dir, const char *name, const json_t *value,
                                      struct err *err);
/* Read a regular file of at most max bytes; *out is new and NUL-terminated. */
TR_MUST_CHECK int vmm_file_read(const char *path, size_t max, char **out, size_t *len,
                                struct err *err);
/* Read one JSON object; *out is a new reference. -ENOENT: no such file. */
TR_MUST_CHECK int vmm_file_read_json(const char *path, size_t max, json_t **out, struct err *err);
/* Remove dir/name and sync dir. Missing is fine. */
TR_MUST_CHECK int vmm_file_remove(const char *dir, const char *name, struct err *err);
/* Remove a folder with all in it; follows no symbolic link. Missing is fine. */
TR_MUST_CHECK int vmm_file_remove_tree(const char *path, struct err *err);
/* What is in a folder by now is so after a crash, too. */
TR_MUST_CHECK int vmm_file_sync_dir(const char *dir, struct err *err);
/* A record that cannot be read: log why and keep it as path.broken-<time>. */
void vmm_file_set_aside(const char *path, const struct err *why);

#endif
