/* SPDX-License-Identifier: MIT */
/* For tests of sync/reconcile: carries a plan out on states in memory, and says what must hold of
 * any plan. All of it fails the test that calls. */
#ifndef TESTS_UNIT_SYNC_MODEL_H
#define TESTS_UNIT_SYNC_MODEL_H

#include "sync/reconcile.h"

struct model {
    struct sync_state *sides[SYNC_N_SIDES], *ancestor;
};

void model_init(struct model *m);
void model_fini(struct model *m);
void model_clear(struct model *m);
void model_copy(struct model *to, const struct model *from);

/* Put a value, given as text: "F1" a file with content 1, "F1x" an executable one, "K1" a link, "D"
 * a folder, "O" left out and there, "o" left out and not there, "H1" left out with known content 1,
 * "" nothing. */
void model_put(struct sync_state *st, const char *path, const char *value, uint64_t seq);
/* The value of such a text. */
struct sync_value model_value(const char *text);

/* Carry out; as the engine does, a step's side fails if it cannot be done. With seed, one in
 * `fail_in` changes fails by itself (0: none). Returns how many failed. */
int model_apply(struct model *m, const struct sync_plan *plan, unsigned *seed, int fail_in);

/* What must hold. what: printed when it does not. */
void model_check_lost(const struct model *before, const struct model *after,
                      const struct sync_plan *plan, const char *what);
void model_check_left_out(const struct model *before, const struct model *after, const char *what);
void model_check_converged(const struct model *after, const struct sync_plan *plan,
                           const char *what);
void model_check_idle(const struct model *after, const char *what);
/* Are two states the same, without sequence numbers? */
bool model_is_same(const struct sync_state *a, const struct sync_state *b);
bool model_has_left_out(const struct sync_state *st);

#endif
