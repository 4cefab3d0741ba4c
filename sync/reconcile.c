/* SPDX-License-Identifier: MIT */
/* Three passes over one table of rows, a row for each path that any of the three states has:
 *   1. merge: rows in tree order, each with the row of the folder above it
 *   2. from the last row to the first: what is below each folder
 *   3. from the first to the last: the decision, which may bind the rows below */
#include "sync/reconcile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ANCESTOR = SYNC_N_SIDES, N_STATES };

enum mode { /* what the decision on a folder means for all below it */
            NORMAL,
            HOLD,       /* nothing is done */
            TAKE_GUEST, /* as in the guest */
            TAKE_STORE,
};

struct row {
    const struct sync_node *nodes[N_STATES]; /* NULL: absent */
    int64_t parent;                          /* of rows; -1: none */
    bool is_covered[SYNC_N_SIDES];           /* a folder above is left out there ... */
    bool is_there[SYNC_N_SIDES];             /* ... and exists */
    bool has_edit[SYNC_N_SIDES];             /* below: something new or changed */
    bool has_left_out[SYNC_N_SIDES];         /* below: something that exists and is left out */
    uint8_t mode;                            /* for the rows below */
    uint64_t seq[SYNC_N_SIDES];              /* below: the latest edit's */
};

struct table {
    struct row *rows;
    size_t n, size;
    struct sync_plan *plan;
    bool is_out_of_memory;
};

static const struct sync_value absent;
static const struct sync_value folder = {.what = SYNC_IS_DIR};
static const struct sync_value left_there = {.what = SYNC_IS_LEFT_OUT, .is_there = true};
static const struct sync_value left_gone = {.what = SYNC_IS_LEFT_OUT};

static const struct sync_node *any_node(const struct row *row)
{
    for (int i = 0; i < N_STATES; i++)
        if (row->nodes[i] != NULL)
            return row->nodes[i];
    return NULL; /* not of a row */
}

static const struct sync_value *value(const struct row *row, int state)
{
    if (state != ANCESTOR && row->is_covered[state])
        return row->is_there[state] ? &left_there : &left_gone;
    return row->nodes[state] != NULL ? &row->nodes[state]->value : &absent;
}

static uint64_t seq_of(const struct row *row, enum sync_side side)
{
    return row->nodes[side] != NULL ? row->nodes[side]->seq : 0;
}

static bool is_content(const struct sync_value *v)
{
    return v->what == SYNC_IS_FILE || v->what == SYNC_IS_LINK;
}

/* Left out, and something is there that must stay. */
static bool is_left_there(const struct sync_value *v)
{
    return v->what == SYNC_IS_LEFT_OUT && v->is_there;
}

static bool is_changed(const struct row *row, enum sync_side side)
{
    return !sync_value_is_same(value(row, side), value(row, ANCESTOR));
}

/* ---- 1. merge ---- */

static int add_row(struct table *t, const struct sync_node *nodes[N_STATES], int64_t *last)
{
    const struct sync_node *here, *above;
    struct row *row;

    if (t->n == t->size) {
        size_t size = t->size > 0 ? t->size * 2 : 256;
        struct row *more = realloc(t->rows, size * sizeof(*more));

        if (more == NULL)
            return -ENOMEM;
        t->rows = more;
        t->size = size;
    }
    row = &t->rows[t->n];
    memset(row, 0, sizeof(*row));
    memcpy(row->nodes, nodes, sizeof(row->nodes));
    here = any_node(row);
    for (; *last >= 0; *last = t->rows[*last].parent) {
        above = any_node(&t->rows[*last]);
        if (sync_path_is_below(here->path, here->len, above->path, above->len))
            break;
    }
    row->parent = *last;
    for (int side = 0; side < SYNC_N_SIDES && *last >= 0; side++) {
        const struct sync_value *v = value(&t->rows[*last], side);

        row->is_covered[side] = v->what == SYNC_IS_LEFT_OUT;
        row->is_there[side] = v->is_there;
    }
    *last = (int64_t)t->n++;
    return 0;
}

