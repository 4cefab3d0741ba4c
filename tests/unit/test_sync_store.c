/* SPDX-License-Identifier: MIT */
/* The session's store, with git itself as the judge of what it keeps. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "store_fixture.h"

/* ---- paths ---- */

START_TEST(what_is_put_can_be_read_and_removed)
{
    struct sync_usage usage;

    put_ok("a/b/c.txt", "one");
    ck_assert_str_eq(get("a/b/c.txt"), "one");
    put_ok("a/b/c.txt", "two, longer");
    ck_assert_str_eq(get("a/b/c.txt"), "two, longer");
    sync_store_usage(store, &usage);
    ck_assert_int_eq(usage.files, 11);
    ck_assert_int_eq(usage.n_files, 3);
    ck_assert_str_eq(list("", true, NULL), "a\na/b\na/b/c.txt\n");
    ck_assert_str_eq(list("a", false, NULL), "a/b\n");
    ck_assert_int_eq(drop("a", false), -ENOTEMPTY);
    ck_assert_int_eq(drop("a", true), 0);
    ck_assert_int_eq(drop("a", true), 0); /* again is fine */
    ck_assert_int_eq(drop("a/b/c.txt", true), 0);
    sync_store_usage(store, &usage);
    ck_assert_int_eq(usage.files, 0);
    ck_assert_int_eq(usage.n_files, 0);
    ck_assert_str_eq(shell("ls %D/staging"), "");
}
END_TEST

START_TEST(usage_is_the_same_when_it_is_counted_anew)
{
    struct sync_usage a, b;

    put_ok("a/x", "12345");
    put_ok("b/y", "1234567");
    link_ok("b/l", "nowhere");
    ck_assert_int_eq(move("b/y", "a/x", true), 0);
    ck_assert_int_eq(move("a", "c", false), 0);
    free((char *)checkpoint("x"));
    sync_store_usage(store, &a);
    reopen();
    sync_store_usage(store, &b);
    ck_assert_int_eq(a.files, b.files);
    ck_assert_int_eq(a.n_files, b.n_files);
    /* The branch's own file and the like are counted when a store is opened. */
    ck_assert_int_le(b.history - a.history, 8192);
    ck_assert_int_ge(b.history, a.history);
}
END_TEST

START_TEST(paths_that_no_store_holds_are_refused)
{
    char name[300], deep[600] = "a";
    const char *const bad[] = {"",       "/a",     "a/",  "a//b", ".",    "..",
                               "../a",   "a/../b", "a/.", "./a",  ".git", "a/.git/config",
                               ".GIT/x", "a/.Git", name,  deep};

    memset(name, 'n', 256);
    name[256] = '\0';
    for (size_t i = 1; i < 257; i += 2)
        memcpy(deep + i, "/a", 3);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bool created;

        ck_assert_msg(put(bad[i], "x") == -EINVAL, "%s", bad[i]);
        ck_assert_msg(*err.msg != '\0', "%s", bad[i]);
        ck_assert_int_eq(drop(bad[i], true), -EINVAL);
        ck_assert_int_eq(move(bad[i], "ok", true), -EINVAL);
        ck_assert_ptr_null(get(bad[i])); /* "" is the root, a folder */
        ck_assert_int_eq(sync_store_mkdir(store, bad[i], strlen(bad[i]), &created, &err), -EINVAL);
        ck_assert_int_eq(sync_store_link(store, bad[i], strlen(bad[i]), "t", NULL, &created, &err),
                         -EINVAL);
    }
    ck_assert_int_eq(sync_store_check_path("a\0b", 3, &err), -EINVAL);
    ck_assert_str_eq(list("", true, NULL), "");
    name[255] = '\0';
    put_ok(name, "255 bytes are fine");
    put_ok(".gitignore", "so are names that only begin so");
    put_ok("...", "or that only look so");
}
END_TEST

