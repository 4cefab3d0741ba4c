/* SPDX-License-Identifier: MIT */
/* Secrets: named values of an owner, sealed on disk (dir/<owner>/<name>.json), opened only when a
 * session that activated them needs them. */
#ifndef VMM_SECRET_H
#define VMM_SECRET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"
#include "vmm/auth.h"

#define VMM_SECRET_NAME_MAX  128
#define VMM_SECRET_VALUE_MAX 65536
#define VMM_SECRETS_PER_USER 1000

struct vmm_secret {
    char owner[VMM_OWNER_MAX + 1];
    char name[VMM_SECRET_NAME_MAX + 1];
    int64_t created_ms, updated_ms;
    json_t *sealed;
    struct vmm_secret *next;
};

struct vmm_secrets;

/* Load what is in dir; a broken record is set aside. The key file is key_dir/secret.key. */
TR_MUST_CHECK int vmm_secrets_open(const char *dir, const char *key_dir, struct vmm_secrets **out,
                                   struct err *err);
void vmm_secrets_free(struct vmm_secrets *s);

/* A secret is an environment variable: a name of one ([A-Za-z_][A-Za-z0-9_]*), but none that steers
 * a shell, a loader or Transom itself. -EINVAL with the reason. */
TR_MUST_CHECK int vmm_secret_name_check(const char *name, struct err *err);
/* Make or replace; on disk when this returns 0. *created: was there none before? -EINVAL: a name or
 * value that cannot be (a NUL is none an environment can carry), -E2BIG, -EDQUOT. */
TR_MUST_CHECK int vmm_secret_set(struct vmm_secrets *s, const char *owner, const char *name,
                                 const void *value, size_t len, bool *created, struct err *err);
/* Borrowed; NULL: there is none. */
const struct vmm_secret *vmm_secret_find(const struct vmm_secrets *s, const char *owner,
                                         const char *name);
/* All of all owners, by next; borrowed until one is set or deleted. */
const struct vmm_secret *vmm_secrets_first(const struct vmm_secrets *s);
size_t vmm_secrets_count(const struct vmm_secrets *s);
/* *value: new, with a NUL behind it; wipe it before it is freed. */
TR_MUST_CHECK int vmm_secret_value(const struct vmm_secrets *s, const struct vmm_secret *secret,
                                   uint8_t **value, size_t *len, struct err *err);
/* 0, -ENOENT, or the fault of the disk. */
TR_MUST_CHECK int vmm_secret_delete(struct vmm_secrets *s, const char *owner, const char *name,
                                    struct err *err);
/* A new key; every record is sealed again, then the old keys are forgotten. After a crash in
 * between the next one finishes it. *n: how many were sealed again. */
TR_MUST_CHECK int vmm_secrets_rotate(struct vmm_secrets *s, size_t *n, struct err *err);

#endif
