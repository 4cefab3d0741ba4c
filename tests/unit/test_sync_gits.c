/* SPDX-License-Identifier: MIT */
/* A .git folder as a stream and back, and in a store, with git itself as the judge. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store_fixture.h"
#include "sync/gitdir.h"
#include "sync/store_gits.h"

#define GIT "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main "

static int open_at(const char *name)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

struct bytes {
    char *at;
    size_t len;
};

static int pack(int fd, struct bytes *out)
{
    struct sync_gitdir_pack *p;
    static char buf[9000]; /* small: many pieces */
    int64_t n;
    int r = sync_gitdir_pack_new(fd, &p);

    *out = (struct bytes){0};
    if (r != 0)
        return r;
    while ((n = sync_gitdir_pack_next(p, buf, sizeof(buf))) > 0) {
        out->at = realloc(out->at, out->len + (size_t)n);
        memcpy(out->at + out->len, buf, (size_t)n);
        out->len += (size_t)n;
    }
    sync_gitdir_pack_free(p);
    return (int)n;
}

static int unpack(int to, int stage, const char *bytes, size_t len, size_t step)
{
    struct sync_gitdir_unpack *u;
    int r = sync_gitdir_unpack_new(to, stage, &u);

    if (r != 0)
        return r;
    for (size_t at = 0; at < len && r == 0; at += step)
        r = sync_gitdir_unpack_feed(u, bytes + at, len - at < step ? len - at : step);
    if (r == 0)
        r = sync_gitdir_unpack_end(u);
    sync_gitdir_unpack_free(u);
    return r;
}

static void make_repository(void)
{
    shell("mkdir %D/w %D/v %D/stage && cd %D/w && " GIT "init -q && echo 1 > a && " GIT
          "add a && " GIT "commit -q -m one && ln -s ../HEAD .git/refs/link && " GIT
          "gc -q && echo 2 > b && " GIT "add b && " GIT "commit -q -m two && touch "
          ".git/index.lock .git/objects/tmp_obj_1 && mkfifo .git/pipe && cp a b %D/v");
}

START_TEST(it_goes_there_and_back)
{
    struct sync_gitdir_look before, after;
    struct bytes all;
    int from, to, stage;

    make_repository();
    from = open_at("w");
    to = open_at("v");
    stage = open_at("stage");
    ck_assert_int_eq(sync_gitdir_look(from, &before), 0);
    ck_assert(before.found);
    ck_assert_int_eq(pack(from, &all), 0);
    ck_assert_int_eq(before.bytes, (int64_t)all.len);
    ck_assert_int_eq(unpack(to, stage, all.at, all.len, 777), 0);
    ck_assert_str_eq(shell("cd %D/v && git log --format=%s && git status --porcelain && "
                           "git fsck --no-progress && readlink .git/refs/link && "
                           "ls .git/index.lock .git/pipe .git/objects/tmp_obj_1 2>/dev/null;"
                           "ls %D/stage"),
                     "two\none\n../HEAD\n");
    ck_assert_int_eq(unpack(to, stage, all.at, all.len, 777), -EEXIST);
    ck_assert_int_eq(sync_gitdir_look(from, &after), 0);
    ck_assert(sync_id_equal(&before.print, &after.print));
    shell("rm %D/w/.git/index.lock && cd %D/w && " GIT "branch x");
    ck_assert_int_eq(sync_gitdir_look(from, &after), 0);
    ck_assert(!sync_id_equal(&before.print, &after.print));
    free(all.at);
    close(from);
    close(to);
    close(stage);
}
END_TEST

START_TEST(what_changes_meanwhile_is_not_taken)
{
    struct sync_gitdir_pack *p;
    static char buf[9000];
    int64_t n;
    int from;

    make_repository();
    from = open_at("w");
    ck_assert_int_eq(sync_gitdir_pack_new(from, &p), 0);
    ck_assert_int_gt(sync_gitdir_pack_next(p, buf, sizeof(buf)), 0);
    shell("cd %D/w && " GIT "branch x");
    while ((n = sync_gitdir_pack_next(p, buf, sizeof(buf))) > 0)
        ;
    ck_assert_int_eq(n, -ESTALE);
    sync_gitdir_pack_free(p);
    close(from);
}
END_TEST

