/* SPDX-License-Identifier: MIT */
/* Secrets in .git folders that git itself has made. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/git_screen.h"
#include "sync/gitdir.h"

#define SECRET "tok_4f9A-77Zq+/=xY_end"
#define GIT    "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main -c core.compression=9 "

static char dir[64];
static struct sync_secrets secrets;
static uint8_t *stream;
static size_t len;
static int64_t max; /* bytes of objects; 0: as it comes */

static void shell(const char *script)
{
    char command[4096];

    snprintf(command, sizeof(command), "cd %s && { %s; } >&2", dir, script);
    ck_assert_msg(system(command) == 0, "%s", script);
}

static void setup(void)
{
    const struct tr_mask_secret one = {SECRET, strlen(SECRET)};
    struct tr_mask *mask;

    strcpy(dir, "/tmp/test-screen-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    sync_secrets_init(&secrets);
    ck_assert_int_eq(tr_mask_new(&one, 1, &mask), 0);
    sync_secrets_set(&secrets, mask);
    tr_mask_unref(mask);
    shell(GIT "init -q && seq 3000 > a && printf 'more\\n' > b && " GIT "add . && " GIT
              "commit -q -m one");
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
    sync_secrets_fini(&secrets);
    free(stream);
    stream = NULL;
    len = 0;
}

static void read_stream(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct sync_gitdir_pack *pack;
    static uint8_t buf[65536];
    int64_t n;

    free(stream);
    stream = NULL;
    len = 0;
    ck_assert_int_eq(sync_gitdir_pack_new(fd, &pack), 0);
    while ((n = sync_gitdir_pack_next(pack, buf, sizeof(buf))) > 0) {
        stream = realloc(stream, len + (size_t)n);
        ck_assert_ptr_nonnull(stream);
        memcpy(stream + len, buf, (size_t)n);
        len += (size_t)n;
    }
    ck_assert_int_eq(n, 0);
    sync_gitdir_pack_free(pack);
    close(fd);
}

static int screen(size_t step)
{
    struct sync_git_screen *s;
    int r = 0;

    ck_assert_int_eq(sync_git_screen_new(&secrets, max, &s), 0);
    ck_assert_ptr_nonnull(s);
    for (size_t at = 0; at < len && r == 0; at += step)
        r = sync_git_screen_feed(s, stream + at, len - at < step ? len - at : step);
    ck_assert_int_eq(sync_git_screen_feed(s, stream, 0), r);
    sync_git_screen_free(s);
    return r;
}

/* Whatever the pieces. */
static void check_found(const char *what, int found)
{
    static const size_t steps[] = {1, 7, 4096, SIZE_MAX};

    read_stream();
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        ck_assert_msg(screen(steps[i] < len ? steps[i] : len) == found, "%s, in pieces of %zu",
                      what, steps[i]);
}

START_TEST(none_is_found_where_there_is_none)
{
    check_found("a new repository", 0);
    shell(GIT "gc -q");
    check_found("a packed one", 0);
    shell("echo tok_4f9A-77Zq > b && " GIT "commit -q -a -m two");
    check_found("a part of one", 0);
}
END_TEST

START_TEST(in_a_file_of_its_own)
{
    shell(GIT "remote add origin https://x:" SECRET "@example.com/a.git");
    check_found("the address of a remote", 1);
}
END_TEST

START_TEST(in_an_object)
{
    shell("echo 'key = " SECRET "' > c && " GIT "add c");
    check_found("staged", 1);
    shell(GIT "commit -q -m two && " GIT "rm -q c && " GIT "commit -q -m three");
    check_found("of an older commit", 1);
    shell(GIT "gc -q");
    check_found("packed", 1);
}
END_TEST

START_TEST(in_a_submodule)
{
    shell(GIT "init -q --bare .git/modules/objects/sub && echo 'key = " SECRET "' | " GIT
              "-C .git/modules/objects/sub hash-object -w --stdin");
    check_found("an object", 1);
    shell("rm -r .git/modules/objects/sub && echo 'key = " SECRET "' > c && " GIT "add c && " GIT
          "commit -q -m two && " GIT "gc -q && mkdir -p .git/modules/sub && mv .git/objects "
          ".git/modules/sub/ && mkdir .git/objects && rm -rf .git/index");
    check_found("a pack", 1);
}
END_TEST

START_TEST(in_what_differs)
{
    /* The old version is kept as a difference to the new one. */
    shell("sed -i 's/^1500$/"
          "tok_4f9A-77Zq+\\/=xY_end"
          "/' a && " GIT "commit -q -a -m two && sed -i "
          "'s/^tok.*/1500/; $aend' a && " GIT "commit -q -a -m three && " GIT
          "gc -q --aggressive && git verify-pack -v .git/objects/pack/*.idx | grep -q 'chain "
          "length = 2'");
    check_found("a difference", 1);
}
END_TEST

START_TEST(in_a_message)
{
    shell(GIT "commit -q --allow-empty -m 'with " SECRET
              "' && rm -rf .git/logs .git/COMMIT_EDITMSG");
    check_found("a message", 1);
}
END_TEST

START_TEST(in_another_form)
{
    shell("printf %s '" SECRET "' | base64 -w 20 > c && " GIT "add c");
    check_found("base 64", 1);
}
END_TEST

START_TEST(without_secrets_nobody_looks)
{
    struct sync_git_screen *s;

    sync_secrets_set(&secrets, NULL);
    ck_assert_int_eq(sync_git_screen_new(&secrets, 0, &s), 0);
    ck_assert_ptr_null(s);
    ck_assert_int_eq(sync_git_screen_feed(s, (const uint8_t *)SECRET, 10), 0);
    sync_git_screen_free(s);
}
END_TEST

START_TEST(what_grows_without_end)
{
    shell("head -c 3000000 /dev/zero | " GIT "hash-object -w --stdin");
    max = 2000000;
    check_found("more than is looked at", -E2BIG);
    max = 4000000;
    check_found("not more", 0);
    max = 0;
}
END_TEST

START_TEST(damaged_streams)
{
    unsigned seed = 1;

    shell(GIT "gc -q && echo x > c && " GIT "add c");
    read_stream();
    for (int i = 0; i < 2000; i++) {
        size_t at = (size_t)rand_r(&seed) % len;
        uint8_t old = stream[at];

        stream[at] = (uint8_t)rand_r(&seed);
        ck_assert_int_le(screen(1 + (size_t)rand_r(&seed) % 5000), 1);
        if (i % 3 != 0)
            stream[at] = old;
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/git_screen");
    TCase *tc = tcase_create("repositories");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 110);
    tcase_add_test(tc, none_is_found_where_there_is_none);
    tcase_add_test(tc, in_a_file_of_its_own);
    tcase_add_test(tc, in_an_object);
    tcase_add_test(tc, in_a_submodule);
    tcase_add_test(tc, in_what_differs);
    tcase_add_test(tc, in_a_message);
    tcase_add_test(tc, in_another_form);
    tcase_add_test(tc, without_secrets_nobody_looks);
    tcase_add_test(tc, what_grows_without_end);
    tcase_add_test(tc, damaged_streams);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