static int merge(struct table *t, const struct sync_state *const states[N_STATES])
{
    struct sync_cursor cursors[N_STATES];
    int64_t last = -1;

    for (int i = 0; i < N_STATES; i++)
        sync_cursor_start(&cursors[i], states[i], "", 0);
    for (;;) {
        const struct sync_node *nodes[N_STATES], *first = NULL;
        int r, order[N_STATES];

        for (int i = 0; i < N_STATES; i++) {
            nodes[i] = sync_cursor_get(&cursors[i]);
            if (nodes[i] != NULL && (first == NULL || sync_path_order(nodes[i]->path, nodes[i]->len,
                                                                      first->path, first->len) < 0))
                first = nodes[i];
        }
        if (first == NULL)
            return 0;
        for (int i = 0; i < N_STATES; i++) {
            order[i] = nodes[i] == NULL ? 1
                                        : sync_path_order(nodes[i]->path, nodes[i]->len,
                                                          first->path, first->len);
            if (order[i] == 0)
                sync_cursor_next(&cursors[i]);
            else
                nodes[i] = NULL;
        }
        r = add_row(t, nodes, &last);
        if (r != 0)
            return r;
    }
}

/* ---- 2. what is below ---- */

static void look_below(struct table *t)
{
    for (size_t i = t->n; i-- > 0;) {
        struct row *row = &t->rows[i], *up;

        if (row->parent < 0)
            continue;
        up = &t->rows[row->parent];
        for (int side = 0; side < SYNC_N_SIDES; side++) {
            const struct sync_value *v = value(row, side);
            bool is_left = v->what == SYNC_IS_LEFT_OUT;
            bool is_edit = !is_left && v->what != SYNC_IS_ABSENT && is_changed(row, side);

            up->has_edit[side] |= row->has_edit[side] || is_edit;
            up->has_left_out[side] |= row->has_left_out[side] || (is_left && v->is_there);
            if (row->seq[side] > up->seq[side])
                up->seq[side] = row->seq[side];
            if (is_edit && seq_of(row, side) > up->seq[side])
                up->seq[side] = seq_of(row, side);
        }
    }
}

/* ---- 3. decisions ---- */

/* Room for one more of a growing array. */
static bool grow(struct table *t, void **array, size_t n, size_t *size, size_t item)
{
    size_t more = *size > 0 ? *size * 2 : 64;
    void *to;

    if (n < *size)
        return true;
    to = realloc(*array, more * item);
    if (to == NULL) {
        t->is_out_of_memory = true;
        return false;
    }
    *array = to;
    *size = more;
    return true;
}

/* Both sides become `to`. */
static void settle(struct table *t, struct row *row, const struct sync_value *to, enum mode below)
{
    struct sync_plan *plan = t->plan;
    const struct sync_node *node = any_node(row);
    struct sync_step step = {.path = node->path, .len = node->len, .to = *to};

    row->mode = below;
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        step.from[side] = *value(row, side);
        if (row->nodes[side] != NULL)
            step.sig[side] = row->nodes[side]->sig;
        if (step.from[side].what == SYNC_IS_LEFT_OUT && step.from[side].has_id)
            step.from[side].what = SYNC_IS_FILE; /* known all the same */
        if (step.from[side].what == SYNC_IS_LEFT_OUT && !step.from[side].is_there)
            step.from[side] = absent;
        step.change[side] = !sync_value_is_same(&step.from[side], to);
    }
    if (!step.change[SYNC_GUEST] && !step.change[SYNC_STORE] &&
        sync_value_is_same(value(row, ANCESTOR), to))
        return;
    if (!grow(t, (void **)&plan->steps, plan->n_steps, &plan->size_steps, sizeof(step)))
        return;
    plan->steps[plan->n_steps++] = step;
    for (int side = 0; side < SYNC_N_SIDES; side++)
        plan->n_changes[side] += step.change[side];
}

/* Nothing is done on this row. */
static void hold(struct row *row, enum mode below)
{
    row->mode = below;
}

static void report(struct table *t, const struct row *row, enum sync_conflict_kind kind,
                   enum sync_side winner)
{
    struct sync_plan *plan = t->plan;
    const struct sync_node *node = any_node(row);
    struct sync_conflict c = {.path = node->path, .len = node->len, .kind = kind, .winner = winner};
    enum sync_side loser = winner == SYNC_GUEST ? SYNC_STORE : SYNC_GUEST;

    if (kind == SYNC_CONFLICT_EDITED || kind == SYNC_CONFLICT_REPLACED) {
        c.lost = *value(row, loser);
        if (row->nodes[loser] != NULL)
            c.sig = row->nodes[loser]->sig;
    }
    if (grow(t, (void **)&plan->conflicts, plan->n_conflicts, &plan->size_conflicts, sizeof(c)))
        plan->conflicts[plan->n_conflicts++] = c;
}

