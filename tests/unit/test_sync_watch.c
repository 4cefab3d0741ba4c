/* SPDX-License-Identifier: MIT */
#include "sync/watch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tree_fixture.h"

#define MAX_TOLD 4096

struct told {
    char kind; /* 'd' dirty, 'l' lost, 'o' overflow */
    char path[64];
    int status;
};

static uv_loop_t loop;
static struct sync_watch *watch;
static struct told told[MAX_TOLD];
static size_t n_told, read_up_to;
static bool refuse, closed;
static int n_begin, n_end, n_refused;

static void note(char kind, const char *dir, size_t len, int status)
{
    struct told *t = &told[n_told];

    ck_assert_uint_lt(n_told, MAX_TOLD);
    t->kind = kind;
    t->status = status;
    snprintf(t->path, sizeof(t->path), "%.*s", (int)len, dir);
    n_told++;
}

static bool on_dirty(const char *dir, size_t len, void *arg)
{
    (void)arg;
    if (refuse) {
        n_refused++;
        return false;
    }
    note('d', dir, len, 0);
    return true;
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    (void)arg;
    note('l', dir, len, status);
}

static void on_overflow(void *arg)
{
    (void)arg;
    note('o', "", 0, 0);
}

static int begin(void *arg)
{
    (void)arg;
    n_begin++;
    return 0;
}

static void end(void *arg)
{
    (void)arg;
    n_end++;
}

static void on_close(void *arg)
{
    (void)arg;
    closed = true;
}

static const struct sync_watch_cbs cbs = {.on_dirty = on_dirty,
                                          .on_lost = on_lost,
                                          .on_overflow = on_overflow,
                                          .begin = begin,
                                          .end = end,
                                          .on_close = on_close};

static void setup(void)
{
    fx_setup();
    n_told = read_up_to = 0;
    refuse = closed = false;
    n_begin = n_end = n_refused = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(sync_watch_open(&loop, fx_tree.root, &cbs, NULL, &watch), 0);
}

static void teardown(void)
{
    if (watch != NULL)
        sync_watch_close(watch);
    watch = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    ck_assert_int_eq(n_begin, n_end);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    fx_teardown();
}

static void add(const char *dir)
{
    ck_assert_int_eq(sync_watch_add(watch, dir, strlen(dir)), 0);
}

