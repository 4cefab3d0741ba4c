/* SPDX-License-Identifier: MIT */
#include "sync/tree.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "tree_fixture.h"

static int hash(const char *path, const struct sync_sig *expected, struct sync_tree_read *out)
{
    return sync_tree_read(&fx_tree, path, strlen(path), expected, NULL, NULL, NULL, NULL, out);
}

/* ---- looking ---- */

struct seen {
    size_t n;
    char names[16][64];
    enum sync_type types[16];
    char target[64];
};

static bool on_entry(const struct sync_tree_entry *entry, void *arg)
{
    struct seen *seen = arg;

    ck_assert_uint_lt(seen->n, 16);
    snprintf(seen->names[seen->n], 64, "%s", entry->name);
    seen->types[seen->n++] = sync_sig_type(&entry->sig);
    if (entry->target != NULL)
        snprintf(seen->target, sizeof(seen->target), "%s", entry->target);
    ck_assert_uint_eq(entry->name_len, strlen(entry->name));
    return true;
}

static enum sync_type type_of(const struct seen *seen, const char *name)
{
    for (size_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->names[i], name) == 0)
            return seen->types[i];
    }
    ck_abort_msg("%s was not listed", name);
    return SYNC_TYPE_SPECIAL;
}

START_TEST(a_listing_tells_types_and_hides_the_stage)
{
    struct seen seen = {0};
    bool changed = true;

    fx_write("file", "x");
    fx_mkdir("dir");
    fx_mkdir(SYNC_STAGE_NAME);
    fx_mkdir("dir/" SYNC_STAGE_NAME);
    fx_symlink("no/where", "link");
    ck_assert_int_eq(mkfifo(fx_path("fifo"), 0644), 0);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "", 0, on_entry, &seen, &changed), 0);
    ck_assert_uint_eq(seen.n, 4);
    ck_assert_int_eq(type_of(&seen, "file"), SYNC_TYPE_FILE);
    ck_assert_int_eq(type_of(&seen, "dir"), SYNC_TYPE_DIR);
    ck_assert_int_eq(type_of(&seen, "link"), SYNC_TYPE_LINK);
    ck_assert_int_eq(type_of(&seen, "fifo"), SYNC_TYPE_SPECIAL);
    ck_assert_str_eq(seen.target, "no/where");
    ck_assert(!changed);
    memset(&seen, 0, sizeof(seen));
    ck_assert_int_eq(sync_tree_list(&fx_tree, "dir", 3, on_entry, &seen, NULL), 0);
    ck_assert_uint_eq(seen.n, 1);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "file", 4, on_entry, &seen, NULL), -ENOTDIR);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "none", 4, on_entry, &seen, NULL), -ENOENT);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "link", 4, on_entry, &seen, NULL), -ENOTDIR);
    fx_symlink("dir", "link2");
    ck_assert_int_eq(sync_tree_list(&fx_tree, "link2/x", 7, on_entry, &seen, NULL), -ELOOP);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "../x", 4, on_entry, &seen, NULL), UV_EINVAL);
}
END_TEST

START_TEST(a_listing_says_that_the_folder_changed_meanwhile)
{
    struct sync_tree_entry entry;
    struct sync_tree_dir *dir;

    fx_write("a", "");
    ck_assert_int_eq(sync_tree_dir_open(&fx_tree, "", 0, NULL, &dir), 0);
    ck_assert_int_eq(sync_tree_dir_next(dir, &entry), 1);
    ck_assert(!sync_tree_dir_changed(dir));
    /* Until the clock that the file system goes by has moved on, a change cannot be seen. */
    for (int i = 0; i < 1000 && !sync_tree_dir_changed(dir); i++) {
        fx_write("b", "");
        ck_assert_int_eq(unlink(fx_path("b")), 0);
        usleep(1000);
    }
    ck_assert(sync_tree_dir_changed(dir));
    sync_tree_dir_close(dir);
}
END_TEST

static bool count_all(const struct sync_tree_entry *entry, void *arg)
{
    struct sync_tree_read read;
    size_t *n = arg;

    (*n)++;
    ck_assert_int_eq(sync_tree_read(&fx_tree, entry->name, entry->name_len, &entry->sig, NULL, NULL,
                                    NULL, NULL, &read),
                     0);
    return true;
}

