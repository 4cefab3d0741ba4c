/* SPDX-License-Identifier: MIT */
/* The engine between two real folders. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync_rig.h"

static struct rig rig;

#define G SYNC_GUEST
#define S SYNC_STORE

static void setup(void)
{
    rig_init(&rig);
}

static void teardown(void)
{
    rig.on_moment = NULL;
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

static struct sync_engine_status status(void)
{
    struct sync_engine_status st;

    sync_engine_status(rig.engine, &st);
    return st;
}

/* ---- the ways of a file ---- */

START_TEST(an_empty_guest_gets_all_and_deletes_nothing)
{
    rig_mkdir(&rig, S, "src");
    rig_mkdir(&rig, S, "empty");
    rig_write(&rig, S, "src/a.py", "print(1)\n");
    rig_write(&rig, S, "run.sh", "#!/bin/sh\n");
    rig_chmod(&rig, S, "run.sh", 0755);
    rig_write(&rig, S, "none", "");
    rig_link(&rig, S, "link", "src/a.py");
    rig_write(&rig, S, "data.bin", "what the store has goes to the guest");
    ck_assert_int_eq(rig_try(&rig), 0); /* one round is enough */
    check_both("src/a.py", "print(1)\n");
    check_both("empty", "/");
    check_both("none", "");
    check_both("link", "->src/a.py");
    ck_assert(rig_is_exec(&rig, G, "run.sh"));
    ck_assert(!rig_is_exec(&rig, G, "src/a.py"));
    rig_sync(&rig);
    rig_check_same(&rig, NULL, "restored");
    ck_assert_uint_eq(status().n_changes[S], 0);
    ck_assert_uint_eq(rig.n_conflicts, 0);
    ck_assert(status().is_in_step);
}
END_TEST

START_TEST(both_ways)
{
    rig_write(&rig, G, "g", "1");
    rig_write(&rig, S, "s", "2");
    rig_sync(&rig);
    check_both("g", "1");
    check_both("s", "2");
    rig_write(&rig, G, "s", "3");
    rig_write(&rig, S, "g", "4");
    rig_mkdir(&rig, G, "d");
    rig_write(&rig, G, "d/x", "5");
    rig_sync(&rig);
    check_both("s", "3");
    check_both("g", "4");
    check_both("d/x", "5");
    ck_assert(rig_has_kept(&rig, "s", "2")); /* each version that was overwritten */
    ck_assert(rig_has_kept(&rig, "g", "1"));
    rig_remove(&rig, G, "d");
    rig_chmod(&rig, S, "g", 0755);
    rig_sync(&rig);
    check_both("d", "");
    ck_assert(rig_is_exec(&rig, G, "g"));
    ck_assert(rig_has_kept(&rig, "d/x", "5"));
    rig_move(&rig, S, "g", "G"); /* only the case */
    rig_remove(&rig, S, "s");
    rig_mkdir(&rig, S, "s"); /* a file becomes a folder */
    rig_write(&rig, S, "s/in", "6");
    rig_sync(&rig);
    check_both("G", "4");
    check_both("g", "");
    check_both("s/in", "6");
    rig_remove(&rig, G, "s"); /* and back, in the guest */
    rig_link(&rig, G, "s", "G");
    rig_sync(&rig);
    check_both("s", "->G");
    rig_check_same(&rig, NULL, "both ways");
    ck_assert_uint_eq(rig.n_conflicts, 0);
}
END_TEST

START_TEST(odd_names)
{
    static const char *const names[] = {"nl\nx.py", "back\\slash", "bad\xff", "-rf", " lead",
                                        "\xc3\xa9", "e\xcc\x81",   "*",       "a:b", "CON"};
    char text[2] = "0";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++, text[0]++)
        rig_write(&rig, i % 2 == 0 ? G : S, names[i], text);
    rig_sync(&rig);
    text[0] = '0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++, text[0]++)
        check_both(names[i], text);
}
END_TEST

