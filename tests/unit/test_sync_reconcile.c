/* SPDX-License-Identifier: MIT */
/* Cases by name, then every combination of a small world on three sides, then long random
 * histories. What must hold of all of them is in sync_model.h. */
#include "sync/reconcile.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "alloc_fail.h"
#include "sync/path.h"
#include "sync_model.h"

static struct model m, before;
static struct sync_plan plan;

static void setup(void)
{
    model_init(&m);
    model_init(&before);
}

static void teardown(void)
{
    sync_plan_fini(&plan);
    model_fini(&m);
    model_fini(&before);
}

static void reconcile(void)
{
    sync_plan_fini(&plan);
    ck_assert_int_eq(sync_reconcile(m.sides[SYNC_GUEST], m.sides[SYNC_STORE], m.ancestor, &plan),
                     0);
}

/* Decide, carry out, and check what must hold. */
static void step(const char *what)
{
    model_copy(&before, &m);
    reconcile();
    ck_assert_msg(model_apply(&m, &plan, NULL, 0) == 0, "%s: a step could not be done", what);
    model_check_lost(&before, &m, &plan, what);
    model_check_left_out(&before, &m, what);
    model_check_converged(&m, &plan, what);
    model_check_idle(&m, what);
}

/* "path=value path=value ..." */
static void fill(struct sync_state *st, const char *text, uint64_t seq)
{
    char copy[256], *save = NULL;

    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');

        *value++ = '\0';
        model_put(st, word, value, seq);
    }
}

/* ---- cases by name ---- */

struct named {
    const char *name;
    const char *ancestor, *guest, *store; /* before */
    bool is_store_later;
    const char *guest_after, *store_after;
    const char *conflicts; /* "kind:path:winner ...", kinds E R B L, winners g s */
};