START_TEST(links_are_never_followed)
{
    struct sync_stat st;
    char *target;

    put_ok("real/f", "inside");
    link_ok("up", "/etc");
    link_ok("in", "real");
    ck_assert_ptr_null(get("up/passwd"));
    ck_assert_int_eq(err.code, -ELOOP);
    ck_assert_ptr_null(get("in/f"));
    ck_assert_int_eq(err.code, -ELOOP);
    ck_assert_int_eq(put("up/x", "y"), -ELOOP);
    ck_assert_int_eq(put("in/g/h", "y"), -ELOOP);
    ck_assert_int_eq(drop("in/f", false), -ELOOP);
    ck_assert_int_eq(move("in/f", "g", false), -ELOOP);
    ck_assert_int_eq(move("real/f", "up/f", false), -ELOOP);
    ck_assert_ptr_null(get("up"));
    ck_assert_int_eq(err.code, -EINVAL);
    ck_assert_int_eq(sync_store_stat(store, "up", 2, &st, &err), 0);
    ck_assert_int_eq(st.type, SYNC_TYPE_LINK);
    ck_assert_int_eq(sync_store_read_link(store, "up", 2, &target, &err), 0);
    ck_assert_str_eq(target, "/etc");
    free(target);
    /* Removing or replacing a link leaves alone what it names. */
    ck_assert_int_eq(drop("in", true), 0);
    ck_assert_str_eq(get("real/f"), "inside");
    put_ok("up", "a file now");
    ck_assert_int_eq(access("/etc/passwd", F_OK), 0);
    ck_assert_str_eq(get("up"), "a file now");
}
END_TEST

START_TEST(special_files_are_neither_opened_nor_kept)
{
    struct sync_left_out left;
    struct sync_checkpoint c;

    shell("mkfifo %D/files/fifo; mkdir -p %D/files/sub/.git; echo x > %D/files/sub/.git/config");
    put_ok("f", "x");
    ck_assert_ptr_null(get("fifo"));
    ck_assert_int_eq(err.code, -EINVAL);
    ck_assert_int_eq(sync_store_checkpoint(store, "m", SYNC_CAUSE_API, "a", &c, &left, &err), 0);
    ck_assert_int_eq((int)left.n, 2);
    ck_assert_str_eq(left.path, "fifo");
    ck_assert_str_eq(shell("git --git-dir=%D/store.git ls-tree -r --name-only main"), "f\n");
    ck_assert_int_eq(drop("fifo", false), 0);
}
END_TEST

START_TEST(conditions_hold_or_nothing_happens)
{
    struct sync_condition absent = {SYNC_EXPECT_ABSENT, NULL}, same = {SYNC_EXPECT_SAME, NULL};
    char etag[SYNC_ETAG_SIZE];
    struct sync_stat st;
    bool created;

    ck_assert_int_eq(
        sync_store_put_bytes(store, "f", 1, "1", 1, SYNC_EXEC_ON, &absent, &st, &created, &err), 0);
    ck_assert(created);
    sync_store_etag(&st, etag);
    same.etag = etag;
    ck_assert_int_eq(
        sync_store_put_bytes(store, "f", 1, "2", 1, SYNC_EXEC_KEEP, &absent, &st, &created, &err),
        -ESTALE);
    ck_assert_str_eq(get("f"), "1");
    ck_assert_int_eq(
        sync_store_put_bytes(store, "f", 1, "3", 1, SYNC_EXEC_KEEP, &same, &st, &created, &err), 0);
    ck_assert(!created && st.is_exec);
    ck_assert_int_eq(
        sync_store_put_bytes(store, "f", 1, "4", 1, SYNC_EXEC_KEEP, &same, &st, &created, &err),
        -ESTALE);
    ck_assert_int_eq(sync_store_remove(store, "f", 1, false, &same, &err), -ESTALE);
    ck_assert_str_eq(get("f"), "3");
    ck_assert_int_eq(drop("f", false), 0);
    ck_assert_int_eq(sync_store_remove(store, "f", 1, false, &same, &err), -ESTALE);
    ck_assert_str_eq(shell("ls -A %D/staging"), "");
}
END_TEST

