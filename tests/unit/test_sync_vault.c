/* SPDX-License-Identifier: MIT */
#include "sync/vault_git.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/store.h"

static char dir[] = "/tmp/test-vault-XXXXXX";
static struct sync_store *store;
static struct sync_vault_git *vault;
static struct err err;

static void setup(void)
{
    snprintf(dir + sizeof(dir) - 7, 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(sync_store_init(&err), 0);
    ck_assert_int_eq(sync_store_open(dir, 0, &store, &err), 0);
    ck_assert_int_eq(sync_vault_git_open(dir, &vault, &err), 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void teardown(void)
{
    sync_vault_git_close(vault);
    sync_store_close(store);
    sync_store_fini();
    ck_assert_int_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static struct sync_id put(const char *text)
{
    const size_t len = strlen(text), half = len / 2;
    struct sync_id id;

    sync_id_of(text, len, &id);
    ck_assert_int_eq(sync_vault_git_ops.put_start(vault, (int64_t)len, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_piece(vault, (const uint8_t *)text, half, &err), 0);
    ck_assert_int_eq(
        sync_vault_git_ops.put_piece(vault, (const uint8_t *)text + half, len - half, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_end(vault, &id, &err), 0);
    return id;
}

static void keep(const char *path, struct sync_id id, enum sync_what what)
{
    const struct sync_kept kept = {.path = path,
                                   .len = strlen(path),
                                   .side = SYNC_STORE,
                                   .why = SYNC_KEPT_OLDER,
                                   .value = {.what = (uint8_t)what, .id = id, .is_exec = true}};

    ck_assert_int_eq(sync_vault_git_ops.keep(vault, &kept, &err), 0);
}

START_TEST(a_content_comes_back)
{
    struct sync_id id, none = {{1}};
    char text[16] = "";
    int fd;

    id = put("content");
    ck_assert(sync_vault_git_ops.has(vault, &id));
    ck_assert(!sync_vault_git_ops.has(vault, &none));
    ck_assert(sync_store_has_blob(store, id.bytes));
    fd = sync_vault_git_ops.open(vault, &id, &err);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(read(fd, text, sizeof(text)), 7);
    ck_assert_str_eq(text, "content");
    close(fd);
    ck_assert_int_lt(sync_vault_git_ops.open(vault, &none, &err), 0);
    put("");
}
END_TEST

START_TEST(another_content_or_none_is_not_taken)
{
    struct sync_id id;

    sync_id_of("other", 5, &id);
    ck_assert_int_eq(sync_vault_git_ops.put_start(vault, 5, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_piece(vault, (const uint8_t *)"mine!", 5, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_end(vault, &id, &err), -EBADMSG);
    ck_assert(!sync_vault_git_ops.has(vault, &id));
    ck_assert_int_eq(sync_vault_git_ops.put_start(vault, 5, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_piece(vault, (const uint8_t *)"oth", 3, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.put_end(vault, NULL, &err), 0);
    ck_assert(!sync_vault_git_ops.has(vault, &id));
}
END_TEST

struct told {
    char text[1024], at[80];
    int n, most;
};

static int tell(const struct sync_kept_version *v, void *arg)
{
    struct told *told = arg;
    char line[200];

    if (told->n == told->most)
        return 1;
    told->n++;
    snprintf(line, sizeof(line), "%s %s %d%d %.4s %zu %s|", v->why, v->side, v->type, v->is_exec,
             v->id, v->len, v->path);
    strncat(told->text, line, sizeof(told->text) - strlen(told->text) - 1);
    snprintf(told->at, sizeof(told->at), "%s", v->at);
    return 0;
}

START_TEST(what_is_kept_is_told_and_comes_back)
{
    struct told told = {.most = 100}, page = {.most = 1};
    struct sync_checkpoint found;
    struct sync_id a, b;
    char hex[41], got[8] = "", id[41], *at = NULL;
    int fd;

    ck_assert_int_eq(sync_store_kept(store, NULL, tell, &told, &err), 0);
    ck_assert_int_eq(told.n, 0);
    a = put("aaa");
    b = put("bbb");
    keep("src/\xff\n\\x", a, SYNC_IS_FILE);
    keep("link", b, SYNC_IS_LINK);
    ck_assert_int_eq(sync_vault_git_ops.settle(vault, &err), 0);
    keep("later on", b, SYNC_IS_FILE);
    ck_assert_int_eq(sync_vault_git_ops.settle(vault, &err), 0);
    ck_assert_int_eq(sync_store_kept(store, NULL, tell, &told, &err), 0);
    ck_assert_str_eq(told.text,
                     "older store 01 01f0 8 later on|older store 01 7c4a 8 src/\xff\n\\x|"
                     "older store 20 01f0 4 link|");
    while (sync_store_kept(store, at, tell, &page, &err) == 1) { /* one by one */
        at = page.at;
        page.most++;
    }
    ck_assert_str_eq(page.text, told.text);
    ck_assert_int_eq(sync_store_kept(store, "x", tell, &page, &err), -EINVAL);
    sync_id_hex(&a, hex);
    fd = sync_store_open_blob(store, hex, &err);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, got, sizeof(got), 0), 3);
    ck_assert_str_eq(got, "aaa");
    close(fd);
    memcpy(id, told.at, 40); /* its commit is no checkpoint, nor a content */
    id[40] = '\0';
    ck_assert_int_eq(sync_store_find(store, id, &found, &err), -ENOENT);
    ck_assert_int_eq(sync_store_open_blob(store, id, &err), -ENOENT);
    ck_assert_int_eq(sync_store_open_blob(store, "../x", &err), -EINVAL);
}
END_TEST

START_TEST(what_is_kept_is_reachable)
{
    git_repository *repo;
    git_commit *commit;
    git_tree *tree;
    struct sync_checkpoint head;
    char path[64], name[GIT_OID_HEXSZ + 1];
    struct sync_id a = put("a"), b = put("b");
    git_oid id;

    keep("src/\xff\n", a, SYNC_IS_FILE);
    keep("link", b, SYNC_IS_LINK);
    keep("twice", a, SYNC_IS_FILE);
    ck_assert_int_eq(sync_vault_git_ops.settle(vault, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.settle(vault, &err), 0); /* nothing more */
    keep("link", put("c"), SYNC_IS_LINK);
    ck_assert_int_eq(sync_vault_git_ops.settle(vault, &err), 0);
    snprintf(path, sizeof(path), "%s/store.git", dir);
    ck_assert_int_eq(git_repository_open_bare(&repo, path), 0);
    ck_assert_int_eq(git_reference_name_to_id(&id, repo, SYNC_KEPT_REF), 0);
    ck_assert_int_eq(git_commit_lookup(&commit, repo, &id), 0);
    ck_assert_int_eq(git_commit_parentcount(commit), 1);
    id = *git_commit_parent_id(commit, 0);
    git_commit_free(commit);
    ck_assert_int_eq(git_commit_lookup(&commit, repo, &id), 0);
    ck_assert_int_eq(git_commit_parentcount(commit), 0);
    ck_assert_ptr_nonnull(strstr(git_commit_message(commit), "older store 100755 "));
    ck_assert_ptr_nonnull(strstr(git_commit_message(commit), " src/\\xff\\x0a\n"));
    ck_assert_ptr_nonnull(strstr(git_commit_message(commit), "older store 120000 "));
    ck_assert_int_eq(git_commit_tree(&tree, commit), 0);
    ck_assert_uint_eq(git_tree_entrycount(tree), 2);
    sync_id_hex(&a, name);
    ck_assert_ptr_nonnull(git_tree_entry_byname(tree, name));
    git_tree_free(tree);
    git_commit_free(commit);
    git_repository_free(repo);
    ck_assert_int_eq(sync_store_find(store, "latest", &head, &err), 0); /* another line */
    ck_assert_int_eq(head.cause, SYNC_CAUSE_CREATED);
}
END_TEST

START_TEST(room_is_what_was_told)
{
    ck_assert_int_eq(sync_vault_git_ops.room(vault, INT64_C(1) << 40, &err), 0);
    sync_vault_git_set_room(vault, 10);
    ck_assert_int_eq(sync_vault_git_ops.room(vault, 8, &err), 0);
    ck_assert_int_eq(sync_vault_git_ops.room(vault, 8, &err), -EDQUOT);
    ck_assert_int_eq(sync_vault_git_ops.room(vault, 2, &err), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/vault");
    TCase *tc = tcase_create("git");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_content_comes_back);
    tcase_add_test(tc, another_content_or_none_is_not_taken);
    tcase_add_test(tc, what_is_kept_is_told_and_comes_back);
    tcase_add_test(tc, what_is_kept_is_reachable);
    tcase_add_test(tc, room_is_what_was_told);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