static const struct named cases[] = {
    {"an edit in the guest", "f=F1", "f=F2", "f=F1", 0, "f=F2", "f=F2", ""},
    {"an edit in the store", "f=F1", "f=F1", "f=F2", 0, "f=F2", "f=F2", ""},
    {"both the same edit", "f=F1", "f=F2", "f=F2", 0, "f=F2", "f=F2", ""},
    {"both edited, the guest later", "f=F1", "f=F2", "f=F3", 0, "f=F2", "f=F2", "E:f:g"},
    {"both edited, the store later", "f=F1", "f=F2", "f=F3", 1, "f=F3", "f=F3", "E:f:s"},
    {"deleted in the guest", "f=F1", "", "f=F1", 0, "", "", ""},
    {"deleted in the store", "f=F1", "f=F1", "", 0, "", "", ""},
    {"deleted on both", "f=F1", "", "", 0, "", "", ""},
    {"deleted in the guest, edited in the store", "f=F1", "", "f=F2", 0, "f=F2", "f=F2", ""},
    {"edited in the guest, deleted in the store", "f=F1", "f=F2", "", 1, "f=F2", "f=F2", ""},
    {"chmod in the guest, edit in the store", "f=F1", "f=F1x", "f=F2", 1, "f=F2x", "f=F2x", ""},
    {"chmod on both, edit on one", "f=F1", "f=F2x", "f=F1x", 1, "f=F2x", "f=F2x", ""},
    {"conflict keeps the bit", "f=F1", "f=F2x", "f=F3", 1, "f=F3x", "f=F3x", "E:f:s"},
    {"only the bit differs", "", "f=F1x", "f=F1", 1, "f=F1", "f=F1", ""},
    {"a file becomes a link", "f=F1", "f=K2", "f=F1", 0, "f=K2", "f=K2", ""},
    {"file and link of one id", "f=F2", "f=K1", "f=F1", 0, "f=K1", "f=K1", "E:f:g"},

    {"an empty guest", "", "", "a=D a/b=F1 c=K2", 0, "a=D a/b=F1 c=K2", "a=D a/b=F1 c=K2", ""},
    {"a new guest's own file", "", "f=F1", "f=F2", 1, "f=F2", "f=F2", "E:f:s"},
    {"partly restored", "a=D", "a=D a/b=F1", "a=D a/b=F1 a/c=F2", 0, "a=D a/b=F1 a/c=F2",
     "a=D a/b=F1 a/c=F2", ""},

    {"case-only rename", "README=F1", "readme=F1", "README=F1", 0, "readme=F1", "readme=F1", ""},
    {"a folder becomes a file", "d=D d/x=F1", "d=F2", "d=D d/x=F1", 0, "d=F2", "d=F2", ""},
    {"a file becomes a folder", "d=F1", "d=D d/x=F2", "d=F1", 0, "d=D d/x=F2", "d=D d/x=F2", ""},
    {"a folder deleted, a file in it edited", "d=D d/x=F1 d/y=F2", "", "d=D d/x=F3 d/y=F2", 0,
     "d=D d/x=F3", "d=D d/x=F3", ""},
    {"a folder deleted, a folder in it added", "d=D d/x=F1", "d=D d/x=F1 d/e=D", "", 0, "d=D d/e=D",
     "d=D d/e=D", ""},
    {"file against edits below, the file later", "d=D d/x=F1 d/y=F2", "d=D d/x=F3 d/y=F2", "d=F4",
     1, "d=F4", "d=F4", "R:d/x:s"},
    {"file against edits below, the edit later", "d=D d/x=F1 d/y=F2", "d=D d/x=F3 d/y=F2", "d=F4",
     0, "d=D d/x=F3 d/y=F2", "d=D d/x=F3 d/y=F2", "R:d:g"},
    {"a new folder against a new file", "", "d=D d/x=F1", "d=F2", 1, "d=F2", "d=F2", "R:d/x:s"},

    {"ignored, edited in the guest", "f=F1", "f=O", "f=F1", 0, "f=O", "f=F1", ""},
    {"ignored, deleted in the guest", "f=F1", "f=o", "f=F1", 0, "f=o", "f=F1", ""},
    {"ignored, deleted in the store", "f=F1", "f=O", "", 0, "f=O", "", ""},
    {"ignored, new in the store", "", "f=o", "f=F1", 0, "f=H1", "f=F1", ""},
    {"ignored, edited in the store", "f=F1", "f=H1", "f=F2", 0, "f=H2", "f=F2", ""},
    {"ignored, edited on both", "f=F1", "f=H2", "f=F3", 0, "f=H2", "f=F3", "L:f:g"},
    {"ignored, never known, in the store, too", "", "f=O", "f=F3", 0, "f=O", "f=F3", "L:f:g"},
    {"no longer ignored", "a=F1 b=F2", "a=F3", "a=F1 b=F2", 0, "a=F3", "a=F3", ""},
    {"a folder is ignored", "d=D d/x=F1", "d=O", "d=D d/x=F1", 0, "d=O", "d=D d/x=F1", ""},
    {"deleted, but for what is ignored", "d=D d/x=F1", "d=D d/x=F1 d/n=O", "", 0, "d=D d/n=O", "",
     ""},
    {"... and edited again", "d=D", "d=D d/n=O d/x=F1", "", 0, "d=D d/n=O d/x=F1", "d=D d/x=F1",
     ""},
    {"replaced, with something ignored in the way", "d=D d/x=F1", "d=D d/x=F1 d/n=O", "d=F2", 1,
     "d=D d/x=F1 d/n=O", "d=F2", "B:d:g"},
    {"the whole guest is left out", "f=F1", "", "f=F2", 0, "", "f=F2", ""},
};

static void check_conflicts(const char *want, const char *what)
{
    char text[512] = "";
    size_t len = 0;

    for (size_t i = 0; i < plan.n_conflicts; i++) {
        const struct sync_conflict *c = &plan.conflicts[i];

        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%c:%s:%c", i > 0 ? " " : "",
                                "ERBL"[c->kind], c -> path, "gs"[c->winner]);
    }
    ck_assert_msg(strcmp(text, want) == 0, "%s: conflicts: %s", what, text);
}

