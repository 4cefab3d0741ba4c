/* SPDX-License-Identifier: MIT */
/* Sessions and their sandboxes: what exists, in memory and on disk
 * (state_dir/sessions/<id>/session.json and sandboxes/<name>.json). */
#ifndef VMM_SESSION_H
#define VMM_SESSION_H

#include "vmm/auth.h"
#include "vmm/sandbox.h"
#include "vmm/table.h"

#define VMM_SESSION_NAME_MAX 128
#define VMM_SESSIONS_MAX     100000
#define VMM_SESSION_GONE     ".gone-" /* what is left of a deleted one: this and its id */
#define VMM_IDLE_MAX_S       31536000
#define VMM_GONE_KEPT        1024 /* deleted sessions remembered, so that deleting again is fine */

struct vmm_session {
    char id[VMM_ID_LEN + 1];
    char owner[VMM_OWNER_MAX + 1];
    char name[VMM_SESSION_NAME_MAX + 1];
    int64_t created_ms;
    json_t *secrets;          /* names of those that are active; array */
    uint64_t secrets_version; /* grows with each change of them or of their values */
    bool persist;             /* see struct vmm_session_settings */
    int64_t idle_timeout_s;
    bool deleting; /* kept on disk too: a deletion is finished after a crash */
    struct vmm_sandbox *sandboxes;
    struct vmm_session *prev, *next; /* in the order of creation */
};

struct vmm_gone {
    char id[VMM_ID_LEN + 1];
    char owner[VMM_OWNER_MAX + 1];
};

struct vmm_sessions {
    char dir[512];
    const struct vmm_sandbox_ops *ops;
    void *ops_arg;
    int64_t vcpus, memory_mb, disk_mb, start_timeout_ms; /* of new sandboxes */
    struct vmm_table by_id, by_label;
    struct vmm_session *first, *last;
    struct vmm_session *dead; /* removed; callers up the stack may still look at them */
    struct vmm_gone gone[VMM_GONE_KEPT];
    size_t n_gone;
};

/* Load what is on disk; records that cannot be read are set aside. The members ops to
 * start_timeout_ms are the caller's to fill in before. */
TR_MUST_CHECK int vmm_sessions_open(struct vmm_sessions *s, const char *dir, struct err *err);
void vmm_sessions_close(struct vmm_sessions *s);

/* What its owner decides. */
struct vmm_session_settings {
    const char *name;       /* borrowed; NULL: none, or left as it is */
    bool persist;           /* the idle rule gives it idle.persist_timeout_s */
    int64_t idle_timeout_s; /* its own, at most VMM_IDLE_MAX_S; 0: that of the configuration */
};

/* Make a session with its sandbox "primary", on disk when this returns 0. *out is borrowed. */
TR_MUST_CHECK int vmm_session_new(struct vmm_sessions *s, const char *owner,
                                  const struct vmm_session_settings *settings,
                                  struct vmm_session **out, struct err *err);
/* Change what its owner decides, on disk and in memory, or neither. */
TR_MUST_CHECK int vmm_session_change(struct vmm_sessions *s, struct vmm_session *session,
                                     const struct vmm_session_settings *settings, struct err *err);
struct vmm_session *vmm_session_find(const struct vmm_sessions *s, const char *id);
struct vmm_sandbox *vmm_session_sandbox(const struct vmm_session *session, const char *name);
struct vmm_sandbox *vmm_sessions_by_label(const struct vmm_sessions *s, const char *label);
/* Was it deleted not long ago, and whose was it? NULL: not known. */
const struct vmm_gone *vmm_sessions_gone(const struct vmm_sessions *s, const char *id);

/* Mark on disk and in memory that it goes. */
TR_MUST_CHECK int vmm_session_mark_deleting(struct vmm_sessions *s, struct vmm_session *session,
                                            struct err *err);
/* Its folder gets a name that begins with VMM_SESSION_GONE, for vmm_stores_sweep() to remove: there
 * may be many files in it. All its sandboxes are asleep or failed. Its memory stays until
 * vmm_sessions_reap(), since this may run inside a callback of one of its sandboxes. */
TR_MUST_CHECK int vmm_session_remove(struct vmm_sessions *s, struct vmm_session *session,
                                     struct err *err);
/* Free what was removed. From the loop only. */
void vmm_sessions_reap(struct vmm_sessions *s);
/* Keep a session's record. */
TR_MUST_CHECK int vmm_session_save(struct vmm_sessions *s, const struct vmm_session *session,
                                   struct err *err);
/* Keep a sandbox's record. */
TR_MUST_CHECK int vmm_sandbox_save(struct vmm_sessions *s, const struct vmm_sandbox *sb,
                                   struct err *err);

#endif