START_TEST(nothing_is_sent_back_or_read_again)
{
    struct sync_engine_status before, after;

    rig_mkdir(&rig, G, "d");
    for (int i = 0; i < 20; i++) {
        char name[16];

        snprintf(name, sizeof(name), "d/%d", i);
        rig_write(&rig, i % 2 == 0 ? G : S, i % 2 == 0 ? name : name + 2, name);
    }
    rig_sync(&rig);
    before = status();
    ck_assert_uint_eq(before.n_changes[G], 10);
    ck_assert_uint_eq(before.n_changes[S], 11);
    rig_sync(&rig);
    after = status();
    ck_assert_uint_eq(after.n_changes[G], 10);
    ck_assert_uint_eq(after.n_changes[S], 11);
    ck_assert_uint_eq(after.n_hashed[G], before.n_hashed[G]);
    ck_assert_uint_eq(after.n_hashed[S], before.n_hashed[S]);
    ck_assert_int_eq(after.bytes_sent[G], before.bytes_sent[G]);
}
END_TEST

START_TEST(same_size_and_time_is_noticed)
{
    struct timespec times[2] = {{1700000000, 0}, {1700000000, 0}};
    char path[512];

    rig_path(&rig, G, "g.py", path);
    rig_write(&rig, G, "g.py", "AAAA");
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    rig_sync(&rig);
    rig_write(&rig, G, "g.py", "BBBB");
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    rig_sync(&rig);
    check_both("g.py", "BBBB");
}
END_TEST

/* ---- conflicts ---- */

START_TEST(the_later_to_arrive_wins_and_the_other_is_kept)
{
    rig_write(&rig, G, "f", "1");
    rig_sync(&rig);
    rig_write(&rig, S, "f", "store");
    rig_write(&rig, G, "f", "guest");
    rig_sync(&rig);
    check_both("f", "guest"); /* looked at second */
    ck_assert(rig_has_kept(&rig, "f", "store"));
    ck_assert(rig_has_conflict(&rig, "f", SYNC_CONFLICT_EDITED));
    ck_assert_uint_eq(rig.n_conflicts, 1);
    ck_assert_int_eq(rig.conflicts[0].winner, G);
}
END_TEST

START_TEST(a_new_machines_own_files_lose)
{
    rig_write(&rig, S, ".profile", "mine");
    rig_write(&rig, G, ".profile", "as it came");
    rig_write(&rig, G, ".bashrc", "as it came, too");
    rig_sync(&rig);
    check_both(".profile", "mine");
    check_both(".bashrc", "as it came, too");
    ck_assert(rig_has_kept(&rig, ".profile", "as it came"));
    ck_assert_uint_eq(rig.n_conflicts, 1);
    rig_remove(&rig, G, ".bashrc"); /* the next one: nothing that the vault would not know */
    rig_write(&rig, G, ".profile", "as it came");
    rig.instance++;
    rig_restart(&rig, true);
    rig_sync(&rig);
    check_both(".profile", "mine");
    check_both(".bashrc", "as it came, too");
    ck_assert_uint_eq(rig.n_conflicts, 1);
}
END_TEST

START_TEST(edit_against_deletion)
{
    rig_mkdir(&rig, G, "d");
    rig_write(&rig, G, "d/x", "1");
    rig_write(&rig, G, "d/y", "2");
    rig_sync(&rig);
    rig_remove(&rig, G, "d");
    rig_write(&rig, S, "d/x", "3");
    rig_sync(&rig);
    check_both("d/x", "3");
    check_both("d/y", "");
}
END_TEST

/* ---- instances, restarts ---- */

START_TEST(the_ancestor_outlives_the_engine_but_not_the_instance)
{
    rig_write(&rig, G, "a", "1");
    rig_write(&rig, G, "b", "2");
    rig_sync(&rig);
    rig_restart(&rig, true);
    rig_remove(&rig, S, "a"); /* while nobody looks */
    rig_sync(&rig);
    check_both("a", "");
    check_both("b", "2");
    rig.instance++;
    rig_remove(&rig, G, "b"); /* a new machine is empty */
    rig_restart(&rig, true);
    rig_sync(&rig);
    check_both("b", "2");
}
END_TEST

