/* SPDX-License-Identifier: MIT */
#include "sync/serve.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "tree_fixture.h"

/* One answer, with what it borrowed copied. */
struct answer {
    struct sync_msg msg;
    char text[300]; /* name, or the first bytes */
};

static struct sync_serve *serve;
static struct sync_pack *request;
static struct sync_unpack *reply;
static struct answer answers[2000];
static size_t n_answers, n_bytes, most_output;

static void begin(enum sync_serve_kind kind)
{
    ck_assert_int_eq(sync_serve_new(kind, &fx_tree, &serve), 0);
    ck_assert_int_eq(sync_pack_new(true, &request), 0);
    ck_assert_int_eq(sync_unpack_new(&reply), 0);
    n_answers = n_bytes = most_output = 0;
}

static void teardown(void)
{
    sync_serve_free(serve);
    sync_pack_free(request);
    sync_unpack_free(reply);
    serve = NULL;
    request = NULL;
    reply = NULL;
    fx_teardown();
}

static void ask(const struct sync_msg *msg)
{
    ck_assert_int_eq(sync_pack_add(request, msg), 0);
}

static void ask_path(enum sync_msg_type type, const char *path)
{
    struct sync_msg msg = {.type = type, .path = path, .path_len = strlen(path)};

    ask(&msg);
}

static void keep(const struct sync_msg *msg)
{
    struct answer *a;

    n_bytes += msg->type == SYNC_MSG_PIECE ? msg->len : 0;
    if (n_answers == sizeof(answers) / sizeof(answers[0]))
        return;
    a = &answers[n_answers++];
    a->msg = *msg;
    memset(a->text, 0, sizeof(a->text));
    if (msg->type == SYNC_MSG_ENTRY)
        memcpy(a->text, msg->entry.name, msg->entry.name_len);
    else if (msg->bytes != NULL)
        memcpy(a->text, msg->bytes, msg->len < sizeof(a->text) ? msg->len : sizeof(a->text) - 1);
}

static void take_output(void)
{
    size_t len, at = 0;
    const uint8_t *bytes = sync_serve_output(serve, &len);
    struct sync_msg msg;
    int r;

    most_output = len > most_output ? len : most_output;
    for (;;) {
        r = sync_unpack_next(reply, &msg);
        ck_assert_int_ge(r, 0);
        if (r == 1)
            keep(&msg);
        else if (at < len)
            at += sync_unpack_feed(reply, bytes + at, len - at);
        else
            break;
    }
    sync_serve_taken(serve, len);
}

/* Everything that was asked goes in by pieces; end: and that was all. Returns the last outcome. */
static int run(size_t piece, bool end)
{
    const uint8_t *bytes;
    size_t len, at = 0, eaten = 0;
    int r = SYNC_SERVE_HUNGRY;

    ck_assert_int_eq(sync_pack_flush(request), 0);
    bytes = sync_pack_bytes(request, &len);
    while (r >= 0 && r != SYNC_SERVE_DONE && (r == SYNC_SERVE_MORE || at < len || end)) {
        if (r == SYNC_SERVE_HUNGRY && at < len) {
            size_t n = piece < len - at ? piece : len - at;

            ck_assert_int_eq(sync_serve_input(serve, bytes + at, n), 0);
            at += n;
        } else if (r == SYNC_SERVE_HUNGRY) {
            sync_serve_input_end(serve);
        }
        r = sync_serve_step(serve);
        eaten += sync_serve_eaten(serve);
        take_output();
    }
    if (r >= 0)
        ck_assert_uint_eq(eaten, len);
    sync_pack_taken(request, len);
    return r;
}

START_TEST(folders_are_listed_in_order)
{
    char name[32];
    size_t n = 0;

    fx_mkdir("d");
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "d/%d", i);
        fx_write(name, "");
    }
    begin(SYNC_SERVE_LIST);
    ask_path(SYNC_MSG_DIR, "");
    ask_path(SYNC_MSG_DIR, "none");
    ask_path(SYNC_MSG_DIR, "d");
    ck_assert_int_eq(run(7, true), SYNC_SERVE_DONE);
    ck_assert_uint_eq(n_answers, 3 + 1 + 2 + 1000);
    ck_assert_int_eq(answers[0].msg.type, SYNC_MSG_LISTING);
    ck_assert_int_eq(answers[0].msg.status, 0);
    ck_assert(S_ISDIR(answers[0].msg.sig.mode));
    ck_assert_str_eq(answers[1].text, "d");
    ck_assert_int_eq(answers[2].msg.type, SYNC_MSG_LISTED);
    ck_assert_int_eq(answers[3].msg.type, SYNC_MSG_LISTING);
    ck_assert_int_eq(answers[3].msg.index, 1);
    ck_assert_int_eq(answers[3].msg.status, -ENOENT);
    ck_assert_int_eq(answers[4].msg.index, 2);
    for (size_t i = 5; i < n_answers; i++)
        n += answers[i].msg.type == SYNC_MSG_ENTRY;
    ck_assert_uint_eq(n, 1000);
    ck_assert_int_eq(answers[n_answers - 1].msg.type, SYNC_MSG_LISTED);
}
END_TEST

