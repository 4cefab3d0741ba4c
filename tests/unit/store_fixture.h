/* SPDX-License-Identifier: MIT */
/* A store in a folder of its own for each test, and short words for what is done with it. What
 * cannot fail is asserted; texts are static buffers of the function. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include "sync/store.h"

#define LIST_SIZE 65536

extern char dir[64];
extern struct sync_store *store;
extern struct err err; /* of the last call that failed */

/* A program of tests: add() makes its cases with store_tcase(). Removes all folders in the end. */
int store_main(const char *suite, void (*add)(Suite *s));
TCase *store_tcase(Suite *s, const char *name, int timeout_s);

void open_store(int64_t quota);
void reopen(void);
void setup(void);
void teardown(void);
/* Standard output of a command line in which %D is the store's folder; its exit status is 0. */
char *shell(const char *command);
void fsck(void);
int put(const char *path, const char *text);
void put_ok(const char *path, const char *text);
void link_ok(const char *path, const char *target);
int drop(const char *path, bool recursive);
int move(const char *from, const char *to, bool replace);
char *get(const char *path);                 /* a content as text; NULL: there is none */
const char *checkpoint(const char *message); /* its id, new */
int add_path(const char *path, size_t len, const struct sync_stat *st, const char *target,
             void *arg);
char *list(const char *folder, bool recursive, const char *after);
/* A time stamp is taken at its word once it is old enough to stand for one state of a file. */
void let_it_age(void);

#endif
