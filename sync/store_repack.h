/* SPDX-License-Identifier: MIT */
/* Many small files of a store's repository become one pack, in which versions of a file are kept as
 * differences. For a process of its own (vmm/repack.c): it needs memory and time, and the store may
 * be at work meanwhile.
 *
 * Order: the pack and its index written and fsync'd under names of their own, renamed, fsync of
 * their folder; every object read back from it; only then the small files go. Nothing is looked at
 * for being in use: what no checkpoint has is packed, too. */
#ifndef SYNC_STORE_REPACK_H
#define SYNC_STORE_REPACK_H

#include <stddef.h>
#include "transom/err.h"

/* dir: the store's folder; after sync_store_init(). *n: objects that were packed. */
TR_MUST_CHECK int sync_store_repack(const char *dir, size_t *n, struct err *err);

#endif