START_TEST(named_cases)
{
    const struct named *n = &cases[_i];
    struct sync_state *want;

    fill(m.ancestor, n->ancestor, 0);
    fill(m.sides[SYNC_GUEST], n->guest, 5);
    fill(m.sides[SYNC_STORE], n->store, n->is_store_later ? 6 : 4);
    if (strcmp(n->name, "the whole guest is left out") == 0) {
        struct sync_node *node;

        ck_assert_int_eq(sync_state_put(m.sides[SYNC_GUEST], "", 0, &node), 0);
        node->value = model_value("O");
    }
    reconcile();
    check_conflicts(n->conflicts, n->name);
    step(n->name);
    ck_assert_int_eq(sync_state_new(0, 0, &want), 0);
    fill(want, n->guest_after, 0);
    sync_state_remove(m.sides[SYNC_GUEST], "", 0);
    ck_assert_msg(model_is_same(m.sides[SYNC_GUEST], want), "%s: guest", n->name);
    sync_state_clear(want);
    fill(want, n->store_after, 0);
    ck_assert_msg(model_is_same(m.sides[SYNC_STORE], want), "%s: store", n->name);
    sync_state_free(want);
}
END_TEST

/* S08: the rules change while all is in step, and change back. */
START_TEST(ignored_for_a_while)
{
    fill(m.ancestor, "a=F1 b=F2 c=F3", 1);
    fill(m.sides[SYNC_STORE], "a=F1 b=F2 c=F3", 1);
    fill(m.sides[SYNC_GUEST], "a=O b=o c=F3", 2);
    step("ignored");
    ck_assert(model_is_same(m.sides[SYNC_STORE], before.sides[SYNC_STORE]));
    ck_assert(model_is_same(m.ancestor, before.ancestor));
    sync_state_clear(m.sides[SYNC_GUEST]); /* a was edited and b deleted meanwhile */
    fill(m.sides[SYNC_GUEST], "a=F4 c=F3", 3);
    step("back");
    ck_assert(model_is_same(m.sides[SYNC_STORE], m.sides[SYNC_GUEST]));
    ck_assert_uint_eq(sync_state_count(m.sides[SYNC_STORE]), 2);
    ck_assert_uint_eq(plan.n_conflicts, 0);
}
END_TEST

START_TEST(steps_tell_what_is_there_and_what_is_to_be)
{
    struct sync_node *node;

    fill(m.ancestor, "f=F1", 0);
    fill(m.sides[SYNC_STORE], "f=F1", 1);
    fill(m.sides[SYNC_GUEST], "f=F2x", 2);
    node = sync_state_get(m.sides[SYNC_STORE], "f", 1);
    node->sig.ino = 77;
    reconcile();
    ck_assert_uint_eq(plan.n_steps, 1);
    ck_assert_uint_eq(plan.n_changes[SYNC_STORE], 1);
    ck_assert_uint_eq(plan.n_changes[SYNC_GUEST], 0);
    ck_assert(plan.steps[0].change[SYNC_STORE]);
    ck_assert(!plan.steps[0].change[SYNC_GUEST]);
    ck_assert_uint_eq(plan.steps[0].sig[SYNC_STORE].ino, 77);
    ck_assert(plan.steps[0].to.is_exec);
    sync_state_clear(m.sides[SYNC_STORE]); /* the plan's own */
    ck_assert_str_eq(plan.steps[0].path, "f");
}
END_TEST

/* ---- every combination ---- */

/* One side's world: d is one of these, and if it is a folder, it holds x and y. */
struct world {
    const char *const *tops, *const *xs, *const *ys;
};

static int count(const char *const *list)
{
    int n = 0;

    while (list[n] != NULL)
        n++;
    return n;
}

static int n_worlds(const struct world *w)
{
    return count(w->tops) + count(w->xs) * count(w->ys);
}

