/* SPDX-License-Identifier: MIT */
/* Ignore rules of one session: every .gitignore with Git's exact meaning, and .transomignore, the
 * same language, on top of them.
 *
 * Only what the session's own tree says counts: no .git/info/exclude, no core.excludesFile, no file
 * of the host or its users. Rules are handed in as bytes and paths are judged as bytes and a type,
 * so this needs no file system: the host asks about paths that exist in a guest only.
 * A .gitignore that is itself ignored still rules; one that is a symbolic link does not (the caller
 * must not hand in what it points to), as in Git.
 *
 * .transomignore is a level of its own: a line of any .transomignore that matches decides, be it a
 * pattern or a "!"; only where none does, .gitignore files are asked. Within a level the deepest
 * folder's file is asked first and the last matching line of a file wins. Below an ignored folder
 * everything is ignored and rules are not even looked for, as in Git.
 *
 * Why not libgit2, whose git_ignore_path_is_ignored() answers a like question. Version 1.5 reads
 * rules and file types from a tree on this host's disk, follows symbolic links to tell folders, and
 * accepts rules from memory for the top folder only. A NUL ends the file for it, not the line; tabs
 * and every CR at a line's end go; an escaped slash is none; a "!" may go unheard. Measured with
 * tests/integration/15-sync-filter: of 30,859 generated verdicts 720 were not git's, and 2 of 400
 * sets of rules crashed it; without NULs, tabs and escaped slashes 105 of 22,556, and 1 of 300.
 * Rules come from a hostile guest, so the language is matched here, in bounded time, and git is the
 * oracle.
 */
#ifndef SYNC_IGNORE_H
#define SYNC_IGNORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

enum {
    SYNC_IGNORE_FILE_MAX = 256 * 1024,       /* bytes of one file */
    SYNC_IGNORE_LINES_MAX = 4096,            /* patterns in one file */
    SYNC_IGNORE_FILES_MAX = 8192,            /* files of one session */
    SYNC_IGNORE_TOTAL_MAX = 8 * 1024 * 1024, /* bytes of all files of one session */
};

enum sync_ignore_level {
    SYNC_IGNORE_GIT,     /* .gitignore */
    SYNC_IGNORE_TRANSOM, /* .transomignore */
};

enum sync_ignore_verdict {
    SYNC_IGNORE_NONE,   /* no line matches: not ignored */
    SYNC_IGNORE_KEEP,   /* a "!" line matches: not ignored */
    SYNC_IGNORE_YES,    /* ignored, itself or with a folder above it */
    SYNC_IGNORE_UNSURE, /* rules of a folder above were refused: nobody knows */
};

/* Which line decided; for people. */
struct sync_ignore_hit {
    enum sync_ignore_level level;
    const char *dir; /* borrowed from the rules until they change; "" is the home folder */
    size_t dir_len;
    uint32_t line; /* from 1; 0: no line did, or the whole file was refused */
    size_t up_to;  /* length of the part of the path that the line matched */
};

struct sync_ignore;

/* Returns 0 with *out set (caller frees it) or UV_ENOMEM. */
TR_MUST_CHECK int sync_ignore_new(struct sync_ignore **out);
void sync_ignore_free(struct sync_ignore *ig);

/* The rules of one folder ("" is the home folder) are now these bytes; they are copied.
 * UV_E2BIG: over a limit; what the folder holds is SYNC_IGNORE_UNSURE until its rules are set or
 * dropped again. UV_ENOSPC: too many files with rules; the whole session is unsure from then on,
 * also when files are dropped: make the rules anew.
 * UV_EINVAL: dir is no path that sync_path_check() takes. UV_ENOMEM: nothing has changed. */
TR_MUST_CHECK int sync_ignore_set(struct sync_ignore *ig, enum sync_ignore_level level,
                                  const char *dir, size_t dir_len, const char *bytes, size_t len,
                                  struct err *err);

/* The folder has no such file any more. Nothing happens if it had none. */
void sync_ignore_drop(struct sync_ignore *ig, enum sync_ignore_level level, const char *dir,
                      size_t dir_len);

/* Judge a path that sync_path_check() takes, together with every folder above it. A symbolic link
 * is no folder, wherever it points. hit may be NULL. */
enum sync_ignore_verdict sync_ignore_check(const struct sync_ignore *ig, const char *path,
                                           size_t len, bool is_dir, struct sync_ignore_hit *hit);

/* The same for a caller who walks down and knows that no folder above is ignored. */
enum sync_ignore_verdict sync_ignore_check_last(const struct sync_ignore *ig, const char *path,
                                                size_t len, bool is_dir,
                                                struct sync_ignore_hit *hit);

#endif
