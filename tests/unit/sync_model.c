/* SPDX-License-Identifier: MIT */
#include "sync_model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "sync/path.h"

static const struct sync_value absent;

void model_init(struct model *m)
{
    for (int i = 0; i < SYNC_N_SIDES; i++)
        ck_assert_int_eq(sync_state_new(0, 0, &m->sides[i]), 0);
    ck_assert_int_eq(sync_state_new(0, 0, &m->ancestor), 0);
}

void model_fini(struct model *m)
{
    for (int i = 0; i < SYNC_N_SIDES; i++)
        sync_state_free(m->sides[i]);
    sync_state_free(m->ancestor);
}

void model_clear(struct model *m)
{
    for (int i = 0; i < SYNC_N_SIDES; i++)
        sync_state_clear(m->sides[i]);
    sync_state_clear(m->ancestor);
}

static void copy(struct sync_state *to, const struct sync_state *from)
{
    struct sync_cursor c;

    sync_state_clear(to);
    for (sync_cursor_start(&c, from, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c)) {
        const struct sync_node *node = sync_cursor_get(&c);
        struct sync_node *more;

        ck_assert_int_eq(sync_state_put(to, node->path, node->len, &more), 0);
        more->value = node->value;
        more->seq = node->seq;
    }
}

void model_copy(struct model *to, const struct model *from)
{
    for (int i = 0; i < SYNC_N_SIDES; i++)
        copy(to->sides[i], from->sides[i]);
    copy(to->ancestor, from->ancestor);
}

struct sync_value model_value(const char *text)
{
    struct sync_value v = {0};

    switch (text[0]) {
    case 'F':
        v.what = SYNC_IS_FILE;
        break;
    case 'K':
        v.what = SYNC_IS_LINK;
        break;
    case 'D':
        v.what = SYNC_IS_DIR;
        break;
    case 'O':
    case 'o':
    case 'H':
        v.what = SYNC_IS_LEFT_OUT;
        v.is_there = text[0] != 'o';
        v.has_id = text[0] == 'H';
        break;
    default:
        return v;
    }
    if (text[1] != '\0') {
        v.id.bytes[0] = (uint8_t)text[1];
        v.is_exec = text[2] == 'x';
    }
    return v;
}

void model_put(struct sync_state *st, const char *path, const char *value, uint64_t seq)
{
    struct sync_node *node;

    if (value[0] == '\0')
        return;
    ck_assert_int_eq(sync_state_put(st, path, strlen(path), &node), 0);
    node->value = model_value(value);
    node->seq = seq;
}

static const struct sync_value *at(const struct sync_state *st, const char *path, size_t len)
{
    const struct sync_node *node = sync_state_get(st, path, len);

    return node != NULL ? &node->value : &absent;
}

static bool is_left_out(const struct sync_value *v)
{
    return v->what == SYNC_IS_LEFT_OUT;
}

/* Is something there, as far as the file system is concerned? */
static bool is_there(const struct sync_value *v)
{
    return v->what != SYNC_IS_ABSENT && (!is_left_out(v) || v->is_there);
}

/* The folder above, at whose end is the slash. */
static size_t parent_of(const char *path, size_t len)
{
    size_t base = sync_path_base(path, len);

    return base > 0 ? base - 1 : 0;
}

/* Itself or a folder above is left out. */
static bool is_covered(const struct sync_state *st, const char *path, size_t len)
{
    for (; len > 0; len = parent_of(path, len))
        if (is_left_out(at(st, path, len)))
            return true;
    return is_left_out(at(st, "", 0));
}

static bool has_below(const struct sync_state *st, const char *path, size_t len, bool left_out)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, st, path, len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_within(node->path, node->len, path, len))
            return false;
        if (node->len > len && is_there(&node->value) && (!left_out || is_left_out(&node->value)))
            return true;
    }
    return false;
}

/* ---- carrying out ---- */

static bool remove_one(struct sync_state *st, const struct sync_step *step)
{
    const struct sync_value *v = at(st, step->path, step->len);

    if (!is_there(v) || is_left_out(v))
        return true;
    if (step->to.what != SYNC_IS_ABSENT &&
        (v->what == SYNC_IS_DIR) == (step->to.what == SYNC_IS_DIR))
        return true;
    if (has_below(st, step->path, step->len, false))
        return false;
    sync_state_remove_below(st, step->path, step->len);
    sync_state_remove(st, step->path, step->len);
    return true;
}