START_TEST(files_are_hashed_and_read)
{
    struct sync_msg want = {.type = SYNC_MSG_WANT, .path = "big", .path_len = 3, .has_sig = true};
    int fd = open(fx_path("big"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    ck_assert_int_eq(ftruncate(fd, 5000001), 0);
    close(fd);
    fx_write("small", "text");
    begin(SYNC_SERVE_HASH);
    want.sig = fx_sig("big");
    ask(&want);
    want.sig.size++;
    ask(&want);
    ask_path(SYNC_MSG_WANT, "small");
    ask_path(SYNC_MSG_WANT, "none");
    ck_assert_int_eq(run(1000, true), SYNC_SERVE_DONE);
    ck_assert_uint_eq(n_answers, 4);
    ck_assert_uint_eq(answers[0].msg.len, SYNC_HEAD_MAX);
    ck_assert_int_eq(answers[1].msg.status, SYNC_CHANGED);
    ck_assert_str_eq(answers[2].text, "text");
    ck_assert_uint_eq(answers[2].msg.len, 4);
    ck_assert_int_eq(answers[3].msg.status, -ENOENT);
    sync_serve_free(serve);
    sync_pack_free(request);
    sync_unpack_free(reply);

    begin(SYNC_SERVE_READ);
    want.sig.size--;
    ask(&want);
    want.sig.size++;
    ask(&want);
    ask_path(SYNC_MSG_WANT, "small");
    ck_assert_int_eq(run(1000, true), SYNC_SERVE_DONE);
    ck_assert_uint_eq(n_bytes, 5000001 + 4);
    ck_assert_int_eq(answers[0].msg.type, SYNC_MSG_READING);
    ck_assert_int_eq(answers[n_answers - 1].msg.type, SYNC_MSG_READ);
    ck_assert_int_eq(answers[n_answers - 1].msg.status, 0);
    ck_assert_int_eq(answers[n_answers - 4].msg.status, SYNC_CHANGED);
}
END_TEST

START_TEST(what_takes_long_gives_a_sign)
{
    struct sync_msg want = {.type = SYNC_MSG_WANT, .path = "huge", .path_len = 4};
    int fd = open(fx_path("huge"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    int n_steps = 0, r;

    ck_assert_int_eq(ftruncate(fd, INT64_C(1) << 40), 0); /* an hour of work, of which some */
    close(fd);
    begin(SYNC_SERVE_HASH);
    ask(&want);
    ck_assert_int_eq(sync_pack_flush(request), 0);
    {
        size_t len;
        const uint8_t *bytes = sync_pack_bytes(request, &len);

        ck_assert_int_eq(sync_serve_input(serve, bytes, len), 0);
    }
    while (n_answers == 0) {
        r = sync_serve_step(serve);
        ck_assert_int_eq(r, SYNC_SERVE_MORE);
        take_output();
        ck_assert_int_lt(n_steps++, 100);
    }
    ck_assert_int_eq(answers[0].msg.type, SYNC_MSG_ALIVE);
}
END_TEST

START_TEST(output_is_made_as_it_is_taken)
{
    struct sync_msg want = {.type = SYNC_MSG_WANT, .path = "noise", .path_len = 5};
    char *noise = malloc(8 << 20);
    uint32_t x = 1;
    int fd = open(fx_path("noise"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    for (size_t i = 0; i < 8 << 20; i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (char)(x >> 24);
    }
    ck_assert_int_eq(write(fd, noise, 8 << 20), 8 << 20);
    close(fd);
    free(noise);
    begin(SYNC_SERVE_READ);
    ask(&want);
    ck_assert_int_eq(run(65536, true), SYNC_SERVE_DONE);
    ck_assert_uint_eq(n_bytes, 8 << 20);
    ck_assert_uint_lt(most_output, 300000);
}
END_TEST

static void ask_file(const char *path, const char *text, int64_t announced, bool drop)
{
    struct sync_msg msg = {.type = SYNC_MSG_OP, .size = announced};
    size_t len = strlen(text);

    msg.op = (struct sync_op){
        .kind = SYNC_OP_FILE, .path = path, .path_len = strlen(path), .absent = true};
    ask(&msg);
    for (size_t at = 0; at < len; at++) { /* byte by byte */
        msg = (struct sync_msg){
            .type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)text + at, .len = 1};
        ask(&msg);
    }
    msg = (struct sync_msg){.type = drop ? SYNC_MSG_DROP : SYNC_MSG_COMMIT};
    sync_id_of(text, len, &msg.id);
    ask(&msg);
}

START_TEST(operations_are_carried_out_and_answered)
{
    struct sync_msg dir = {.type = SYNC_MSG_OP};

    dir.op = (struct sync_op){.kind = SYNC_OP_DIR, .path = "x/y", .path_len = 3};
    fx_write("there", "mine");
    begin(SYNC_SERVE_APPLY);
    ask_file("a/f", "content", 7, false);
    ask(&dir);
    ask_file("there", "yours", 5, false);
    ask_file("dropped", "half", 9, true);
    ask_file("short", "half", 9, false);
    ask_file("last", "", 0, false);
    ck_assert_int_eq(run(11, true), SYNC_SERVE_DONE);
    ck_assert_uint_eq(n_answers, 6);
    ck_assert_int_eq(answers[0].msg.status, 0);
    ck_assert_int_eq(answers[0].msg.sig.size, 7);
    ck_assert_int_eq(answers[1].msg.status, 0);
    ck_assert_int_eq(answers[2].msg.status, SYNC_CHANGED);
    ck_assert_int_eq(answers[3].msg.status, -ECANCELED);
    ck_assert_int_eq(answers[4].msg.status, -EBADMSG);
    ck_assert_int_eq(answers[5].msg.status, 0);
    ck_assert_int_eq(answers[5].msg.index, 5);
    ck_assert_str_eq(fx_read("a/f"), "content");
    ck_assert_str_eq(fx_read("there"), "mine");
    ck_assert(fx_exists("x/y"));
    ck_assert(fx_exists("last"));
    ck_assert(!fx_exists("dropped"));
    ck_assert(!fx_exists("short"));
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

START_TEST(content_that_was_spoilt_is_not_put)
{
    struct sync_msg msg = {.type = SYNC_MSG_OP, .size = 4};

    begin(SYNC_SERVE_APPLY);
    msg.op = (struct sync_op){.kind = SYNC_OP_FILE, .path = "f", .path_len = 1, .absent = true};
    ask(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)"AAAB", .len = 4};
    ask(&msg);
    msg = (struct sync_msg){.type = SYNC_MSG_COMMIT};
    sync_id_of("AAAA", 4, &msg.id);
    ask(&msg);
    ck_assert_int_eq(run(65536, true), SYNC_SERVE_DONE);
    ck_assert_int_eq(answers[0].msg.status, -EBADMSG);
    ck_assert(!fx_exists("f"));
}
END_TEST

START_TEST(what_has_no_room_does_not_stop_the_rest)
{
    /* Nothing can be staged: its folder's name is taken. */
    fx_write(SYNC_STAGE_NAME, "");
    begin(SYNC_SERVE_APPLY);
    ask_file("f", "content", 7, false);
    ask_path(SYNC_MSG_DIR, "d");
    ck_assert_int_eq(run(65536, false), UV_EPROTO); /* DIR is no operation */
    ck_assert_uint_eq(n_answers, 1);
    ck_assert_int_eq(answers[0].msg.status, -ENOTDIR);
    sync_serve_free(serve);
    sync_pack_free(request);
    sync_unpack_free(reply);
    begin(SYNC_SERVE_APPLY);
    ask_file("f", "content", 7, false);
    ck_assert_int_eq(run(65536, false), SYNC_SERVE_HUNGRY);
    ck_assert_int_eq(unlink(fx_path(SYNC_STAGE_NAME)), 0);
    ask_file("f", "content", 7, false);
    ck_assert_int_eq(run(65536, true), SYNC_SERVE_DONE);
    ck_assert_int_eq(answers[0].msg.status, -ENOTDIR);
    ck_assert_int_eq(answers[1].msg.status, 0);
}
END_TEST

START_TEST(a_request_out_of_order_ends_it)
{
    struct sync_msg piece = {.type = SYNC_MSG_PIECE, .bytes = (const uint8_t *)"xx", .len = 2};
    struct sync_msg op = {.type = SYNC_MSG_OP, .size = 1};
    struct sync_msg commit = {.type = SYNC_MSG_COMMIT};

    op.op = (struct sync_op){.kind = SYNC_OP_FILE, .path = "f", .path_len = 1, .absent = true};
    for (int how = 0; how < 6; how++) {
        begin(how == 4 ? SYNC_SERVE_LIST : how == 5 ? SYNC_SERVE_READ : SYNC_SERVE_APPLY);
        if (how == 0) {
            ask(&piece);
        } else if (how == 1) {
            ask(&commit);
        } else if (how == 2) {
            ask(&op);
            ask(&piece); /* more than announced */
        } else if (how == 3) {
            ask(&op);
            ask(&op);
        } else {
            ask_path(how == 4 ? SYNC_MSG_WANT : SYNC_MSG_DIR, "f");
        }
        ck_assert_int_eq(run(65536, false), UV_EPROTO);
        ck_assert(!fx_exists("f"));
        sync_serve_free(serve);
        sync_pack_free(request);
        sync_unpack_free(reply);
    }
    begin(SYNC_SERVE_APPLY); /* cut in the middle of a file */
    ask(&op);
    ck_assert_int_eq(run(65536, true), UV_EPROTO);
    sync_serve_free(serve);
    serve = NULL;
    ck_assert_uint_eq(fx_count(SYNC_STAGE_NAME), 0);
}
END_TEST

static int refuse_secret(const char *path, size_t len, const struct sync_op *op, void *arg)
{
    ++*(int *)arg;
    if (op != NULL && op->kind == SYNC_OP_LINK)
        return -EPERM;
    return len >= 6 && memcmp(path, "secret", 6) == 0 ? -EACCES : 0;
}

START_TEST(a_guard_has_the_first_word)
{
    static const enum sync_serve_kind kinds[] = {SYNC_SERVE_LIST, SYNC_SERVE_HASH, SYNC_SERVE_READ};
    struct sync_msg link = {.type = SYNC_MSG_OP};
    int n_asked = 0;

    fx_mkdir("secret");
    fx_mkdir("open");
    fx_write("secret/f", "mine");
    fx_write("open/f", "ours");
    for (size_t i = 0; i < 3; i++) {
        begin(kinds[i]);
        sync_serve_guard(serve, refuse_secret, &n_asked);
        ask_path(i == 0 ? SYNC_MSG_DIR : SYNC_MSG_WANT, i == 0 ? "secret" : "secret/f");
        ask_path(i == 0 ? SYNC_MSG_DIR : SYNC_MSG_WANT, i == 0 ? "open" : "open/f");
        ck_assert_int_eq(run(65536, true), SYNC_SERVE_DONE);
        ck_assert_int_eq(answers[0].msg.status, -EACCES);
        ck_assert_uint_eq(answers[0].msg.index, 0);
        ck_assert_int_eq(answers[n_answers - 1].msg.status, 0);
        ck_assert_uint_eq(answers[n_answers - 1].msg.index, 1);
        sync_serve_free(serve);
        sync_pack_free(request);
        sync_unpack_free(reply);
    }
    begin(SYNC_SERVE_APPLY);
    sync_serve_guard(serve, refuse_secret, &n_asked);
    link.op = (struct sync_op){.kind = SYNC_OP_LINK,
                               .path = "l",
                               .path_len = 1,
                               .absent = true,
                               .target = "/etc",
                               .target_len = 4};
    ask(&link);
    ask_file("secret/new", "content", 7, false);
    ask_file("open/new", "content", 7, false);
    ck_assert_int_eq(run(65536, true), SYNC_SERVE_DONE);
    ck_assert_int_eq(answers[0].msg.status, -EPERM);
    ck_assert_int_eq(answers[1].msg.status, -EACCES);
    ck_assert_int_eq(answers[2].msg.status, 0);
    ck_assert(!fx_exists("secret/new"));
    ck_assert(!fx_exists("l"));
    ck_assert_str_eq(fx_read("open/new"), "content");
    ck_assert_int_eq(n_asked, 9);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/serve");
    TCase *tc = tcase_create("serve");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, fx_setup, teardown);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, folders_are_listed_in_order);
    tcase_add_test(tc, files_are_hashed_and_read);
    tcase_add_test(tc, what_takes_long_gives_a_sign);
    tcase_add_test(tc, output_is_made_as_it_is_taken);
    tcase_add_test(tc, operations_are_carried_out_and_answered);
    tcase_add_test(tc, content_that_was_spoilt_is_not_put);
    tcase_add_test(tc, what_has_no_room_does_not_stop_the_rest);
    tcase_add_test(tc, a_request_out_of_order_ends_it);
    tcase_add_test(tc, a_guard_has_the_first_word);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
