/* SPDX-License-Identifier: MIT */
#include "vmm/auth.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/file.h"

static char dir[64];
static struct vmm_auth *auth;

static void open_again(void)
{
    struct err err = {0};

    vmm_auth_free(auth);
    auth = NULL;
    ck_assert_int_eq(vmm_auth_open(dir, &auth, &err), 0);
}

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/transom-auth-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    auth = NULL;
    open_again();
}

static void teardown(void)
{
    struct err err = {0};

    vmm_auth_free(auth);
    ck_assert_int_eq(vmm_file_remove_tree(dir, &err), 0);
}

static json_t *create(const char *owner, enum vmm_scope scope)
{
    struct err err = {0};
    json_t *key;

    ck_assert_int_eq(vmm_auth_create(auth, owner, "name", scope, &key, &err), 0);
    return key;
}

static const char *get(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

START_TEST(key_is_known_and_survives_a_restart)
{
    json_t *key = create("alice", VMM_SCOPE_READ);
    struct vmm_identity who;

    ck_assert_int_eq(strlen(get(key, "key")), strlen("transom_") + 40);
    for (int i = 0; i < 2; i++) {
        memset(&who, 0, sizeof(who));
        ck_assert_int_eq(vmm_auth_check(auth, get(key, "key"), &who), 0);
        ck_assert_str_eq(who.owner, "alice");
        ck_assert_int_eq(who.scope, VMM_SCOPE_READ);
        open_again();
    }
    json_decref(key);
}
END_TEST

START_TEST(unknown_keys_are_refused)
{
    json_t *key = create("alice", VMM_SCOPE_ADMIN);
    struct vmm_identity who = {.owner = "untouched"};
    char wrong[80], *huge = calloc(1, 100001);

    snprintf(wrong, sizeof(wrong), "%s", get(key, "key"));
    wrong[20] = wrong[20] == '0' ? '1' : '0';
    memset(huge, 'a', 100000);
    ck_assert_int_eq(vmm_auth_check(auth, wrong, &who), -EACCES);
    wrong[20] = '\0';
    ck_assert_int_eq(vmm_auth_check(auth, wrong, &who), -EACCES);
    ck_assert_int_eq(vmm_auth_check(auth, "", &who), -EACCES);
    ck_assert_int_eq(vmm_auth_check(auth, huge, &who), -EACCES);
    ck_assert_str_eq(who.owner, "untouched");
    free(huge);
    json_decref(key);
}
END_TEST

START_TEST(key_itself_is_nowhere_on_disk)
{
    json_t *key = create("alice", VMM_SCOPE_SESSION);
    DIR *d = opendir(dir);
    struct dirent *entry;
    int n = 0;

    while ((entry = readdir(d)) != NULL) {
        char path[512], *text;
        struct err err = {0};
        struct stat st;
        size_t len;

        if (entry->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        ck_assert_ptr_null(strstr(path, get(key, "key") + 8));
        ck_assert_int_eq(vmm_file_read(path, 4096, &text, &len, &err), 0);
        ck_assert_ptr_null(strstr(text, get(key, "key") + 8));
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_uint_eq(st.st_mode & 0777, 0600);
        free(text);
    }
    closedir(d);
    ck_assert_int_eq(n, 1);
    json_decref(key);
}
END_TEST

START_TEST(deleted_key_is_refused_also_after_a_restart)
{
    json_t *one = create("alice", VMM_SCOPE_SESSION), *two = create("bob", VMM_SCOPE_SESSION);
    struct vmm_identity who;
    struct err err = {0};
    json_t *left;

    ck_assert_int_eq(vmm_auth_delete(auth, get(one, "id"), &err), 0);
    ck_assert_int_eq(vmm_auth_delete(auth, get(one, "id"), &err), -ENOENT);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(vmm_auth_check(auth, get(one, "key"), &who), -EACCES);
        ck_assert_int_eq(vmm_auth_check(auth, get(two, "key"), &who), 0);
        open_again();
    }
    ck_assert_ptr_null(vmm_auth_keys(auth)->next);
    left = vmm_key_view(vmm_auth_keys(auth));
    ck_assert_str_eq(get(left, "owner"), "bob");
    ck_assert_ptr_null(json_object_get(left, "key"));
    json_decref(left);
    json_decref(one);
    json_decref(two);
}
END_TEST

START_TEST(records_are_found_one_by_one)
{
    json_t *one = create("alice", VMM_SCOPE_READ), *two = create("bob", VMM_SCOPE_ADMIN);
    const struct vmm_key *k = vmm_auth_by_id(auth, get(one, "id"));
    struct err err = {0};
    size_t n = 0;

    ck_assert_ptr_nonnull(k);
    ck_assert_str_eq(k->owner, "alice");
    ck_assert_str_eq(vmm_scope_name(k->scope), "read");
    ck_assert_ptr_eq(vmm_auth_by_hash(auth, k->hash), k);
    for (const struct vmm_key *it = vmm_auth_keys(auth); it != NULL; it = it->next)
        n++;
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(vmm_auth_n_keys(auth), 2);
    ck_assert_int_eq(vmm_auth_delete(auth, get(one, "id"), &err), 0);
    ck_assert_ptr_null(vmm_auth_by_id(auth, get(one, "id")));
    ck_assert_ptr_null(vmm_auth_by_hash(auth, get(one, "key"))); /* no key is a hash */
    ck_assert_uint_eq(vmm_auth_n_keys(auth), 1);
    json_decref(one);
    json_decref(two);
}
END_TEST

START_TEST(broken_records_are_kept_aside)
{
    static const char *const broken[] = {"",
                                         "{",
                                         "[]",
                                         "{\"id\":1}",
                                         "\xff\xfe",
                                         "{\"id\":\"aaaaaaaaaaaaaaaa\",\"owner\":\"../x\",\"name\":"
                                         "\"\",\"scopes\":[\"admin\"],\"created_ms\":1}",
                                         "{\"id\":\"aaaaaaaaaaaaaaaa\",\"owner\":\"x\",\"name\":"
                                         "\"\",\"scopes\":[\"root\"],\"created_ms\":1}"};
    json_t *good = create("alice", VMM_SCOPE_SESSION);
    struct vmm_identity who;
    struct err err = {0};
    DIR *d;
    struct dirent *entry;
    size_t n_aside = 0;

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        char name[80];

        snprintf(name, sizeof(name), "%064zx.json", i);
        ck_assert_int_eq(vmm_file_write(dir, name, broken[i], strlen(broken[i]), &err), 0);
    }
    open_again();
    ck_assert_int_eq(vmm_auth_check(auth, get(good, "key"), &who), 0);
    d = opendir(dir);
    while ((entry = readdir(d)) != NULL)
        n_aside += strstr(entry->d_name, ".broken-") != NULL;
    closedir(d);
    ck_assert_uint_eq(n_aside, sizeof(broken) / sizeof(broken[0]));
    json_decref(good);
}
END_TEST

