/* SPDX-License-Identifier: MIT */
/* The engine between two real folders, in a session that has secrets: nothing of the guest's that
 * holds one is ever written to the store, not even for a moment, and nothing else is kept back. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sync_rig.h"

static struct rig rig;

#define G      SYNC_GUEST
#define S      SYNC_STORE
#define SECRET "tok_4f9A-77Zq+/=xY_end"
#define OTHER  "correct horse battery staple"

static void set_secrets(const char *a, const char *b)
{
    const struct tr_mask_secret secrets[] = {{a, a != NULL ? strlen(a) : 0},
                                             {b, b != NULL ? strlen(b) : 0}};
    struct tr_mask *mask;

    ck_assert_int_eq(tr_mask_new(secrets, 2, &mask), 0);
    sync_secrets_set(&rig.secrets, mask);
    tr_mask_unref(mask);
}

static void setup(void)
{
    rig_init(&rig);
    set_secrets(SECRET, NULL);
}

static void teardown(void)
{
    rig_fini(&rig);
}

static void check(enum sync_side side, const char *path, const char *text)
{
    const char *is = rig_read(&rig, side, path);

    ck_assert_msg(strcmp(is, text) == 0, "%s of side %d is \"%s\", not \"%s\"", path, side, is,
                  text);
}

static void check_both(const char *path, const char *text)
{
    check(G, path, text);
    check(S, path, text);
}

/* It stays in the guest, the store has what it had, and the reason is told. */
static void check_kept_out(const char *path, const char *guest, const char *store)
{
    check(G, path, guest);
    check(S, path, store);
    ck_assert_msg(strcmp(rig_left_out(&rig, path), "secret") == 0, "%s: \"%s\"", path,
                  rig_left_out(&rig, path));
}

static void check_never_written(void)
{
    char path[512];
    DIR *dir;
    int n = 0;

    ck_assert(!rig_was_written(SECRET, strlen(SECRET)));
    snprintf(path, sizeof(path), "%s/stage-%d", rig.dir, S);
    ck_assert_ptr_nonnull(dir = opendir(path));
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    ck_assert_int_eq(n, 2); /* . and .. */
}

static struct sync_engine_status status(void)
{
    struct sync_engine_status st;

    sync_engine_status(rig.engine, &st);
    return st;
}

START_TEST(a_new_file_stays_out_until_it_holds_none)
{
    rig_write(&rig, G, ".env", "TOKEN=" SECRET "\n");
    rig_write(&rig, G, "app.py", "import os\nos.environ['TOKEN']\n");
    rig_sync(&rig);
    check_kept_out(".env", "TOKEN=" SECRET "\n", "");
    check_both("app.py", "import os\nos.environ['TOKEN']\n");
    ck_assert(status().is_in_step);
    ck_assert_uint_eq(status().n_faults, 0);
    ck_assert_uint_eq(status().n_left_out, 1);
    check_never_written();
    rig_write(&rig, G, ".env", "TOKEN=ask me\n");
    rig_sync(&rig);
    check_both(".env", "TOKEN=ask me\n");
    ck_assert_str_eq(rig_left_out(&rig, ".env"), "");
    ck_assert_uint_eq(rig.n_conflicts, 0);
}
END_TEST

START_TEST(it_is_read_once)
{
    uint64_t n_hashed;

    rig_write(&rig, G, "a", SECRET);
    rig_sync(&rig);
    n_hashed = status().n_hashed[G];
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(rig_try(&rig), 0);
    ck_assert_uint_eq(status().n_hashed[G], n_hashed);
    check_kept_out("a", SECRET, "");
}
END_TEST

START_TEST(a_known_file_keeps_its_last_clean_state)
{
    rig_write(&rig, G, "conf.ini", "clean\n");
    rig_sync(&rig);
    check_both("conf.ini", "clean\n");
    rig_write(&rig, G, "conf.ini", "key=" SECRET "\n");
    rig_sync(&rig);
    check_kept_out("conf.ini", "key=" SECRET "\n", "clean\n");
    rig_restart(&rig, true); /* the same for who starts anew */
    rig_sync(&rig);
    check_kept_out("conf.ini", "key=" SECRET "\n", "clean\n");
    rig_write(&rig, S, "conf.ini", "edited\n"); /* which must not overwrite the guest's */
    rig_sync(&rig);
    check_kept_out("conf.ini", "key=" SECRET "\n", "edited\n");
    ck_assert(rig_has_conflict(&rig, "conf.ini", SYNC_CONFLICT_LEFT_OUT));
    rig_remove(&rig, S, "conf.ini"); /* nor delete it */
    rig_sync(&rig);
    check_kept_out("conf.ini", "key=" SECRET "\n", "");
    check_never_written();
}
END_TEST