/* One turn of the loop. UV_RUN_ONCE would run what is due and then wait for more. */
static void turn(void)
{
    uv_run(&loop, uv_backend_timeout(&loop) == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}

/* Run until this is told, from where the last call ended. Returns its status. */
static int await(char kind, const char *dir)
{
    for (;;) {
        while (read_up_to < n_told) {
            const struct told *t = &told[read_up_to++];

            if (t->kind == kind && strcmp(t->path, dir) == 0)
                return t->status;
        }
        turn(); /* the test case's limit is the limit */
    }
}

/* All that is under way is told: nothing waits in the kernel, the thread pool or a timer. */
static void settle(void)
{
    bool more = true;

    while (more) {
        uv_run(&loop, UV_RUN_NOWAIT);
        more = loop.active_reqs.count > 0 || uv_backend_timeout(&loop) >= 0;
        if (more)
            turn();
    }
    read_up_to = n_told;
}

static size_t count(char kind, const char *dir, size_t from)
{
    size_t n = 0;

    for (size_t i = from; i < n_told; i++)
        n += told[i].kind == kind && strcmp(told[i].path, dir) == 0;
    return n;
}

START_TEST(every_kind_of_change_is_told)
{
    int fd;

    fx_mkdir("d");
    fx_write("d/old", "x");
    add("d");
    await('d', "d"); /* once, for what came before the watch */
    fx_write("d/new", "x");
    await('d', "d");
    ck_assert_int_eq(chmod(fx_path("d/new"), 0755), 0);
    await('d', "d");
    ck_assert_int_eq(rename(fx_path("d/new"), fx_path("d/newer")), 0);
    await('d', "d");
    ck_assert_int_eq(unlink(fx_path("d/old")), 0);
    await('d', "d");
    fx_write("outside", "x");
    ck_assert_int_eq(rename(fx_path("outside"), fx_path("d/inside")), 0);
    await('d', "d");
    fx_symlink("x", "d/link");
    await('d', "d");
    fx_mkdir("d/sub");
    await('d', "d");
    /* A file that stays open: told once it is quiet. */
    fd = open(fx_path("d/inside"), O_WRONLY | O_APPEND | O_CLOEXEC);
    settle();
    ck_assert_int_eq(write(fd, "y", 1), 1);
    await('d', "d");
    close(fd);
    ck_assert_uint_eq(count('d', "", 0), 0);
    ck_assert_uint_eq(count('l', "d", 0), 0);
}
END_TEST

START_TEST(only_what_was_asked_for_is_watched)
{
    size_t from;

    fx_mkdir("a");
    fx_mkdir("a/node_modules");
    add("a");
    await('d', "a");
    from = n_told;
    fx_write("a/node_modules/x", "x");
    fx_write("y", "x");
    fx_write("a/z", "x");
    await('d', "a");
    settle();
    ck_assert_uint_eq(count('d', "a", from), n_told - from);
    sync_watch_remove(watch, "a", 1);
    ck_assert_uint_eq(sync_watch_count(watch), 0);
    from = n_told;
    fx_write("a/zz", "x");
    fx_mkdir("b");
    add("b");
    await('d', "b");
    ck_assert_uint_eq(count('d', "a", from), 0);
}
END_TEST

START_TEST(a_burst_is_told_few_times)
{
    char name[32];
    size_t from;

    add("");
    await('d', "");
    settle();
    from = n_told;
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        fx_write(name, "x");
        if (i % 50 == 0)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
    await('d', "");
    settle();
    ck_assert_uint_ge(count('d', "", from), 1);
    ck_assert_uint_lt(count('d', "", from), 200);
}
END_TEST

START_TEST(what_is_no_folder_is_lost)
{
    fx_write("file", "x");
    fx_mkdir("../out");
    fx_symlink("../out", "link");
    add("none");
    add("file");
    add("link");
    add("link/x");
    ck_assert_int_eq(await('l', "none"), -ENOENT);
    ck_assert_int_eq(await('l', "file"), -ENOTDIR);
    ck_assert_int_eq(await('l', "link"), -ENOTDIR);
    ck_assert_int_eq(await('l', "link/x"), -ELOOP);
    ck_assert_uint_eq(sync_watch_count(watch), 0);
    ck_assert_int_eq(sync_watch_add(watch, "../out", 6), UV_EINVAL);
    ck_assert_int_eq(sync_watch_add(watch, "/", 1), UV_EINVAL);
}
END_TEST

START_TEST(a_folder_that_goes_is_lost_and_its_parent_told)
{
    add("");
    fx_mkdir("d");
    add("d");
    await('d', "d");
    settle();
    ck_assert_int_eq(rmdir(fx_path("d")), 0);
    ck_assert_int_eq(await('l', "d"), -ENOENT);
    await('d', "");
    ck_assert_uint_eq(sync_watch_count(watch), 1);
}
END_TEST

START_TEST(a_folder_that_moves_is_lost_with_all_below)
{
    size_t from;

    fx_mkdir("a");
    fx_mkdir("a/b");
    fx_mkdir("a/b/c");
    fx_mkdir("ab");
    add("");
    add("a");
    add("a/b");
    add("a/b/c");
    add("ab");
    await('d', "ab");
    settle();
    ck_assert_int_eq(rename(fx_path("a"), fx_path("z")), 0);
    from = n_told;
    await('d', "");
    settle();
    ck_assert_uint_eq(count('l', "a", from) + count('l', "a/b", from) + count('l', "a/b/c", from),
                      3);
    ck_assert_uint_eq(count('l', "ab", from), 0);
    ck_assert_uint_eq(sync_watch_count(watch), 2);
    add("z/b");
    await('d', "z/b");
    fx_write("z/b/x", "x");
    await('d', "z/b");
}
END_TEST

START_TEST(a_folder_with_a_new_name_is_not_told_by_the_old)
{
    size_t from;

    fx_mkdir("a");
    add("a");
    await('d', "a");
    ck_assert_int_eq(rename(fx_path("a"), fx_path("b")), 0);
    add("b"); /* before the move was noticed */
    await('d', "b");
    settle();
    from = n_told;
    add("b");
    await('d', "b");
    fx_write("b/x", "x");
    await('d', "b");
    ck_assert_uint_eq(count('d', "a", from), 0);
}
END_TEST

START_TEST(one_in_its_place_is_another_folder)
{
    fx_mkdir("a");
    fx_mkdir("other");
    add("a");
    await('d', "a");
    ck_assert_int_eq(renameat2(AT_FDCWD, fx_path("a"), AT_FDCWD, fx_path("other"), RENAME_EXCHANGE),
                     0);
    ck_assert_int_eq(await('l', "a"), -ENOENT);
    add("a");
    await('d', "a");
    fx_write("a/x", "x");
    await('d', "a");
}
END_TEST

START_TEST(a_listener_who_is_full_is_told_later)
{
    char name[8];

    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof(name), "%d", i);
        fx_mkdir(name);
        add(name);
    }
    await('d', "8");
    settle();
    refuse = true;
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof(name), "%d/x", i);
        fx_write(name, "x");
    }
    while (n_refused == 0)
        turn();
    settle();
    ck_assert_int_eq(n_refused, 1);
    ck_assert_uint_eq(count('d', "8", 0), 1);
    refuse = false;
    sync_watch_resume(watch);
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof(name), "%d", i);
        while (count('d', name, 0) < 2)
            turn();
    }
}
END_TEST

