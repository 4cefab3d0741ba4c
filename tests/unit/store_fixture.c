/* SPDX-License-Identifier: MIT */
#include "store_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char base[] = "/tmp/transom-store-XXXXXX"; /* of all tests; main() removes it */
char dir[64];
struct sync_store *store;
struct err err;

void open_store(int64_t quota)
{
    ck_assert_msg(sync_store_open(dir, quota, &store, &err) == 0, "%s", err.msg);
}

void reopen(void)
{
    sync_store_close(store);
    store = NULL;
    open_store(0);
}

void setup(void)
{
    setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    setenv("GIT_CONFIG_SYSTEM", "/dev/null", 1);
    snprintf(dir, sizeof(dir), "%s/XXXXXX", base);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    tr_err_clear(&err);
    ck_assert_int_eq(sync_store_init(&err), 0);
    open_store(0);
}

void teardown(void)
{
    char command[128];

    sync_store_close(store);
    store = NULL;
    sync_store_fini();
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

/* Standard output of a command line in which %D is the store's folder; its exit status is 0. */
char *shell(const char *command)
{
    static char out[1 << 20];
    char full[4096];
    size_t n = 0, len;
    FILE *p;

    for (const char *s = command; *s; s++) {
        if (s[0] == '%' && s[1] == 'D') {
            n += (size_t)snprintf(full + n, sizeof(full) - n, "%s", dir);
            s++;
        } else {
            full[n++] = *s;
        }
    }
    full[n] = '\0';
    p = popen(full, "re");
    ck_assert_ptr_nonnull(p);
    len = fread(out, 1, sizeof(out) - 1, p);
    out[len] = '\0';
    ck_assert_msg(pclose(p) == 0, "%s\n%s", full, out);
    return out;
}

void fsck(void)
{
    char *out = shell("git --git-dir=%D/store.git fsck --full 2>&1");

    /* Contents that a comparison wrote are in no checkpoint yet. */
    ck_assert_msg(strstr(out, "error") == NULL && strstr(out, "missing") == NULL &&
                      strstr(out, "bad") == NULL,
                  "%s", out);
}

int put(const char *path, const char *text)
{
    struct sync_stat st;
    bool created;

    tr_err_clear(&err);
    return sync_store_put_bytes(store, path, strlen(path), text, strlen(text), SYNC_EXEC_KEEP, NULL,
                                &st, &created, &err);
}

void put_ok(const char *path, const char *text)
{
    ck_assert_msg(put(path, text) == 0, "%s", err.msg);
}

void link_ok(const char *path, const char *target)
{
    bool created;

    ck_assert_msg(sync_store_link(store, path, strlen(path), target, NULL, &created, &err) == 0,
                  "%s", err.msg);
}

int drop(const char *path, bool recursive)
{
    tr_err_clear(&err);
    return sync_store_remove(store, path, strlen(path), recursive, NULL, &err);
}

int move(const char *from, const char *to, bool replace)
{
    tr_err_clear(&err);
    return sync_store_move(store, from, strlen(from), to, strlen(to), replace, &err);
}

/* A content as text; NULL: there is none. */
char *get(const char *path)
{
    static char text[4096];
    struct sync_stat st;
    ssize_t n;
    int fd;

    tr_err_clear(&err);
    fd = sync_store_open_file(store, path, strlen(path), &st, &err);
    if (fd < 0)
        return NULL;
    n = read(fd, text, sizeof(text) - 1);
    ck_assert_int_ge((int)n, 0);
    text[n] = '\0';
    close(fd);
    return text;
}

const char *checkpoint(const char *message)
{
    static struct sync_checkpoint c;
    struct sync_left_out left;

    tr_err_clear(&err);
    ck_assert_msg(sync_store_checkpoint(store, message, SYNC_CAUSE_API, "Ann", &c, &left, &err) ==
                      0,
                  "%s", err.msg);
    return strdup(c.id);
}

int add_path(const char *path, size_t len, const struct sync_stat *st, const char *target,
             void *arg)
{
    char *out = arg;

    (void)st;
    (void)target;
    snprintf(out + strlen(out), LIST_SIZE - strlen(out), "%.*s\n", (int)len, path);
    return 0;
}

char *list(const char *folder, bool recursive, const char *after)
{
    static char out[LIST_SIZE];

    out[0] = '\0';
    tr_err_clear(&err);
    ck_assert_msg(
        sync_store_list(store, folder, strlen(folder), recursive, after, add_path, out, &err) == 0,
        "%s", err.msg);
    return out;
}

/* A time stamp is taken at its word once it is old enough to stand for one state of a file. */
void let_it_age(void)
{
    struct timespec start, now;

    clock_gettime(CLOCK_REALTIME, &start);
    do {
        usleep(10000);
        clock_gettime(CLOCK_REALTIME, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 150);
}

int store_main(const char *suite, void (*add)(Suite *s))
{
    Suite *s = suite_create(suite);
    SRunner *sr = srunner_create(s);
    char command[128];
    int n_failed;

    if (mkdtemp(base) == NULL)
        return EXIT_FAILURE;
    add(s);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    snprintf(command, sizeof(command), "rm -rf %s", base);
    if (system(command) != 0)
        return EXIT_FAILURE;
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

TCase *store_tcase(Suite *s, const char *name, int timeout_s)
{
    TCase *tc = tcase_create(name);

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, timeout_s);
    suite_add_tcase(s, tc);
    return tc;
}