static void put_world(struct sync_state *st, const struct world *w, int i, int order,
                      enum sync_side side)
{
    int n_tops = count(w->tops), n_ys = count(w->ys);
    /* Later here, later there, or each path in its own way. */
    uint64_t seq_d = order == 0 ? side == SYNC_GUEST : side == SYNC_STORE;
    uint64_t seq_x = order == 1 ? side == SYNC_STORE : side == SYNC_GUEST;

    if (i < n_tops) {
        model_put(st, "d", w->tops[i], 1 + seq_d);
        return;
    }
    i -= n_tops;
    model_put(st, "d", "D", 1 + seq_d);
    model_put(st, "d/x", w->xs[i / n_ys], 1 + seq_x);
    model_put(st, "d/y", w->ys[i % n_ys], 1 + seq_d);
}

static void check_one_sided(enum sync_side still, const char *what)
{
    if (model_has_left_out(before.sides[SYNC_GUEST]) ||
        model_has_left_out(before.sides[SYNC_STORE]) ||
        !model_is_same(before.sides[still], before.ancestor))
        return;
    ck_assert_msg(plan.n_changes[!still] == 0, "%s: the side that changed is changed", what);
    ck_assert_msg(model_is_same(m.sides[still], before.sides[!still]), "%s: not passed on", what);
    ck_assert_msg(plan.n_conflicts == 0, "%s: a conflict", what);
}

START_TEST(every_combination)
{
    static const char *const guest_tops[] = {"", "F1", "F2", "F1x", "K1", "O", "o", "H1", NULL};
    static const char *const guest_xs[] = {"", "F1", "F2", "F1x", "K1", "D", "O", "o", "H1", NULL};
    static const char *const guest_ys[] = {"", "F3", "O", NULL};
    static const char *const store_tops[] = {"", "F1", "F2", "F1x", "K1", "O", NULL};
    static const char *const store_xs[] = {"", "F1", "F2", "F1x", "K1", "D", "O", NULL};
    static const char *const store_ys[] = {"", "F3", "F4", NULL};
    static const char *const past_tops[] = {"", "F1", "F5", "F1x", "K1", NULL};
    static const char *const past_xs[] = {"", "F1", "F5", "F1x", "K1", "D", NULL};
    static const char *const past_ys[] = {"", "F3", NULL};
    static const struct world guest = {guest_tops, guest_xs, guest_ys};
    static const struct world store = {store_tops, store_xs, store_ys};
    static const struct world past = {past_tops, past_xs, past_ys};
    char what[64];
    long n = 0;

    for (int a = 0; a < n_worlds(&past); a++)
        for (int g = 0; g < n_worlds(&guest); g++)
            for (int s = 0; s < n_worlds(&store); s++)
                for (int order = 0; order < 3; order++, n++) {
                    model_clear(&m);
                    put_world(m.ancestor, &past, a, order, SYNC_GUEST);
                    put_world(m.sides[SYNC_GUEST], &guest, g, order, SYNC_GUEST);
                    put_world(m.sides[SYNC_STORE], &store, s, order, SYNC_STORE);
                    snprintf(what, sizeof(what), "ancestor %d, guest %d, store %d, order %d", a, g,
                             s, order);
                    step(what);
                    check_one_sided(SYNC_STORE, what);
                    check_one_sided(SYNC_GUEST, what);
                    if (sync_state_count(before.ancestor) == 0 &&
                        sync_state_count(before.sides[SYNC_GUEST]) == 0)
                        ck_assert_msg(plan.n_changes[SYNC_STORE] == 0, "%s: store", what);
                }
    ck_assert_int_eq(n, 17L * 35 * 27 * 3);
}
END_TEST

/* ---- random histories ---- */

static unsigned seed;
static uint64_t clock_now;
static uint32_t last_content;