static enum sync_side other(enum sync_side side)
{
    return side == SYNC_GUEST ? SYNC_STORE : SYNC_GUEST;
}

static enum sync_side later(uint64_t guest, uint64_t store)
{
    return guest > store ? SYNC_GUEST : SYNC_STORE;
}

/* A folder on this side, with edits in it or new itself, and on the other one a new file or link.
 */
static void folder_against_file(struct table *t, struct row *row, enum sync_side side)
{
    enum sync_side file = other(side), winner;
    uint64_t seqs[SYNC_N_SIDES];

    seqs[file] = seq_of(row, file);
    seqs[side] = row->seq[side];
    if (is_changed(row, side) && seq_of(row, side) > seqs[side])
        seqs[side] = seq_of(row, side);
    winner = later(seqs[SYNC_GUEST], seqs[SYNC_STORE]);
    if (winner == file && row->has_left_out[side]) {
        report(t, row, SYNC_CONFLICT_BLOCKED, side);
        hold(row, HOLD);
        return;
    }
    if (winner == side)
        report(t, row, SYNC_CONFLICT_REPLACED, winner);
    settle(t, row, value(row, winner), winner == SYNC_GUEST ? TAKE_GUEST : TAKE_STORE);
}

/* The other side is as the ancestor. */
static void one_changed(struct table *t, struct row *row, enum sync_side side)
{
    const struct sync_value *v = value(row, side);
    enum sync_side still = other(side);

    if (value(row, still)->what != SYNC_IS_DIR) {
        settle(t, row, v, NORMAL);
    } else if (v->what == SYNC_IS_ABSENT) {
        if (row->has_edit[still])
            settle(t, row, &folder, NORMAL);
        else if (row->has_left_out[still])
            hold(row, NORMAL);
        else
            settle(t, row, v, NORMAL);
    } else if (row->has_edit[still]) {
        folder_against_file(t, row, still);
    } else if (row->has_left_out[still]) {
        report(t, row, SYNC_CONFLICT_BLOCKED, still);
        hold(row, HOLD);
    } else {
        settle(t, row, v, NORMAL);
    }
}

/* Two files that differ, where there was one: content and bit on their own. */
static void both_edited(struct table *t, struct row *row)
{
    const struct sync_value *g = value(row, SYNC_GUEST), *s = value(row, SYNC_STORE);
    const struct sync_value *a = value(row, ANCESTOR);
    enum sync_side winner = later(seq_of(row, SYNC_GUEST), seq_of(row, SYNC_STORE));
    struct sync_value to = *value(row, winner);

    if (sync_id_equal(&g->id, &a->id))
        to.id = s->id;
    else if (sync_id_equal(&s->id, &a->id))
        to.id = g->id;
    else if (!sync_id_equal(&g->id, &s->id))
        report(t, row, SYNC_CONFLICT_EDITED, winner);
    to.is_exec = g->is_exec == a->is_exec ? s->is_exec : g->is_exec;
    settle(t, row, &to, NORMAL);
}

static void both_changed(struct table *t, struct row *row)
{
    const struct sync_value *g = value(row, SYNC_GUEST), *s = value(row, SYNC_STORE);
    enum sync_side winner = later(seq_of(row, SYNC_GUEST), seq_of(row, SYNC_STORE));

    if (g->what == SYNC_IS_ABSENT) {
        settle(t, row, s, NORMAL);
    } else if (s->what == SYNC_IS_ABSENT) {
        settle(t, row, g, NORMAL);
    } else if (g->what == SYNC_IS_DIR || s->what == SYNC_IS_DIR) {
        folder_against_file(t, row, g->what == SYNC_IS_DIR ? SYNC_GUEST : SYNC_STORE);
    } else if (g->what == SYNC_IS_FILE && s->what == SYNC_IS_FILE &&
               value(row, ANCESTOR)->what == SYNC_IS_FILE) {
        both_edited(t, row);
    } else {
        if (g->what != s->what || !sync_id_equal(&g->id, &s->id))
            report(t, row, SYNC_CONFLICT_EDITED, winner);
        settle(t, row, value(row, winner), NORMAL);
    }
}

