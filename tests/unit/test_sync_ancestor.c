/* SPDX-License-Identifier: MIT */
#include "sync/ancestor.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test-ancestor-XXXXXX", path[64];
static struct sync_state *st, *back;
static struct err why;

static void setup(void)
{
    snprintf(dir + sizeof(dir) - 7, 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/ancestor", dir);
    ck_assert_int_eq(sync_state_new(0, 0, &st), 0);
    ck_assert_int_eq(sync_state_new(0, 0, &back), 0);
}

static void teardown(void)
{
    sync_state_free(st);
    sync_state_free(back);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0); /* no temporary file is left */
}

static void add(const char *name, enum sync_what what, bool is_exec, int id)
{
    struct sync_node *node;

    ck_assert_int_eq(sync_state_put(st, name, strlen(name), &node), 0);
    node->value.what = (uint8_t)what;
    node->value.is_exec = is_exec;
    memset(node->value.id.bytes, id, SYNC_ID_LEN);
    if (what == SYNC_IS_DIR)
        memset(node->value.id.bytes, 0, SYNC_ID_LEN);
}

static void fill(void)
{
    add("a", SYNC_IS_DIR, false, 0);
    add("a/run.sh", SYNC_IS_FILE, true, 1);
    add("a/run.sh~", SYNC_IS_FILE, false, 2);
    add("a/\xff\n\\", SYNC_IS_LINK, false, 3);
    add("b", SYNC_IS_LEFT_OUT, false, 0);
    add("c", SYNC_IS_FILE, false, 0);
}

static void save(uint64_t instance)
{
    uint8_t *bytes;
    size_t len;

    ck_assert_int_eq(sync_ancestor_encode(st, instance, &bytes, &len), 0);
    ck_assert_int_eq(sync_ancestor_write(path, bytes, len, &why), 0);
    free(bytes);
}

static bool load(uint64_t instance)
{
    bool is_fresh;

    ck_assert_int_eq(sync_ancestor_read(path, instance, back, &is_fresh, &why), 0);
    if (is_fresh)
        ck_assert_uint_eq(sync_state_count(back), 0);
    return !is_fresh;
}

START_TEST(what_was_written_comes_back)
{
    struct sync_cursor c;

    fill();
    save(7);
    save(7); /* over itself */
    ck_assert(load(7));
    ck_assert_uint_eq(sync_state_count(back), 5);
    for (sync_cursor_start(&c, back, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c)) {
        const struct sync_node *node = sync_cursor_get(&c);
        const struct sync_node *was = sync_state_get(st, node->path, node->len);

        ck_assert_ptr_nonnull(was);
        ck_assert(sync_value_is_same(&node->value, &was->value));
    }
    sync_state_clear(st);
    save(8);
    ck_assert(load(8));
    ck_assert_uint_eq(sync_state_count(back), 0);
}
END_TEST

START_TEST(missing_or_of_another_instance_is_fresh)
{
    ck_assert(!load(1));
    ck_assert_str_eq(why.msg, "");
    fill();
    save(1);
    ck_assert(!load(2));
    ck_assert_ptr_nonnull(strstr(why.msg, "another instance"));
    ck_assert(load(1));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!load(1));
    ck_assert_str_ne(why.msg, "");
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(each_damaged_byte_and_each_cut_is_noticed)
{
    uint8_t *bytes;
    size_t len;

    fill();
    ck_assert_int_eq(sync_ancestor_encode(st, 7, &bytes, &len), 0);
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            ck_assert_int_eq(sync_ancestor_decode(bytes, len, 7, back), -EBADMSG);
            ck_assert_uint_eq(sync_state_count(back), 0);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
        ck_assert_int_eq(sync_ancestor_decode(bytes, i, 7, back), -EBADMSG);
    }
    ck_assert_int_eq(sync_ancestor_decode(bytes, len, 7, back), 0);
    ck_assert_int_eq(sync_ancestor_write(path, bytes, len / 2, &why), 0);
    ck_assert(!load(7));
    ck_assert_ptr_nonnull(strstr(why.msg, "damaged"));
    free(bytes);
}
END_TEST

START_TEST(a_folder_that_is_gone_is_named)
{
    ck_assert_int_eq(sync_ancestor_write("/nonexistent/x", "", 0, &why), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why.msg, "/nonexistent/x"));
}
END_TEST

START_TEST(over_the_limits_is_fresh)
{
    struct sync_state *small;
    bool is_fresh;

    fill();
    save(7);
    ck_assert_int_eq(sync_state_new(3, 0, &small), 0);
    ck_assert_int_eq(sync_ancestor_read(path, 7, small, &is_fresh, &why), 0);
    ck_assert(is_fresh);
    ck_assert_uint_eq(sync_state_count(small), 0);
    sync_state_free(small);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/ancestor");
    TCase *tc = tcase_create("file");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, what_was_written_comes_back);
    tcase_add_test(tc, missing_or_of_another_instance_is_fresh);
    tcase_add_test(tc, each_damaged_byte_and_each_cut_is_noticed);
    tcase_add_test(tc, a_folder_that_is_gone_is_named);
    tcase_add_test(tc, over_the_limits_is_fresh);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