START_TEST(a_damaged_ancestor_counts_as_none)
{
    char path[128];
    FILE *f;

    rig_write(&rig, G, "a", "1");
    rig_sync(&rig);
    rig_restart(&rig, true);
    rig_remove(&rig, G, "a");
    snprintf(path, sizeof(path), "%s/ancestor", rig.dir);
    ck_assert_ptr_nonnull(f = fopen(path, "r+"));
    fputs("rubbish", f);
    fclose(f);
    rig_restart(&rig, false);
    rig_sync(&rig);
    check_both("a", "1");
}
END_TEST

/* ---- what is left out ---- */

START_TEST(the_filter_decides_where_to_descend)
{
    uint64_t listed;
    int watched;

    rig_mkdir(&rig, G, "src");
    rig_write(&rig, G, "src/a.js", "1");
    rig_sync(&rig);
    listed = status().n_listed[G];
    watched = rig.sides[G].n_watched;
    rig_mkdir(&rig, G, "node_modules");
    rig_mkdir(&rig, G, "node_modules/x");
    rig_write(&rig, G, "node_modules/x/index.js", "1");
    rig_mkdir(&rig, G, ".ssh");
    rig_write(&rig, G, "out.log", "1");
    rig_write(&rig, G, "noise.py", "\x01\xff\xfe\x80");
    rig_mkdir(&rig, G, "cache");
    rig_write(&rig, G, "cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    rig_write(&rig, G, "cache/x", "1");
    ck_assert_int_eq(rig_try(&rig), 0);
    ck_assert_uint_eq(status().n_listed[G], listed + 3); /* the two, and cache once */
    ck_assert_int_eq(rig.sides[G].n_watched, watched);
    ck_assert_str_eq(rig_left_out(&rig, "node_modules"), "dependency");
    ck_assert_str_eq(rig_left_out(&rig, ".ssh"), "private");
    ck_assert_str_eq(rig_left_out(&rig, "out.log"), "log");
    ck_assert_str_eq(rig_left_out(&rig, "noise.py"), "binary");
    ck_assert_str_eq(rig_left_out(&rig, "cache"), "cache");
    check(S, "node_modules", "");
    check(S, "noise.py", "");
    check(S, "cache", "");
    ck_assert_uint_eq(status().n_left_out, 5);
    rig_sync(&rig);
    ck_assert_uint_eq(status().n_left_out, 5);
    ck_assert_uint_eq(status().n_faults, 0);
}
END_TEST

START_TEST(binary_only_at_its_end)
{
    static char text[20000];
    char path[512];
    FILE *f;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 2] = '\xff';
    rig_path(&rig, G, "late", path);
    ck_assert_ptr_nonnull(f = fopen(path, "w"));
    ck_assert_uint_eq(fwrite(text, 1, sizeof(text), f), sizeof(text));
    fclose(f);
    rig_sync(&rig);
    check(S, "late", "");
    ck_assert_str_eq(rig_left_out(&rig, "late"), "binary");
    ck_assert(status().is_in_step);
    ck_assert_uint_eq(status().n_faults, 0);
}
END_TEST

/* S08. */
START_TEST(rules_that_change)
{
    rig_mkdir(&rig, G, "data");
    rig_write(&rig, G, "data/a.csv", "a1");
    rig_write(&rig, G, "data/b.csv", "b1");
    rig_write(&rig, G, "data/c.csv", "c1");
    rig_sync(&rig);
    rig_write(&rig, G, ".gitignore", "data/\n");
    rig_sync(&rig);
    check(S, ".gitignore", "data/\n");
    check_both("data/a.csv", "a1");
    rig_write(&rig, G, "data/a.csv", "a2");
    rig_remove(&rig, G, "data/b.csv");
    rig_write(&rig, S, "data/d.csv", "d1");
    rig_sync(&rig);
    check(S, "data/a.csv", "a1");
    check(S, "data/b.csv", "b1");
    check(S, "data/c.csv", "c1");
    ck_assert_str_eq(rig_left_out(&rig, "data"), "ignored");
    rig_write(&rig, G, ".gitignore", "out/\n.gitignore\n"); /* it rules even itself */
    rig_mkdir(&rig, G, "out");
    rig_write(&rig, G, "out/1.py", "1");
    rig_sync(&rig);
    check_both("data/a.csv", "a2");
    check_both("data/b.csv", "");
    check_both("data/c.csv", "c1");
    check_both("data/d.csv", "d1");
    check(S, "out", "");
    ck_assert(rig_has_kept(&rig, "data/b.csv", "b1"));
    rig_remove(&rig, G, ".gitignore");
    rig_sync(&rig);
    check(S, "out/1.py", "1");
    ck_assert_uint_eq(rig.n_conflicts, 0);
}
END_TEST

