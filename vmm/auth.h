/* SPDX-License-Identifier: MIT */
/* API keys: who may do what. A key is shown once; on disk there is only its SHA-256, as the name
 * of its record, so that the look-up never compares a secret byte by byte. */
#ifndef VMM_AUTH_H
#define VMM_AUTH_H

#include <jansson.h>
#include <stdbool.h>
#include "vmm/rate.h"
#include "vmm/text.h"

#define VMM_OWNER_MAX    64
#define VMM_KEY_MAX      10000
#define VMM_KEY_SIZE     64 /* "transom_" + 40 hex digits + NUL fits */
#define VMM_KEY_HASH_LEN 64
#define VMM_KEY_NAME_MAX 128

/* Each scope includes the ones before it. admin reaches every owner's things. */
enum vmm_scope { VMM_SCOPE_NONE, VMM_SCOPE_READ, VMM_SCOPE_SESSION, VMM_SCOPE_ADMIN };

struct vmm_identity {
    char owner[VMM_OWNER_MAX + 1];
    enum vmm_scope scope;
    char key[VMM_ID_LEN + 1]; /* id of the key; "": a local user without one */
    struct vmm_rate *rate;    /* of the key, NULL without one; borrowed until a key is deleted */
};

/* What is kept of a key. */
struct vmm_key {
    char hash[VMM_KEY_HASH_LEN + 1];
    char id[VMM_ID_LEN + 1];
    char owner[VMM_OWNER_MAX + 1];
    char name[VMM_KEY_NAME_MAX + 1];
    enum vmm_scope scope;
    int64_t created_ms;
    struct vmm_rate rate; /* of its requests; in memory alone */
    struct vmm_key *next;
};

struct vmm_auth;

/* Load the records in dir (created when missing). A broken record is set aside. */
TR_MUST_CHECK int vmm_auth_open(const char *dir, struct vmm_auth **out, struct err *err);
void vmm_auth_free(struct vmm_auth *auth);

/* Who holds this key? 0, or -EACCES and *out is untouched. */
TR_MUST_CHECK int vmm_auth_check(const struct vmm_auth *auth, const char *key,
                                 struct vmm_identity *out);
/* The key of an "authorization" header field, borrowed; NULL when it is not a Bearer one. */
const char *vmm_auth_bearer(const char *field);

const char *vmm_scope_name(enum vmm_scope scope);
bool vmm_owner_valid(const char *owner);
/* The widest of a JSON list of scope names. Returns 0, or -EINVAL with the reason. */
TR_MUST_CHECK int vmm_scopes_parse(const json_t *list, enum vmm_scope *out, struct err *err);

/* Make a key. *out: its record with the member "key" (new reference). -EDQUOT: too many keys. */
TR_MUST_CHECK int vmm_auth_create(struct vmm_auth *auth, const char *owner, const char *name,
                                  enum vmm_scope scope, json_t **out, struct err *err);
/* A record without the key (new reference; NULL when out of memory). */
json_t *vmm_key_view(const struct vmm_key *k);
/* One after the other by their next; borrowed until one is made or deleted. */
const struct vmm_key *vmm_auth_keys(const struct vmm_auth *auth);
/* NULL: there is none. */
const struct vmm_key *vmm_auth_by_hash(const struct vmm_auth *auth, const char *hash);
const struct vmm_key *vmm_auth_by_id(const struct vmm_auth *auth, const char *id);
size_t vmm_auth_n_keys(const struct vmm_auth *auth);
/* 0, -ENOENT, or the fault of the disk. */
TR_MUST_CHECK int vmm_auth_delete(struct vmm_auth *auth, const char *id, struct err *err);

#endif
