/* SPDX-License-Identifier: MIT */
/* A set of secrets: two automata over the same text. One takes it byte by byte; the other passes
 * over line breaks, for forms that may be wrapped anywhere. */
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "transom/mask.h"
#include "vmm/mask/forms.h"
#include "vmm/mask/mask_internal.h"

#define ALL_VALUES_MAX (4 * TR_MASK_VALUE_MAX)

bool tr_mask_covers(const void *value, size_t len)
{
    return mask_trimmed(value, len) >= TR_MASK_MIN;
}

static int add(const uint8_t *text, size_t len, bool wrapped, void *arg)
{
    struct tr_mask *mask = arg;

    return mask_automaton_add(wrapped ? &mask->wrapped : &mask->exact, text, len);
}

/* Not finished: it cannot be searched yet. *out is NULL when nothing is to be hidden. */
static int collect_forms(const struct tr_mask_secret *secrets, size_t n, struct tr_mask **out)
{
    struct tr_mask *mask;
    size_t total = 0;
    bool any = false;
    int r = 0;

    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        if (secrets[i].len > TR_MASK_VALUE_MAX || (total += secrets[i].len) > ALL_VALUES_MAX)
            return UV_E2BIG;
        any = any || tr_mask_covers(secrets[i].value, secrets[i].len);
    }
    if (!any)
        return 0;
    mask = calloc(1, sizeof(*mask));
    if (mask == NULL)
        return UV_ENOMEM;
    atomic_init(&mask->n_refs, 1);
    mask_automaton_init(&mask->exact);
    mask_automaton_init(&mask->wrapped);
    for (size_t i = 0; i < n && r == 0; i++)
        r = mask_forms(secrets[i].value, secrets[i].len, add, mask);
    if (r != 0)
        tr_mask_unref(mask);
    else
        *out = mask;
    return r;
}

int tr_mask_check(const struct tr_mask_secret *secrets, size_t n)
{
    struct tr_mask *mask;
    int r = collect_forms(secrets, n, &mask);

    tr_mask_unref(mask);
    return r;
}

int tr_mask_new(const struct tr_mask_secret *secrets, size_t n, struct tr_mask **out)
{
    struct tr_mask *mask;
    int r = collect_forms(secrets, n, &mask);

    *out = NULL;
    if (mask == NULL)
        return r;
    r = mask_automaton_finish(&mask->exact);
    if (r == 0)
        r = mask_automaton_finish(&mask->wrapped);
    if (r != 0)
        tr_mask_unref(mask);
    else
        *out = mask;
    return r;
}

void tr_mask_ref(struct tr_mask *mask)
{
    if (mask != NULL)
        atomic_fetch_add(&mask->n_refs, 1);
}

void tr_mask_unref(struct tr_mask *mask)
{
    if (mask == NULL || atomic_fetch_sub(&mask->n_refs, 1) > 1)
        return;
    mask_automaton_fini(&mask->exact);
    mask_automaton_fini(&mask->wrapped);
    free(mask);
}

struct text {
    char *bytes;
    size_t len, cap;
    bool lost;
};

static void collect(const uint8_t *data, size_t len, void *arg)
{
    struct text *t = arg;

    if (t->lost)
        return;
    if (t->len + len >= t->cap) {
        size_t cap = (t->len + len + 1) * 2;
        char *bytes = realloc(t->bytes, cap);

        if (bytes == NULL) {
            t->lost = true;
            return;
        }
        t->bytes = bytes;
        t->cap = cap;
    }
    memcpy(t->bytes + t->len, data, len);
    t->len += len;
}

char *tr_mask_text(struct tr_mask *mask, const char *text, size_t len, size_t *out_len)
{
    struct text t = {.cap = len + 1};
    struct tr_masker *m = NULL;

    t.bytes = malloc(t.cap);
    if (t.bytes == NULL || tr_masker_new(mask, collect, &t, &m) != 0)
        t.lost = true;
    if (!t.lost && tr_masker_write(m, text, len) != 0)
        t.lost = true;
    if (!t.lost)
        tr_masker_flush(m);
    tr_masker_free(m);
    if (t.lost) {
        free(t.bytes);
        return NULL;
    }
    t.bytes[t.len] = '\0';
    *out_len = t.len;
    return t.bytes;
}