/* New rules make what is below dirty, and nothing else does. */
START_TEST(rules_of_a_folder_above)
{
    struct err err;
    uint64_t listed;

    rig_mkdir(&rig, G, "a");
    rig_mkdir(&rig, G, "a/b");
    rig_write(&rig, G, "a/b/x.csv", "1");
    rig_sync(&rig);
    rig_write(&rig, G, ".gitignore", "*.csv\n");
    rig.now_ms += 2000;
    listed = status().n_listed[G];
    sync_engine_dirty(rig.engine, G, "", 0);
    sync_engine_dirty(rig.engine, G, "nothing", 7);
    ck_assert_int_eq(sync_engine_round(rig.engine, rig.now_ms, &err), 0);
    ck_assert_str_eq(rig_left_out(&rig, "a/b/x.csv"), "ignored");
    check(S, "a/b/x.csv", "1");
    ck_assert_uint_eq(status().n_listed[G], listed + 3);
    rig.now_ms += 2000;
    sync_engine_dirty(rig.engine, G, "a", 1);
    ck_assert_int_eq(sync_engine_round(rig.engine, rig.now_ms, &err), 0);
    ck_assert_uint_le(status().n_listed[G], listed + 3 + 4); /* and the fresh ones once more */
}
END_TEST

START_TEST(ignored_files_of_the_store)
{
    rig_write(&rig, G, ".gitignore", "*.env\n");
    rig_sync(&rig);
    rig_write(&rig, S, "new.env", "1"); /* whatever is in the store goes to the guest */
    rig_sync(&rig);
    check(G, "new.env", "1");
    rig_write(&rig, S, "new.env", "2");
    rig_sync(&rig);
    check(G, "new.env", "2");
    rig_write(&rig, G, "new.env", "3"); /* but not back */
    rig_sync(&rig);
    check(S, "new.env", "2");
    rig_write(&rig, S, "new.env", "4"); /* and not over what is only there */
    rig_sync(&rig);
    check(G, "new.env", "3");
    ck_assert(rig_has_conflict(&rig, "new.env", SYNC_CONFLICT_LEFT_OUT));
    ck_assert_uint_eq(rig.n_conflicts, 1);
    rig_remove(&rig, G, "new.env");
    rig_sync(&rig);
    check(S, "new.env", "4");
    check(G, "new.env", "");
    rig.instance++; /* a new machine gets it back */
    rig_restart(&rig, true);
    rig_sync(&rig);
    check(G, "new.env", "4");
}
END_TEST

START_TEST(what_is_left_out_is_never_removed)
{
    rig_mkdir(&rig, G, "web");
    rig_write(&rig, G, "web/a.js", "1");
    rig_mkdir(&rig, G, "web/node_modules");
    rig_write(&rig, G, "web/node_modules/x", "2");
    rig_sync(&rig);
    rig_remove(&rig, S, "web");
    rig_sync(&rig);
    check(G, "web/a.js", "");
    check(G, "web/node_modules/x", "2");
    check(S, "web", "");
    ck_assert(status().is_in_step);
    rig_write(&rig, S, "web", "now a file");
    rig_sync(&rig);
    check(G, "web/node_modules/x", "2");
    check(S, "web", "now a file");
    ck_assert(rig_has_conflict(&rig, "web", SYNC_CONFLICT_BLOCKED));
}
END_TEST

