/* SPDX-License-Identifier: MIT */
#include "sync/filter.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sync/path.h"

static struct sync_ignore *ignore;
static struct sync_filter filter;
static const char
    *others; /* what stands in the guest: paths, each with a blank before and behind */

static bool has(const char *dir, size_t len, const char *name, void *arg)
{
    char path[512];

    (void)arg;
    snprintf(path, sizeof(path), " %.*s%s%s ", (int)len, dir, len > 0 ? "/" : "", name);
    return strstr(others, path) != NULL;
}

static void setup(void)
{
    ck_assert_int_eq(sync_ignore_new(&ignore), 0);
    filter = (struct sync_filter){.ignore = ignore, .has = has};
    others = "";
}

static void teardown(void)
{
    sync_ignore_free(ignore);
}

static void rules(enum sync_ignore_level level, const char *dir, const char *text)
{
    ck_assert_int_eq(sync_ignore_set(ignore, level, dir, strlen(dir), text, strlen(text), NULL), 0);
}

/* The reason's name. A "/" at the end of the path: a folder. */
static const char *why_held(const char *path, int64_t size, bool is_held)
{
    size_t len = strlen(path);
    struct sync_entry e = {.path = path, .len = len, .size = size, .is_held = is_held};

    if (len > 0 && path[len - 1] == '/') {
        e.type = SYNC_TYPE_DIR;
        e.len--;
    }
    return sync_why_name(sync_filter_path(&filter, &e, NULL));
}

static const char *why(const char *path)
{
    return why_held(path, 100, false);
}

static const struct {
    const char *path, *why;
} names[] = {
    {"main.py", "taken"},
    {"-rf.py", "taken"},
    {" lead.py", "taken"},
    {"bad\xff.py", "taken"},
    {"nl\nx.py", "taken"},
    {"back\\slash.py", "taken"},
    {".env.example", "taken"},
    {".bashrc", "taken"},
    {".gitignore", "taken"},
    {".ssh/", "private"},
    {".ssh/id_ed25519", "private"},
    {".sshx", "taken"},
    {"proj/.ssh/config", "taken"}, /* a project's own folder of that name */
    {".config/", "private"},
    {"proj/.config/x", "taken"},
    {".npmrc", "private"},
    {"proj/.npmrc", "taken"},
    {".netrc", "private"},
    {".git-credentials", "private"},
    {".bash_history", "private"},
    {".python_history", "private"},
    {"x/.bash_history", "taken"},
    {".cache/x", "private"},
    {".local/share/x", "private"},
    {".vscode-server-insiders/x", "private"},
    {".claude/settings.json", "taken"},
    {".claude/.credentials.json", "private"},
    {".cargo/config.toml", "taken"},
    {".cargo/registry/x", "private"},
    {"go/src/x.go", "taken"},
    {"go/pkg/mod/x.go", "dependency"},
    {"proj/.git/", "git"},
    {"proj/.git/config", "git"},
    {"proj/.git", "git"}, /* a worktree's file */
    {"proj/.github/x.yml", "taken"},
    {"a/node_modules/", "dependency"},
    {"a/node_modules/b/c.js", "dependency"},
    {"a/node_modules", "taken"}, /* a file or link, no folder */
    {"Node_Modules/", "taken"},
    {"user_venv/x.py", "dependency"},
    {".venv/x.py", "dependency"},
    {"a/target/x.rs", "build"},
    {"src/target.c", "taken"},
    {"__pycache__/x.pyc", "cache"},
    {".tox/x", "cache"},
    {".pytest_cache/x", "cache"},
    {".mypy_cache/x", "cache"},
    {".gradle/x", "cache"},
    {"x.egg-info/PKG-INFO", "build"},
    {"app.log", "log"},
    {"app.log.1", "log"},
    {"app.logic", "taken"},
    {"npm-debug.log", "log"},
    {"catalog", "taken"},
    {"x.log/", "taken"}, /* a folder */
    {"", "bad-path"},
    {"/etc/passwd", "bad-path"},
    {"../x", "bad-path"},
    {"a/../x", "bad-path"},
    {"a/./x", "bad-path"},
    {"a//x", "bad-path"},
    {".", "bad-path"},
    {"a/..", "bad-path"},
    {"..a/...", "taken"},
};

START_TEST(names_of_the_table)
{
    ck_assert_msg(strcmp(why(names[_i].path), names[_i].why) == 0, "%s: %s", names[_i].path,
                  why(names[_i].path));
}
END_TEST

START_TEST(common_words_count_only_beside_what_builds_them)
{
    static const char *const dirs[] = {"a/build/x", "a/dist/x", "a/vendor/x", "a/out/x"};

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        ck_assert_str_eq(why(dirs[i]), "taken");
    others = " a/package.json  a/composer.json ";
    ck_assert_str_eq(why("a/build/x"), "build");
    ck_assert_str_eq(why("a/dist/x"), "build");
    ck_assert_str_eq(why("a/vendor/x"), "dependency");
    ck_assert_str_eq(why("b/build/x"), "taken");
    ck_assert_str_eq(why("build/x"), "taken");
    others = " Makefile ";
    ck_assert_str_eq(why("build/x"), "build");
    others = " my-python/pyvenv.cfg  c/CACHEDIR.TAG ";
    ck_assert_str_eq(why("my-python/bin/x"), "dependency");
    ck_assert_str_eq(why("c/x"), "cache");
    filter.has = NULL;
    ck_assert_str_eq(why("c/x"), "taken");
}
END_TEST