START_TEST(a_name_may_have_every_byte_and_255_of_them)
{
    char name[256], utf[] = "e\xcc\x81.py";
    size_t n = 0, made = 0;

    for (int c = 1; c < 256; c++) {
        if (c == '/')
            continue;
        snprintf(name, sizeof(name), "%c", c);
        if (c == '.')
            snprintf(name, sizeof(name), "...");
        fx_write(name, name);
        made++;
    }
    memset(name, 0xff, 255);
    name[255] = '\0';
    fx_write(name, "long");
    fx_write("\xc3\xa9.py", "composed");
    fx_write(utf, "decomposed");
    ck_assert_int_eq(sync_tree_list(&fx_tree, "", 0, count_all, &n, NULL), 0);
    ck_assert_uint_eq(n, made + 3);
    ck_assert_str_eq(fx_read(utf), "decomposed");
}
END_TEST

static bool count(const struct sync_tree_entry *entry, void *arg)
{
    (void)entry;
    (*(size_t *)arg)++;
    return true;
}

START_TEST(a_folder_with_too_many_entries_says_so)
{
    char name[32];
    size_t n = 0;
    int dir;

    fx_mkdir("many");
    dir = open(fx_path("many"), O_PATH | O_CLOEXEC);
    for (int i = 0; i < SYNC_DIR_MAX; i++) {
        snprintf(name, sizeof(name), "%d", i);
        ck_assert_int_eq(mknodat(dir, name, S_IFREG | 0644, 0), 0);
    }
    ck_assert_int_eq(sync_tree_list(&fx_tree, "many", 4, count, &n, NULL), 0);
    ck_assert_uint_eq(n, SYNC_DIR_MAX);
    ck_assert_int_eq(mknodat(dir, "one more", S_IFREG | 0644, 0), 0);
    n = 0;
    ck_assert_int_eq(sync_tree_list(&fx_tree, "many", 4, count, &n, NULL), UV_E2BIG);
    ck_assert_uint_eq(n, SYNC_DIR_MAX);
    close(dir);
}
END_TEST