START_TEST(replacing_it_is_no_deletion)
{
    char from[512], to[512];

    rig_write(&rig, G, "f", "clean");
    rig_sync(&rig);
    rig_write(&rig, G, "f", SECRET);
    rig_sync(&rig);
    rig_remove(&rig, G, "f"); /* as editors do: gone for a moment */
    for (int side = 0; side < SYNC_N_SIDES; side++)
        sync_engine_dirty_all(rig.engine, (enum sync_side)side, false);
    rig.now_ms += 10;
    ck_assert_int_eq(sync_engine_round(rig.engine, rig.now_ms, &(struct err){0}), 0);
    check(S, "f", "clean");
    rig_write(&rig, G, ".f.tmp", "clean again");
    rig_path(&rig, G, ".f.tmp", from);
    rig_path(&rig, G, "f", to);
    ck_assert_int_eq(rename(from, to), 0);
    rig_sync(&rig);
    check_both("f", "clean again");
    ck_assert(!rig_has_kept(&rig, "f", SECRET));
    rig_write(&rig, G, "f", SECRET);
    rig_sync(&rig);
    rig_remove(&rig, G, "f"); /* and this is one */
    rig_sync(&rig);
    check_both("f", "");
    check_never_written();
}
END_TEST

START_TEST(deactivation_lets_it_pass)
{
    rig_write(&rig, G, "a", "1 " SECRET);
    rig_write(&rig, G, "b", "2 " OTHER);
    rig_sync(&rig);
    check_kept_out("a", "1 " SECRET, "");
    check_both("b", "2 " OTHER);
    set_secrets(OTHER, NULL);
    rig_sync(&rig);
    check_both("a", "1 " SECRET);
    ck_assert_str_eq(rig_left_out(&rig, "a"), "");
    /* What the store had before goes on, until it is changed. */
    check_both("b", "2 " OTHER);
    ck_assert_str_eq(rig_left_out(&rig, "b"), "");
    rig_write(&rig, G, "b", "3 " OTHER);
    rig_sync(&rig);
    check_kept_out("b", "3 " OTHER, "2 " OTHER);
    set_secrets(NULL, NULL);
    rig_sync(&rig);
    check_both("b", "3 " OTHER);
    rig_check_same(&rig, NULL, "no secrets");
}
END_TEST

START_TEST(the_store_may_mend_what_it_held_before)
{
    set_secrets(NULL, NULL);
    rig_write(&rig, G, "f", "old " SECRET);
    rig_sync(&rig);
    set_secrets(SECRET, NULL);
    rig_write(&rig, S, "f", "new");
    rig_sync(&rig);
    check_both("f", "new");
    ck_assert_uint_eq(rig.n_conflicts, 0);
}
END_TEST

START_TEST(names_and_links)
{
    rig_mkdir(&rig, G, "d-correct horse battery staple");
    rig_write(&rig, G, "d-correct horse battery staple/in", "1");
    rig_write(&rig, G, "n-correct horse battery staple.py", "2");
    rig_link(&rig, G, "link", "/tmp/correct horse battery staple");
    rig_link(&rig, G, "fine", "app.py");
    set_secrets(OTHER, NULL);
    rig_sync(&rig);
    check_kept_out("d-correct horse battery staple", "/", "");
    check_kept_out("n-correct horse battery staple.py", "2", "");
    check_kept_out("link", "->/tmp/correct horse battery staple", "");
    check_both("fine", "->app.py");
    check(S, "d-correct horse battery staple/in", "");
    rig_remove(&rig, G, "link");
    rig_link(&rig, G, "link", "app.py");
    rig_sync(&rig);
    check_both("link", "->app.py");
    set_secrets(SECRET, NULL);
    rig_sync(&rig);
    rig_check_same(&rig, NULL, "other secrets");
    set_secrets(OTHER, NULL); /* the store has them: they go on */
    rig_write(&rig, G, "n-correct horse battery staple.py", "3");
    rig_sync(&rig);
    rig_check_same(&rig, NULL, "held before");
}
END_TEST

START_TEST(other_forms)
{
    /* The forms themselves are test_mask's; here: that they count. */
    rig_write(&rig, G, "b64-0", "dG9rXzRmOUEtNzdacSsvPXhZX2VuZA==\n");
    rig_write(&rig, G, "percent", "u=tok_4f9A-77Zq%2B%2F%3DxY_end&x");
    rig_write(&rig, G, "lower", "tok_4f9a-77zq+/=xy_end"); /* not covered, as documented */
    rig_sync(&rig);
    check_kept_out("b64-0", "dG9rXzRmOUEtNzdacSsvPXhZX2VuZA==\n", "");
    check_kept_out("percent", "u=tok_4f9A-77Zq%2B%2F%3DxY_end&x", "");
    check_both("lower", "tok_4f9a-77zq+/=xy_end");
}
END_TEST

/* Wherever the boundaries of pieces fall, no part of it that is long enough to be of use is
 * written. */
