/* SPDX-License-Identifier: MIT */
/* The secrets that are active in a session, as the engine sees them: nothing that comes from the
 * guest goes into the store while it holds one of them (include/transom/mask.h says in which
 * forms), be it in a content, a name or the target of a link.
 *
 * One thread says what they are, another asks. Whoever gives a guest a secret tells it here first:
 * all that the guest can have written with it is then judged by it. */
#ifndef SYNC_SECRETS_H
#define SYNC_SECRETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"
#include "transom/mask.h"

struct sync_secrets { /* in the caller's memory */
    pthread_mutex_t lock;
    struct tr_mask *mask; /* under the lock, like version */
    uint64_t version;
};

void sync_secrets_init(struct sync_secrets *s);
void sync_secrets_fini(struct sync_secrets *s);
/* These and no others from now on; what was left out for one that is gone is judged anew in the
 * next round. Takes a reference; NULL: none. */
void sync_secrets_set(struct sync_secrets *s, struct tr_mask *mask);

/* For all below s may be NULL: there are none. */

/* Grows with each change. */
uint64_t sync_secrets_version(struct sync_secrets *s);
/* What hides them, with a reference; NULL: none. */
struct tr_mask *sync_secrets_take(struct sync_secrets *s);
/* Is one of them in this text? Also true when memory is out, and nobody knows. */
bool sync_secrets_are_in(struct sync_secrets *s, const char *text, size_t len);

/* A content on its way. What comes out at the other end holds no secret, and as soon as one was
 * found it is not the content any more: it is to be given up. */
struct sync_sieve {
    struct tr_masker *masker; /* NULL: all passes */
    tr_mask_cb out;
    void *arg;
    int status; /* 1: a secret was found; UV_ENOMEM */
};

/* By the secrets of now. out runs within the calls below. */
void sync_sieve_start(struct sync_sieve *sieve, struct sync_secrets *s, tr_mask_cb out, void *arg);
void sync_sieve_feed(struct sync_sieve *sieve, const uint8_t *bytes, size_t len);
/* Once. Returns 0 when all that was fed has come out; 1: there is a secret in it; or UV_ENOMEM:
 * nobody knows. */
TR_MUST_CHECK int sync_sieve_end(struct sync_sieve *sieve);
/* Or this: nothing more comes out. */
void sync_sieve_drop(struct sync_sieve *sieve);

#endif