START_TEST(things_are_moved)
{
    char longest[255], goal[600], path[4096];

    put_ok("README.md", "r");
    ck_assert_int_eq(move("README.md", "readme.md", false), 0); /* only the case */
    ck_assert_str_eq(list("", true, NULL), "readme.md\n");
    ck_assert_int_eq(move("readme.md", "readme.md", false), 0);
    put_ok("other", "o");
    ck_assert_int_eq(move("other", "readme.md", false), -EEXIST);
    ck_assert_int_eq(move("other", "readme.md", true), 0);
    ck_assert_str_eq(get("readme.md"), "o");
    put_ok("d/e/f", "x");
    ck_assert_int_eq(move("d", "d/e/g", false), -EINVAL);
    ck_assert_int_eq(move("d", "new/place", false), 0);
    ck_assert_str_eq(get("new/place/e/f"), "x");
    ck_assert_int_eq(move("nothing", "x", false), -ENOENT);
    ck_assert_int_eq(move("readme.md", "new/place", true), -EEXIST);
    ck_assert_int_eq(move("new", "readme.md", true), -EEXIST);
    ck_assert_int_eq(move("readme.md", "readme.md/x", true), -ENOTDIR);
    /* What is below must keep a path that can be stored. */
    memset(longest, 'l', 254);
    longest[254] = '\0';
    memcpy(path, "long", 5);
    for (int i = 0; i < 15; i++)
        snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", longest);
    put_ok(path, "deep");
    snprintf(goal, sizeof(goal), "%s/%s", longest, longest);
    ck_assert_int_eq(move("long", goal, false), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "4095"));
    ck_assert_int_eq(move("long", "short", false), 0);
}
END_TEST

START_TEST(a_listing_goes_on_where_it_ended)
{
    char *all, *rest, none[LIST_SIZE] = "";

    put_ok("a-b", "");
    put_ok("a/x", "");
    put_ok("a/y/z", "");
    put_ok("a.c", "");
    put_ok("b", "");
    all = strdup(list("", true, NULL));
    ck_assert_str_eq(all, "a\na/x\na/y\na/y/z\na-b\na.c\nb\n");
    for (char *line = all; *line; line = strchr(line, '\n') + 1) {
        char after[64];

        snprintf(after, sizeof(after), "%.*s", (int)strcspn(line, "\n"), line);
        rest = list("", true, after);
        ck_assert_str_eq(rest, strchr(line, '\n') + 1);
    }
    ck_assert_str_eq(list("", true, "a/w"), "a/x\na/y\na/y/z\na-b\na.c\nb\n"); /* gone meanwhile */
    ck_assert_str_eq(list("a", true, "a/x"), "a/y\na/y/z\n");
    ck_assert_int_eq(sync_store_list(store, "a", 1, true, "b", add_path, none, &err), -EINVAL);
    tr_err_clear(&err);
    ck_assert_int_eq(sync_store_list(store, "c", 1, true, NULL, add_path, none, &err), -ENOENT);
    tr_err_clear(&err);
    ck_assert_int_eq(sync_store_list(store, "b", 1, true, NULL, add_path, none, &err), -ENOTDIR);
    free(all);
}
END_TEST

START_TEST(the_quota_refuses_and_recovers)
{
    struct sync_usage usage;
    char big[100001];
    int64_t quota;

    sync_store_usage(store, &usage);
    quota = usage.history + 150000;
    sync_store_close(store);
    open_store(quota);
    memset(big, 'x', 100000);
    big[100000] = '\0';
    put_ok("one", big);
    ck_assert_int_eq(put("two", big), -EDQUOT);
    ck_assert_ptr_nonnull(strstr(err.msg, "quota"));
    ck_assert_ptr_null(get("two"));
    put_ok("one", big); /* replacing costs nothing */
    ck_assert_int_eq(drop("one", false), 0);
    put_ok("two", big);
    ck_assert_str_eq(shell("ls %D/staging"), "");
}
END_TEST