START_TEST(a_file_called_so_goes_too)
{
    struct bytes all;
    int from, to, stage;

    shell("mkdir %D/w %D/v %D/stage && echo gitdir: ../x > %D/w/.git");
    from = open_at("w");
    to = open_at("v");
    stage = open_at("stage");
    ck_assert_int_eq(pack(to, &all), -ENOENT);
    ck_assert_int_eq(pack(from, &all), 0);
    ck_assert_int_eq(unpack(to, stage, all.at, all.len, 1), 0);
    ck_assert_str_eq(shell("cat %D/v/.git"), "gitdir: ../x\n");
    free(all.at);
    close(from);
    close(to);
    close(stage);
}
END_TEST

/* A record of a stream. */
static size_t record(char *out, int kind, const char *path, const char *content)
{

    memset(out, 0, SYNC_GITDIR_HEAD);
    out[0] = (char)kind;
    out[2] = (char)strlen(path);
    out[4] = (char)0755;
    out[5] = 1;
    out[16] = (char)strlen(content);
    return SYNC_GITDIR_HEAD + (size_t)sprintf(out + SYNC_GITDIR_HEAD, "%s%s", path, content);
}

START_TEST(forged_streams_put_nothing_anywhere)
{
    static const struct {
        int kind;
        const char *path, *content;
    } bad[] = {
        {SYNC_GITDIR_FILE, "../x", "1"},
        {SYNC_GITDIR_FILE, "/tmp/x", "1"},
        {SYNC_GITDIR_FILE, "a/../../x", "1"},
        {SYNC_GITDIR_FILE, "no/x", "1"},
        {SYNC_GITDIR_FILE, "link/x", "1"},
        {SYNC_GITDIR_DIR, "link/x", ""},
        {SYNC_GITDIR_FILE, "link", "1"},
        {SYNC_GITDIR_LINK, "x", ""},
        {SYNC_GITDIR_FILE, "", "1"},
        {SYNC_GITDIR_DIR, "x", "1"},
        {SYNC_GITDIR_FILE, "a//x", "1"},
        {SYNC_GITDIR_FILE, "./x", "1"},
        {9, "x", ""},
        {0, "x", ""},
    };
    int to, stage;

    shell("mkdir %D/v %D/stage %D/out");
    to = open_at("v");
    stage = open_at("stage");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char bytes[1024] = {'T', 'R', 'G', 'I', 'T', 0, 0, 1};
        size_t n = SYNC_GITDIR_MAGIC;

        n += record(bytes + n, SYNC_GITDIR_DIR, "", "");
        n += record(bytes + n, SYNC_GITDIR_LINK, "link", "../../out");
        n += record(bytes + n, bad[i].kind, bad[i].path, bad[i].content);
        n += record(bytes + n, SYNC_GITDIR_END, "", "");
        ck_assert_int_eq(unpack(to, stage, bytes, n, 5), -EBADMSG);
        ck_assert_str_eq(shell("ls -A %D/v %D/stage %D/out; ls %D/x 2>/dev/null; true"),
                         shell("echo %D/out:; echo; echo %D/stage:; echo; echo %D/v:"));
    }
    close(to);
    close(stage);
}
END_TEST

START_TEST(a_cut_stream_puts_nothing)
{
    struct bytes all;
    int from, to, stage;

    make_repository();
    from = open_at("w");
    to = open_at("v");
    stage = open_at("stage");
    ck_assert_int_eq(pack(from, &all), 0);
    for (size_t len = 0; len < all.len; len += all.len / 37)
        ck_assert_int_eq(unpack(to, stage, all.at, len, 4096), -EBADMSG);
    all.at = realloc(all.at, all.len + 1);
    all.at[all.len] = 'x';
    ck_assert_int_eq(unpack(to, stage, all.at, all.len + 1, 4096), -EBADMSG);
    ck_assert_str_eq(shell("ls -A %D/stage; ls -A %D/v"), "a\nb\n");
    free(all.at);
    close(from);
    close(to);
    close(stage);
}
END_TEST

/* ---- in the store ---- */