START_TEST(special_files_are_not_opened)
{
    char path[512];

    rig_path(&rig, G, "fifo", path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    rig_write(&rig, G, "f", "1");
    rig_sync(&rig);
    check(S, "f", "1");
    check(S, "fifo", "");
    ck_assert_str_eq(rig_left_out(&rig, "fifo"), "special");
}
END_TEST

/* ---- moments ---- */

START_TEST(a_file_that_vanishes_for_a_moment_is_not_deleted)
{
    uint64_t n;

    rig_write(&rig, G, "f.py", "old");
    rig_sync(&rig);
    n = status().n_changes[S];
    rig_move(&rig, G, "f.py", "f.py~");
    ck_assert_int_eq(rig_try(&rig), 0);
    check(S, "f.py", "old");
    rig_write(&rig, G, "f.py", "new");
    rig_remove(&rig, G, "f.py~");
    rig_sync(&rig);
    check_both("f.py", "new");
    check_both("f.py~", "");
    ck_assert_uint_le(status().n_changes[S], n + 3);
    rig_remove(&rig, G, "f.py");
    rig_sync(&rig);
    check_both("f.py", "");
}
END_TEST

START_TEST(a_file_that_is_being_written_waits)
{
    rig_write(&rig, G, "f", "whole");
    rig_sync(&rig);
    rig.sides[G].is_writer = true;
    rig_write(&rig, G, "f", "");
    ck_assert_int_eq(rig_try(&rig), 0);
    check(S, "f", "whole");
    ck_assert_str_eq(rig_left_out(&rig, "f"), "busy");
    rig_write(&rig, S, "f", "from the other side");
    rig_write(&rig, G, "f", "ha");
    ck_assert_int_eq(rig_try(&rig), 0);
    check(G, "f", "ha"); /* nor is it written over meanwhile */
    rig_write(&rig, G, "f", "half");
    rig.sides[G].is_writer = false;
    rig_sync(&rig);
    check_both("f", "half");
    ck_assert(rig_has_kept(&rig, "f", "from the other side"));
    rig.sides[G].is_writer = true; /* one that stays open counts once it stays as it is */
    rig_write(&rig, G, "f", "quiet");
    rig_sync(&rig);
    check_both("f", "quiet");
}
END_TEST

START_TEST(a_file_that_has_just_changed_is_not_removed)
{
    rig_write(&rig, G, "f", "1");
    rig_sync(&rig);
    rig.sides[G].is_fresh = true; /* it may have changed once more, and nobody can tell */
    rig_chmod(&rig, G, "f", 0600);
    ck_assert_int_eq(rig_try(&rig), 0);
    rig_remove(&rig, S, "f");
    ck_assert_int_eq(rig_try(&rig), 0);
    ck_assert_int_eq(rig_try(&rig), 0);
    check(G, "f", "1");
    rig.sides[G].is_fresh = false;
    rig_sync(&rig);
    check_both("f", "");
}
END_TEST

static void edit_once(struct rig *r)
{
    if (r->sides[S].n_calls == 0)
        return;
    r->on_moment = NULL;
    rig_write(r, G, "f", "meanwhile in the guest");
}

START_TEST(an_edit_in_the_middle_is_not_lost)
{
    for (int i = 0; i < 12; i++) { /* at each moment of the round, one after the other */
        rig_write(&rig, G, "f", "before");
        rig_sync(&rig);
        rig_write(&rig, S, "f", "from the store");
        rig.sides[S].n_calls = 0;
        rig.on_moment = edit_once;
        for (int k = 0; k < i && rig.on_moment != NULL; k++)
            ck_assert_int_eq(rig_try(&rig), 0);
        rig.on_moment = NULL;
        rig_sync(&rig);
        rig_check_same(&rig, NULL, "in the middle");
        ck_assert(strcmp(rig_read(&rig, G, "f"), "from the store") == 0 ||
                  rig_has_kept(&rig, "f", "from the store"));
        if (i > 0)
            ck_assert(strcmp(rig_read(&rig, G, "f"), "meanwhile in the guest") == 0 ||
                      rig_has_kept(&rig, "f", "meanwhile in the guest"));
    }
}
END_TEST

/* ---- faults ---- */

START_TEST(a_fault_stays_with_its_file)
{
    static const int faults[] = {-ENOSPC, -EACCES, -EROFS, -EDQUOT};
    enum sync_side side;

    for (int to = 0; to < SYNC_N_SIDES; to++) {
        enum sync_side from = to == G ? S : G;

        for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
            char text[32];

            snprintf(text, sizeof(text), "%d %zu", to, i);
            rig_write(&rig, from, "bad", text);
            rig_write(&rig, from, "good", text);
            strcpy(rig.sides[to].fail_path, "bad");
            rig.sides[to].fail_status = faults[i];
            rig_sync(&rig);
            check_both("good", text);
            ck_assert_str_ne(rig_read(&rig, (enum sync_side)to, "bad"), text);
            ck_assert_int_eq(rig_fault(&rig, "bad", &side), faults[i]);
            ck_assert_int_eq(side, to);
            ck_assert(!status().is_in_step);
            ck_assert_uint_eq(status().n_faults, 1);
            rig.sides[to].fail_path[0] = '\0'; /* and recovers by itself */
            for (int k = 0; k < 100 && status().n_faults > 0; k++)
                ck_assert_int_eq(rig_try(&rig), 0);
            check_both("bad", text);
            ck_assert_uint_eq(status().n_faults, 0);
            ck_assert(status().is_in_step);
        }
    }
}
END_TEST