START_TEST(across_the_boundaries_of_pieces)
{
    const size_t len = strlen(SECRET), size = 3 * SYNC_PIECE_MAX;
    char *text = malloc(size + 1), name[32];

    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i <= len; i++) {
        memset(text, 'x', size);
        text[size] = '\0';
        memcpy(text + SYNC_PIECE_MAX - i, SECRET, len);
        snprintf(name, sizeof(name), "f%zu.txt", i);
        rig_write(&rig, G, name, text);
    }
    memset(text, 'x', size);
    memcpy(text + size - len, SECRET, len);
    rig_write(&rig, G, "last.txt", text);
    memcpy(text + size - len, SECRET, len - 1);
    text[size - 1] = '!';
    rig_write(&rig, G, "almost.txt", text);
    rig_sync(&rig);
    for (size_t i = 0; i <= len; i++) {
        snprintf(name, sizeof(name), "f%zu.txt", i);
        ck_assert_str_eq(rig_left_out(&rig, name), "secret");
        check(S, name, "");
    }
    ck_assert_str_eq(rig_left_out(&rig, "last.txt"), "secret");
    ck_assert_str_eq(rig_left_out(&rig, "almost.txt"), "");
    rig_remove(&rig, G, "almost.txt");
    check_never_written();
    free(text);
}
END_TEST

START_TEST(of_a_secret_not_even_a_part_is_staged)
{
    rig_write(&rig, G, "f", "before " SECRET " behind");
    rig_sync(&rig);
    check_kept_out("f", "before " SECRET " behind", "");
    ck_assert(rig_was_written("before ", 7)); /* the test looks at the right place */
    ck_assert(!rig_was_written(SECRET, 8));
}
END_TEST

/* A new machine has a file of its own where the store has one: the store's would win, and the
 * guest's would go into the vault, which is the store's. */
START_TEST(what_cannot_be_kept_is_not_overwritten)
{
    rig_write(&rig, S, "f", "store's");
    rig_write(&rig, G, "f", SECRET);
    rig_write(&rig, S, "g", "store's");
    rig_write(&rig, G, "g", "guest's");
    rig_sync(&rig);
    check_kept_out("f", SECRET, "store's");
    check_both("g", "store's");
    ck_assert(rig_has_kept(&rig, "g", "guest's"));
    ck_assert(rig_has_conflict(&rig, "f", SYNC_CONFLICT_LEFT_OUT));
    check_never_written();
}
END_TEST

START_TEST(what_is_not_taken_has_won_nothing)
{
    rig_write(&rig, G, "f", "clean");
    rig_sync(&rig);
    rig_write(&rig, S, "f", "edited");
    rig_write(&rig, G, "f", SECRET);
    rig_sync(&rig);
    check_kept_out("f", SECRET, "edited");
    ck_assert(!rig_has_conflict(&rig, "f", SYNC_CONFLICT_EDITED));
    ck_assert(rig_has_conflict(&rig, "f", SYNC_CONFLICT_LEFT_OUT));
    ck_assert_uint_eq(rig.n_conflicts, 1);
    check_never_written();
}
END_TEST

static int n_moments;

/* Told in the middle of a round, before the guest can know it. */
static void activate_in_the_middle(struct rig *r)
{
    if (++n_moments != 3)
        return;
    set_secrets(SECRET, NULL);
    rig_write(r, G, "late", SECRET);
}

START_TEST(activated_in_the_middle_of_a_round)
{
    set_secrets(NULL, NULL);
    for (int i = 0; i < 20; i++) {
        char name[16];

        snprintf(name, sizeof(name), "f%d", i);
        rig_write(&rig, G, name, name);
    }
    n_moments = 0;
    rig.on_moment = activate_in_the_middle;
    rig_sync(&rig);
    rig.on_moment = NULL;
    ck_assert_int_gt(n_moments, 3);
    check_kept_out("late", SECRET, "");
    check_both("f19", "f19");
    check_never_written();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/secrets");
    TCase *tc = tcase_create("two folders");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_new_file_stays_out_until_it_holds_none);
    tcase_add_test(tc, it_is_read_once);
    tcase_add_test(tc, a_known_file_keeps_its_last_clean_state);
    tcase_add_test(tc, replacing_it_is_no_deletion);
    tcase_add_test(tc, deactivation_lets_it_pass);
    tcase_add_test(tc, the_store_may_mend_what_it_held_before);
    tcase_add_test(tc, names_and_links);
    tcase_add_test(tc, other_forms);
    tcase_add_test(tc, across_the_boundaries_of_pieces);
    tcase_add_test(tc, of_a_secret_not_even_a_part_is_staged);
    tcase_add_test(tc, what_cannot_be_kept_is_not_overwritten);
    tcase_add_test(tc, what_is_not_taken_has_won_nothing);
    tcase_add_test(tc, activated_in_the_middle_of_a_round);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