/* ---- checkpoints ---- */

struct collected {
    char text[4096];
    int n;
};

static int collect(const struct sync_checkpoint *c, void *arg)
{
    struct collected *all = arg;
    char line[300];

    snprintf(line, sizeof(line), "%s: %.100s|", sync_cause_name(c->cause), c->message);
    snprintf(all->text + strlen(all->text), sizeof(all->text) - strlen(all->text), "%s", line);
    return ++all->n == 3;
}

START_TEST(checkpoints_are_commits)
{
    struct sync_checkpoint c, found;
    struct sync_left_out left;
    struct collected all = {.n = -100};
    const char *one, *two;
    char prefix[9];

    ck_assert_int_eq(sync_store_checkpoint(store, "none", SYNC_CAUSE_RUN, "a", &c, &left, &err), 1);
    ck_assert_int_eq(c.cause, SYNC_CAUSE_CREATED);
    put_ok("f", "1\n");
    one = checkpoint("first\n\nTransom-Cause: stop\n");
    put_ok("f", "2\n");
    ck_assert_int_eq(
        sync_store_checkpoint(store, " \r\n", SYNC_CAUSE_IDLE, "<\n>", &c, &left, &err), 0);
    two = strdup(c.id);
    ck_assert_int_eq(sync_store_checkpoint(store, "", SYNC_CAUSE_RUN, "a", &c, &left, &err), 1);
    ck_assert_str_eq(c.id, two);
    ck_assert_int_eq(sync_store_history(store, NULL, collect, &all, &err), 0);
    ck_assert_str_eq(all.text, "idle: Checkpoint|api: first\n\nTransom-Cause: stop|created: The "
                               "session's files begin.|");
    ck_assert_int_eq(all.n, -97);
    ck_assert_str_eq(shell("git --git-dir=%D/store.git log --format=%an main"),
                     "Transom\nAnn\nTransom\n");
    ck_assert_str_eq(shell("git --git-dir=%D/store.git log -1 --format=%B main~1"),
                     "first\n\nTransom-Cause: stop\n\nTransom-Cause: api\n\n");
    ck_assert_str_eq(shell("git --git-dir=%D/store.git show main~1:f"), "1\n");
    snprintf(prefix, sizeof(prefix), "%.8s", one);
    ck_assert_int_eq(sync_store_find(store, prefix, &found, &err), 0);
    ck_assert_str_eq(found.id, one);
    ck_assert_str_eq(found.message, "first\n\nTransom-Cause: stop");
    ck_assert_int_eq(found.cause, SYNC_CAUSE_API);
    ck_assert_int_eq(sync_store_find(store, "latest", &found, &err), 0);
    ck_assert_str_eq(found.id, two);
    ck_assert_int_eq(sync_store_find(store, "first", &found, &err), 0);
    ck_assert_str_eq(found.parent, "");
    ck_assert_int_eq(sync_store_find(store, "0000000000", &found, &err), -ENOENT);
    ck_assert_int_eq(sync_store_find(store, "main", &found, &err), -EINVAL);
    ck_assert_int_eq(sync_store_find(store, "HEAD~1", &found, &err), -EINVAL);
    all.n = -100;
    all.text[0] = '\0';
    ck_assert_int_eq(sync_store_history(store, one, collect, &all, &err), 0);
    ck_assert_int_eq(all.n, -99);
    fsck();
    free((char *)one);
    free((char *)two);
}
END_TEST