START_TEST(a_fault_is_tried_again_at_longer_and_longer_intervals)
{
    rig_write(&rig, S, "bad", "1");
    strcpy(rig.sides[G].fail_path, "bad");
    rig.sides[G].fail_status = -ENOSPC;
    for (int i = 0; i < 60; i++) /* two minutes */
        ck_assert_int_eq(rig_try(&rig), 0);
    ck_assert_int_ge(rig.sides[G].n_failed, 4);
    ck_assert_int_le(rig.sides[G].n_failed, 9);
}
END_TEST

START_TEST(no_room_in_the_store)
{
    enum sync_side side;

    rig.room = -EDQUOT;
    rig_write(&rig, G, "f", "1");
    rig_write(&rig, S, "g", "2");
    rig_sync(&rig);
    check(S, "f", "");
    check(G, "g", "2");
    ck_assert_int_eq(rig_fault(&rig, "f", &side), -EDQUOT);
    ck_assert_int_eq(side, S);
    rig.room = 0;
    for (int k = 0; k < 100 && status().n_faults > 0; k++)
        ck_assert_int_eq(rig_try(&rig), 0);
    check(S, "f", "1");
}
END_TEST

START_TEST(what_cannot_be_kept_is_not_overwritten)
{
    enum sync_side side;

    rig_write(&rig, G, "f", "old");
    rig_sync(&rig);
    rig.vault_fault = -ENOSPC;
    rig_write(&rig, G, "f", "new");
    rig_sync(&rig);
    check(S, "f", "old");
    ck_assert_int_eq(rig_fault(&rig, "f", &side), -ENOSPC);
    ck_assert_int_eq(side, S);
    rig.vault_fault = 0;
    for (int k = 0; k < 100 && status().n_faults > 0; k++)
        ck_assert_int_eq(rig_try(&rig), 0);
    check(S, "f", "new");
    ck_assert(rig_has_kept(&rig, "f", "old"));
}
END_TEST

START_TEST(a_side_that_is_gone_deletes_nothing)
{
    rig_write(&rig, G, "f", "1");
    rig_sync(&rig);
    rig_write(&rig, G, "f", "2");
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        rig.sides[side].fail_call = -ECONNRESET;
        ck_assert_int_eq(rig_try(&rig), -ECONNRESET);
        ck_assert_int_eq(rig_try(&rig), -ECONNRESET);
        rig.sides[side].fail_call = 0;
    }
    check(S, "f", "1");
    rig_sync(&rig);
    check_both("f", "2");
}
END_TEST

