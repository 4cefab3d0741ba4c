/* SPDX-License-Identifier: MIT */
#include "gateway/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 64

int gw_pool_init(struct gw_pool *pool)
{
    memset(pool, 0, sizeof(*pool));
    pool->buckets = calloc(FIRST_BUCKETS, sizeof(struct gw_upstream_set *));
    if (pool->buckets == NULL)
        return UV_ENOMEM;
    pool->n_buckets = FIRST_BUCKETS;
    return 0;
}

void gw_pool_fini(struct gw_pool *pool)
{
    assert(pool->n_sets == 0);
    free(pool->buckets);
}

/* Labels are random already; all instances of a label share a bucket. */
static size_t bucket_of(const struct gw_pool *pool, const char *label)
{
    uint64_t a, b;

    memcpy(&a, label, 8);
    memcpy(&b, label + 8, 8);
    a = (a ^ (b << 1)) * 0x9e3779b97f4a7c15ull;
    return (size_t)(a >> 32) & (pool->n_buckets - 1);
}

struct gw_upstream_set *gw_pool_find(struct gw_pool *pool, const char *label, uint64_t instance)
{
    struct gw_upstream_set *set;

    for (set = pool->buckets[bucket_of(pool, label)]; set != NULL; set = set->hash_next)
        if (set->instance == instance && memcmp(set->label, label, TR_LABEL_LEN) == 0)
            return set;
    return NULL;
}

struct gw_upstream_set *gw_pool_other(struct gw_pool *pool, const char *label, uint64_t keep)
{
    struct gw_upstream_set *set;

    for (set = pool->buckets[bucket_of(pool, label)]; set != NULL; set = set->hash_next)
        if ((keep == 0 || set->instance != keep) && memcmp(set->label, label, TR_LABEL_LEN) == 0)
            return set;
    return NULL;
}

static void grow(struct gw_pool *pool)
{
    struct gw_upstream_set **old = pool->buckets;
    size_t n = pool->n_buckets;
    struct gw_upstream_set **fresh = calloc(n * 2, sizeof(struct gw_upstream_set *));

    if (fresh == NULL)
        return; /* longer chains */
    pool->buckets = fresh;
    pool->n_buckets = n * 2;
    for (size_t i = 0; i < n; i++) {
        while (old[i] != NULL) {
            struct gw_upstream_set *set = old[i], **head;

            old[i] = set->hash_next;
            head = &pool->buckets[bucket_of(pool, set->label)];
            set->hash_next = *head;
            *head = set;
        }
    }
    free(old);
}

struct gw_upstream_set *gw_pool_get(struct gw_pool *pool, const char *label, uint64_t instance)
{
    struct gw_upstream_set *set = gw_pool_find(pool, label, instance), **head;

    if (set != NULL)
        return set;
    set = calloc(1, sizeof(*set));
    if (set == NULL)
        return NULL;
    memcpy(set->label, label, TR_LABEL_LEN);
    set->instance = instance;
    if (++pool->n_sets > pool->n_buckets)
        grow(pool);
    head = &pool->buckets[bucket_of(pool, label)];
    set->hash_next = *head;
    *head = set;
    return set;
}

void gw_pool_drop(struct gw_pool *pool, struct gw_upstream_set *set)
{
    struct gw_upstream_set **link = &pool->buckets[bucket_of(pool, set->label)];

    if (set->n > 0)
        return;
    while (*link != set)
        link = &(*link)->hash_next;
    *link = set->hash_next;
    pool->n_sets--;
    free(set);
}
