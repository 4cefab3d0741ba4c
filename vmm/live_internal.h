/* SPDX-License-Identifier: MIT */
/* What the parts of the live view share: live.c (connection, changes), live_send.c (what is written
 * of each thing), live_back.c (all of it anew). */
#ifndef VMM_LIVE_INTERNAL_H
#define VMM_LIVE_INTERNAL_H

#include "vmm/live.h"

#define LIVE_EVENT_STATS    "sandbox.stats" /* never among Redis's events */
#define LIVE_SECRET_ID_SIZE (VMM_OWNER_MAX + VMM_SECRET_NAME_MAX + 4) /* "x:OWNER:NAME" */

struct vmm_live {
    struct vmm *vmm;
    struct tr_redis *redis;
    uv_timer_t timer; /* heartbeat; the deadline of leaving */
    char *url;        /* without password */
    char key_node[96], key_labels[96], key_sessions[96], key_keys[96], key_secrets[96];
    bool was_up, leaving, closing;
    bool writing_back;
    char next_session[VMM_ID_LEN + 1];   /* write-back: where to go on; "" at its start */
    char next_key[VMM_KEY_HASH_LEN + 1]; /* the same of keys, which come first */
    bool keys_written;
    const struct vmm_secret *next_secret; /* the same of secrets, which come second */
    bool secrets_written;
    unsigned n_batch;    /* scripts of the write-back under way */
    uint64_t event_sent; /* id of the last event given to Redis */
    int n_open;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* Can anything be sent? */
bool live_usable(const struct vmm_live *live);
/* For a reply that nobody waits for: a refusal is logged. arg is not used. */
void live_on_reply(struct redisReply *reply, void *arg);

/* live_send.c. Each sends one script or command; 0: cb will run, with arg or else live. */
int live_send_sandbox(struct vmm_live *live, const struct vmm_sandbox *sb, const char *event,
                      tr_redis_reply_cb cb, void *arg);
int live_send_session(struct vmm_live *live, const struct vmm_session *session, const char *event,
                      tr_redis_reply_cb cb);
int live_send_key(struct vmm_live *live, const struct vmm_key *k, tr_redis_reply_cb cb);
int live_send_secret(struct vmm_live *live, const struct vmm_secret *s, tr_redis_reply_cb cb);
/* Remove what is named, or with keep all of ours that is not named. ids: "l:LABEL", "s:SESSION",
 * "k:HASH", "x:OWNER:NAME". */
int live_send_prune(struct vmm_live *live, bool keep, const char *event, const char **ids,
                    size_t n_ids, tr_redis_reply_cb cb);
int live_send_leave(struct vmm_live *live, tr_redis_reply_cb cb);
void live_send_event(struct vmm_live *live, const char *event);
void live_send_node(struct vmm_live *live);
void live_send_stats(struct vmm_live *live, const char *label, const json_t *sample);

/* live_back.c: send everything there is, in pieces, so that neither end is flooded. */
void live_write_back(struct vmm_live *live);

#endif
