/* SPDX-License-Identifier: MIT */
/* What happens to a file in the very moment in which it is replaced or removed: a user acts just
 * before or just after the renaming. Also file systems that cannot exchange names. */
#include "sync/tree.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tree_fixture.h"

int __real_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags);
int __wrap_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags);

static void (*before)(void), (*after)(void); /* each runs once */
static bool unsupported;

int __wrap_renameat2(int from, const char *name, int to, const char *to_name, unsigned flags)
{
    void (*act)(void) = before;
    int r;

    before = NULL;
    if (act != NULL)
        act();
    if (unsupported) {
        errno = EINVAL;
        return -1;
    }
    r = __real_renameat2(from, name, to, to_name, flags);
    act = after;
    after = NULL;
    if (act != NULL)
        act();
    return r;
}

static int open_fd = -1;

static void edit(void)
{
    fx_append("f", "+edit");
}

static void edit_unseen(void) /* of equal size and time, as far as anybody can tell */
{
    struct stat st;

    ck_assert_int_eq(lstat(fx_path("f"), &st), 0);
    fx_write("f", "OLD");
    ck_assert_int_eq(
        utimensat(AT_FDCWD, fx_path("f"), (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
}

static void replace(void)
{
    fx_write("f~", "replaced");
    ck_assert_int_eq(rename(fx_path("f~"), fx_path("f")), 0);
}

static void open_it(void)
{
    open_fd = open(fx_path("f"), O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_ge(open_fd, 0);
}

static void delete_it(void)
{
    ck_assert_int_eq(unlink(fx_path("f")), 0);
}

static void make_it(void)
{
    fx_write("f", "made");
}

static void make_dir(void)
{
    ck_assert_int_eq(unlink(fx_path("f")), 0);
    fx_mkdir("f");
    fx_write("f/x", "x");
}

/* Replace f, which is "old", by "new" (or remove it), with these acts in between. */
static int run(bool remove_it, void (*first)(void), void (*second)(void))
{
    struct sync_op op = {.kind = remove_it ? SYNC_OP_REMOVE : SYNC_OP_FILE,
                         .path = "f",
                         .path_len = 1,
                         .has_id = true};
    struct sync_sig sig;
    int r;

    fx_write("f", "old");
    op.expected = fx_sig("f");
    sync_id_of("old", 3, &op.id);
    before = first;
    after = second;
    r = remove_it ? sync_tree_apply(&fx_tree, &op, NULL, &sig)
                  : sync_tree_put(&fx_tree, &op, "new", 3, &sig);
    ck_assert_ptr_null(before);
    before = after = NULL;
    if (open_fd >= 0) {
        ck_assert_int_eq(write(open_fd, "+late", 5), 5);
        close(open_fd);
        open_fd = -1;
    }
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
    return r;
}

/* What was put aside under a name that begins so (static memory), or "". */
static const char *aside_as(const char *begin)
{
    DIR *dir = opendir(fx_path(""));
    const char *text = "";

    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, begin, strlen(begin)) == 0)
            text = fx_read(e->d_name);
    }
    closedir(dir);
    return text;
}

static const char *aside(void)
{
    return aside_as("f.transom-kept-");
}

START_TEST(an_edit_before_it_is_replaced)
{
    ck_assert_int_eq(run(false, edit, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_int_eq(run(false, edit_unseen, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "OLD");
    ck_assert_int_eq(run(false, replace, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "replaced");
    ck_assert_int_eq(run(false, open_it, NULL), SYNC_BUSY);
    ck_assert_str_eq(fx_read("f"), "old+late");
    ck_assert_int_eq(run(false, delete_it, NULL), SYNC_CHANGED);
    ck_assert(!fx_exists("f"));
    ck_assert_str_eq(aside(), "");
    ck_assert_int_eq(run(false, make_dir, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f/x"), "x");
}
END_TEST

START_TEST(an_edit_of_what_is_to_be_taken_back_an_append)
{
    ck_assert_int_eq(run(false, edit, edit), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_str_eq(aside(), "new+edit");
}
END_TEST

START_TEST(an_edit_of_what_is_to_be_taken_back_a_replacement)
{
    ck_assert_int_eq(run(false, edit, replace), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "replaced");
    ck_assert_str_eq(aside(), "old+edit");
}
END_TEST

START_TEST(an_edit_of_what_is_to_be_taken_back_a_writer)
{
    ck_assert_int_eq(run(false, edit, open_it), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_str_eq(aside(), "new+late");
}
END_TEST

START_TEST(an_edit_of_what_is_to_be_taken_back_a_removal)
{
    ck_assert_int_eq(run(false, edit, delete_it), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_str_eq(aside(), "");
}
END_TEST

START_TEST(an_edit_after_it_was_replaced)
{
    ck_assert_int_eq(run(false, NULL, edit), 0);
    ck_assert_str_eq(fx_read("f"), "new+edit");
    ck_assert_str_eq(aside(), "");
}
END_TEST

START_TEST(an_edit_before_it_is_removed)
{
    ck_assert_int_eq(run(true, edit, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_int_eq(run(true, open_it, NULL), SYNC_BUSY);
    ck_assert_str_eq(fx_read("f"), "old+late");
    ck_assert_int_eq(run(true, edit_unseen, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "OLD");
    ck_assert_int_eq(run(true, delete_it, NULL), 0);
    ck_assert_int_eq(run(true, NULL, make_it), 0); /* a new one is another one */
    ck_assert_str_eq(fx_read("f"), "made");
    ck_assert_str_eq(aside(), "");
    ck_assert_int_eq(run(true, edit, make_it), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "made");
    ck_assert_str_eq(aside(), "old+edit");
}
END_TEST

static void edit_below(void)
{
    fx_append("d/f", "+edit");
}

static void remove_folder(void)
{
    ck_assert_int_eq(rmdir(fx_path("d")), 0);
}

START_TEST(an_edit_whose_folder_goes_as_well)
{
    struct sync_op op = {.kind = SYNC_OP_REMOVE, .path = "d/f", .path_len = 3};
    struct sync_sig sig;

    fx_mkdir("d");
    fx_write("d/f", "old");
    op.expected = fx_sig("d/f");
    before = edit_below;
    after = remove_folder; /* which seems to be empty */
    ck_assert_int_eq(sync_tree_apply(&fx_tree, &op, NULL, &sig), SYNC_CHANGED);
    ck_assert(!fx_exists("d"));
    ck_assert_str_eq(aside(), "old+edit");
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

static void die(void)
{
    _exit(9);
}

/* The process ends right after the renaming, before it has looked at what came out. */
static void run_and_die(bool remove_it, void (*first)(void))
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)run(remove_it, first, die);
        _exit(1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 9);
    sync_tree_sweep(&fx_tree, INT64_MAX);
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}

START_TEST(a_death_in_the_middle)
{
    run_and_die(false, NULL); /* what came out was to go */
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_str_eq(aside_as("recovered."), "");
    run_and_die(true, NULL);
    ck_assert_str_eq(aside_as("recovered."), "");
    run_and_die(false, edit);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_str_eq(aside_as("recovered."), "old+edit");
    fx_teardown();
    fx_setup();
    run_and_die(true, edit_unseen);
    ck_assert_str_eq(aside_as("recovered."), "OLD");
}
END_TEST

START_TEST(a_new_file_where_one_has_just_come)
{
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = "f", .path_len = 1, .absent = true};
    struct sync_sig sig;

    before = make_it;
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "new", 3, &sig), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "made");
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(a_file_system_that_cannot_exchange_names)
{
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = "g", .path_len = 1, .absent = true};
    struct sync_sig sig, now;

    unsupported = true;
    ck_assert_int_eq(run(false, NULL, NULL), 0);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_int_eq(run(false, edit, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_int_eq(run(true, edit, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "old+edit");
    ck_assert_int_eq(run(true, NULL, NULL), 0);
    ck_assert(!fx_exists("f"));
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "new", 3, &sig), 0);
    now = fx_sig("g");
    ck_assert(sync_sig_equal(&sig, &now));
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "newer", 5, &sig), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("g"), "new");
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
    unsupported = false;
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/between");
    TCase *tc = tcase_create("between");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, an_edit_before_it_is_replaced);
    tcase_add_test(tc, an_edit_of_what_is_to_be_taken_back_an_append);
    tcase_add_test(tc, an_edit_of_what_is_to_be_taken_back_a_replacement);
    tcase_add_test(tc, an_edit_of_what_is_to_be_taken_back_a_writer);
    tcase_add_test(tc, an_edit_of_what_is_to_be_taken_back_a_removal);
    tcase_add_test(tc, an_edit_after_it_was_replaced);
    tcase_add_test(tc, an_edit_before_it_is_removed);
    tcase_add_test(tc, an_edit_whose_folder_goes_as_well);
    tcase_add_test(tc, a_death_in_the_middle);
    tcase_add_test(tc, a_new_file_where_one_has_just_come);
    tcase_add_test(tc, a_file_system_that_cannot_exchange_names);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