START_TEST(lost_events_are_said_and_everything_begins_anew)
{
    char path[64];
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    int limit = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &limit), 1);
    fclose(file);
    add("");
    fx_mkdir("d");
    add("d");
    await('d', "d");
    settle();
    for (int i = 0; i <= limit; i++) { /* two events each, and nobody reads */
        snprintf(path, sizeof(path), "%d", i % 2);
        fx_write(path, "");
        if (i % 2 == 1) {
            ck_assert_int_eq(unlink(fx_path("0")), 0);
            ck_assert_int_eq(unlink(fx_path("1")), 0);
        }
    }
    await('o', "");
    ck_assert_uint_eq(sync_watch_count(watch), 0);
    add("d");
    await('d', "d");
    fx_write("d/x", "x");
    await('d', "d");
}
END_TEST

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return ok;
}

/* A user namespace has a count of its own. */
static bool limit_watches(const char *n)
{
    char map[64];

    snprintf(map, sizeof(map), "0 %d 1", (int)geteuid());
    return unshare(CLONE_NEWUSER) == 0 && write_text("/proc/self/uid_map", map) &&
           write_text("/proc/sys/user/max_inotify_watches", n);
}

START_TEST(a_folder_without_a_watch_is_said_to_have_none)
{
    char name[32];

    sync_watch_close(watch);
    watch = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    if (!limit_watches("20")) {
        fprintf(stderr, "no user namespace here: running out of watches is not tested\n");
        return;
    }
    closed = false;
    ck_assert_int_eq(sync_watch_open(&loop, fx_tree.root, &cbs, NULL, &watch), 0);
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof(name), "%d", i);
        fx_mkdir(name);
        add(name);
    }
    while (n_told < 30)
        turn();
    ck_assert_uint_eq(sync_watch_count(watch), 20);
    for (size_t i = 0; i < n_told; i++)
        ck_assert(told[i].kind == 'd' || told[i].status == UV_ENOSPC);
    sync_watch_remove(watch, "0", 1); /* there is room again */
    add("29");
    await('d', "29");
    fx_write("29/x", "x");
    await('d', "29");
}
END_TEST

START_TEST(many_folders_at_once)
{
    char name[32];
    size_t n = 0;

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        fx_mkdir(name);
        add(name);
        if (i % 3 == 0)
            sync_watch_remove(watch, name, strlen(name));
        if (i % 5 == 0)
            add(name);
    }
    /* 0, 15, 30 ... were added again; 3, 6 ... were not. */
    for (int i = 0; i < 1000; i++)
        n += i % 3 != 0 || i % 5 == 0;
    while (n_told < n)
        turn();
    settle();
    ck_assert_uint_eq(sync_watch_count(watch), n);
    for (int i = 0; i < 1000; i += 7) {
        snprintf(name, sizeof(name), "%d/x", i);
        fx_write(name, "x");
    }
    await('d', "994");
}
END_TEST

static bool close_it(const char *dir, size_t len, void *arg)
{
    (void)dir;
    (void)len;
    (void)arg;
    sync_watch_close(watch);
    return true;
}

START_TEST(it_can_be_closed_from_inside)
{
    static const struct sync_watch_cbs closing = {.on_dirty = close_it, .on_close = on_close};
    char name[32];

    sync_watch_close(watch); /* with nothing under way */
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    closed = false;
    ck_assert_int_eq(sync_watch_open(&loop, fx_tree.root, &closing, NULL, &watch), 0);
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "%d", i);
        fx_mkdir(name);
        add(name);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    closed = false;
    ck_assert_int_eq(sync_watch_open(&loop, fx_tree.root, &closing, NULL, &watch), 0);
    add("0");
    sync_watch_close(watch); /* while it is being looked up */
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    watch = NULL;
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/watch");
    TCase *tc = tcase_create("watch");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, every_kind_of_change_is_told);
    tcase_add_test(tc, only_what_was_asked_for_is_watched);
    tcase_add_test(tc, a_burst_is_told_few_times);
    tcase_add_test(tc, what_is_no_folder_is_lost);
    tcase_add_test(tc, a_folder_that_goes_is_lost_and_its_parent_told);
    tcase_add_test(tc, a_folder_that_moves_is_lost_with_all_below);
    tcase_add_test(tc, a_folder_with_a_new_name_is_not_told_by_the_old);
    tcase_add_test(tc, one_in_its_place_is_another_folder);
    tcase_add_test(tc, a_listener_who_is_full_is_told_later);
    tcase_add_test(tc, lost_events_are_said_and_everything_begins_anew);
    tcase_add_test(tc, a_folder_without_a_watch_is_said_to_have_none);
    tcase_add_test(tc, many_folders_at_once);
    tcase_add_test(tc, it_can_be_closed_from_inside);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
