/* SPDX-License-Identifier: MIT */
#include "sync/secrets.h"

#include <stdlib.h>
#include <string.h>

void sync_secrets_init(struct sync_secrets *s)
{
    pthread_mutex_init(&s->lock, NULL);
    s->mask = NULL;
    s->version = 0;
}

void sync_secrets_fini(struct sync_secrets *s)
{
    tr_mask_unref(s->mask);
    s->mask = NULL;
    pthread_mutex_destroy(&s->lock);
}

void sync_secrets_set(struct sync_secrets *s, struct tr_mask *mask)
{
    struct tr_mask *old;

    tr_mask_ref(mask);
    pthread_mutex_lock(&s->lock);
    old = s->mask;
    s->mask = mask;
    s->version++;
    pthread_mutex_unlock(&s->lock);
    tr_mask_unref(old);
}

uint64_t sync_secrets_version(struct sync_secrets *s)
{
    uint64_t version;

    if (s == NULL)
        return 0;
    pthread_mutex_lock(&s->lock);
    version = s->version;
    pthread_mutex_unlock(&s->lock);
    return version;
}

struct tr_mask *sync_secrets_take(struct sync_secrets *s)
{
    struct tr_mask *mask;

    if (s == NULL)
        return NULL;
    pthread_mutex_lock(&s->lock);
    mask = s->mask;
    tr_mask_ref(mask);
    pthread_mutex_unlock(&s->lock);
    return mask;
}

static void drop(const uint8_t *bytes, size_t len, void *arg)
{
    (void)bytes;
    (void)len;
    (void)arg;
}

bool sync_secrets_are_in(struct sync_secrets *s, const char *text, size_t len)
{
    struct sync_sieve sieve;

    sync_sieve_start(&sieve, s, drop, NULL);
    sync_sieve_feed(&sieve, (const uint8_t *)text, len);
    return sync_sieve_end(&sieve) != 0;
}

void sync_sieve_start(struct sync_sieve *sieve, struct sync_secrets *s, tr_mask_cb out, void *arg)
{
    struct tr_mask *mask = sync_secrets_take(s);

    *sieve = (struct sync_sieve){.out = out, .arg = arg};
    if (mask != NULL)
        sieve->status = tr_masker_new(mask, out, arg, &sieve->masker);
    tr_mask_unref(mask);
}

void sync_sieve_feed(struct sync_sieve *sieve, const uint8_t *bytes, size_t len)
{
    if (sieve->status != 0)
        return;
    if (sieve->masker == NULL) {
        sieve->out(bytes, len, sieve->arg);
        return;
    }
    sieve->status = tr_masker_write(sieve->masker, bytes, len);
    if (sieve->status == 0 && tr_masker_has_hidden(sieve->masker))
        sieve->status = 1;
}

int sync_sieve_end(struct sync_sieve *sieve)
{
    if (sieve->masker != NULL && sieve->status == 0)
        tr_masker_flush(sieve->masker);
    sync_sieve_drop(sieve);
    return sieve->status;
}

void sync_sieve_drop(struct sync_sieve *sieve)
{
    tr_masker_free(sieve->masker);
    sieve->masker = NULL;
}