START_TEST(too_many_names_are_left_out_as_a_whole)
{
    char name[32];

    rig_mkdir(&rig, G, "many");
    rig_mkdir(&rig, G, "few");
    rig_write(&rig, G, "few/x", "1");
    for (int i = 0; i < SYNC_DIR_MAX + 1; i++) {
        char path[512];
        int fd;

        snprintf(name, sizeof(name), "many/%d", i);
        rig_path(&rig, G, name, path);
        fd = creat(path, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
    }
    ck_assert_int_eq(rig_try(&rig), 0);
    check(S, "few/x", "1");
    check(S, "many/1", "");
    ck_assert_str_eq(rig_left_out(&rig, "many"), "too-many");
    rig_remove(&rig, G, "many");
    rig_sync(&rig);
    ck_assert_str_eq(rig_left_out(&rig, "many"), "");
    ck_assert(status().is_in_step);
}
END_TEST

/* ---- random edits on both sides at once ---- */

enum { N_TEXTS = 40000 };
static unsigned seed;
static bool is_given_up[N_TEXTS]; /* by whoever wrote it: removed or overwritten in its own tree */
static int n_texts, n_edits;

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

/* Whoever removes or overwrites something in his own tree has given it up. */
static void give_up(enum sync_side side, const char *path)
{
    const char *text = rig_read(&rig, side, path);
    char below[64];

    if (strcmp(text, "/") == 0) {
        for (int c = 'a'; c < 'e'; c++) {
            snprintf(below, sizeof(below), "%s/%c", path, c);
            give_up(side, below);
        }
        return;
    }
    if (text[0] == '#')
        is_given_up[atoi(text + 1)] = true;
}

static void clear(enum sync_side side, const char *path)
{
    if (rig_read(&rig, side, path)[0] == '\0')
        return; /* no file of this test is empty */
    give_up(side, path);
    rig_remove(&rig, side, path);
}

static void make_parents(enum sync_side side, const char *path)
{
    char part[64];

    for (const char *slash = path; (slash = strchr(slash, '/')) != NULL; slash++) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (strcmp(rig_read(&rig, side, part), "/") == 0)
            continue;
        clear(side, part);
        rig_mkdir(&rig, side, part);
    }
}

static void edit(enum sync_side side)
{
    char path[64], to[64], text[32];
    const char *is;

    n_edits++;
    random_path(path, sizeof(path));
    is = rig_read(&rig, side, path);
    switch (dice(10)) {
    case 0:
        clear(side, path);
        return;
    case 1:
    case 2:
        random_path(to, sizeof(to));
        if (is[0] == '\0' || strncmp(to, path, strlen(path)) == 0 ||
            strncmp(path, to, strlen(to)) == 0)
            return;
        make_parents(side, to);
        if (rig_read(&rig, side, path)[0] == '\0')
            return; /* it was in the way */
        clear(side, to);
        rig_move(&rig, side, path, to);
        return;
    case 3:
        if (is[0] == '#')
            rig_chmod(&rig, side, path, dice(2) == 0 ? 0755 : 0644);
        return;
    case 4:
        make_parents(side, path);
        if (strcmp(rig_read(&rig, side, path), "/") == 0)
            return;
        clear(side, path);
        rig_mkdir(&rig, side, path);
        return;
    case 5:
        make_parents(side, path);
        clear(side, path);
        snprintf(text, sizeof(text), "target-%d", n_edits);
        rig_link(&rig, side, path, text);
        return;
    default:
        if (n_texts == N_TEXTS - 1)
            return;
        snprintf(text, sizeof(text), "#%d", ++n_texts);
        make_parents(side, path);
        is = rig_read(&rig, side, path);
        if (is[0] != '#' || dice(3) == 0)
            clear(side, path); /* replaced, or written over */
        else
            give_up(side, path);
        rig_write(&rig, side, path, text);
    }
}

static void edit_sometimes(struct rig *r)
{
    static bool is_editing;

    (void)r;
    if (is_editing || dice(3) != 0)
        return;
    is_editing = true;
    edit(dice(2) == 0 ? G : S);
    is_editing = false;
}

static int n_lost;

/* Each text must still be somewhere. */
static void check_texts(int round)
{
    static bool is_there[N_TEXTS];
    char path[512], text[32];

    memset(is_there, 0, sizeof(is_there));
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        snprintf(path, sizeof(path), "grep -rhoaE '^#[0-9]+$' %s", rig.sides[side].dir);
        FILE *p = popen(path, "r");

        ck_assert_ptr_nonnull(p);
        while (fgets(text, sizeof(text), p) != NULL)
            is_there[atoi(text + 1)] = true;
        pclose(p);
    }
    for (int i = 1; i <= n_texts; i++) {
        snprintf(text, sizeof(text), "#%d", i);
        if (!is_there[i] && !is_given_up[i] && !rig_has_kept(&rig, NULL, text)) {
            n_lost++;
            fprintf(stderr, "round %d: #%d is lost\n", round, i);
        }
    }
    ck_assert_int_eq(n_lost, 0);
}