static int dice(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static void random_path(char *path, size_t size)
{
    size_t len = 0;

    path[0] = '\0';
    for (int depth = 1 + dice(3); depth > 0; depth--)
        len += (size_t)snprintf(path + len, size - len, "%s%c", len > 0 ? "/" : "", 'a' + dice(4));
}

static void remove_all(struct sync_state *st, const char *path)
{
    sync_state_remove_below(st, path, strlen(path));
    sync_state_remove(st, path, strlen(path));
}

static struct sync_value random_value(void)
{
    struct sync_value v = {0};
    uint32_t content = dice(4) == 0 ? (uint32_t)dice(10) + 1 : 1000 + ++last_content;

    v.what = dice(6) == 0 ? SYNC_IS_LINK : SYNC_IS_FILE;
    v.is_exec = v.what == SYNC_IS_FILE && dice(4) == 0;
    memcpy(v.id.bytes, &content, sizeof(content));
    return v;
}

static void put_value(struct sync_state *st, const char *path, size_t len, struct sync_value value)
{
    struct sync_node *node;

    ck_assert_int_eq(sync_state_put(st, path, len, &node), 0);
    node->value = value;
    node->seq = ++clock_now;
}

/* The folders above become folders, whatever they are. */
static void make_parents(struct sync_state *st, const char *path)
{
    static const struct sync_value folder = {.what = SYNC_IS_DIR};

    for (const char *slash = path; (slash = strchr(slash, '/')) != NULL; slash++) {
        const struct sync_node *node = sync_state_get(st, path, (size_t)(slash - path));

        if (node == NULL || node->value.what != SYNC_IS_DIR)
            put_value(st, path, (size_t)(slash - path), folder);
    }
}

static void move(struct sync_state *st, const char *from, const char *to)
{
    struct sync_state *copy;
    struct sync_cursor c;
    const struct sync_node *node;
    size_t len = strlen(from);
    char path[64];

    if (sync_path_is_below(to, strlen(to), from, len) || strcmp(from, to) == 0 ||
        sync_state_get(st, from, len) == NULL)
        return;
    ck_assert_int_eq(sync_state_new(0, 0, &copy), 0);
    for (sync_cursor_start(&c, st, from, len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_within(node->path, node->len, from, len))
            break;
        snprintf(path, sizeof(path), "%s%s", to, node->path + len);
        put_value(copy, path, strlen(path), node->value);
    }
    remove_all(st, from);
    remove_all(st, to);
    make_parents(st, to);
    for (sync_cursor_start(&c, copy, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c))
        put_value(st, node->path, node->len, node->value);
    sync_state_free(copy);
}

static void edit(struct sync_state *st, bool has_left_out)
{
    char path[64], to[64];
    struct sync_node *node;
    struct sync_value v = {.what = SYNC_IS_DIR};

    random_path(path, sizeof(path));
    node = sync_state_get(st, path, strlen(path));
    switch (dice(10)) {
    case 0:
    case 1:
        remove_all(st, path);
        break;
    case 2:
        random_path(to, sizeof(to));
        move(st, path, to);
        break;
    case 3:
        if (node != NULL && node->value.what == SYNC_IS_FILE) {
            node->value.is_exec = !node->value.is_exec;
            node->seq = ++clock_now;
        }
        break;
    case 4: /* left out from now on, or no longer */
        if (has_left_out) {
            v.what = SYNC_IS_LEFT_OUT;
            v.is_there = true;
            remove_all(st, path);
            make_parents(st, path);
            put_value(st, path, strlen(path), v);
            break;
        }
        /* fall through */
    case 5:
        if (node == NULL || node->value.what != SYNC_IS_DIR) {
            make_parents(st, path);
            put_value(st, path, strlen(path), v);
        }
        break;
    default:
        sync_state_remove_below(st, path, strlen(path));
        make_parents(st, path);
        put_value(st, path, strlen(path), random_value());
    }
}

/* Seeds 1 to 20 with nothing left out, the others with. */
START_TEST(long_random_histories)
{
    bool has_left_out = _i >= 20;
    long n_lost = 0, n_failed = 0;
    char what[64];

    seed = (unsigned)_i + 1;
    clock_now = 0;
    for (int round = 0; round < 600; round++) {
        bool is_clean = round % 10 == 9;
        int n;

        snprintf(what, sizeof(what), "seed %d, round %d", _i + 1, round);
        for (n = dice(6); n > 0; n--)
            edit(m.sides[SYNC_GUEST], has_left_out);
        for (n = dice(6); n > 0; n--)
            edit(m.sides[SYNC_STORE], false);
        if (dice(100) == 0) { /* a new machine, or only its ancestor lost */
            sync_state_clear(m.ancestor);
            if (dice(2) == 0)
                sync_state_clear(m.sides[SYNC_GUEST]);
        }
        if (is_clean) {
            step(what);
            if (!has_left_out)
                ck_assert_msg(model_is_same(m.sides[SYNC_GUEST], m.sides[SYNC_STORE]), "%s", what);
            continue;
        }
        model_copy(&before, &m);
        reconcile();
        n_failed += model_apply(&m, &plan, &seed, 4);
        n_lost += (long)plan.n_conflicts;
        model_check_lost(&before, &m, &plan, what);
        model_check_left_out(&before, &m, what);
    }
    ck_assert_int_gt(n_lost, 0);
    ck_assert_int_gt(n_failed, 0);
}
END_TEST

/* ---- size, memory ---- */

START_TEST(many_paths)
{
    enum { DIRS = 400, FILES = 500 };
    char path[64];

    for (int d = 0; d < DIRS; d++) {
        snprintf(path, sizeof(path), "folder-%d", d);
        model_put(m.sides[SYNC_GUEST], path, "D", 1);
        model_put(m.sides[SYNC_STORE], path, "D", 1);
        model_put(m.ancestor, path, "D", 1);
        for (int f = 0; f < FILES; f++) {
            snprintf(path, sizeof(path), "folder-%d/file-%d", d, f);
            model_put(m.sides[SYNC_GUEST], path, f == 7 ? "F2" : "F1", 1);
            model_put(m.sides[SYNC_STORE], path, "F1", 1);
            model_put(m.ancestor, path, "F1", 1);
        }
    }
    reconcile();
    ck_assert_uint_eq(plan.n_steps, DIRS);
    ck_assert_uint_eq(plan.n_changes[SYNC_STORE], DIRS);
    ck_assert_uint_eq(plan.n_changes[SYNC_GUEST], 0);
    sync_state_clear(m.sides[SYNC_GUEST]);
    sync_state_clear(m.ancestor);
    reconcile();
    ck_assert_uint_eq(plan.n_changes[SYNC_GUEST], DIRS * (FILES + 1));
    ck_assert_uint_eq(plan.n_changes[SYNC_STORE], 0);
}
END_TEST

START_TEST(memory_runs_out_at_every_place)
{
    char path[16];

    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof(path), "%d", i);
        model_put(m.sides[SYNC_GUEST], path, "F1", 1);
        model_put(m.sides[SYNC_STORE], path, "F2", 1);
    }
    for (long n = 1;; n++) {
        int r;

        sync_plan_fini(&plan);
        alloc_fail_at(n);
        r = sync_reconcile(m.sides[SYNC_GUEST], m.sides[SYNC_STORE], m.ancestor, &plan);
        if (!alloc_failed()) {
            ck_assert_int_eq(r, 0);
            ck_assert_uint_eq(plan.n_conflicts, 300);
            ck_assert_int_gt(n, 5);
            return;
        }
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_uint_eq(plan.n_steps, 0);
        ck_assert_ptr_null(plan.steps);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/reconcile");
    TCase *tc = tcase_create("decisions");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_loop_test(tc, named_cases, 0, (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tc, ignored_for_a_while);
    tcase_add_test(tc, steps_tell_what_is_there_and_what_is_to_be);
    tcase_add_test(tc, every_combination);
    tcase_add_loop_test(tc, long_random_histories, 0, 40);
    tcase_add_test(tc, many_paths);
    tcase_add_test(tc, memory_runs_out_at_every_place);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
