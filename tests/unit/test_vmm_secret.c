/* SPDX-License-Identifier: MIT */
/* Secrets at rest: what opens, what does not, key file and rotation. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/file.h"
#include "vmm/secret.h"

static char dir[64], store[80], keys[80];
static struct vmm_secrets *secrets;
static struct err err;

static int try_open(void)
{
    vmm_secrets_free(secrets);
    secrets = NULL;
    memset(&err, 0, sizeof(err));
    return vmm_secrets_open(store, keys, &secrets, &err);
}

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/transom-secret-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(store, sizeof(store), "%s/secrets", dir);
    snprintf(keys, sizeof(keys), "%s/keys", dir);
    secrets = NULL;
    ck_assert_int_eq(try_open(), 0);
}

static void teardown(void)
{
    vmm_secrets_free(secrets);
    ck_assert_int_eq(vmm_file_remove_tree(dir, &err), 0);
}

static bool set(const char *owner, const char *name, const char *value)
{
    bool created = false;

    ck_assert_int_eq(vmm_secret_set(secrets, owner, name, value, strlen(value), &created, &err), 0);
    return created;
}

static void has(const char *owner, const char *name, const char *want)
{
    const struct vmm_secret *secret = vmm_secret_find(secrets, owner, name);
    uint8_t *value;
    size_t len;

    ck_assert_ptr_nonnull(secret);
    ck_assert_int_eq(vmm_secret_value(secrets, secret, &value, &len, &err), 0);
    ck_assert_uint_eq(len, strlen(want));
    ck_assert_str_eq((char *)value, want);
    free(value);
}

/* Bytes in the middle of a text. */
static void overwrite(char *at, const char *text)
{
    while (*text != '\0')
        *at++ = *text++;
}

static char *slurp(const char *path)
{
    char *text;
    size_t len;

    ck_assert_int_eq(vmm_file_read(path, 1 << 20, &text, &len, &err), 0);
    return text;
}

START_TEST(value_comes_back_and_survives_a_restart)
{
    ck_assert(set("alice", "TOKEN", "it's a \"secret\"\n"));
    ck_assert(!set("alice", "TOKEN", "another one"));
    ck_assert(set("bob", "TOKEN", "bob's"));
    ck_assert(set("alice", "EMPTY", ""));
    for (int i = 0; i < 2; i++) {
        has("alice", "TOKEN", "another one");
        has("bob", "TOKEN", "bob's");
        has("alice", "EMPTY", "");
        ck_assert_ptr_null(vmm_secret_find(secrets, "carol", "TOKEN"));
        ck_assert_int_eq(try_open(), 0);
    }
    ck_assert_int_eq(vmm_secret_delete(secrets, "alice", "TOKEN", &err), 0);
    ck_assert_int_eq(vmm_secret_delete(secrets, "alice", "TOKEN", &err), -ENOENT);
    has("bob", "TOKEN", "bob's");
    ck_assert_int_eq(try_open(), 0);
    ck_assert_ptr_null(vmm_secret_find(secrets, "alice", "TOKEN"));
}
END_TEST

START_TEST(nothing_on_disk_shows_it)
{
    char path[160], *record, *first;
    struct stat st;

    set("alice", "TOKEN", "needle-needle-needle");
    snprintf(path, sizeof(path), "%s/alice/TOKEN.json", store);
    first = record = slurp(path);
    ck_assert_ptr_null(strstr(record, "needle"));
    ck_assert_ptr_null(strstr(record, "6e6565646c65"));
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 077, 0);
    set("alice", "TOKEN", "needle-needle-needle");
    record = slurp(path);
    ck_assert_str_ne(record, first); /* another nonce */
    free(first);
    free(record);
}
END_TEST

/* A record of another owner or name, or one that was changed, does not open. */
START_TEST(records_are_bound_to_their_place)
{
    char from[160], to[160], *record, *at;
    uint8_t *value;
    size_t len;

    set("alice", "TOKEN", "alice's");
    set("bob", "TOKEN", "bob's");
    snprintf(from, sizeof(from), "%s/alice/TOKEN.json", store);
    snprintf(to, sizeof(to), "%s/bob", store);
    record = slurp(from);
    at = strstr(record, "\"alice\"");
    ck_assert_ptr_nonnull(at);
    overwrite(at, "\"bob\"  ");
    ck_assert_int_eq(vmm_file_write(to, "TOKEN.json", record, strlen(record), &err), 0);
    free(record);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_int_eq(
        vmm_secret_value(secrets, vmm_secret_find(secrets, "bob", "TOKEN"), &value, &len, &err),
        -EBADMSG);
    ck_assert_str_eq(err.msg, "secret TOKEN cannot be opened: it was altered, or is another's");
    has("alice", "TOKEN", "alice's");

    record = slurp(from);
    at = strstr(record, "\"data\"");
    at = strchr(at + 6, '"') + 1;
    *at = *at == '0' ? '1' : '0';
    snprintf(to, sizeof(to), "%s/alice", store);
    ck_assert_int_eq(vmm_file_write(to, "TOKEN.json", record, strlen(record), &err), 0);
    free(record);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_int_eq(
        vmm_secret_value(secrets, vmm_secret_find(secrets, "alice", "TOKEN"), &value, &len, &err),
        -EBADMSG);
}
END_TEST

START_TEST(broken_record_is_set_aside)
{
    char path[160];

    set("alice", "TOKEN", "value");
    set("alice", "OTHER", "other");
    snprintf(path, sizeof(path), "%s/alice", store);
    ck_assert_int_eq(vmm_file_write(path, "TOKEN.json", "{", 1, &err), 0);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_ptr_null(vmm_secret_find(secrets, "alice", "TOKEN"));
    has("alice", "OTHER", "other");
}
END_TEST

