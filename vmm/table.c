/* SPDX-License-Identifier: MIT */
/* Chained hashing. Keys are random identifiers of ours or hashes, so a plain FNV-1a will do: nobody
 * outside chooses a key that is stored. */
#include "vmm/table.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct vmm_table_entry {
    struct vmm_table_entry *next;
    void *value;
    char key[];
};

static size_t slot_of(const char *key, size_t n_slots)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    return (size_t)(h & (n_slots - 1));
}

static int grow(struct vmm_table *t)
{
    size_t n = t->n_slots ? t->n_slots * 2 : 64;
    struct vmm_table_entry **slots = calloc(n, sizeof(struct vmm_table_entry *));

    if (slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < t->n_slots; i++) {
        struct vmm_table_entry *e, *next;

        for (e = t->slots[i]; e != NULL; e = next) {
            size_t s = slot_of(e->key, n);

            next = e->next;
            e->next = slots[s];
            slots[s] = e;
        }
    }
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return 0;
}

static struct vmm_table_entry **find(const struct vmm_table *t, const char *key)
{
    struct vmm_table_entry **p;

    if (t->n_slots == 0)
        return NULL;
    for (p = &t->slots[slot_of(key, t->n_slots)]; *p != NULL; p = &(*p)->next) {
        if (strcmp((*p)->key, key) == 0)
            return p;
    }
    return NULL;
}

void vmm_table_fini(struct vmm_table *t)
{
    for (size_t i = 0; i < t->n_slots; i++) {
        struct vmm_table_entry *e, *next;

        for (e = t->slots[i]; e != NULL; e = next) {
            next = e->next;
            free(e);
        }
    }
    free(t->slots);
    memset(t, 0, sizeof(*t));
}

int vmm_table_set(struct vmm_table *t, const char *key, void *value)
{
    struct vmm_table_entry **p = find(t, key), *e;
    size_t len = strlen(key) + 1, s;

    if (p != NULL) {
        (*p)->value = value;
        return 0;
    }
    if (t->n_entries >= t->n_slots && grow(t) != 0)
        return -ENOMEM;
    e = malloc(sizeof(*e) + len);
    if (e == NULL)
        return -ENOMEM;
    memcpy(e->key, key, len);
    e->value = value;
    s = slot_of(key, t->n_slots);
    e->next = t->slots[s];
    t->slots[s] = e;
    t->n_entries++;
    return 0;
}

void *vmm_table_get(const struct vmm_table *t, const char *key)
{
    struct vmm_table_entry **p = find(t, key);

    return p == NULL ? NULL : (*p)->value;
}

void *vmm_table_take(struct vmm_table *t, const char *key)
{
    struct vmm_table_entry **p = find(t, key), *e;
    void *value;

    if (p == NULL)
        return NULL;
    e = *p;
    *p = e->next;
    value = e->value;
    free(e);
    t->n_entries--;
    return value;
}