START_TEST(odd_names_and_modes_are_kept_and_come_back)
{
    static const char *const names[] = {"nl\nx.py",     "back\\slash.py",   "bad\xff.py",
                                        "-rf.py",       " lead.py",         "\xc3\xa9.py",
                                        "e\xcc\x81.py", "tab\t\"q\"",       "aux",
                                        "CON.txt",      "trail. ",          "git~1",
                                        "GITMOD~1",     ".gitmodules",      "a:b",
                                        "*?[]",         ".git\xe2\x80\x8c", "xd/.gitattributes"};
    char name[2] = "", longest[256];
    const char *id;

    for (int i = 1; i < 256; i++) {
        name[0] = (char)i;
        if (i != '/' && i != '.')
            put_ok(name, name);
    }
    memset(longest, 'n', 255);
    longest[255] = '\0';
    put_ok(longest, "long");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        put_ok(names[i], names[i]);
    shell("chmod 755 %D/files/-rf.py");
    link_ok("link", "../\xff target\n");
    link_ok("dangling", "nowhere");
    id = checkpoint("odd");
    fsck();
    shell("cd %D && find files ! -type d -printf '\\0' | wc -c > want && "
          "git --git-dir=store.git ls-tree -r -z main | tr -cd '\\0' | wc -c > got && "
          "diff want got");
    ck_assert_str_eq(
        shell("git --git-dir=%D/store.git ls-tree main -- -rf.py link aux | cut -c1-6"),
        "100755\n100644\n120000\n");
    /* What git checks out is what we have. */
    shell("mkdir %D/out && git --git-dir=%D/store.git -c core.protectNTFS=false -c "
          "core.protectHFS=false --work-tree=%D/out checkout -q -f main -- . && "
          "diff -r --no-dereference %D/files %D/out && test -x %D/out/-rf.py");
    shell("mv %D/files %D/aside && mkdir %D/files");
    reopen();
    {
        struct sync_checkpoint c;

        ck_assert_msg(sync_store_restore(store, id, "", 0, "a", &c, &err) == 0, "%s", err.msg);
    }
    shell("diff -r --no-dereference %D/files %D/aside && test -x %D/files/-rf.py && "
          "test ! -x %D/files/aux");
    fsck();
    free((char *)id);
}
END_TEST

START_TEST(an_edit_that_keeps_size_and_time_is_seen)
{
    struct sync_checkpoint c;

    put_ok("g", "AAAA");
    shell("touch -d @1700000000 %D/files/g");
    let_it_age();
    free((char *)checkpoint("A"));
    ck_assert_int_eq(sync_store_checkpoint(store, "", SYNC_CAUSE_API, "a", &c, NULL, &err), 1);
    shell(
        "printf BBBB | dd of=%D/files/g conv=notrunc status=none; touch -d @1700000000 %D/files/g");
    free((char *)checkpoint("B"));
    ck_assert_str_eq(shell("git --git-dir=%D/store.git show main:g"), "BBBB");
}
END_TEST

START_TEST(empty_folders_are_in_no_checkpoint)
{
    struct sync_checkpoint c;
    bool created;

    ck_assert_int_eq(sync_store_mkdir(store, "a/b", 3, &created, &err), 0);
    ck_assert(created);
    ck_assert_int_eq(sync_store_mkdir(store, "a/b", 3, &created, &err), 0);
    ck_assert(!created);
    ck_assert_int_eq(sync_store_checkpoint(store, "", SYNC_CAUSE_API, "a", &c, NULL, &err), 1);
}
END_TEST

