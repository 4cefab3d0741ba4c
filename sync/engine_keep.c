/* SPDX-License-Identifier: MIT */
/* Per side: what the vault has already is only held on to; the rest is read from the side. */
#include <errno.h>
#include <stdlib.h>
#include "sync/engine_internal.h"

enum { BATCH = 256 }; /* files read in one call */

struct keeping {
    struct sync_engine *e;
    enum sync_side side;
    struct sync_want wants[BATCH];
    size_t steps[BATCH];
    size_t n;
    bool is_taking; /* the vault takes the content */
    bool is_sieved; /* it passes the sieve first */
    struct sync_sieve sieve;
    int status; /* of the vault */
};

static int hold_on(struct sync_engine *e, size_t i, enum sync_side side)
{
    const struct sync_step *step = &e->plan.steps[i];
    struct sync_kept kept = {.path = step->path,
                             .len = step->len,
                             .side = side,
                             .why = step->to.what == SYNC_IS_ABSENT ? SYNC_KEPT_REMOVED
                                                                    : SYNC_KEPT_OLDER,
                             .value = step->from[side]};

    if (sync_engine_loss(e, i, side) != NULL)
        kept.why = SYNC_KEPT_CONFLICT;
    return e->o.vault_ops->keep(e->o.vault, &kept, NULL);
}

static void block(struct sync_engine *e, size_t i, enum sync_side side, int status)
{
    e->progress[i].is_blocked = true;
    sync_engine_fault(e, i, side, status);
}

/* The vault, which is the store's, is not to hold a secret that only the guest has. */
static bool is_news_of_guest(const struct sync_engine *e, size_t i, enum sync_side side)
{
    const struct sync_step *step = &e->plan.steps[i];
    const struct sync_node *old = sync_state_get(e->ancestor, step->path, step->len);

    return side == SYNC_GUEST &&
           (old == NULL || !sync_id_equal(&old->value.id, &step->from[side].id));
}

static void pass_piece(const uint8_t *bytes, size_t len, void *arg)
{
    struct keeping *k = arg;

    if (k->status == 0)
        k->status = k->e->o.vault_ops->put_piece(k->e->o.vault, bytes, len, NULL);
}

static void drop_sieve(struct keeping *k)
{
    if (k->is_sieved)
        sync_sieve_drop(&k->sieve);
    k->is_sieved = false;
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    struct keeping *k = arg;
    const size_t i = k->steps[index];

    drop_sieve(k);
    k->is_taking = false;
    if (status != 0) {
        block(k->e, i, k->side, status);
        return;
    }
    k->status = k->e->o.vault_ops->put_start(k->e->o.vault, sig->size, NULL);
    k->is_taking = k->status == 0;
    if (!k->is_taking)
        return;
    sync_sieve_start(&k->sieve, is_news_of_guest(k->e, i, k->side) ? k->e->o.secrets : NULL,
                     pass_piece, k);
    k->is_sieved = true;
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    struct keeping *k = arg;

    (void)index;
    if (k->is_taking && k->status == 0)
        sync_sieve_feed(&k->sieve, bytes, len);
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    struct keeping *k = arg;
    struct sync_engine *e = k->e;
    const size_t i = k->steps[index];
    const struct sync_value *v = &e->plan.steps[i].from[k->side];
    const bool is_same = status == 0 && sync_id_equal(&read->id, &v->id);
    int sieved = 0;

    if (k->is_taking) {
        bool is_good;
        int r;

        k->is_sieved = false;
        sieved = sync_sieve_end(&k->sieve);
        if (sieved < 0)
            k->status = sieved;
        is_good = is_same && sieved == 0 && k->status == 0;
        r = e->o.vault_ops->put_end(e->o.vault, is_good ? &v->id : NULL, NULL);

        if (is_good)
            k->status = r;
    }
    if (!is_same) {
        block(e, i, k->side, status != 0 ? status : SYNC_CHANGED);
        return;
    }
    if (sieved > 0) { /* what cannot be kept is not overwritten */
        sync_engine_reject(e, i, SYNC_WHY_SECRET);
        return;
    }
    if (k->status == 0)
        k->status = hold_on(e, i, k->side);
    if (k->status != 0)
        block(e, i, SYNC_STORE, k->status);
}

static int read_batch(struct keeping *k, struct err *err)
{
    static const struct sync_side_cbs cbs = {
        .on_reading = on_reading, .on_piece = on_piece, .on_read = on_read};
    struct sync_engine *e = k->e;
    int r = 0;

    if (k->n > 0)
        r = e->o.ops[k->side]->read(e->o.sides[k->side], k->wants, k->n, &cbs, k, err);
    k->n = 0;
    return r;
}

static bool loses_content(const struct sync_step *step, enum sync_side side)
{
    const struct sync_value *from = &step->from[side];

    return step->change[side] && sync_is_content(from) &&
           (step->to.what != from->what || !sync_id_equal(&step->to.id, &from->id));
}

static int keep_side(struct keeping *k, struct err *err)
{
    struct sync_engine *e = k->e;
    int r = 0;

    for (size_t i = 0; i < e->plan.n_steps && r == 0; i++) {
        const struct sync_step *step = &e->plan.steps[i];

        if (e->progress[i].is_blocked || !loses_content(step, k->side))
            continue;
        if (e->o.vault_ops->has(e->o.vault, &step->from[k->side].id)) {
            int status = hold_on(e, i, k->side);

            e->progress[i].is_known_loss = e->is_fresh && !e->has_synced && k->side == SYNC_GUEST;
            if (status != 0)
                block(e, i, SYNC_STORE, status);
            continue;
        }
        k->wants[k->n] =
            (struct sync_want){.path = step->path, .len = step->len, .sig = step->sig[k->side]};
        k->steps[k->n++] = i;
        if (k->n == BATCH)
            r = read_batch(k, err);
    }
    return r == 0 ? read_batch(k, err) : r;
}

/* Nothing of what would have to be kept is touched in this round. */
static void block_all(struct sync_engine *e, int status)
{
    for (size_t i = 0; i < e->plan.n_steps; i++)
        if (!e->progress[i].is_blocked && (loses_content(&e->plan.steps[i], SYNC_GUEST) ||
                                           loses_content(&e->plan.steps[i], SYNC_STORE)))
            block(e, i, SYNC_STORE, status);
}

int sync_engine_keep(struct sync_engine *e, struct err *err)
{
    struct keeping *k = calloc(1, sizeof(*k));
    int r = 0, settled;

    if (k == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    k->e = e;
    for (int side = 0; side < SYNC_N_SIDES && r == 0; side++) {
        k->side = (enum sync_side)side;
        k->n = 0;
        r = keep_side(k, err);
    }
    drop_sieve(k);
    free(k);
    settled = e->o.vault_ops->settle(e->o.vault, NULL);
    if (r == 0 && settled != 0)
        block_all(e, settled);
    return r;
}
