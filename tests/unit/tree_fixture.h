/* SPDX-License-Identifier: MIT */
/* For tests: a folder of its own with a tree in it, and what a test does there by plain calls. Any
 * failure ends the test. */
#ifndef TESTS_UNIT_TREE_FIXTURE_H
#define TESTS_UNIT_TREE_FIXTURE_H

#include "sync/tree.h"

extern char fx_dir[];            /* the folder: "tree" below it is the root, the rest is outside */
extern struct sync_tree fx_tree; /* staging in the root */

void fx_setup(void);
void fx_teardown(void); /* all of it goes */

/* Paths are relative to the root ("../x" is beside it). Static memory, four at a time. */
const char *fx_path(const char *path);
void fx_write(const char *path, const char *text);
void fx_append(const char *path, const char *text);
void fx_mkdir(const char *path);
void fx_symlink(const char *target, const char *path);
/* The whole content (static memory), or "" when there is none. */
const char *fx_read(const char *path);
bool fx_exists(const char *path);
unsigned fx_mode(const char *path); /* permissions */
struct sync_sig fx_sig(const char *path);
/* How many names a folder has; 0 when there is none. */
size_t fx_count(const char *path);

#endif
