/* SPDX-License-Identifier: MIT */
/* Sealing bytes for the disk: AES-256-GCM (NIST SP 800-38D), a random nonce for each record, keys
 * in a file of their own. */
#ifndef VMM_SEAL_H
#define VMM_SEAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

struct vmm_seal;

/* Load dir/name: a regular file of ours that nobody else may read; anything else is refused with
 * what to do. may_create: make it when there is none; else its absence is a fault, since what was
 * sealed before could never be opened. */
TR_MUST_CHECK int vmm_seal_open(const char *dir, const char *name, bool may_create,
                                struct vmm_seal **out, struct err *err);
/* Wipes the keys. */
void vmm_seal_free(struct vmm_seal *seal);

/* *out: a new record {"key","nonce","data"}, which opens only together with the same context. */
TR_MUST_CHECK int vmm_seal(const struct vmm_seal *seal, const char *context, const void *data,
                           size_t len, json_t **out, struct err *err);
/* *data: new, with a NUL behind it; wipe it before it is freed. -EBADMSG: altered, of another
 * context, or its key is gone. */
TR_MUST_CHECK int vmm_unseal(const struct vmm_seal *seal, const char *context, const json_t *record,
                             uint8_t **data, size_t *len, struct err *err);

/* Is a record sealed by the newest key? */
bool vmm_seal_is_current(const struct vmm_seal *seal, const json_t *record);
/* Seal by a new key from now on; the old ones still open. On disk when this returns 0. While old
 * ones are left from a rotation that was not finished, no further key is made. */
TR_MUST_CHECK int vmm_seal_rotate(struct vmm_seal *seal, struct err *err);
/* Forget all keys but the newest, on disk too: when nothing is sealed by them any more. */
TR_MUST_CHECK int vmm_seal_forget_old(struct vmm_seal *seal, struct err *err);

#endif