START_TEST(random_edits_on_both_sides_at_once)
{
    const int rounds = 60;

    seed = (unsigned)_i + 1;
    printf("seed %u\n", seed);
    fflush(stdout);
    for (int round = 0; round < rounds; round++) {
        char what[64];

        for (int n = dice(8); n > 0; n--)
            edit(G);
        for (int n = dice(8); n > 0; n--)
            edit(S);
        rig.on_moment = edit_sometimes;
        for (int n = dice(4); n > 0; n--) {
            int side = dice(12);

            if (side < SYNC_N_SIDES)
                rig.sides[side].fail_call = -ECONNRESET;
            (void)rig_try(&rig);
            if (side < SYNC_N_SIDES)
                rig.sides[side].fail_call = 0;
        }
        rig.on_moment = NULL;
        if (dice(6) == 0) { /* the manager, or the machine, starts anew */
            if (dice(4) == 0) {
                rig.instance++;
                for (char name[2] = "a"; name[0] < 'e'; name[0]++)
                    if (rig_read(&rig, G, name)[0] != '\0') {
                        give_up(G, name); /* what is not in step yet dies with it */
                        rig_remove(&rig, G, name);
                    }
            }
            rig_restart(&rig, dice(2) == 0);
        }
        if (round % 6 != 5)
            continue;
        for (int k = 0; k < 4; k++)
            rig_sync(&rig);
        snprintf(what, sizeof(what), "seed %d, round %d", _i + 1, round);
        rig_check_same(&rig, NULL, what);
        ck_assert_msg(status().n_faults == 0, "%s: faults", what);
        check_texts(round);
    }
    printf("seed %u: %d edits, %zu conflicts\n", (unsigned)_i + 1, n_edits, rig.n_conflicts);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/engine");
    TCase *tc = tcase_create("two folders");
    SRunner *sr = srunner_create(s);
    const char *seeds = getenv("TRANSOM_SYNC_SEEDS");
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 110);
    tcase_add_test(tc, an_empty_guest_gets_all_and_deletes_nothing);
    tcase_add_test(tc, both_ways);
    tcase_add_test(tc, odd_names);
    tcase_add_test(tc, nothing_is_sent_back_or_read_again);
    tcase_add_test(tc, same_size_and_time_is_noticed);
    tcase_add_test(tc, the_later_to_arrive_wins_and_the_other_is_kept);
    tcase_add_test(tc, a_new_machines_own_files_lose);
    tcase_add_test(tc, edit_against_deletion);
    tcase_add_test(tc, the_ancestor_outlives_the_engine_but_not_the_instance);
    tcase_add_test(tc, a_damaged_ancestor_counts_as_none);
    tcase_add_test(tc, the_filter_decides_where_to_descend);
    tcase_add_test(tc, binary_only_at_its_end);
    tcase_add_test(tc, rules_that_change);
    tcase_add_test(tc, rules_of_a_folder_above);
    tcase_add_test(tc, ignored_files_of_the_store);
    tcase_add_test(tc, what_is_left_out_is_never_removed);
    tcase_add_test(tc, special_files_are_not_opened);
    tcase_add_test(tc, a_file_that_vanishes_for_a_moment_is_not_deleted);
    tcase_add_test(tc, a_file_that_is_being_written_waits);
    tcase_add_test(tc, a_file_that_has_just_changed_is_not_removed);
    tcase_add_test(tc, an_edit_in_the_middle_is_not_lost);
    tcase_add_test(tc, a_fault_stays_with_its_file);
    tcase_add_test(tc, a_fault_is_tried_again_at_longer_and_longer_intervals);
    tcase_add_test(tc, no_room_in_the_store);
    tcase_add_test(tc, what_cannot_be_kept_is_not_overwritten);
    tcase_add_test(tc, a_side_that_is_gone_deletes_nothing);
    tcase_add_test(tc, too_many_names_are_left_out_as_a_whole);
    tcase_add_loop_test(tc, random_edits_on_both_sides_at_once, 0, seeds != NULL ? atoi(seeds) : 6);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