static void keep(const char *path, const char *bytes, size_t len)
{
    struct sync_git_writer *w;

    ck_assert_int_eq(sync_git_writer_new(store, &w, &err), 0);
    for (size_t at = 0; at < len; at += 10000)
        ck_assert_int_eq(
            sync_git_writer_add(w, bytes + at, len - at < 10000 ? len - at : 10000, &err), 0);
    ck_assert_int_eq(sync_git_writer_end(w, path, strlen(path), &err), 0);
    sync_git_writer_free(w);
}

static char *kept(const char *path, size_t *len)
{
    struct sync_git_reader *r;
    const void *piece;
    char *out = NULL;
    int64_t n;

    *len = 0;
    if (sync_git_reader_open(store, path, strlen(path), &r, &err) != 0)
        return NULL;
    while ((n = sync_git_reader_next(r, &piece, &err)) > 0) {
        out = realloc(out, *len + (size_t)n);
        memcpy(out + *len, piece, (size_t)n);
        *len += (size_t)n;
    }
    ck_assert_int_eq(n, 0);
    sync_git_reader_close(r);
    return out;
}

static int name_it(const struct sync_git *git, void *arg)
{
    char *text = arg;

    sprintf(text + strlen(text), "%s:%lld ", git->path, (long long)git->bytes);
    return 0;
}

static const char *gits(void)
{
    static char text[1024];

    text[0] = '\0';
    ck_assert_int_eq(sync_store_gits(store, name_it, text, &err), 0);
    return text;
}

static bool is_kept(const char *path, const char *bytes, size_t len)
{
    size_t n;
    char *got = kept(path, &n);
    bool is = got != NULL && n == len && memcmp(got, bytes, len) == 0;

    free(got);
    return is;
}

START_TEST(a_checkpoint_has_its_own)
{
    const char *one, *two;
    struct sync_checkpoint made;

    put_ok("a/x", "1");
    keep("a", "first", 5);
    one = checkpoint("one");
    keep("a", "second", 6);
    keep("", "home", 4);
    two = checkpoint("two"); /* nothing else has changed */
    ck_assert_str_ne(one, two);
    ck_assert_int_eq(sync_store_checkpoint(store, "again", SYNC_CAUSE_API, "me", &made, NULL, &err),
                     1);
    ck_assert_str_eq(made.id, two);
    reopen();
    ck_assert(is_kept("a", "second", 6));
    ck_assert(is_kept("", "home", 4));
    put_ok("a/x", "2");
    ck_assert_int_eq(sync_store_git_drop(store, "a", 1, &err), 0);
    ck_assert_int_eq(sync_store_git_drop(store, "a", 1, &err), 0);
    free((char *)checkpoint("three"));
    ck_assert_str_eq(gits(), ":4 ");
    ck_assert_int_eq(sync_store_restore(store, two, "a", 1, "me", &made, &err), 0);
    ck_assert_str_eq(get("a/x"), "1");
    ck_assert(is_kept("a", "second", 6));
    ck_assert_int_eq(sync_store_restore(store, one, "", 0, "me", &made, &err), 0);
    ck_assert_str_eq(gits(), "a:5 ");
    ck_assert_int_eq(sync_store_restore(store, one, "", 0, "me", &made, &err), 1);
    reopen();
    ck_assert(is_kept("a", "first", 5));
    ck_assert_int_eq(sync_store_restore(store, "first", "", 0, "me", &made, &err), 0);
    ck_assert_str_eq(gits(), "");
    reopen();
    ck_assert_str_eq(gits(), "");
    ck_assert_str_eq(list("", true, NULL), "");
    fsck();
    free((char *)one);
    free((char *)two);
}
END_TEST

