/* SPDX-License-Identifier: MIT */
/* Where the engine keeps contents that a step is about to overwrite or remove, so that nothing is
 * lost: in a session's store, Git objects that the next checkpoint holds on to. Blocks; the
 * engine's thread only. Faults: a negative errno with the reason in err. */
#ifndef SYNC_VAULT_H
#define SYNC_VAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sync/reconcile.h"
#include "transom/err.h"

enum sync_kept_why {
    SYNC_KEPT_OLDER,    /* the other side has a newer version */
    SYNC_KEPT_REMOVED,  /* the other side has removed it */
    SYNC_KEPT_CONFLICT, /* the loser of a conflict */
};

struct sync_kept {
    const char *path;
    size_t len;
    enum sync_side side; /* that had it */
    enum sync_kept_why why;
    struct sync_value value; /* a file or link; its content is in the vault */
};

struct sync_vault_ops {
    bool (*has)(void *vault, const struct sync_id *id);
    /* A descriptor from which the content can be read, to its end; the caller's to close. Or a
     * fault. */
    int (*open)(void *vault, const struct sync_id *id, struct err *err);
    /* Take a content: start, pieces, end. end: id NULL gives it up; -EBADMSG: it is another. */
    int (*put_start)(void *vault, int64_t size, struct err *err);
    int (*put_piece)(void *vault, const uint8_t *bytes, size_t len, struct err *err);
    int (*put_end)(void *vault, const struct sync_id *id, struct err *err);
    /* Hold on to it, from settle() on. */
    int (*keep)(void *vault, const struct sync_kept *kept, struct err *err);
    /* What was to be kept so far is, whatever happens. Called before anything is overwritten. */
    int (*settle)(void *vault, struct err *err);
    /* Would so many more bytes fit into the store? -EDQUOT, -ENOSPC. */
    int (*room)(void *vault, int64_t more, struct err *err);
};

#endif
