/* SPDX-License-Identifier: MIT */
/* What the handlers of a session's files and checkpoints share. */
#ifndef VMM_STORE_API_H
#define VMM_STORE_API_H

#include "vmm/request.h"
#include "vmm/store.h"

/* A request that is one job: run() does it in the pool, and leaves a status with an answer (or
 * none), or a fault in job.err. The request is answered on the loop. */
struct vmm_store_call {
    struct vmm_store_job job;
    struct vmm_request *req; /* with a reference */
    char session[VMM_ID_LEN + 1];
    char *path, *to, *text; /* path is bytes; all new, may be NULL */
    size_t path_len, to_len;
    bool flag, changes_files;
    int64_t limit;
    struct sync_condition condition;
    char etag[SYNC_ETAG_SIZE];
    char author[VMM_OWNER_MAX + 1];
    int status;
    json_t *answer; /* new; taken when it is sent */
    /* On the loop, before the answer goes out; may be NULL. */
    void (*then)(struct vmm_store_call *call);
};

/* NULL: the request was answered. */
struct vmm_store_call *vmm_store_call_new(struct vmm_request *req,
                                          void (*run)(struct vmm_store_job *job,
                                                      struct sync_store *store));
/* Start; or answer and free the call. */
void vmm_store_call_start(struct vmm_store_call *call);
/* Before a start. */
void vmm_store_call_free(struct vmm_store_call *call);

/* Answer with the status that fits a fault of the store. */
void vmm_store_reply_err(struct vmm_request *req, const struct err *err);

/* Put bytes into an object: as text in `key`, what is no UTF-8 replaced; then also as base 64 in
 * key_b64. Returns 0 or -ENOMEM. */
TR_MUST_CHECK int vmm_store_set_bytes(json_t *object, const char *key, const char *bytes,
                                      size_t len);
/* The bytes of a body's member `key`, or of key_b64, where NULs may be: *out is new, *len its
 * length. Returns 0, -ENOENT (neither is there), -EINVAL or -ENOMEM. */
TR_MUST_CHECK int vmm_store_get_bytes(const json_t *body, const char *key, char **out, size_t *len,
                                      struct err *err);
/* Percent-encoded for a query; new. */
char *vmm_store_encode(const char *bytes, size_t len);

/* If-Match and If-None-Match of a change (RFC 9110 sections 13.1.1 and 13.1.2). etag has room for
 * what condition points to. Returns 0 or -EINVAL. */
TR_MUST_CHECK int vmm_store_condition(const struct tr_h2_head *head,
                                      struct sync_condition *condition, char etag[SYNC_ETAG_SIZE],
                                      struct err *err);
/* {"path","type",...}; new, NULL without memory. */
json_t *vmm_store_view_entry(const char *path, size_t len, const struct sync_stat *st,
                             const char *target);
json_t *vmm_store_view_checkpoint(const struct sync_checkpoint *checkpoint);
json_t *vmm_store_view_change(const struct sync_change *change);
/* Of a query member: 1, 0 (absent, "0" or "false") or -1 (something else: answered 400). */
int vmm_store_query_flag(struct vmm_request *req, const char *name);
/* A number of a query member within 1..max; `otherwise` when absent; -1: answered 400. */
int64_t vmm_store_query_limit(struct vmm_request *req, int64_t max, int64_t otherwise);

#endif