/* One side, or both, leave it out. */
static void left_out(struct table *t, struct row *row)
{
    const struct sync_value *g = value(row, SYNC_GUEST), *s = value(row, SYNC_STORE);
    const struct sync_value *a = value(row, ANCESTOR);
    struct sync_value known = *g;
    bool is_new, is_known;

    known.what = SYNC_IS_FILE;
    is_new = !g->is_there && a->what == SYNC_IS_ABSENT;
    is_known = g->has_id && s->what == SYNC_IS_FILE &&
               (sync_value_is_same(&known, a) || sync_value_is_same(&known, s));
    if (s->what != SYNC_IS_LEFT_OUT && s->what != SYNC_IS_ABSENT && (is_new || is_known)) {
        settle(t, row, s, NORMAL);
        return;
    }
    if (g->what == SYNC_IS_LEFT_OUT && !g->is_there && s->what == SYNC_IS_ABSENT) {
        settle(t, row, s, NORMAL); /* nothing anywhere */
        return;
    }
    if (s->what != SYNC_IS_LEFT_OUT && s->what != SYNC_IS_ABSENT && g->is_there &&
        !row->is_covered[SYNC_GUEST] && is_changed(row, SYNC_STORE))
        report(t, row, SYNC_CONFLICT_LEFT_OUT, SYNC_GUEST);
    hold(row, HOLD);
}

/* A decision above binds this row: all is as on this side. */
static void take(struct table *t, struct row *row, enum sync_side side, enum mode mode)
{
    const struct sync_value *v = value(row, other(side)), *to = value(row, side);

    if (to->what == SYNC_IS_LEFT_OUT)
        to = &absent; /* nothing is there */
    if (is_content(v) && is_changed(row, other(side)) && !sync_value_is_same(v, to))
        report(t, row, SYNC_CONFLICT_REPLACED, side);
    settle(t, row, to, mode);
}

static void decide(struct table *t, struct row *row)
{
    const struct sync_value *g = value(row, SYNC_GUEST), *s = value(row, SYNC_STORE);
    const struct sync_value *a = value(row, ANCESTOR);
    enum mode mode = row->parent >= 0 ? t->rows[row->parent].mode : NORMAL;
    bool is_left = g->what == SYNC_IS_LEFT_OUT || s->what == SYNC_IS_LEFT_OUT;

    if (mode == HOLD || (mode != NORMAL && (is_left_there(g) || is_left_there(s))))
        hold(row, HOLD);
    else if (mode != NORMAL)
        take(t, row, mode == TAKE_GUEST ? SYNC_GUEST : SYNC_STORE, mode);
    else if (is_left)
        left_out(t, row);
    else if (sync_value_is_same(g, s))
        settle(t, row, g, NORMAL);
    else if (sync_value_is_same(g, a))
        one_changed(t, row, SYNC_STORE);
    else if (sync_value_is_same(s, a))
        one_changed(t, row, SYNC_GUEST);
    else
        both_changed(t, row);
}

/* ---- the plan ---- */

/* Paths are the states' until here. */
static int own_paths(struct sync_plan *plan)
{
    size_t n = 0;
    char *at;

    for (size_t i = 0; i < plan->n_steps; i++)
        n += (size_t)plan->steps[i].len + 1;
    for (size_t i = 0; i < plan->n_conflicts; i++)
        n += (size_t)plan->conflicts[i].len + 1;
    if (n == 0)
        return 0;
    plan->texts = at = malloc(n);
    if (at == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < plan->n_steps; i++) {
        struct sync_step *step = &plan->steps[i];

        step->path = memcpy(at, step->path, (size_t)step->len + 1);
        at += step->len + 1;
    }
    for (size_t i = 0; i < plan->n_conflicts; i++) {
        struct sync_conflict *c = &plan->conflicts[i];

        c->path = memcpy(at, c->path, (size_t)c->len + 1);
        at += c->len + 1;
    }
    return 0;
}

int sync_reconcile(const struct sync_state *guest, const struct sync_state *store,
                   const struct sync_state *ancestor, struct sync_plan *plan)
{
    const struct sync_state *const states[N_STATES] = {
        [SYNC_GUEST] = guest, [SYNC_STORE] = store, [ANCESTOR] = ancestor};
    struct table t = {.plan = plan};
    int r;

    memset(plan, 0, sizeof(*plan));
    r = merge(&t, states);
    if (r == 0) {
        look_below(&t);
        for (size_t i = 0; i < t.n; i++)
            decide(&t, &t.rows[i]);
        r = t.is_out_of_memory ? -ENOMEM : own_paths(plan);
    }
    free(t.rows);
    if (r != 0)
        sync_plan_fini(plan);
    return r;
}

void sync_plan_fini(struct sync_plan *plan)
{
    free(plan->steps);
    free(plan->conflicts);
    free(plan->texts);
    memset(plan, 0, sizeof(*plan));
}
