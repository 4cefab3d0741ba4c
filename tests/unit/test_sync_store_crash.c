/* SPDX-License-Identifier: MIT */
/* The session's store when its process dies at any moment, and when it is packed. */
#include "sync/store_repack.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "store_fixture.h"

/* ---- crashes ---- */

/* As after a crash: the store is opened by a process that began after it. */
static void begin_anew(void)
{
    sync_store_fini();
    let_it_age();
    ck_assert_int_eq(sync_store_init(&err), 0);
}

/* Writes and keeps for ever; says on the pipe what is done. */
static void work(int out, unsigned seed)
{
    char text[4096], path[64];

    open_store(0);
    for (unsigned i = 0;; i++) {
        struct sync_checkpoint c;
        char line[64];
        int n = 0;

        memset(text, 'a' + (int)(i % 26), sizeof(text) - 1);
        n = snprintf(text, 32, "%u %u\n", seed, i);
        text[n] = '.';
        text[100 + (i * 37) % 3900] = '\0';
        snprintf(path, sizeof(path), "d%u/f%u", i % 7, i % 50);
        if (put(path, text) != 0 || put("last", text) != 0)
            _exit(1);
        if (i % 11 == 10 && drop("d3", true) != 0)
            _exit(1);
        if (sync_store_checkpoint(store, text, SYNC_CAUSE_TIMER, "w", &c, NULL, &err) != 0)
            _exit(1);
        n = snprintf(line, sizeof(line), "%s %9u\n", c.id, i);
        if (write(out, line, (size_t)n) != n)
            _exit(1);
    }
}

START_TEST(a_crash_at_any_moment_loses_nothing_that_was_kept)
{
    sync_store_close(store);
    store = NULL;
    for (unsigned round = 0; round < 20; round++) {
        char last[64] = "", line[52], *text;
        struct sync_checkpoint c;
        size_t n_lines = 0;
        int ends[2], status;
        unsigned i = 0, seen;
        pid_t child;

        ck_assert_int_eq(pipe(ends), 0);
        child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            close(ends[0]);
            work(ends[1], round);
        }
        close(ends[1]);
        /* Ends it after a number of checkpoints and a bit. */
        while (n_lines < 1 + round % 6 && read(ends[0], line, 51) == 51) {
            memcpy(last, line, 51);
            n_lines++;
        }
        ck_assert_int_ge((int)n_lines, 1);
        usleep(round * 773 % 9000);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        while (read(ends[0], line, 51) == 51)
            memcpy(last, line, 51);
        close(ends[0]);
        last[40] = '\0';
        i = (unsigned)strtoul(last + 41, NULL, 10);

        begin_anew();
        open_store(0);
        fsck();
        /* The last one that was told of is there and on the branch. */
        ck_assert_int_eq(sync_store_find(store, last, &c, &err), 0);
        {
            char command[200];

            snprintf(command, sizeof(command),
                     "git --git-dir=%%D/store.git merge-base --is-ancestor %s main", last);
            shell(command);
        }
        /* The file is the one of then or a later one, and whole. */
        text = get("last");
        ck_assert_ptr_nonnull(text);
        ck_assert_int_eq(sscanf(text, "%*u %u", &seen), 1);
        ck_assert_uint_ge(seen, i);
        ck_assert_uint_eq(strlen(text), 100 + (seen * 37) % 3900);
        ck_assert_str_eq(
            shell("ls %D/staging; find %D/store.git -name '*.lock' -o -name '*_git2_*'"), "");
        put_ok("after", "the store goes on");
        free((char *)checkpoint("after a crash"));
        ck_assert_int_eq(drop("after", false), 0);
        free((char *)checkpoint("and again"));
        sync_store_close(store);
        store = NULL;
    }
    open_store(0);
}
END_TEST

/* Checkpoints of two files, one of them with an odd name, as long as versions differ little. */
static void make_versions(int from, int to)
{
    char *text = malloc(20000);

    for (int i = from; i < to; i++) {
        size_t n = 0;

        for (int line = 0; line < 500; line++)
            n +=
                (size_t)snprintf(text + n, 20000 - n, "%08x%08x %d\n", 2654435761U * (unsigned)line,
                                 2246822519U * (unsigned)(line + 7), line == i % 500 ? i : 0);
        put_ok("dir/sub/file.txt", text);
        put_ok("dir/\xff\n", i % 2 ? "a" : "b");
        free((char *)checkpoint("version"));
    }
    free(text);
}

START_TEST(many_versions_stay_small)
{
    struct sync_usage before, after;
    struct sync_checkpoint c;
    size_t n;
    char *log;

    make_versions(0, 30);
    shell("head -c 9000000 /dev/urandom > %D/files/large");
    free((char *)checkpoint("large"));
    log = strdup(shell("git --git-dir=%D/store.git log --stat main"));
    sync_store_usage(store, &before);
    ck_assert_uint_gt(sync_store_loose(store), 120);
    ck_assert_msg(sync_store_repack(dir, &n, &err) == 0, "%s", err.msg);
    ck_assert_uint_ge(n, 120);
    ck_assert_int_eq(sync_store_repacked(store, &err), 0);
    sync_store_usage(store, &after);
    ck_assert_uint_eq(sync_store_loose(store), 1); /* the large one is streamed */
    ck_assert_int_lt(after.history - 9000000, (before.history - 9000000) / 5);
    ck_assert_str_eq(shell("git --git-dir=%D/store.git log --stat main"), log);
    free(log);
    fsck();
    ck_assert_int_eq(sync_store_repack(dir, &n, &err), 0); /* nothing to do */
    ck_assert_uint_eq(n, 0);
    make_versions(30, 40);
    /* One that died between index and pack is no hindrance. */
    shell("cd %D/store.git/objects/pack && touch pack_git2_1234 && "
          "cp pack-*.idx pack-0123456789012345678901234567890123456789.idx");
    ck_assert_int_eq(sync_store_repack(dir, &n, &err), 0);
    ck_assert_uint_ge(n, 40);
    ck_assert_str_eq(shell("ls %D/store.git/objects/pack | sed 's/.*[.]//' | sort"),
                     "idx\nidx\npack\npack\n");
    ck_assert_int_eq(sync_store_repacked(store, &err), 0);
    ck_assert_int_eq(sync_store_restore(store, "first", "", 0, "a", &c, &err), 0);
    ck_assert_str_eq(list("", true, NULL), "");
    reopen();
    ck_assert_int_eq(sync_store_restore(store, c.parent, "large", 5, "a", &c, &err), 0);
    ck_assert_str_eq(list("", true, NULL), "large\n");
    fsck();
}
END_TEST

