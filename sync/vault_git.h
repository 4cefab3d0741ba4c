/* SPDX-License-Identifier: MIT */
/* The vault of a session: contents become Git objects of its store's repository, and each batch of
 * them one commit of a line of its own, refs/transom/kept, so that they are reachable and outlive
 * any packing. Checkpoints are another line (sync/store.h).
 *
 * A commit's tree has one entry per content, named by its id; its message has one line per content:
 * why it was kept ("older", "removed", "conflict"), the side that had it, its mode as Git writes
 * it, its id, and its path, of which bytes that are no printable ASCII, and backslashes, are \xNN.
 *
 * It has the repository open by itself, so it needs no turn among the store's jobs. What it writes
 * counts for the quota once the store is counted again (sync_store_recount()). */
#ifndef SYNC_VAULT_GIT_H
#define SYNC_VAULT_GIT_H

#include "sync/vault.h"

#define SYNC_KEPT_REF "refs/transom/kept"

struct sync_vault_git;

/* dir: the store's folder (with store.git); after sync_store_init(). Returns 0 with *out, or a
 * fault. */
TR_MUST_CHECK int sync_vault_git_open(const char *dir, struct sync_vault_git **out,
                                      struct err *err);
void sync_vault_git_close(struct sync_vault_git *vault); /* NULL is fine */
/* From any thread: bytes that the store's files may still grow by; < 0: no bound. */
void sync_vault_git_set_room(struct sync_vault_git *vault, int64_t bytes);

extern const struct sync_vault_ops sync_vault_git_ops;

#endif