START_TEST(ids_are_those_of_git)
{
    struct sync_tree_read read;
    char hex[41];

    fx_write("hello", "hello\n");
    fx_write("empty", "");
    fx_symlink("hello", "link");
    ck_assert_int_eq(hash("hello", NULL, &read), 0);
    sync_id_hex(&read.id, hex);
    ck_assert_str_eq(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    ck_assert_int_eq(read.sig.size, 6);
    ck_assert_int_eq(hash("empty", NULL, &read), 0);
    sync_id_hex(&read.id, hex);
    ck_assert_str_eq(hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    ck_assert_int_eq(hash("link", NULL, &read), 0);
    sync_id_hex(&read.id, hex);
    ck_assert_str_eq(hex, "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"); /* of "hello" */
}
END_TEST

START_TEST(what_changes_while_it_is_read_is_nothing)
{
    struct sync_tree_file *file;
    struct sync_tree_read read;
    struct sync_sig sig, was;
    char buf[64];

    for (int how = 0; how < 5; how++) {
        fx_write("f", "0123456789");
        ck_assert_int_eq(sync_tree_file_open(&fx_tree, "f", 1, NULL, &sig, &file), 0);
        ck_assert_int_eq(sync_tree_file_next(file, buf, 4), 4);
        if (how == 0)
            fx_append("f", "more");
        else if (how == 1)
            ck_assert_int_eq(truncate(fx_path("f"), 5), 0);
        else if (how == 2)
            ck_assert_int_eq(chmod(fx_path("f"), 0600), 0);
        else if (how == 3)
            fx_write("f", "xxxxxxxxxxx"); /* of another length */
        while (sync_tree_file_next(file, buf, sizeof(buf)) > 0)
            ;
        ck_assert_int_eq(sync_tree_file_end(file, &read), how == 4 ? 0 : SYNC_CHANGED);
        sync_tree_file_close(file);
        ck_assert_int_eq(unlink(fx_path("f")), 0);
    }
    fx_write("f", "AAAA");
    was = fx_sig("f");
    ck_assert_int_eq(hash("f", &was, &read), 0);
    fx_write("f", "BBBBB");
    ck_assert_int_eq(hash("f", &was, &read), SYNC_CHANGED);
    ck_assert_int_eq(unlink(fx_path("f")), 0);
    ck_assert_int_eq(hash("f", &was, &read), SYNC_CHANGED);
    ck_assert_int_eq(hash("f", NULL, &read), -ENOENT);
}
END_TEST

START_TEST(an_edit_that_keeps_size_and_time_is_seen)
{
    struct timespec times[2] = {{1700000000, 0}, {1700000000, 0}};
    struct sync_sig was, now;

    fx_write("g", "AAAA");
    ck_assert_int_eq(utimensat(AT_FDCWD, fx_path("g"), times, 0), 0);
    do { /* it gets old enough not to be fresh */
        usleep(1000);
        was = fx_sig("g");
    } while (was.fresh);
    fx_write("g", "BBBB");
    ck_assert_int_eq(utimensat(AT_FDCWD, fx_path("g"), times, 0), 0);
    now = fx_sig("g");
    ck_assert_int_eq(was.mtime_ns, now.mtime_ns);
    ck_assert_int_eq(was.size, now.size);
    ck_assert(!sync_sig_equal(&was, &now));
    ck_assert(now.fresh);
}
END_TEST

START_TEST(a_program_that_is_writing_is_seen)
{
    struct sync_tree_read read;
    int fd;

    fx_write("f", "half");
    ck_assert_int_eq(hash("f", NULL, &read), 0);
    ck_assert(!read.writer);
    fd = open(fx_path("f"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(hash("f", NULL, &read), 0);
    ck_assert(read.writer);
    close(fd);
    fd = open(fx_path("f"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(hash("f", NULL, &read), 0);
    ck_assert(!read.writer);
    close(fd);
}
END_TEST

START_TEST(special_files_are_never_opened)
{
    struct sync_tree_read read;
    struct sync_sig sig;

    ck_assert_int_eq(mkfifo(fx_path("fifo"), 0644), 0);
    sig = fx_sig("fifo");
    ck_assert_int_eq(hash("fifo", &sig, &read), UV_EINVAL);
    fx_mkdir("dir");
    ck_assert_int_eq(hash("dir", NULL, &read), UV_EISDIR);
    if (mknod(fx_path("null"), S_IFCHR | 0644, makedev(1, 3)) == 0)
        ck_assert_int_eq(hash("null", NULL, &read), UV_EINVAL);
}
END_TEST

START_TEST(a_mount_is_not_crossed_and_a_magic_link_not_followed)
{
    char target[SYNC_LINK_MAX + 1];
    struct sync_tree_entry entry;
    struct sync_tree root;

    ck_assert_int_eq(sync_tree_open(&root, "/"), 0);
    ck_assert_int_eq(sync_tree_stat(&root, "proc/version", 12, &entry, target), UV_EXDEV);
    sync_tree_close(&root);
    ck_assert_int_eq(sync_tree_open(&root, "/proc"), 0);
    ck_assert_int_eq(sync_tree_stat(&root, "self/cwd/x", 10, &entry, target), UV_ELOOP);
    sync_tree_close(&root);
}
END_TEST

/* ---- changing ---- */

static int put(const char *path, const char *text, const struct sync_sig *expected,
               struct sync_sig *sig)
{
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = path, .path_len = strlen(path)};
    struct sync_sig mine;

    op.absent = expected == NULL;
    if (expected != NULL)
        op.expected = *expected;
    return sync_tree_put(&fx_tree, &op, text, strlen(text), sig != NULL ? sig : &mine);
}

static int act(enum sync_op_kind kind, const char *path, const struct sync_sig *expected,
               const char *target, bool exec, struct sync_sig *sig)
{
    struct sync_op op = {.kind = kind, .path = path, .path_len = strlen(path), .exec = exec};
    struct sync_sig mine;

    op.absent = expected == NULL;
    if (expected != NULL)
        op.expected = *expected;
    op.target = target;
    op.target_len = target != NULL ? strlen(target) : 0;
    return sync_tree_apply(&fx_tree, &op, NULL, sig != NULL ? sig : &mine);
}

START_TEST(a_file_is_put_where_there_is_none)
{
    struct sync_op op = {
        .kind = SYNC_OP_FILE, .path = "a/b/run.sh", .path_len = 10, .absent = true, .exec = true};
    struct sync_sig sig, now;

    ck_assert_int_eq(put("f", "new", NULL, &sig), 0);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_uint_eq(fx_mode("f"), 0644);
    now = fx_sig("f");
    ck_assert(sync_sig_equal(&sig, &now));
    ck_assert(!sig.fresh);
    ck_assert_int_eq(put("f", "newer", NULL, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "#!", 2, &sig), 0);
    ck_assert_uint_eq(fx_mode("a/b/run.sh"), 0755);
    ck_assert(sync_sig_exec(&sig));
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(a_file_is_replaced_only_if_it_is_what_was_expected)
{
    struct sync_sig sig, old, now;

    fx_write("f", "old");
    ck_assert_int_eq(chmod(fx_path("f"), 0640), 0);
    old = fx_sig("f");
    ck_assert_int_eq(put("f", "new", &old, &sig), 0);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_uint_eq(fx_mode("f"), 0640);
    now = fx_sig("f");
    ck_assert(sync_sig_equal(&sig, &now));
    ck_assert_int_eq(put("f", "newer", &old, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "new");
    ck_assert_int_eq(put("none", "newer", &old, NULL), SYNC_CHANGED);
    ck_assert(!fx_exists("none"));
    ck_assert_int_eq(put("none/f", "newer", &old, NULL), SYNC_CHANGED);
    ck_assert(!fx_exists("none"));
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(an_edit_right_after_shows)
{
    struct sync_sig sig, now;

    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(put("f", "host", NULL, &sig), 0);
        fx_write("f", "user");
        now = fx_sig("f");
        ck_assert(!sync_sig_equal(&sig, &now));
        ck_assert_int_eq(unlink(fx_path("f")), 0);
    }
}
END_TEST

START_TEST(a_file_that_is_being_written_stays)
{
    struct sync_sig sig;
    int fd;

    fx_write("big.py", "half");
    fd = open(fx_path("big.py"), O_WRONLY | O_APPEND | O_CLOEXEC);
    sig = fx_sig("big.py");
    ck_assert_int_eq(put("big.py", "host", &sig, NULL), SYNC_BUSY);
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "big.py", &sig, NULL, false, NULL), SYNC_BUSY);
    ck_assert_int_eq(write(fd, "+half", 5), 5);
    close(fd);
    ck_assert_str_eq(fx_read("big.py"), "half+half");
    ck_assert_int_eq(put("big.py", "host", &sig, NULL), SYNC_CHANGED);
    sig = fx_sig("big.py");
    ck_assert_int_eq(put("big.py", "host", &sig, NULL), 0);
}
END_TEST

START_TEST(the_content_that_goes_can_be_named)
{
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = "f", .path_len = 1, .has_id = true};
    struct sync_sig sig;

    fx_write("f", "AAAA");
    op.expected = fx_sig("f");
    sync_id_of("BBBB", 4, &op.id);
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "host", 4, &sig), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "AAAA");
    op.expected = fx_sig("f"); /* it was moved there and back, which shows */
    sync_id_of("AAAA", 4, &op.id);
    ck_assert_int_eq(sync_tree_put(&fx_tree, &op, "host", 4, &sig), 0);
    ck_assert_str_eq(fx_read("f"), "host");
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(links_folders_and_permissions)
{
    char target[SYNC_LINK_MAX + 1];
    struct sync_tree_entry entry;
    struct sync_sig sig, dir;

    ck_assert_int_eq(act(SYNC_OP_LINK, "d/link", NULL, "/etc/passwd", false, &sig), 0);
    ck_assert_int_eq(sync_tree_stat(&fx_tree, "d/link", 6, &entry, target), 0);
    ck_assert_str_eq(target, "/etc/passwd");
    ck_assert(sync_sig_equal(&sig, &entry.sig));
    ck_assert_int_eq(act(SYNC_OP_LINK, "d/link", &sig, "elsewhere", false, &sig), 0);
    ck_assert_int_eq(sync_tree_stat(&fx_tree, "d/link", 6, &entry, target), 0);
    ck_assert_str_eq(target, "elsewhere");
    ck_assert_int_eq(put("d/link", "a file now", &entry.sig, NULL), 0);
    ck_assert_str_eq(fx_read("d/link"), "a file now");

    ck_assert_int_eq(act(SYNC_OP_DIR, "x/y/z", NULL, NULL, false, &dir), 0);
    ck_assert_int_eq(act(SYNC_OP_DIR, "x/y/z", NULL, NULL, false, &dir), 0);
    ck_assert_int_eq(act(SYNC_OP_DIR, "d/link", NULL, NULL, false, NULL), SYNC_CHANGED);
    sig = fx_sig("x/y");
    ck_assert_int_eq(act(SYNC_OP_RMDIR, "x/y", &sig, NULL, false, NULL), -ENOTEMPTY);
    ck_assert_int_eq(act(SYNC_OP_RMDIR, "x/y/z", &sig, NULL, false, NULL), SYNC_CHANGED);
    ck_assert_int_eq(act(SYNC_OP_RMDIR, "x/y/z", &dir, NULL, false, NULL), 0);
    ck_assert_int_eq(act(SYNC_OP_RMDIR, "x/y/z", &dir, NULL, false, NULL), 0);
    ck_assert(!fx_exists("x/y/z"));

    fx_write("run", "x");
    sig = fx_sig("run");
    ck_assert_int_eq(act(SYNC_OP_CHMOD, "run", &sig, NULL, true, &sig), 0);
    ck_assert_uint_eq(fx_mode("run"), 0755);
    ck_assert_int_eq(act(SYNC_OP_CHMOD, "run", &sig, NULL, false, &sig), 0);
    ck_assert_uint_eq(fx_mode("run"), 0644);
    fx_append("run", "y");
    ck_assert_int_eq(act(SYNC_OP_CHMOD, "run", &sig, NULL, true, NULL), SYNC_CHANGED);
    ck_assert_uint_eq(fx_mode("run"), 0644);
}
END_TEST

START_TEST(what_goes_is_what_was_expected)
{
    struct sync_sig sig, other;

    fx_write("f", "x");
    sig = fx_sig("f");
    fx_append("f", "y");
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "f", &sig, NULL, false, NULL), SYNC_CHANGED);
    ck_assert_str_eq(fx_read("f"), "xy");
    sig = fx_sig("f");
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "f", &sig, NULL, false, &other), 0);
    ck_assert_uint_eq(other.ino, 0);
    ck_assert(!fx_exists("f"));
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "f", &sig, NULL, false, NULL), 0);
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "no/f", &sig, NULL, false, NULL), 0);
    ck_assert(!fx_exists("no"));
    ck_assert_int_eq(mkfifo(fx_path("fifo"), 0644), 0);
    sig = fx_sig("fifo");
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "fifo", &sig, NULL, false, NULL), 0);
    fx_mkdir("d");
    sig = fx_sig("d");
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "d", &sig, NULL, false, NULL), UV_EISDIR);
    ck_assert_int_eq(put("d", "a file", &sig, NULL), UV_EISDIR);
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(names_that_differ_in_case_are_two)
{
    struct sync_sig sig;

    fx_write("README.md", "text");
    sig = fx_sig("README.md");
    ck_assert_int_eq(put("readme.md", "text", NULL, NULL), 0);
    ck_assert_int_eq(act(SYNC_OP_REMOVE, "README.md", &sig, NULL, false, NULL), 0);
    ck_assert(fx_exists("readme.md"));
    ck_assert(!fx_exists("README.md"));
}
END_TEST

