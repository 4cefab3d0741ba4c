/* SPDX-License-Identifier: MIT */
/* Path: begin (new) -> the handler -> end: kept until it is too old or too many came after it. */
#include "vmm/replay.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/request.h"
#include "vmm/router.h"
#include "vmm/vmm.h"

#define HASH_SIZE (2 * SHA256_DIGEST_LENGTH + 1)

struct vmm_replay {
    char id[HASH_SIZE];   /* of owner, operation and key */
    char body[HASH_SIZE]; /* of the request's body */
    bool done;            /* status and answer are valid; else the first one is under way */
    int status;
    char *answer; /* may hold an API key */
    size_t len;
    uint64_t at_ms;
    struct vmm_replay *prev, *next;
};

static void forget(struct vmm_replays *all, struct vmm_replay *r)
{
    (void)vmm_table_take(&all->by_id, r->id);
    *(r->prev != NULL ? &r->prev->next : &all->first) = r->next;
    *(r->next != NULL ? &r->next->prev : &all->last) = r->prev;
    if (r->answer != NULL)
        explicit_bzero(r->answer, r->len);
    free(r->answer);
    free(r);
}

void vmm_replays_fini(struct vmm_replays *all)
{
    while (all->first != NULL)
        forget(all, all->first);
    vmm_table_fini(&all->by_id);
}

/* Make room. Those under way stay: there are no more of them than requests. */
static void sweep(struct vmm_replays *all, uint64_t now)
{
    for (struct vmm_replay *r = all->first, *next; r != NULL; r = next) {
        next = r->next;
        if (now - r->at_ms < VMM_REPLAY_MS && all->by_id.n_entries < VMM_REPLAYS_MAX)
            return;
        if (r->done)
            forget(all, r);
    }
}

static void hash(const void *data, size_t len, char out[HASH_SIZE])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];

    SHA256(data, len, digest);
    vmm_hex(digest, sizeof(digest), out);
}

/* None of the texts can hold a line end. Returns false without memory. */
static bool make_id(const struct vmm_request *req, const char *key, char out[HASH_SIZE])
{
    char *text;
    int len =
        asprintf(&text, "%s\n%s\n%s\n%s", req->who.owner, req->endpoint->method, req->path, key);

    if (len < 0)
        return false;
    hash(text, (size_t)len, out);
    free(text);
    return true;
}

static bool key_valid(const char *key)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < len; i++) {
        if (key[i] < 0x20 || key[i] > 0x7e)
            return false;
    }
    return len > 0 && len <= VMM_REPLAY_NAME;
}

/* The id of what is asked for is known. Returns whether the handler should run. */
static bool answer_again(struct vmm_request *req, const struct vmm_replay *r, const char *body)
{
    if (strcmp(r->body, body) != 0) {
        vmm_reply_fault(req, 422, "idempotency_key_reused",
                        "this idempotency key came with another body before; use a new one");
    } else if (!r->done) {
        req->retry_after_s = 1;
        vmm_reply_error(req, 409, "the first request with this idempotency key is under way");
    } else {
        req->replayed = true;
        req->vmm->figures.replayed++;
        vmm_reply_bytes(req, r->status, "application/json", r->answer, r->len);
    }
    return false;
}

bool vmm_replay_begin(struct vmm_request *req)
{
    struct vmm_replays *all = &req->vmm->replays;
    const char *key = tr_h2_head_get(req->head, "idempotency-key");
    uint64_t now = uv_now(req->vmm->loop);
    char id[HASH_SIZE], body[HASH_SIZE];
    struct vmm_replay *r;

    if (key == NULL)
        return true;
    if (!key_valid(key)) {
        vmm_reply_error(req, 400, "idempotency-key must be 1 to %d printable ASCII characters",
                        VMM_REPLAY_NAME);
        return false;
    }
    if (!make_id(req, key, id)) {
        vmm_reply_error(req, 503, "out of memory");
        return false;
    }
    hash(req->raw != NULL ? req->raw : "", req->raw_len, body);
    sweep(all, now);
    r = vmm_table_get(&all->by_id, id);
    if (r != NULL)
        return answer_again(req, r, body);
    r = calloc(1, sizeof(*r));
    if (r != NULL) {
        memcpy(r->id, id, sizeof(id));
        memcpy(r->body, body, sizeof(body));
        r->at_ms = now;
    }
    if (r == NULL || vmm_table_set(&all->by_id, id, r) != 0) {
        free(r);
        vmm_reply_error(req, 503, "out of memory");
        return false;
    }
    r->prev = all->last;
    *(all->last != NULL ? &all->last->next : &all->first) = r;
    all->last = r;
    req->replay = r;
    return true;
}

void vmm_replay_end(struct vmm_request *req, int status, const void *data, size_t len)
{
    struct vmm_replay *r = req->replay;

    req->replay = NULL;
    if (status / 100 == 2 && len <= VMM_REPLAY_ANSWER)
        r->answer = malloc(len + 1);
    if (r->answer == NULL) {
        forget(&req->vmm->replays, r);
        return;
    }
    memcpy(r->answer, data, len);
    r->len = len;
    r->status = status;
    r->done = true;
}

void vmm_replay_drop(struct vmm_request *req)
{
    if (req->replay != NULL)
        forget(&req->vmm->replays, req->replay);
    req->replay = NULL;
}
