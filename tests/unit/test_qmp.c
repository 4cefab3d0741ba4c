/* SPDX-License-Identifier: MIT */
#include "vmm/driver/qmp.h"
#include "vmm/driver/qmp_parse.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the parser --- */

static struct err err;
static int n_messages;
static char last[256];

static int on_message(json_t *message, void *arg)
{
    char *text = json_dumps(message, JSON_COMPACT);

    n_messages++;
    (void)snprintf(last, sizeof(last), "%s", text);
    free(text);
    return arg != NULL ? *(int *)arg : 0;
}

static struct qmp_parser parser;

static int feed(const char *text)
{
    return qmp_parse(&parser, text, strlen(text), on_message, NULL, &err);
}

static void parser_setup(void)
{
    n_messages = 0;
    last[0] = '\0';
    tr_err_clear(&err);
    qmp_parser_init(&parser);
}

static void parser_teardown(void)
{
    qmp_parser_fini(&parser);
}

START_TEST(messages_come_whole_however_they_are_cut)
{
    static const char text[] = "{\"a\": 1}\r\n\r\n{\"b\":\"\\n{[\"}\n";
    size_t i;

    for (i = 0; i < sizeof(text) - 1; i++)
        ck_assert_int_eq(qmp_parse(&parser, text + i, 1, on_message, NULL, &err), 0);
    ck_assert_int_eq(n_messages, 2);
    ck_assert_str_eq(last, "{\"b\":\"\\n{[\"}");
    ck_assert_int_eq(feed(text), 0);
    ck_assert_int_eq(n_messages, 4);
}
END_TEST

static const char *const hostile[] = {
    "hello\n",
    "[]\n",
    "1\n",
    "{\n",
    "{}{}\n",
    "{\"a\":1,\"a\":2}\n",
    "{\"a\":\xff\xfe}\n",
    "\"{\"\n",
    "{\"a\":\"\\u0000\"}\n",
};

START_TEST(what_is_not_qmp_is_a_fault)
{
    ck_assert_int_eq(feed(hostile[_i]), UV_EPROTO);
    ck_assert_int_eq(n_messages, 0);
    ck_assert_ptr_nonnull(strstr(err.msg, "QMP"));
}
END_TEST

START_TEST(a_line_without_end_is_bounded)
{
    static char part[4096];
    size_t sent = 0;
    int r = 0;

    memset(part, 'x', sizeof(part));
    while (r == 0 && sent < 4U * QMP_LINE_MAX) {
        r = qmp_parse(&parser, part, sizeof(part), on_message, NULL, &err);
        sent += sizeof(part);
    }
    ck_assert_int_eq(r, UV_EMSGSIZE);
    ck_assert_uint_le(sent, QMP_LINE_MAX + sizeof(part));
    ck_assert_uint_le(parser.size, QMP_LINE_MAX);
}
END_TEST

START_TEST(deep_nesting_is_refused_before_it_recurses)
{
    size_t n = 100000;
    char *text = malloc(n + 2);

    memset(text, '[', n);
    memcpy(text, "{\"a\":", 5);
    text[n] = '\n';
    text[n + 1] = '\0';
    ck_assert_int_eq(feed(text), UV_EPROTO);
    ck_assert_ptr_nonnull(strstr(err.msg, "deep"));
    free(text);
    /* Brackets inside a string are text. */
    qmp_parser_fini(&parser);
    ck_assert_int_eq(feed("{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[\"}\n"),
                     0);
    ck_assert_int_eq(n_messages, 1);
}
END_TEST

START_TEST(a_refusing_receiver_ends_the_parse)
{
    int refuse = UV_ENOTCONN;
    static const char text[] = "{\"a\":1}\n{\"b\":1}\n";

    ck_assert_int_eq(qmp_parse(&parser, text, sizeof(text) - 1, on_message, &refuse, &err),
                     UV_ENOTCONN);
    ck_assert_int_eq(n_messages, 1);
}
END_TEST

/* --- the client, against a peer that is this test --- */

static uv_loop_t loop;
static struct qmp *client;
static int peer;
static int n_ready, n_events, n_closed, close_status, n_replies, reply_status;
static char event_name[32], reply_text[128];

static void on_ready(struct qmp *q, void *arg)
{
    (void)q;
    (void)arg;
    n_ready++;
}

static void on_event(struct qmp *q, const char *name, json_t *data, void *arg)
{
    (void)q;
    (void)data;
    (void)arg;
    n_events++;
    (void)snprintf(event_name, sizeof(event_name), "%s", name);
}

static void on_close(struct qmp *q, int status, const struct err *e, void *arg)
{
    (void)q;
    (void)e;
    (void)arg;
    ck_assert_int_eq(n_closed, 0);
    n_closed++;
    close_status = status;
}

static void on_reply(int status, json_t *value, const struct err *e, void *arg)
{
    (void)arg;
    ck_assert((status == 0) == (value != NULL));
    n_replies++;
    reply_status = status;
    (void)snprintf(reply_text, sizeof(reply_text), "%s", e->msg);
}

static const struct qmp_cbs cbs = {on_ready, on_event, on_close};

static void client_setup(void)
{
    int fds[2];

    n_ready = n_events = n_closed = n_replies = 0;
    close_status = reply_status = 1;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    peer = fds[1];
    ck_assert_int_eq(qmp_open(&loop, fds[0], &cbs, NULL, &client), 0);
}