START_TEST(transomignore_lifts_the_table_but_nothing_private)
{
    rules(SYNC_IGNORE_TRANSOM, "", "!target/\n!/.ssh\n!.git\n!keep.log\n");
    ck_assert_str_eq(why("target/x"), "taken");
    ck_assert_str_eq(why("keep.log"), "taken");
    ck_assert_str_eq(why("other.log"), "log");
    ck_assert_str_eq(why("target/node_modules/x"), "dependency");
    ck_assert_str_eq(why(".ssh/x"), "private");
    ck_assert_str_eq(why("a/.git/x"), "git");
    rules(SYNC_IGNORE_GIT, "", "!node_modules/\n"); /* Git's rules say nothing about the table */
    ck_assert_str_eq(why("node_modules/x"), "dependency");
}
END_TEST

START_TEST(rules_are_asked)
{
    rules(SYNC_IGNORE_GIT, "", "data/\n.gitignore\n");
    ck_assert_str_eq(why("data/a.csv"), "ignored");
    ck_assert_str_eq(why_held("data/a.csv", 1, true), "ignored"); /* newly ignored: stops */
    ck_assert_str_eq(why(".gitignore"), "ignored");
    rules(SYNC_IGNORE_TRANSOM, "", "!data/\n");
    ck_assert_str_eq(why("data/a.csv"), "taken");
    filter.ignore = NULL;
    ck_assert_str_eq(why("data/a.csv"), "taken");
}
END_TEST

START_TEST(what_the_store_holds_goes_on)
{
    struct sync_entry e = {.path = "a", .len = 1};

    ck_assert_str_eq(why_held("x.json", SYNC_SIZE_LIMIT, false), "taken");
    ck_assert_str_eq(why_held("x.json", SYNC_SIZE_LIMIT + 1, false), "too-big");
    ck_assert_str_eq(why_held("x.json", SYNC_SIZE_LIMIT + 1, true), "taken");
    ck_assert_str_eq(why_held("d/", SYNC_SIZE_LIMIT + 1, false), "taken");
    filter.size_limit = 10;
    ck_assert_str_eq(why_held("x.json", 11, false), "too-big");
    ck_assert_str_eq(why_held("x.log", 1, true), "taken");
    ck_assert_str_eq(why_held("target/x", 1, true), "build");
    ck_assert_str_eq(why_held(".ssh/x", 1, true), "private");
    ck_assert_int_eq(sync_filter_kind(&e, SYNC_KIND_BINARY), SYNC_WHY_BINARY);
    ck_assert_int_eq(sync_filter_kind(&e, SYNC_KIND_MISMATCH), SYNC_WHY_MISMATCH);
    ck_assert_int_eq(sync_filter_kind(&e, SYNC_KIND_PDF), SYNC_TAKEN);
    e.is_held = true;
    ck_assert_int_eq(sync_filter_kind(&e, SYNC_KIND_BINARY), SYNC_TAKEN);
    e.type = SYNC_TYPE_SPECIAL;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_WHY_SPECIAL);
    ck_assert_int_eq(sync_filter_last(&filter, &e), SYNC_WHY_SPECIAL);
}
END_TEST

START_TEST(paths_have_limits)
{
    static char path[8192];
    struct sync_entry e = {.path = path};
    size_t at;

    memset(path, 'n', SYNC_NAME_MAX);
    ck_assert_str_eq(why(path), "taken");
    path[SYNC_NAME_MAX] = 'n';
    ck_assert_str_eq(why(path), "long-name");
    for (int i = 0; i <= SYNC_DEPTH_MAX; i++) /* one too many */
        snprintf(path + i * 2, 3, "d/");
    e.len = SYNC_DEPTH_MAX * 2 + 1;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_WHY_DEEP);
    e.len -= 2;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_TAKEN);
    for (size_t i = 0; i + 1 < sizeof(path); i++)
        path[i] = i % 100 == 99 ? '/' : 'd';
    e.len = SYNC_PATH_MAX;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_TAKEN);
    e.len++;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_WHY_LONG_NAME);
    e.path = "a\0b";
    e.len = 3;
    ck_assert_int_eq(sync_filter_path(&filter, &e, NULL), SYNC_WHY_BAD_PATH);
    e.path = "a/node_modules/b";
    e.len = strlen(e.path);
    ck_assert_int_eq(sync_filter_path(&filter, &e, &at), SYNC_WHY_DEPENDENCY);
    ck_assert_uint_eq(at, strlen("a/node_modules"));
    ck_assert_int_eq(sync_filter_last(&filter, &e), SYNC_TAKEN); /* above is the caller's word */
}
END_TEST

START_TEST(every_reason_has_words)
{
    for (int i = 0; i < SYNC_N_WHY; i++) {
        ck_assert_ptr_nonnull(sync_why_name((enum sync_why)i));
        ck_assert_ptr_nonnull(sync_why_text((enum sync_why)i));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/filter");
    TCase *tc = tcase_create("filter");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, names_of_the_table, 0, sizeof(names) / sizeof(names[0]));
    tcase_add_test(tc, common_words_count_only_beside_what_builds_them);
    tcase_add_test(tc, transomignore_lifts_the_table_but_nothing_private);
    tcase_add_test(tc, rules_are_asked);
    tcase_add_test(tc, what_the_store_holds_goes_on);
    tcase_add_test(tc, paths_have_limits);
    tcase_add_test(tc, every_reason_has_words);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