START_TEST(scopes_widest_wins)
{
    struct err err = {0};
    enum vmm_scope scope;
    json_t *list = json_pack("[sss]", "read", "admin", "session");
    json_t *wrong = json_pack("[ss]", "read", "root"), *number = json_pack("[i]", 1);

    ck_assert_int_eq(vmm_scopes_parse(list, &scope, &err), 0);
    ck_assert_int_eq(scope, VMM_SCOPE_ADMIN);
    ck_assert_int_eq(vmm_scopes_parse(wrong, &scope, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "scopes[1]"));
    ck_assert_int_eq(vmm_scopes_parse(number, &scope, &err), -EINVAL);
    json_array_clear(list);
    ck_assert_int_eq(vmm_scopes_parse(list, &scope, &err), -EINVAL);
    json_decref(list);
    json_decref(wrong);
    json_decref(number);
}
END_TEST

START_TEST(bearer_field)
{
    ck_assert_str_eq(vmm_auth_bearer("Bearer abc"), "abc");
    ck_assert_str_eq(vmm_auth_bearer("bearer   abc"), "abc");
    ck_assert_ptr_null(vmm_auth_bearer("Basic abc"));
    ck_assert_ptr_null(vmm_auth_bearer("Bearer"));
    ck_assert_ptr_null(vmm_auth_bearer(NULL));
}
END_TEST

START_TEST(owner_names)
{
    char longest[VMM_OWNER_MAX + 2];

    memset(longest, 'a', sizeof(longest));
    longest[VMM_OWNER_MAX] = '\0';
    ck_assert(vmm_owner_valid(longest));
    longest[VMM_OWNER_MAX] = 'a';
    longest[VMM_OWNER_MAX + 1] = '\0';
    ck_assert(!vmm_owner_valid(longest));
    ck_assert(vmm_owner_valid("a.b-c_d+e@f"));
    ck_assert(!vmm_owner_valid(""));
    ck_assert(!vmm_owner_valid(".."));
    ck_assert(!vmm_owner_valid("a/b"));
    ck_assert(!vmm_owner_valid("a b"));
    ck_assert(!vmm_owner_valid("\xc3\xa9"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/auth");
    TCase *tc = tcase_create("keys");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, key_is_known_and_survives_a_restart);
    tcase_add_test(tc, unknown_keys_are_refused);
    tcase_add_test(tc, key_itself_is_nowhere_on_disk);
    tcase_add_test(tc, deleted_key_is_refused_also_after_a_restart);
    tcase_add_test(tc, records_are_found_one_by_one);
    tcase_add_test(tc, broken_records_are_kept_aside);
    tcase_add_test(tc, scopes_widest_wins);
    tcase_add_test(tc, bearer_field);
    tcase_add_test(tc, owner_names);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