static void client_teardown(void) /* proves that no handle outlives the client */
{
    (void)close(peer);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(n_closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void say(const char *text)
{
    ck_assert_int_eq(write(peer, text, strlen(text)), (ssize_t)strlen(text));
}

/* Run until the client has sent something, and return it. */
static const char *hear(void)
{
    static char text[1024];
    ssize_t n = -1;

    while (n <= 0) {
        uv_run(&loop, UV_RUN_NOWAIT);
        n = recv(peer, text, sizeof(text) - 1, MSG_DONTWAIT);
    }
    text[n] = '\0';
    return text;
}

static void until(const int *counter)
{
    while (*counter == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void greet(void)
{
    say("{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n");
    ck_assert_ptr_nonnull(strstr(hear(), "\"qmp_capabilities\""));
    say("{\"return\": {}, \"id\": 0}\n");
    until(&n_ready);
}

START_TEST(commands_are_answered_in_turn)
{
    greet();
    ck_assert_int_eq(
        qmp_execute(client, "query-status", json_pack("{s:i}", "x", 1), on_reply, NULL), 0);
    ck_assert_int_eq(n_replies, 0);
    ck_assert_ptr_nonnull(strstr(hear(), "\"arguments\":{\"x\":1}"));
    say("{\"event\": \"STOP\"}\n{\"return\": {\"running\": true}, \"id\": 1}\n");
    until(&n_replies);
    ck_assert_int_eq(reply_status, 0);
    ck_assert_int_eq(n_events, 1);
    ck_assert_str_eq(event_name, "STOP");
}
END_TEST

START_TEST(a_refusal_carries_qemus_words)
{
    greet();
    ck_assert_int_eq(qmp_execute(client, "nonsense", NULL, on_reply, NULL), 0);
    (void)hear();
    say("{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no such thing\"}, \"id\": 1}\n");
    until(&n_replies);
    ck_assert_int_eq(reply_status, UV_EREMOTEIO);
    ck_assert_ptr_nonnull(strstr(reply_text, "no such thing"));
}
END_TEST

START_TEST(open_commands_fail_when_the_connection_ends)
{
    greet();
    ck_assert_int_eq(qmp_execute(client, "quit", NULL, on_reply, NULL), 0);
    ck_assert_int_eq(qmp_execute(client, "quit", NULL, on_reply, NULL), 0);
    (void)hear();
    ck_assert_int_eq(shutdown(peer, SHUT_RDWR), 0);
    until(&n_closed);
    ck_assert_int_eq(n_replies, 2);
    ck_assert_int_eq(reply_status, UV_ECANCELED);
    ck_assert_int_eq(close_status, 0);
}
END_TEST

START_TEST(closing_cancels_and_refuses_more)
{
    greet();
    ck_assert_int_eq(qmp_execute(client, "quit", NULL, on_reply, NULL), 0);
    qmp_close(client);
    qmp_close(client);
    ck_assert_int_eq(n_replies, 0);
    ck_assert_int_eq(qmp_execute(client, "quit", json_object(), on_reply, NULL), UV_ENOTCONN);
    until(&n_closed);
    ck_assert_int_eq(n_replies, 1);
}
END_TEST

static const char *const impostors[] = {
    "{\"return\": {}, \"id\": 0}\n",               /* no greeting */
    "{\"event\": \"STOP\"}\n",                     /* the same */
    "GET / HTTP/1.1\r\n",                          /* another protocol */
    "{\"QMP\": 1}\n{\"return\": {}, \"id\": 7}\n", /* an answer to nothing */
    "{\"QMP\": 1}\n{\"return\": {}}\n",            /* without an id */
    "{\"QMP\": 1}\n{\"return\": {}, \"id\": 0}\n{\"return\": {}, \"id\": 0}\n",
};

START_TEST(an_impostor_is_cut_off)
{
    say(impostors[_i]);
    until(&n_closed);
    ck_assert_int_ne(close_status, 0);
}
END_TEST

START_TEST(too_many_open_commands_are_refused)
{
    int i, r = 0;

    greet();
    for (i = 0; i < 1000 && r == 0; i++)
        r = qmp_execute(client, "query-status", NULL, on_reply, NULL);
    ck_assert_int_eq(r, UV_EBUSY);
    ck_assert_int_lt(i, 100);
    qmp_close(client);
    until(&n_closed);
    ck_assert_int_eq(n_replies, i - 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/driver/qmp");
    TCase *parse = tcase_create("parser"), *talk = tcase_create("client");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(parse, parser_setup, parser_teardown);
    tcase_add_test(parse, messages_come_whole_however_they_are_cut);
    tcase_add_loop_test(parse, what_is_not_qmp_is_a_fault, 0, sizeof(hostile) / sizeof(hostile[0]));
    tcase_add_test(parse, a_line_without_end_is_bounded);
    tcase_add_test(parse, deep_nesting_is_refused_before_it_recurses);
    tcase_add_test(parse, a_refusing_receiver_ends_the_parse);
    tcase_add_checked_fixture(talk, client_setup, client_teardown);
    tcase_add_test(talk, commands_are_answered_in_turn);
    tcase_add_test(talk, a_refusal_carries_qemus_words);
    tcase_add_test(talk, open_commands_fail_when_the_connection_ends);
    tcase_add_test(talk, closing_cancels_and_refuses_more);
    tcase_add_loop_test(talk, an_impostor_is_cut_off, 0, sizeof(impostors) / sizeof(impostors[0]));
    tcase_add_test(talk, too_many_open_commands_are_refused);
    suite_add_tcase(s, parse);
    suite_add_tcase(s, talk);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