START_TEST(key_file_must_be_ours_alone)
{
    char path[160];

    set("alice", "TOKEN", "value");
    snprintf(path, sizeof(path), "%s/secret.key", keys);
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(try_open(), -EPERM);
    ck_assert_ptr_nonnull(strstr(err.msg, "chmod 600"));
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_int_eq(vmm_file_write(keys, "secret.key", "{}", 2, &err), 0);
    ck_assert_int_eq(try_open(), -EBADMSG);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(try_open(), -ENOENT); /* a new one could open nothing */
    ck_assert_ptr_nonnull(strstr(err.msg, "backup"));
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    ck_assert_int_eq(try_open(), -EINVAL);
}
END_TEST

START_TEST(rotation)
{
    char path[160], *before, *after;
    size_t n;

    set("alice", "TOKEN", "alice's");
    set("bob", "TOKEN", "bob's");
    snprintf(path, sizeof(path), "%s/secret.key", keys);
    before = slurp(path);
    ck_assert_int_eq(vmm_secrets_rotate(secrets, &n, &err), 0);
    ck_assert_uint_eq(n, 2);
    after = slurp(path);
    ck_assert_str_ne(before, after);
    ck_assert_uint_eq(strlen(before), strlen(after)); /* the old key is gone */
    has("alice", "TOKEN", "alice's");
    ck_assert_int_eq(try_open(), 0);
    has("bob", "TOKEN", "bob's");
    free(before);
    free(after);
}
END_TEST

/* It stops at one that does not open, keeps the old key, and goes on where it stopped. */
START_TEST(rotation_that_was_cut_short)
{
    char folder[160], path[160], *record, *broken;
    size_t n;

    set("alice", "TOKEN", "alice's");
    set("bob", "TOKEN", "bob's");
    snprintf(folder, sizeof(folder), "%s/bob", store);
    snprintf(path, sizeof(path), "%s/bob/TOKEN.json", store);
    record = slurp(path);
    broken = strdup(record);
    overwrite(strchr(strstr(broken, "\"nonce\"") + 7, '"') + 1, "0000");
    ck_assert_int_eq(vmm_file_write(folder, "TOKEN.json", broken, strlen(broken), &err), 0);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_int_eq(vmm_secrets_rotate(secrets, &n, &err), -EBADMSG);
    ck_assert_int_eq(vmm_secrets_rotate(secrets, &n, &err), -EBADMSG);
    ck_assert_int_eq(vmm_file_write(folder, "TOKEN.json", record, strlen(record), &err), 0);
    ck_assert_int_eq(try_open(), 0);
    has("alice", "TOKEN", "alice's");
    has("bob", "TOKEN", "bob's");
    ck_assert_int_eq(vmm_secrets_rotate(secrets, &n, &err), 0);
    ck_assert_int_eq(try_open(), 0);
    has("bob", "TOKEN", "bob's");
    free(record);
    free(broken);
}
END_TEST

START_TEST(names)
{
    static const char *const good[] = {"A", "a_b", "_X", "API_KEY2", "PATHS", "LCX", "__"};
    static const char *const bad[] = {"",         "1X",        "A=B",        "A B",  "a-b",
                                      "\xc3\xa4", "PATH",      "LD_PRELOAD", "HOME", "LC_ALL",
                                      "BASH_ENV", "TRANSOM_X", "_",          "../x"};
    char name[VMM_SECRET_NAME_MAX + 2];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_int_eq(vmm_secret_name_check(good[i], &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(vmm_secret_name_check(bad[i], &err), -EINVAL);
    memset(name, 'x', sizeof(name));
    name[VMM_SECRET_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(vmm_secret_name_check(name, &err), -EINVAL);
    name[VMM_SECRET_NAME_MAX] = '\0';
    ck_assert_int_eq(vmm_secret_name_check(name, &err), 0);
    set("alice", name, "value");
}
END_TEST

START_TEST(values_that_cannot_be)
{
    char *big = malloc(VMM_SECRET_VALUE_MAX + 1);
    bool created;

    memset(big, 'k', VMM_SECRET_VALUE_MAX + 1);
    ck_assert_int_eq(
        vmm_secret_set(secrets, "alice", "V", big, VMM_SECRET_VALUE_MAX + 1, &created, &err),
        -E2BIG);
    ck_assert_int_eq(
        vmm_secret_set(secrets, "alice", "V", big, VMM_SECRET_VALUE_MAX, &created, &err), 0);
    ck_assert_int_eq(try_open(), 0);
    ck_assert_ptr_nonnull(vmm_secret_find(secrets, "alice", "V"));
    ck_assert_int_eq(vmm_secret_set(secrets, "alice", "V", "a\0b", 3, &created, &err), -EINVAL);
    free(big);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm secrets");
    TCase *tc = tcase_create("secrets");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, value_comes_back_and_survives_a_restart);
    tcase_add_test(tc, nothing_on_disk_shows_it);
    tcase_add_test(tc, records_are_bound_to_their_place);
    tcase_add_test(tc, broken_record_is_set_aside);
    tcase_add_test(tc, key_file_must_be_ours_alone);
    tcase_add_test(tc, rotation);
    tcase_add_test(tc, rotation_that_was_cut_short);
    tcase_add_test(tc, names);
    tcase_add_test(tc, values_that_cannot_be);
    suite_add_tcase(s, tc);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
