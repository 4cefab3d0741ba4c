/* SPDX-License-Identifier: MIT */
/* Each allocation of a conversation fails once: nothing leaks (under ASan), nothing is half done,
 * and what was answered is true. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "alloc_fail.h"
#include "sync/serve.h"
#include "sync/watch.h"
#include "tree_fixture.h"

static size_t n_request;
static uint8_t *request;

static void build(enum sync_serve_kind kind)
{
    struct sync_msg msg = {.type = SYNC_MSG_DIR, .path = "d", .path_len = 1};
    struct sync_pack *pack;
    const uint8_t *bytes;

    ck_assert_int_eq(sync_pack_new(true, &pack), 0);
    if (kind == SYNC_SERVE_HASH || kind == SYNC_SERVE_READ)
        msg.type = SYNC_MSG_WANT;
    if (kind == SYNC_SERVE_APPLY) {
        msg = (struct sync_msg){.type = SYNC_MSG_OP, .size = 4};
        msg.op =
            (struct sync_op){.kind = SYNC_OP_FILE, .path = "new/f", .path_len = 5, .absent = true};
        ck_assert_int_eq(sync_pack_add(pack, &msg), 0);
        msg = (struct sync_msg){.type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)"abcd", .len = 4};
        ck_assert_int_eq(sync_pack_add(pack, &msg), 0);
        msg = (struct sync_msg){.type = SYNC_MSG_COMMIT};
        sync_id_of("abcd", 4, &msg.id);
    } else if (kind != SYNC_SERVE_LIST) {
        msg.path = "d/f";
        msg.path_len = 3;
    }
    ck_assert_int_eq(sync_pack_add(pack, &msg), 0);
    ck_assert_int_eq(sync_pack_flush(pack), 0);
    bytes = sync_pack_bytes(pack, &n_request);
    request = malloc(n_request);
    memcpy(request, bytes, n_request);
    sync_pack_free(pack);
}

/* One conversation. Returns 0 if it came to its end. */
static int converse(enum sync_serve_kind kind, size_t *n_output)
{
    struct sync_serve *serve;
    int r = sync_serve_new(kind, &fx_tree, &serve);

    if (r != 0)
        return r;
    r = sync_serve_input(serve, request, n_request);
    if (r == 0) {
        sync_serve_input_end(serve);
        do {
            r = sync_serve_step(serve);
        } while (r == SYNC_SERVE_MORE);
        (void)sync_serve_output(serve, n_output);
    }
    sync_serve_free(serve);
    return r < 0 ? r : 0;
}

static void prepare(void)
{
    char name[32];

    fx_mkdir("d");
    fx_write("d/f", "content");
    for (int i = 0; i < 50; i++) { /* enough for an answer that is compressed */
        snprintf(name, sizeof(name), "d/file number %d", i);
        fx_write(name, "");
    }
}

START_TEST(a_conversation_without_memory)
{
    enum sync_serve_kind kind = (enum sync_serve_kind)_i;
    size_t n_output = 0;
    bool failed = true;

    prepare();
    build(kind);
    for (long n = 1; failed; n++) {
        int r;

        alloc_fail_at(n);
        r = converse(kind, &n_output);
        failed = alloc_failed();
        /* Compressing, and one file or folder, can be done without. */
        ck_assert(r == 0 || r == UV_ENOMEM);
        ck_assert(failed || r == 0);
        ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
        if (kind == SYNC_SERVE_APPLY && fx_exists("new/f")) {
            ck_assert_str_eq(fx_read("new/f"), "abcd");
            ck_assert_int_eq(unlink(fx_path("new/f")), 0);
        }
        ck_assert_int_lt(n, 1000);
    }
    free(request);
}
END_TEST

static bool on_dirty(const char *dir, size_t len, void *arg)
{
    (void)dir;
    (void)len;
    (*(int *)arg)++;
    return true;
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    (void)dir;
    (void)len;
    ck_assert_int_lt(status, 0);
    (*(int *)arg)++;
}

START_TEST(a_watch_without_memory)
{
    static const struct sync_watch_cbs cbs = {.on_dirty = on_dirty, .on_lost = on_lost};
    bool failed = true;

    prepare();
    for (long n = 1; failed; n++) {
        struct sync_watch *watch;
        int n_told = 0, r;
        uv_loop_t loop;

        ck_assert_int_eq(uv_loop_init(&loop), 0);
        alloc_fail_at(n);
        r = sync_watch_open(&loop, fx_tree.root, &cbs, &n_told, &watch);
        if (r == 0) {
            r = sync_watch_add(watch, "d", 1);
            while (r == 0 && n_told == 0)
                uv_run(&loop, uv_backend_timeout(&loop) == 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
            sync_watch_close(watch);
        }
        failed = alloc_failed();
        ck_assert(r == 0 || (r == UV_ENOMEM && failed));
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&loop), 0);
        ck_assert_int_lt(n, 1000);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/alloc");
    TCase *tc = tcase_create("alloc");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_loop_test(tc, a_conversation_without_memory, SYNC_SERVE_LIST, SYNC_SERVE_APPLY + 1);
    tcase_add_test(tc, a_watch_without_memory);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
