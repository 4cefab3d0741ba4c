/* SPDX-License-Identifier: MIT */
/* What of a guest's files goes into the session's store, and why the rest does not. It rules the
 * way from guest to store only: whatever is in the store goes to the guest.
 *
 * The rules, in the order in which they are asked; filter.c holds the names, in one table:
 *  1. Paths that no store should hold: "..", NUL, names over 255 bytes, more than 128 levels.
 *  2. Private things at the home's top level, and the session's own .git folders, which are kept
 *     in their own way. Nothing lifts these.
 *  3. Dependencies, caches, build output and logs, by name. A "!" line of .transomignore that
 *     matches the folder or file itself lifts this.
 *  4. .gitignore and .transomignore.
 *  5. Devices, sockets and FIFOs. A symbolic link travels as a link and is never followed.
 *  6. The size limit, and what the file is (sync/kinds.h).
 * A path that the store holds already is not asked about logs, nor 6: a file does not stop
 * travelling because it grew. The rest holds for it, too: a path that comes to be ignored stops
 * travelling and is deleted on neither side.
 */
#ifndef SYNC_FILTER_H
#define SYNC_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/ignore.h"
#include "sync/kinds.h"
#include "sync/node.h"

#define SYNC_SIZE_LIMIT (INT64_C(10) * 1024 * 1024) /* bytes; the default, 10 MB */

enum sync_why {
    SYNC_TAKEN = 0,
    SYNC_WHY_BAD_PATH,
    SYNC_WHY_LONG_NAME,
    SYNC_WHY_DEEP,
    SYNC_WHY_SPECIAL,
    SYNC_WHY_PRIVATE,
    SYNC_WHY_GIT,
    SYNC_WHY_DEPENDENCY,
    SYNC_WHY_CACHE,
    SYNC_WHY_BUILD,
    SYNC_WHY_LOG,
    SYNC_WHY_IGNORED,
    SYNC_WHY_BAD_RULES,
    SYNC_WHY_SIZE,
    SYNC_WHY_BINARY,
    SYNC_WHY_MISMATCH,
    SYNC_WHY_SECRET, /* the engine's word, not the filter's (sync/secrets.h) */
    SYNC_N_WHY,
};

/* Does the guest have name in the folder dir ("" is the home)? Asked for folders like build, which
 * is build output only beside what builds it. Must not change the filter or its rules. */
typedef bool (*sync_has_cb)(const char *dir, size_t dir_len, const char *name, void *arg);

/* All in the caller's memory; what is pointed to is borrowed. */
struct sync_filter {
    const struct sync_ignore *ignore; /* NULL: no rules */
    int64_t size_limit;               /* bytes a file may have; 0: SYNC_SIZE_LIMIT */
    sync_has_cb has;                  /* NULL: nothing is beside anything */
    void *arg;                        /* for has */
};

struct sync_entry {
    const char *path; /* bytes, relative to the home folder; hostile; borrowed */
    size_t len;
    enum sync_type type;
    int64_t size; /* bytes, of a file */
    bool is_held; /* the store has this path */
};

/* All that path, type and size can tell. A folder that is not taken need not be entered or watched:
 * nothing below it is. A file that passes is to be read, and sync_filter_kind() has the last word.
 * at may be NULL; else it is set to the length of the part of the path that the reason is about. */
enum sync_why sync_filter_path(const struct sync_filter *filter, const struct sync_entry *entry,
                               size_t *at);

/* The same for a caller who walks down and knows that every folder above has passed. */
enum sync_why sync_filter_last(const struct sync_filter *filter, const struct sync_entry *entry);

/* What the content adds, for a file that has passed. */
enum sync_why sync_filter_kind(const struct sync_entry *entry, enum sync_kind kind);

/* The table of names, for documents and tests. */
struct sync_filter_rule {
    const char *name;            /* a pattern (sync/wild.h) */
    bool is_top;                 /* of the home's top level; else a name anywhere ... */
    bool is_dir;                 /* ... of a folder, or of a file */
    const char *beside, *inside; /* counts only so; names separated by blanks, or NULL */
    enum sync_why why;
};
/* Rule i, in the order in which they are asked. Returns false behind the last. */
bool sync_filter_rule(size_t i, struct sync_filter_rule *out);

/* For programs ("too-big") and for people ("larger than the limit"); static. */
const char *sync_why_name(enum sync_why why);
const char *sync_why_text(enum sync_why why);

#endif