START_TEST(bad_paths_are_refused)
{
    static const char *const bad[] = {"",       "/",    "/x",  "..", "../x",
                                      "a/../b", "a//b", "./a", "a/", "."};
    struct sync_sig sig;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(put(bad[i], "x", NULL, NULL), UV_EINVAL);
        ck_assert_int_eq(act(SYNC_OP_DIR, bad[i], NULL, NULL, false, &sig), UV_EINVAL);
    }
    ck_assert_int_eq(act(SYNC_OP_LINK, "l", NULL, "", false, NULL), UV_EINVAL);
    ck_assert_int_eq(act(SYNC_OP_FILE, "f", NULL, NULL, false, NULL), UV_EINVAL);
}
END_TEST

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The name that sync_tree_apply() gives to what it takes out of the tree. */
static void leave(const char *text, const char *said)
{
    char path[128], hex[2 * SYNC_ID_LEN + 1];
    struct sync_id id;

    sync_id_of(said, strlen(said), &id);
    sync_id_hex(&id, hex);
    snprintf(path, sizeof(path), SYNC_STAGE_NAME "/out-%s-0123456789abcdef", hex);
    fx_write(path, text);
}

/* What was put into the root under another name (static memory), or "". */
static const char *find_aside(void)
{
    DIR *dir = opendir(fx_path(""));
    const char *text = "";

    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "recovered.transom-kept-", 23) == 0)
            text = fx_read(e->d_name);
    }
    closedir(dir);
    return text;
}