static bool make_one(struct sync_state *st, const struct sync_step *step)
{
    const struct sync_value was = *at(st, step->path, step->len);
    size_t up = parent_of(step->path, step->len);
    struct sync_node *node;

    if (step->to.what == SYNC_IS_ABSENT)
        return true;
    if (up > 0 && is_left_out(at(st, step->path, up)))
        return true; /* the scan does not look there */
    if (up > 0 && at(st, step->path, up)->what != SYNC_IS_DIR)
        return false;
    ck_assert_int_eq(sync_state_put(st, step->path, step->len, &node), 0);
    node->value = step->to;
    if (is_left_out(&was)) { /* it still is */
        node->value.what = SYNC_IS_LEFT_OUT;
        node->value.is_there = true;
        node->value.has_id = step->to.what == SYNC_IS_FILE;
    }
    return true;
}

int model_apply(struct model *m, const struct sync_plan *plan, unsigned *seed, int fail_in)
{
    bool *has_failed = calloc(plan->n_steps + 1, sizeof(bool));
    int n_failed = 0;

    ck_assert_ptr_nonnull(has_failed);
    for (size_t i = plan->n_steps; i-- > 0;)
        for (int side = 0; side < SYNC_N_SIDES; side++)
            if (plan->steps[i].change[side] && ((fail_in > 0 && rand_r(seed) % fail_in == 0) ||
                                                !remove_one(m->sides[side], &plan->steps[i])))
                has_failed[i] = true;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct sync_step *step = &plan->steps[i];
        struct sync_node *node;

        for (int side = 0; side < SYNC_N_SIDES; side++)
            if (!has_failed[i] && step->change[side] && !make_one(m->sides[side], step))
                has_failed[i] = true;
        n_failed += has_failed[i];
        if (has_failed[i])
            continue;
        if (step->to.what == SYNC_IS_ABSENT) {
            sync_state_remove(m->ancestor, step->path, step->len);
            continue;
        }
        ck_assert_int_eq(sync_state_put(m->ancestor, step->path, step->len, &node), 0);
        node->value = step->to;
    }
    free(has_failed);
    return n_failed;
}

/* ---- what must hold ---- */

static bool is_reported(const struct sync_plan *plan, const struct sync_node *node,
                        enum sync_side side)
{
    for (size_t i = 0; i < plan->n_conflicts; i++) {
        const struct sync_conflict *c = &plan->conflicts[i];

        if (c->len == node->len && memcmp(c->path, node->path, c->len) == 0 && c->winner != side &&
            sync_value_is_same(&c->lost, &node->value))
            return true;
    }
    return false;
}

void model_check_lost(const struct model *before, const struct model *after,
                      const struct sync_plan *plan, const char *what)
{
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        struct sync_cursor c;
        const struct sync_node *node;

        for (sync_cursor_start(&c, before->sides[side], "", 0);
             (node = sync_cursor_get(&c)) != NULL; sync_cursor_next(&c)) {
            const struct sync_value *now = at(after->sides[side], node->path, node->len);
            const struct sync_value *was = at(before->ancestor, node->path, node->len);
            bool is_known = is_left_out(&node->value) && node->value.has_id;

            if (node->value.what != SYNC_IS_FILE && node->value.what != SYNC_IS_LINK && !is_known)
                continue;
            if (now->what == node->value.what && sync_id_equal(&now->id, &node->value.id))
                continue; /* still there */
            if ((was->what == node->value.what || (is_known && was->what == SYNC_IS_FILE)) &&
                sync_id_equal(&was->id, &node->value.id))
                continue; /* as both had it */
            if (!is_reported(plan, node, (enum sync_side)side))
                ck_abort_msg("%s: lost on side %d: %s", what, side, node->path);
        }
    }
}

/* Is all at and below a path the same in both? */
static bool is_same_below(const struct sync_state *a, const struct sync_state *b, const char *path,
                          size_t len)
{
    struct sync_cursor ca, cb;

    sync_cursor_start(&ca, a, path, len);
    sync_cursor_start(&cb, b, path, len);
    for (;; sync_cursor_next(&ca), sync_cursor_next(&cb)) {
        const struct sync_node *na = sync_cursor_get(&ca), *nb = sync_cursor_get(&cb);

        if (na != NULL && !sync_path_is_within(na->path, na->len, path, len))
            na = NULL;
        if (nb != NULL && !sync_path_is_within(nb->path, nb->len, path, len))
            nb = NULL;
        if (na == NULL || nb == NULL)
            return na == nb;
        if (sync_path_order(na->path, na->len, nb->path, nb->len) != 0 ||
            !sync_value_is_same(&na->value, &nb->value))
            return false;
    }
}