START_TEST(large_contents_pass_through)
{
    uint8_t id[SYNC_ID_BYTES];
    struct sync_checkpoint c;
    char hex[SYNC_ID_SIZE];
    int fd;

    shell("head -c 5000000 /dev/urandom > %D/files/big; cp %D/files/big %D/big");
    reopen();
    free((char *)checkpoint("big"));
    shell("git --git-dir=%D/store.git show main:big | cmp - %D/big");
    reopen(); /* nothing is known any more: the content is found to be there */
    ck_assert_int_eq(sync_store_checkpoint(store, "", SYNC_CAUSE_API, "a", &c, NULL, &err), 1);
    ck_assert_int_eq(drop("big", false), 0);
    ck_assert_msg(sync_store_restore(store, "latest", "big", 3, "a", &c, &err) == 0, "%s", err.msg);
    shell("cmp %D/files/big %D/big; rm %D/files/big");
    fd = open(shell("printf %D/big"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(sync_store_put_blob(store, fd, 5000000, id, &err), 0);
    close(fd);
    for (int i = 0; i < SYNC_ID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", id[i]);
    ck_assert_str_eq(strtok(shell("git hash-object %D/big"), "\n"), hex);
    ck_assert(sync_store_has_blob(store, id));
    id[0] ^= 1;
    ck_assert(!sync_store_has_blob(store, id));
    fsck();
}
END_TEST

START_TEST(a_restore_is_a_new_checkpoint)
{
    struct sync_checkpoint c;
    const char *one, *two;

    put_ok("keep", "k1");
    put_ok("d/x", "x1");
    put_ok("was-file", "f");
    link_ok("was-link", "t");
    one = checkpoint("one");
    put_ok("keep", "k2");
    ck_assert_int_eq(drop("d", true), 0);
    put_ok("d", "a file in the place of the folder");
    ck_assert_int_eq(drop("was-file", false), 0);
    put_ok("was-file/a/b", "a folder in the place of the file");
    put_ok("was-link", "no link");
    put_ok("new/deep/file", "n");
    two = checkpoint("two");
    put_ok("keep", "k3, in no checkpoint yet");

    ck_assert_int_eq(sync_store_restore(store, one, "d", 1, "a", &c, &err), 0);
    ck_assert_str_eq(get("d/x"), "x1");
    ck_assert_str_eq(get("keep"), "k3, in no checkpoint yet");
    ck_assert_str_eq(shell("git --git-dir=%D/store.git show main~1:keep"),
                     "k3, in no checkpoint yet");
    ck_assert_int_eq(sync_store_restore(store, one, "", 0, "a", &c, &err), 0);
    ck_assert_int_eq(c.cause, SYNC_CAUSE_RESTORE);
    ck_assert_str_eq(list("", true, NULL), "d\nd/x\nkeep\nwas-file\nwas-link\n");
    ck_assert_str_eq(get("was-file"), "f");
    ck_assert_int_eq(sync_store_restore(store, one, "", 0, "a", &c, &err), 1);
    ck_assert_int_eq(sync_store_restore(store, two, "", 0, "a", &c, &err), 0);
    ck_assert_str_eq(get("was-file/a/b"), "a folder in the place of the file");
    ck_assert_str_eq(get("new/deep/file"), "n");
    ck_assert_int_eq(sync_store_restore(store, one, "no/such", 7, "a", &c, &err), -ENOENT);
    ck_assert_int_eq(sync_store_restore(store, "1234567", "", 0, "a", &c, &err), -ENOENT);
    /* Empty folders are in the way of nothing; what no checkpoint holds is not removed. */
    ck_assert_int_eq(drop("keep", false), 0);
    shell("mkdir -p %D/files/keep/e/f");
    ck_assert_int_eq(sync_store_restore(store, one, "keep", 4, "a", &c, &err), 0);
    ck_assert_str_eq(get("keep"), "k1");
    ck_assert_int_eq(drop("keep", false), 0);
    shell("mkdir -p %D/files/keep; mkfifo %D/files/keep/p");
    ck_assert_int_eq(sync_store_restore(store, one, "keep", 4, "a", &c, &err), -ENOTEMPTY);
    fsck();
    free((char *)one);
    free((char *)two);
}
END_TEST

/* ---- changes ---- */

static void write_out(struct sync_changes *c, const char *name, bool as_zip)
{
    struct sync_buf buf = {0};
    char path[128];
    int fd, r;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    do {
        buf.len = 0;
        r = as_zip ? sync_changes_zip(c, &buf, &err) : sync_changes_patch(c, &buf, &err);
        ck_assert_msg(r >= 0, "%s", err.msg);
        if (buf.len > 0)
            ck_assert_int_eq(write(fd, buf.data, buf.len), (ssize_t)buf.len);
    } while (r == 1);
    close(fd);
    sync_buf_free(&buf);
}

static void make_changes(void)
{
    put_ok("same", "same\n");
    put_ok("text", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    put_ok("gone", "gone\n");
    put_ok("tool", "#!/bin/sh\n");
    put_ok("no-newline", "x");
    put_ok("becomes-link", "file\n");
    put_ok("odd \xc3\xa9\t\"\\\n", "odd\n");
    shell("head -c 3000 /dev/urandom > %D/files/noise; mkdir %D/files/d; seq 1 1000 > "
          "%D/files/d/seq");
    free((char *)checkpoint("before"));
    put_ok("text", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n");
    ck_assert_int_eq(drop("gone", false), 0);
    ck_assert_int_eq(sync_store_set_exec(store, "tool", 4, true, &err), 0);
    put_ok("no-newline", "y");
    link_ok("becomes-link", "text");
    put_ok("odd \xc3\xa9\t\"\\\n", "odder\n");
    put_ok("empty", "");
    shell("head -c 3000 /dev/urandom > %D/files/noise; rm %D/files/d/seq; rmdir %D/files/d");
    put_ok("d", "now a file\n");
}

START_TEST(a_patch_is_what_git_says)
{
    struct sync_changes *c;

    make_changes();
    ck_assert_msg(sync_changes_open(store, "latest", NULL, &c, &err) == 0, "%s", err.msg);
    write_out(c, "patch", false);
    sync_changes_close(c);
    free((char *)checkpoint("after"));
    /* Two ways to hold the same noise differ, and lines that only people look at. */
    shell("cd %D && git --git-dir=store.git diff --no-renames --binary --full-index main~1 main | "
          "awk '/^diff /{skip=/noise|empty|odd/} !skip' > want && "
          "awk '/^diff /{skip=/noise|empty|odd/} !skip' patch > got && diff want got && "
          "test $(grep -c '^diff' got) = 8");
    shell("cd %D && mkdir w && git --git-dir=store.git --work-tree=w checkout -q -f main~1 -- . && "
          "cd w && git apply --unsafe-paths ../patch && diff -r --no-dereference . ../files && "
          "test -x tool");
}
END_TEST

START_TEST(changes_are_listed)
{
    char got[1024] = "";
    struct sync_changes *c;
    struct sync_change change;

    make_changes();
    ck_assert_int_eq(sync_changes_open(store, "latest", NULL, &c, &err), 0);
    for (size_t i = 0; i < sync_changes_count(c); i++) {
        sync_changes_get(c, i, &change);
        if (strcmp(change.path, "becomes-link") == 0 && change.kind != SYNC_DELETED)
            ck_assert_int_eq(change.type, SYNC_TYPE_LINK);
        if (strcmp(change.path, "tool") == 0)
            ck_assert(change.is_exec && !change.old_exec &&
                      memcmp(change.id, change.old_id, SYNC_ID_BYTES) == 0);
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s:%.*s ",
                 sync_change_name(change.kind), (int)strcspn(change.path, " "), change.path);
    }
    sync_changes_close(c);
    /* Git's order is by the bytes of the paths. */
    ck_assert_str_eq(got, "modified:becomes-link added:d deleted:d/seq added:empty deleted:gone "
                          "modified:no-newline modified:noise modified:odd modified:text "
                          "modified:tool ");
}
END_TEST

START_TEST(an_archive_holds_what_changed)
{
    struct sync_changes *c;

    make_changes();
    shell(
        "head -c 4000000 /dev/urandom > %D/files/big; head -c 40000000 /dev/zero > %D/files/zero");
    reopen();
    ck_assert_int_eq(sync_changes_open(store, "latest", NULL, &c, &err), 0);
    write_out(c, "x.zip", true);
    sync_changes_close(c);
    shell("cd %D && python3 - <<'END'\n"
          "import os, zipfile\n"
          "z = zipfile.ZipFile('x.zip')\n"
          "assert z.testzip() is None\n"
          "seen = {}\n"
          "for i in z.infolist():\n"
          "    mode = i.external_attr >> 16\n"
          "    seen[i.filename] = (mode, z.read(i))\n"
          "want = {}\n"
          "for name in os.listdir('files'):\n"
          "    if name == 'same': continue\n"
          "    p = 'files/' + name\n"
          "    st = os.lstat(p)\n"
          "    if os.path.islink(p): want[name] = (0o120777, os.readlink(p).encode())\n"
          "    else: want[name] = (0o100000 | (st.st_mode & 0o777), open(p, 'rb').read())\n"
          "assert seen == want, (sorted(seen), sorted(want))\n"
          "assert seen['tool'][0] == 0o100755\n"
          "END");
}
END_TEST

START_TEST(archives_of_many_or_large_entries_have_the_64_bit_forms)
{
    struct sync_buf buf = {0};
    struct sync_zip *zip;
    char path[128], name[32];
    int fd;

    ck_assert_int_eq(sync_zip_new(1700000000, &zip), 0);
    ck_assert_int_eq(sync_zip_begin(zip, &buf, "large", 0100644, UINT64_C(1) << 33), 0);
    ck_assert_int_eq(sync_zip_data(zip, &buf, "abc", 3), 0);
    ck_assert_int_eq(sync_zip_end(zip, &buf), 0);
    for (int i = 0; i < 70000; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        ck_assert_int_eq(sync_zip_begin(zip, &buf, name, 0100755, 0), 0);
        ck_assert_int_eq(sync_zip_end(zip, &buf), 0);
    }
    ck_assert_int_eq(sync_zip_finish(zip, &buf), 0);
    sync_zip_free(zip);
    snprintf(path, sizeof(path), "%s/x.zip", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, buf.data, buf.len), (ssize_t)buf.len);
    close(fd);
    sync_buf_free(&buf);
    shell("python3 - <<'END'\n"
          "import zipfile\n"
          "z = zipfile.ZipFile('%D/x.zip')\n"
          "assert len(z.infolist()) == 70001\n"
          "assert z.read('large') == b'abc' and z.getinfo('large').file_size == 3\n"
          "assert z.read('n69999') == b'' and z.getinfo('large').date_time[0] == 2023\n"
          "END");
}
END_TEST

static void add(Suite *s)
{
    TCase *paths = store_tcase(s, "paths", 30), *kept = store_tcase(s, "checkpoints", 60);
    TCase *changes = store_tcase(s, "changes", 60);

    tcase_add_test(paths, what_is_put_can_be_read_and_removed);
    tcase_add_test(paths, usage_is_the_same_when_it_is_counted_anew);
    tcase_add_test(paths, paths_that_no_store_holds_are_refused);
    tcase_add_test(paths, links_are_never_followed);
    tcase_add_test(paths, special_files_are_neither_opened_nor_kept);
    tcase_add_test(paths, conditions_hold_or_nothing_happens);
    tcase_add_test(paths, things_are_moved);
    tcase_add_test(paths, a_listing_goes_on_where_it_ended);
    tcase_add_test(paths, the_quota_refuses_and_recovers);
    tcase_add_test(kept, checkpoints_are_commits);
    tcase_add_test(kept, odd_names_and_modes_are_kept_and_come_back);
    tcase_add_test(kept, an_edit_that_keeps_size_and_time_is_seen);
    tcase_add_test(kept, empty_folders_are_in_no_checkpoint);
    tcase_add_test(kept, large_contents_pass_through);
    tcase_add_test(kept, a_restore_is_a_new_checkpoint);
    tcase_add_test(changes, a_patch_is_what_git_says);
    tcase_add_test(changes, changes_are_listed);
    tcase_add_test(changes, an_archive_holds_what_changed);
    tcase_add_test(changes, archives_of_many_or_large_entries_have_the_64_bit_forms);
}

int main(void)
{
    return store_main("sync/store", add);
}