START_TEST(a_program_that_died_in_the_middle_has_lost_nothing)
{
    fx_mkdir(SYNC_STAGE_NAME);
    fx_write(SYNC_STAGE_NAME "/0123456789abcdef0123456789abcdef", "half of what was to com");
    leave("as it was", "as it was");
    leave("edited", "as it was then");
    sync_tree_sweep(&fx_tree, now_ns() - INT64_C(2000000000));
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 3);
    sync_tree_sweep(&fx_tree, now_ns() + INT64_C(2000000000));
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
    ck_assert_uint_eq(fx_count(""), 2); /* the stage, and what was caught */
    ck_assert_str_eq(find_aside(), "edited");
}
END_TEST

START_TEST(a_stage_that_is_closed_leaves_nothing)
{
    struct sync_stage *stage;
    struct sync_id id;

    ck_assert_int_eq(sync_stage_open(&fx_tree, 8, &stage), 0);
    ck_assert_int_eq(sync_stage_write(stage, "half", 4), 0);
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 1);
    sync_tree_sweep(&fx_tree, now_ns() - INT64_C(2000000000)); /* not what is new */
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 1);
    ck_assert_int_eq(sync_stage_end(stage, &id), -EBADMSG);
    ck_assert_int_eq(sync_stage_write(stage, "more!", 5), UV_EFBIG);
    sync_stage_close(stage);
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(staging_elsewhere_and_synced)
{
    struct sync_tree tree = fx_tree;
    struct sync_op op = {.kind = SYNC_OP_FILE, .path = "d/f", .path_len = 3, .absent = true};
    struct sync_sig sig;
    int fd;

    ck_assert_int_eq(mkdir(fx_path("../stage"), 0700), 0);
    tree.stage = open(fx_path("../stage"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree.sync = true;
    fx_write("../content", "from a descriptor");
    fd = open(fx_path("../content"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(sync_tree_put_fd(&tree, &op, fd, &sig), 0);
    close(fd);
    ck_assert_str_eq(fx_read("d/f"), "from a descriptor");
    ck_assert(!fx_exists(SYNC_STAGE_NAME));
    close(tree.stage);
}
END_TEST

/* ---- races ---- */

static atomic_bool stop;

/* "a" is a folder in one moment and a link to the outside in the next. */
static void *swap_links(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        ck_assert_int_eq(renameat2(AT_FDCWD, fx_path("a"), AT_FDCWD, fx_path("l"), RENAME_EXCHANGE),
                         0);
    return NULL;
}

START_TEST(a_link_that_comes_and_goes_leads_nowhere)
{
    struct sync_tree_read inside, read;
    int n_read = 0, n_put = 0;
    pthread_t thread;

    fx_mkdir("a");
    fx_write("a/x", "inside");
    ck_assert_int_eq(hash("a/x", NULL, &inside), 0);
    fx_mkdir("../out");
    fx_write("../out/secret", "secret");
    fx_write("../out/x", "secret");
    fx_symlink("../out", "l");
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, swap_links, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        struct seen seen = {0};
        struct sync_sig sig;

        if (hash("a/x", NULL, &read) == 0) {
            ck_assert(sync_id_equal(&read.id, &inside.id));
            n_read++;
        }
        if (put("a/new", "x", NULL, &sig) == 0) {
            n_put++;
            (void)act(SYNC_OP_REMOVE, "a/new", &sig, NULL, false, NULL);
            (void)act(SYNC_OP_REMOVE, "l/new", &sig, NULL, false, NULL);
        }
        (void)act(SYNC_OP_DIR, "a/dir/dir", NULL, NULL, false, NULL);
        if (sync_tree_list(&fx_tree, "a", 1, on_entry, &seen, NULL) == 0)
            for (size_t k = 0; k < seen.n; k++)
                ck_assert_str_ne(seen.names[k], "secret");
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ck_assert_int_gt(n_read, 0);
    ck_assert_int_gt(n_put, 0);
    ck_assert_uint_eq(fx_count("../out"), 2);
    ck_assert_str_eq(fx_read("../out/x"), "secret");
}
END_TEST

/* "f" is a file in one moment and a FIFO in the next. Opening a FIFO would never return. */
static void *swap_fifo(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        ck_assert_int_eq(
            renameat2(AT_FDCWD, fx_path("f"), AT_FDCWD, fx_path("fifo"), RENAME_EXCHANGE), 0);
    return NULL;
}

START_TEST(a_fifo_that_comes_and_goes_holds_nobody_up)
{
    struct sync_tree_read read;
    pthread_t thread;
    int n = 0;

    fx_write("f", "x");
    ck_assert_int_eq(mkfifo(fx_path("fifo"), 0644), 0);
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, swap_fifo, NULL), 0);
    for (int i = 0; i < 20000; i++)
        n += hash("f", NULL, &read) == 0;
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ck_assert_int_gt(n, 0);
}
END_TEST

#define N_EDITS 3000

static const char *editor_path; /* its own buffer: fx_path() is the test's */

/* A user who appends lines, each with a program of its own. */
static void *append_lines(void *arg)
{
    char line[32];

    (void)arg;
    for (int i = 0; i < N_EDITS; i++) {
        int fd = open(editor_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        int len = snprintf(line, sizeof(line), "edit %d\n", i);

        ck_assert_int_ge(fd, 0);
        if (i % 3 == 0)
            usleep(20);
        ck_assert_int_eq(write(fd, line, (size_t)len), len);
        close(fd);
    }
    atomic_store(&stop, true);
    return NULL;
}

struct text {
    char bytes[1 << 18];
    size_t len;
};

static int keep_text(const void *bytes, size_t len, void *arg)
{
    struct text *text = arg;

    ck_assert_uint_lt(text->len + len + 64, sizeof(text->bytes));
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
    return 0;
}

/* Mark each line that is in text. */
static void mark_lines(const char *text, bool *found)
{
    for (const char *p = text; (p = strstr(p, "edit ")) != NULL; p++)
        found[atoi(p + 5)] = true;
}

static bool mark_kept(const struct sync_tree_entry *entry, void *arg)
{
    mark_lines(fx_read(entry->name), arg);
    return true;
}

START_TEST(no_edit_is_ever_lost)
{
    static struct text text;
    static bool found[N_EDITS];
    static char path[PATH_MAX];
    int n_done = 0, n_not = 0;
    pthread_t thread;

    fx_write("f", "");
    snprintf(path, sizeof(path), "%s", fx_path("f"));
    editor_path = path;
    atomic_store(&stop, false);
    memset(found, 0, sizeof(found));
    ck_assert_int_eq(pthread_create(&thread, NULL, append_lines, NULL), 0);
    for (int i = 0; !atomic_load(&stop) || n_done == 0; i++) {
        struct sync_op op = {.kind = SYNC_OP_FILE, .path = "f", .path_len = 1, .has_id = true};
        struct sync_tree_read read;
        struct sync_sig sig;
        int r;

        text.len = 0;
        if (sync_tree_read(&fx_tree, "f", 1, NULL, keep_text, &text, NULL, NULL, &read) != 0)
            continue;
        op.expected = read.sig;
        op.id = read.id;
        /* The host's edit: what was read, and a line of its own. */
        if (text.len < sizeof(text.bytes) / 2)
            text.len += (size_t)sprintf(text.bytes + text.len, "host %d\n", i);
        r = sync_tree_put(&fx_tree, &op, text.bytes, text.len, &sig);
        ck_assert_int_ge(r, 0);
        n_done += r == 0;
        n_not += r != 0;
    }
    pthread_join(thread, NULL);
    ck_assert_int_eq(sync_tree_list(&fx_tree, "", 0, mark_kept, found, NULL), 0);
    for (int i = 0; i < N_EDITS; i++)
        ck_assert_msg(found[i], "edit %d is gone (%d replaced, %d not)", i, n_done, n_not);
    ck_assert_int_gt(n_done, 0);
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

/* A user who replaces the file as editors do, while the host removes it. */
static void *replace_file(void *arg)
{
    char text[32], temp[PATH_MAX + 1];

    (void)arg;
    snprintf(temp, sizeof(temp), "%s~", editor_path);
    for (int i = 0; i < N_EDITS; i++) {
        int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        int len = snprintf(text, sizeof(text), "edit %d\n", i);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, text, (size_t)len), len);
        close(fd);
        ck_assert_int_eq(rename(temp, editor_path), 0);
    }
    atomic_store(&stop, true);
    return NULL;
}

START_TEST(what_is_removed_was_known)
{
    static char path[PATH_MAX];
    char known[64] = "";
    pthread_t thread;
    int n_done = 0, last;

    fx_write("f", "");
    snprintf(path, sizeof(path), "%s", fx_path("f"));
    editor_path = path;
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, replace_file, NULL), 0);
    while (!atomic_load(&stop)) {
        struct sync_op op = {.kind = SYNC_OP_REMOVE, .path = "f", .path_len = 1, .has_id = true};
        struct text text = {.len = 0};
        struct sync_tree_read read;
        struct sync_sig sig;

        if (sync_tree_read(&fx_tree, "f", 1, NULL, keep_text, &text, NULL, NULL, &read) != 0)
            continue;
        op.expected = read.sig;
        op.id = read.id;
        if (sync_tree_apply(&fx_tree, &op, NULL, &sig) == 0) {
            n_done++;
            snprintf(known, sizeof(known), "%.*s", (int)text.len, text.bytes);
        }
    }
    pthread_join(thread, NULL);
    ck_assert_int_gt(n_done, 0);
    /* The last edit is still there, unless it was read before it was removed. */
    last = N_EDITS - 1;
    if (!fx_exists("f"))
        ck_assert_int_eq(atoi(known + 5), last);
    else
        ck_assert_int_eq(atoi(fx_read("f") + 5), last);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/tree");
    TCase *look = tcase_create("looking"), *change = tcase_create("changing");
    TCase *race = tcase_create("races");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(look, fx_setup, fx_teardown);
    tcase_set_timeout(look, 100);
    tcase_add_test(look, a_listing_tells_types_and_hides_the_stage);
    tcase_add_test(look, a_listing_says_that_the_folder_changed_meanwhile);
    tcase_add_test(look, a_name_may_have_every_byte_and_255_of_them);
    tcase_add_test(look, a_folder_with_too_many_entries_says_so);
    tcase_add_test(look, ids_are_those_of_git);
    tcase_add_test(look, what_changes_while_it_is_read_is_nothing);
    tcase_add_test(look, an_edit_that_keeps_size_and_time_is_seen);
    tcase_add_test(look, a_program_that_is_writing_is_seen);
    tcase_add_test(look, special_files_are_never_opened);
    tcase_add_test(look, a_mount_is_not_crossed_and_a_magic_link_not_followed);
    suite_add_tcase(s, look);
    tcase_add_checked_fixture(change, fx_setup, fx_teardown);
    tcase_set_timeout(change, 100);
    tcase_add_test(change, a_file_is_put_where_there_is_none);
    tcase_add_test(change, a_file_is_replaced_only_if_it_is_what_was_expected);
    tcase_add_test(change, an_edit_right_after_shows);
    tcase_add_test(change, a_file_that_is_being_written_stays);
    tcase_add_test(change, the_content_that_goes_can_be_named);
    tcase_add_test(change, links_folders_and_permissions);
    tcase_add_test(change, what_goes_is_what_was_expected);
    tcase_add_test(change, names_that_differ_in_case_are_two);
    tcase_add_test(change, bad_paths_are_refused);
    tcase_add_test(change, a_program_that_died_in_the_middle_has_lost_nothing);
    tcase_add_test(change, a_stage_that_is_closed_leaves_nothing);
    tcase_add_test(change, staging_elsewhere_and_synced);
    suite_add_tcase(s, change);
    tcase_add_checked_fixture(race, fx_setup, fx_teardown);
    tcase_set_timeout(race, 110);
    tcase_add_test(race, a_link_that_comes_and_goes_leads_nowhere);
    tcase_add_test(race, a_fifo_that_comes_and_goes_holds_nobody_up);
    tcase_add_test(race, no_edit_is_ever_lost);
    tcase_add_test(race, what_is_removed_was_known);
    suite_add_tcase(s, race);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