void model_check_left_out(const struct model *before, const struct model *after, const char *what)
{
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        struct sync_cursor c;
        const struct sync_node *node;

        for (sync_cursor_start(&c, before->sides[side], "", 0);
             (node = sync_cursor_get(&c)) != NULL; sync_cursor_next(&c)) {
            const struct sync_value *now = at(after->sides[side], node->path, node->len);

            if (!is_left_out(&node->value))
                continue;
            if (node->value.is_there && (!is_left_out(now) || !now->is_there))
                ck_abort_msg("%s: left out on side %d, and removed: %s", what, side, node->path);
            if (!is_same_below(before->sides[!side], after->sides[!side], node->path, node->len))
                ck_abort_msg("%s: left out on side %d, and has changed the other: %s", what, side,
                             node->path);
            if (node->value.is_there && !node->value.has_id &&
                !sync_value_is_same(now, &node->value))
                ck_abort_msg("%s: left out on side %d, and changed: %s", what, side, node->path);
        }
    }
}

static bool is_blocked(const struct sync_plan *plan, const char *path, size_t len)
{
    for (size_t i = 0; i < plan->n_conflicts; i++) {
        const struct sync_conflict *c = &plan->conflicts[i];

        if (c->kind == SYNC_CONFLICT_BLOCKED &&
            ((c->len == len && memcmp(c->path, path, len) == 0) ||
             sync_path_is_below(path, len, c->path, c->len)))
            return true;
    }
    return false;
}

static void check_path(const struct model *m, const struct sync_plan *plan, const char *path,
                       size_t len, const char *what)
{
    const struct sync_value *g = at(m->sides[SYNC_GUEST], path, len);
    const struct sync_value *s = at(m->sides[SYNC_STORE], path, len);

    if (is_blocked(plan, path, len))
        return;
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        const struct sync_value *v = at(m->sides[side], path, len);

        if (is_covered(m->sides[side], path, len))
            return;
        /* A folder that the other side deleted stays for what is left out in it. */
        if (v->what == SYNC_IS_DIR && has_below(m->sides[side], path, len, true) &&
            !is_there(at(m->sides[!side], path, len)))
            return;
    }
    if (!sync_value_is_same(g, s))
        ck_abort_msg("%s: not the same on both sides: %s", what, path);
    if (!sync_value_is_same(g, at(m->ancestor, path, len)))
        ck_abort_msg("%s: not in the ancestor: %s", what, path);
}

void model_check_converged(const struct model *after, const struct sync_plan *plan,
                           const char *what)
{
    const struct sync_state *const states[] = {after->sides[0], after->sides[1], after->ancestor};

    for (int i = 0; i < 3; i++) {
        struct sync_cursor c;

        for (sync_cursor_start(&c, states[i], "", 0); sync_cursor_get(&c) != NULL;
             sync_cursor_next(&c))
            check_path(after, plan, sync_cursor_get(&c)->path, sync_cursor_get(&c)->len, what);
    }
}

void model_check_idle(const struct model *after, const char *what)
{
    struct sync_plan plan;

    ck_assert_int_eq(
        sync_reconcile(after->sides[SYNC_GUEST], after->sides[SYNC_STORE], after->ancestor, &plan),
        0);
    if (plan.n_steps > 0)
        ck_abort_msg("%s: a second time there is still something to do: %s", what,
                     plan.steps[0].path);
    for (size_t i = 0; i < plan.n_conflicts; i++)
        if (plan.conflicts[i].kind != SYNC_CONFLICT_BLOCKED &&
            plan.conflicts[i].kind != SYNC_CONFLICT_LEFT_OUT)
            ck_abort_msg("%s: a second time there is still a conflict: %s", what,
                         plan.conflicts[i].path);
    sync_plan_fini(&plan);
}

bool model_is_same(const struct sync_state *a, const struct sync_state *b)
{
    return is_same_below(a, b, "", 0);
}

bool model_has_left_out(const struct sync_state *st)
{
    struct sync_cursor c;

    for (sync_cursor_start(&c, st, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c))
        if (is_left_out(&sync_cursor_get(&c)->value))
            return true;
    return false;
}