START_TEST(a_message_names_none)
{
    struct sync_checkpoint made;

    put_ok("x", "1");
    keep("", "home", 4);
    free((char *)checkpoint("one"));
    ck_assert_int_eq(sync_store_git_drop(store, "", 0, &err), 0);
    put_ok("x", "2");
    ck_assert_int_eq(
        sync_store_checkpoint(store, "m\n\nTransom-Git: 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
                              SYNC_CAUSE_API, "me", &made, NULL, &err),
        0);
    ck_assert_str_eq(made.message, "m\n\nTransom-Git: 4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    reopen();
    ck_assert_str_eq(gits(), "");
    keep("", "home", 4);
    ck_assert_int_eq(sync_store_checkpoint(store, "n", SYNC_CAUSE_RUN, "me", &made, NULL, &err), 0);
    ck_assert_str_eq(made.message, "n");
    ck_assert_int_eq(made.cause, SYNC_CAUSE_RUN);
}
END_TEST

START_TEST(what_did_not_change_takes_no_room)
{
    struct sync_usage before, after;
    size_t len = 3 * 1024 * 1024;
    char *bytes = malloc(len);
    uint64_t x = 1;

    for (size_t i = 0; i < len; i++) { /* noise */
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        bytes[i] = (char)(x >> 56);
    }
    keep("a", bytes, len);
    free((char *)checkpoint("one"));
    ck_assert(is_kept("a", bytes, len));
    reopen();
    sync_store_usage(store, &before);
    memmove(bytes + 1000, bytes, len - 1000); /* all of it is elsewhere now */
    keep("a", bytes, len);
    free((char *)checkpoint("two"));
    ck_assert(is_kept("a", bytes, len));
    reopen();
    sync_store_usage(store, &after);
    ck_assert_int_lt(after.history - before.history, 800 * 1024);
    free(bytes);
}
END_TEST

START_TEST(the_quota_holds)
{
    struct sync_git_writer *w;
    char *bytes = malloc(2 * 1024 * 1024);
    uint64_t x = 1;
    int r = 0;

    for (size_t i = 0; i < 2 * 1024 * 1024; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        bytes[i] = (char)(x >> 56);
    }
    sync_store_close(store);
    store = NULL;
    open_store(1024 * 1024);
    ck_assert_int_eq(sync_git_writer_new(store, &w, &err), 0);
    for (size_t at = 0; at < 2 * 1024 * 1024 && r == 0; at += 65536)
        r = sync_git_writer_add(w, bytes + at, 65536, &err);
    ck_assert_int_eq(r, -EDQUOT);
    sync_git_writer_free(w);
    ck_assert_str_eq(gits(), "");
    free(bytes);
}
END_TEST

/* The same bytes over and over take no room, and yet they end. */
START_TEST(the_limit_is_kept_without_a_quota)
{
    static const char zeros[65536];
    struct sync_git_writer *w;
    int r = 0, n = 0;

    ck_assert_int_eq(sync_git_writer_new(store, &w, &err), 0);
    sync_git_writer_limit(w, 4 * 1024 * 1024);
    while (r == 0 && n < 1000) {
        r = sync_git_writer_add(w, zeros, sizeof(zeros), &err);
        n++;
    }
    ck_assert_int_eq(r, -EFBIG);
    ck_assert_int_eq(n, 65);
    sync_git_writer_free(w);
    ck_assert_str_eq(gits(), "");
}
END_TEST

/* Whoever clones the session gets files, and nothing else. */
START_TEST(a_clone_has_none_of_it)
{
    put_ok("a/x", "1");
    keep("a", "first", 5);
    free((char *)checkpoint("one"));
    ck_assert_str_eq(shell("git clone -q --no-local %D/store.git %D/c 2>&1 && cd %D/c && "
                           "git ls-files && git rev-list --objects --all | wc -l"),
                     "a/x\n6\n");
}
END_TEST

static void add(Suite *s)
{
    TCase *tc = store_tcase(s, "gits", 60);

    tcase_add_test(tc, it_goes_there_and_back);
    tcase_add_test(tc, what_changes_meanwhile_is_not_taken);
    tcase_add_test(tc, a_file_called_so_goes_too);
    tcase_add_test(tc, forged_streams_put_nothing_anywhere);
    tcase_add_test(tc, a_cut_stream_puts_nothing);
    tcase_add_test(tc, a_checkpoint_has_its_own);
    tcase_add_test(tc, a_message_names_none);
    tcase_add_test(tc, what_did_not_change_takes_no_room);
    tcase_add_test(tc, the_quota_holds);
    tcase_add_test(tc, the_limit_is_kept_without_a_quota);
    tcase_add_test(tc, a_clone_has_none_of_it);
}

int main(void)
{
    return store_main("sync/gits", add);
}