START_TEST(a_large_checkpoint_is_one_pack)
{
    struct sync_usage before, after;
    struct sync_checkpoint c;
    char *id;

    sync_store_usage(store, &before);
    shell("cd %D/files && for d in 1 2 3; do mkdir $d; for f in $(seq 1000); do "
          "echo $((f / 2)) of $d > $d/$f; done; done; head -c 70000 /dev/urandom > noise; "
          ": > empty; ln -s noise link");
    id = (char *)checkpoint("many");
    fsck();
    ck_assert_str_eq(shell("ls %D/store.git/objects/pack | sed 's/.*[.]//' | sort"), "idx\npack\n");
    ck_assert_str_eq(shell("find %D/store.git/objects/?? -type f | wc -l"), "67\n");
    ck_assert_str_eq(shell("ls -A %D/staging"), "");
    sync_store_usage(store, &after);
    ck_assert_int_gt(after.history - before.history, 100000);
    /* All of it is in the checkpoint; what is known is not written again. */
    shell("git --git-dir=%D/store.git archive main | tar -C %D -x --one-top-level=back && "
          "diff -r --no-dereference %D/files %D/back && rm -r %D/back");
    shell("cp -r %D/files/1 %D/files/4");
    free((char *)checkpoint("again"));
    ck_assert_str_eq(shell("ls %D/store.git/objects/pack | wc -l"), "2\n");
    reopen();
    shell("rm -r %D/files/*");
    ck_assert_int_eq(sync_store_restore(store, id, "", 0, "a", &c, &err), 0);
    ck_assert_str_eq(get("2/1000"), "500 of 2\n");
    ck_assert_str_eq(shell("find %D/files -type f | wc -l"), "3002\n");
    fsck();
    free(id);
}
END_TEST

START_TEST(a_repack_that_dies_or_has_company_loses_nothing)
{
    unsigned seed = 1;

    for (int round = 0; round < 6; round++) {
        pid_t child;
        int status;
        size_t n;

        make_versions(6 * round, 6 * round + 6);
        child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            int r = sync_store_repack(dir, &n, &err);

            if (r != 0)
                fprintf(stderr, "repack: %s\n", err.msg);
            _exit(r == 0 ? 0 : 1);
        }
        if (round % 2 == 0) {
            usleep((unsigned)rand_r(&seed) % 20000);
            kill(child, SIGKILL);
        } else {
            make_versions(100 + 6 * round, 100 + 6 * round + 4); /* meanwhile */
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        fsck();
        ck_assert_str_eq(shell("git --git-dir=%D/store.git show main:dir/sub/file.txt | cmp - "
                               "%D/files/dir/sub/file.txt"),
                         "");
    }
    ck_assert_int_eq(sync_store_repacked(store, &err), 0);
    ck_assert_str_eq(shell("git --git-dir=%D/store.git log --oneline main | wc -l"), "49\n");
    sync_store_close(store);
    store = NULL;
    begin_anew();
    open_store(0);
    ck_assert_str_eq(shell("find %D/store.git -name '*.lock' -o -name '*_git2_*'"), "");
    fsck();
}
END_TEST

START_TEST(a_creation_that_was_cut_off_is_made_again)
{
    sync_store_close(store);
    store = NULL;
    shell("cd %D && mv store.git store.git.new && rm store.git.new/refs/heads/main");
    open_store(0);
    put_ok("f", "x");
    free((char *)checkpoint("x"));
    fsck();
    sync_store_close(store);
    store = NULL;
    /* Locks and half objects of a dead writer are removed. */
    shell(
        "cd %D/store.git && touch refs/heads/main.lock HEAD.lock objects/tmp_object_git2_abc123 && "
        "mkdir -p objects/pack && touch objects/pack/pack_git2_x && touch ../staging/in-7");
    begin_anew();
    open_store(0);
    put_ok("f", "y");
    free((char *)checkpoint("y"));
    ck_assert_str_eq(shell("ls %D/staging; find %D/store.git -name '*.lock' -o -name '*_git2_*'"),
                     "");
}
END_TEST

static void add(Suite *s)
{
    TCase *crash = store_tcase(s, "crash", 100), *repack = store_tcase(s, "repack", 100);

    tcase_add_test(crash, a_crash_at_any_moment_loses_nothing_that_was_kept);
    tcase_add_test(crash, a_creation_that_was_cut_off_is_made_again);
    tcase_add_test(repack, many_versions_stay_small);
    tcase_add_test(repack, a_large_checkpoint_is_one_pack);
    tcase_add_test(repack, a_repack_that_dies_or_has_company_loses_nothing);
}

int main(void)
{
    return store_main("sync/store_crash", add);
}
